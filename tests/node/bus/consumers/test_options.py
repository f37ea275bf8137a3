"""Options are checked when they are given."""

from datetime import UTC, datetime
from typing import Any

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.options import (
    MOST_BATCH,
    ConsumerOptions,
    check_options,
    require_delay,
)
from parley._node.bus.consumers.registry import LONGEST_CONSUMER, ConsumerNames
from parley._node.bus.errors import InvalidEventError
from parley._node.errors import ConfigError

GOOD: dict[str, Any] = {"batch": 100, "reclaim_after": 60, "max_attempts": 5, "start": "first"}


def test_valid_options() -> None:
    options = check_options(BusConfig(service="shop"), "auth.user", "mailer", **GOOD)
    assert options == ConsumerOptions("auth.user", "shop-mailer", 100, 60.0, 5, "0-0")
    when = datetime.fromtimestamp(1, UTC)
    for start, after in (("new", "$"), ("5-3", "5-2"), (when, f"999-{2**64 - 1}")):
        assert check_options(BusConfig(), "a.b", "g", **{**GOOD, "start": start}).after == after
    assert check_options(BusConfig(), "a.b.dead", "g", **GOOD).max_attempts is None
    assert (
        check_options(BusConfig(), "a.b", "g", **{**GOOD, "batch": MOST_BATCH}).batch == MOST_BATCH
    )


@pytest.mark.parametrize(
    ("name", "group", "options", "error"),
    [
        ("nodot", "g", {}, InvalidEventError),
        ("a.b", "with space", {}, InvalidEventError),
        ("a.b", "g" * 254, {}, InvalidEventError),  # With the prefix of the service.
        ("a.b", "g", {"start": "then"}, InvalidEventError),
        ("a.b", "g", {"batch": 0}, ConfigError),
        ("a.b", "g", {"batch": 1.5}, ConfigError),
        ("a.b", "g", {"batch": MOST_BATCH + 1}, ConfigError),
        ("a.b", "g", {"reclaim_after": 0}, ConfigError),
        ("a.b", "g", {"reclaim_after": float("inf")}, ConfigError),
        ("a.b", "g", {"max_attempts": 0}, ConfigError),
    ],
)
def test_invalid_options(
    name: str, group: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_options(BusConfig(service="shop"), name, group, **{**GOOD, **options})


@pytest.mark.parametrize("delay", [-1.0, float("inf"), float("nan")])
def test_invalid_delays(delay: float) -> None:
    assert require_delay(0) == 0.0
    with pytest.raises(InvalidEventError):
        require_delay(delay)


def test_names_of_consumers() -> None:
    one = check_options(BusConfig(), "a.b", "g", **GOOD)
    other = check_options(BusConfig(), "a.b", "h", **GOOD)
    names = ConsumerNames("m-1")
    assert [names.take(one), names.take(one), names.take(other), names.take(one)] == [
        "m-1",
        "m-1-2",
        "m-1",
        "m-1-3",
    ]
    names.release(one, "m-1-2")
    names.release(one, "m-1")
    assert [names.take(one), names.take(one)] == ["m-1", "m-1-2"]
    ConsumerNames("c" * LONGEST_CONSUMER)
    with pytest.raises(ConfigError):
        ConsumerNames("c" * (LONGEST_CONSUMER + 1))
