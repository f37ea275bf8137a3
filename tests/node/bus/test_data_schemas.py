"""Schemas: data that they reject, invalid schemas, without any download."""

import socket
import sys
from typing import Any

import pytest

from parley._node.bus.data import LONGEST_TEXT, REMEMBERED, Schemas
from parley._node.bus.errors import InvalidEventError, SchemaViolationError
from parley._node.errors import ConfigError, ParleyError

USER = {
    "type": "object",
    "properties": {"name": {"$ref": "#/$defs/name"}, "tags": {"items": {"type": "string"}}},
    "$defs": {"name": {"type": "string", "maxLength": 5}},
    "required": ["name"],
}


def test_schema_violations() -> None:
    assert Schemas().is_empty
    schemas = Schemas()
    schemas.add("auth.user", USER)
    assert not schemas.is_empty
    schemas.check_published("auth.user", {"name": "eve"})
    schemas.check_published("auth.other", {"name": 1})
    for data, path in (
        ({"name": 1}, "$.name"),
        ({}, "$"),
        ({"name": "eve", "tags": ["a", 2]}, "$.tags[1]"),
    ):
        with pytest.raises(SchemaViolationError) as caught:
            schemas.check_published("auth.user", data)
        assert (caught.value.name, caught.value.path) == ("auth.user", path)
        with pytest.raises(SchemaViolationError, match=r"auth\.user: "):
            schemas.check_consumed("auth.user", data)
    with pytest.raises(SchemaViolationError) as caught:
        schemas.check_published("auth.user", {"name": "\n" + "x" * LONGEST_TEXT})
    assert len(str(caught.value)) < LONGEST_TEXT + 30
    assert "\n" not in str(caught.value)


def test_schema_of_an_api_and_for_one_side() -> None:
    schemas = Schemas()
    schemas.add("auth.*", {"required": ["by"]}, validate="publish")
    schemas.add("auth.user", False, validate="consume")
    schemas.check_published("auth.user", {"by": 1})
    schemas.check_consumed("auth.other", {})
    schemas.check_published("auth.sub.user", {})  # Of another API.
    with pytest.raises(SchemaViolationError, match="by"):
        schemas.check_published("auth.user", {})
    with pytest.raises(SchemaViolationError):
        schemas.check_consumed("auth.user", {"by": 1})
    for number in range(REMEMBERED + 1):  # More than are remembered.
        schemas.check_consumed(f"auth.e{number}", {})
    assert len(schemas._found) == REMEMBERED
    with pytest.raises(SchemaViolationError, match="by"):
        schemas.check_published("auth.late", {})


@pytest.mark.parametrize(
    ("name", "schema", "options", "error"),
    [
        ("auth.user", {"type": "nonsense"}, {}, ConfigError),
        ("auth.user", {"$ref": "#/$defs/missing"}, {}, ConfigError),
        ("auth.user", {"properties": {"a": {"$ref": "http://127.0.0.1:9/a"}}}, {}, ConfigError),
        ("auth.user", 5, {}, ConfigError),
        ("auth.user", {}, {"validate": "never"}, ConfigError),
        ("auth", {}, {}, InvalidEventError),
        (".*", {}, {}, InvalidEventError),
    ],
)
def test_invalid_schemas(
    name: str,
    schema: Any,
    options: dict[str, Any],
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        socket, "socket", None
    )  # A connection attempt would fail with another error.
    schemas = Schemas()
    with pytest.raises(error):
        schemas.add(name, schema, **options)
    assert schemas.is_empty


def test_once_for_each_name() -> None:
    schemas = Schemas()
    schemas.add("auth.user", {"$schema": "http://json-schema.org/draft-07/schema#"})
    with pytest.raises(ParleyError, match="already"):
        schemas.add("auth.user", {})


def test_nested_too_deeply() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"not": deep}
    schemas = Schemas()
    with pytest.raises(ConfigError):
        schemas.add("auth.user", deep)
    schemas.add("auth.tree", {"$ref": "#"})
    with pytest.raises(SchemaViolationError, match="deep"):
        schemas.check_published("auth.tree", {})


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    with pytest.raises(ConfigError, match=r"\[bus\]"):
        Schemas().add("auth.user", {})
