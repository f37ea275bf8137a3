"""Tests of node/protocol/config_types.py: each setting has the type of its annotation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from parley._crypto.identity import Identity
from parley._lbm.padding import NO_PADDING, PADME, Padding
from parley._node.backoff import Backoff
from parley._node.bus.config import BusConfig
from parley._node.bus.redis.format import RedisFormat
from parley._node.config import NodeConfig, Tuning
from parley._node.dialects.limits import DialectLimits
from parley._node.errors import ConfigError
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.config_types import check_types, setting
from parley._node.protocol.limits import Limits
from parley._node.settings import Settings
from parley._node.settings.tables import (
    BusSettings,
    DialectSettings,
    FederationSettings,
    JournalSettings,
    NamedSettings,
    RelaySettings,
    ServeSettings,
    SimProtoSettings,
)
from tests.sweep import sweep

# All settings of applications; `Settings` contains those of files.
CLASSES: tuple[Any, ...] = (
    *(NodeConfig, CoreConfig, Limits, BusConfig, RedisFormat, Backoff),
    *(DialectLimits, Tuning, DialectSettings),
    *(ServeSettings, SimProtoSettings, NamedSettings, RelaySettings, JournalSettings, BusSettings),
    FederationSettings,
)
IDENTITY = Identity.create()


def test_no_class_is_missing() -> None:
    assert {type(getattr(Settings(), each.name)) for each in fields(Settings)} <= set(CLASSES)


@sweep(
    ("settings", "name"),
    [(settings, each.name) for settings in CLASSES for each in fields(settings) if each.init],
)
def test_no_setting_takes_just_anything(settings: Any, name: str) -> None:
    identity = {"identity": IDENTITY} if settings is CoreConfig else {}
    for wrong in (object(), {1: 2}, -0.5):
        with pytest.raises(ValueError, match=f"^{name}( is .*)?[:;] "):
            settings(**{**identity, name: wrong})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    count: Annotated[int, setting("A number.", ge=1)] = 1
    seconds: float | None = None
    flag: bool = False
    word: Literal["a", "b"] = "a"
    padding: Padding = NO_PADDING
    path: Path | None = None
    texts: tuple[str, ...] = ()
    pairs: tuple[tuple[str, Any], ...] = ()
    table: Mapping[str, frozenset[str]] = field(default_factory=dict)
    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_types(self, ConfigError)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("seconds", 2, 2.0),
        ("padding", PADME, PADME),
        ("path", "a/b", Path("a/b")),
        ("texts", ["a", "b"], ("a", "b")),
        ("table", {"x": ["a"]}, {"x": frozenset({"a"})}),
        ("table", {"x": {"a"}}, {"x": frozenset({"a"})}),
        ("pairs", [["a", 1], ("b", None)], (("a", 1), ("b", None))),
        ("secret", None, None),
    ],
)
def test_what_is_natural_becomes_what_it_should_be(name: str, value: object, found: object) -> None:
    example = Example(**{name: value})  # type: ignore[arg-type]  # mypy does not know which
    assert getattr(example, name) == found
    assert type(getattr(example, name)) is type(found)


@sweep(
    ("name", "value", "text"),
    [
        ("count", True, "count is True: expected int, got bool"),
        ("count", "5", "count is '5': expected int, got str"),
        ("count", 1.0, "count is 1.0: expected int, got float"),
        ("count", 0, "count is 0: expected int >= 1"),
        ("seconds", "soon", "seconds is 'soon': expected float or None, got str"),
        ("seconds", float("inf"), "seconds is inf: expected a finite number"),
        ("flag", 1, "flag is 1: expected bool, got int"),
        ("word", "c", "word is 'c': expected a or b"),
        ("word", ["a"], "word is ['a']: expected str, got list"),
        ("padding", "padme", "padding is 'padme': expected Padding"),
        ("path", "", "path is '': expected Path, got str"),
        ("texts", "tcp://x", "texts is 'tcp://x': expected list, got str"),
        ("pairs", [["a"]], "pairs is [['a']]: expected list of length 2, got 1 - at $[0]"),
        ("texts", [1], "texts is [1]: expected str, got int - at $[0]"),
        ("table", {"x": "abc"}, "table is {'x': 'abc'}: expected list, got str - at $[...]"),
        ("secret", "hunter2", "secret: expected bytes or None, got str"),
        ("texts", "x" * 200, "texts is '" + "x" * 79 + "...: expected list, got str"),
    ],
)
def test_what_is_not_is_refused_with_a_sentence(name: str, value: object, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Example(**{name: value})  # type: ignore[arg-type]  # that is the test
    assert str(caught.value) == text


def test_what_is_as_it_should_be_stays_the_same() -> None:
    texts, table = ("a",), {"x": frozenset({"a"})}
    example = Example(texts=texts, table=table)
    assert example.texts is texts
    assert example.table is table


def test_a_mapping_is_not_a_dataclass() -> None:
    with pytest.raises(ConfigError, match=r"^formats is .*: expected RedisFormat"):
        BusConfig(formats={"a": {"suffix": "!"}})  # type: ignore[dict-item]  # that is the test
    with pytest.raises(ConfigError, match=r"^limits is {}: expected Limits"):
        NodeConfig(limits={})  # type: ignore[arg-type]  # that is the test
