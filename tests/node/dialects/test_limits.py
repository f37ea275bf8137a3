"""Limits of the dialects: every number has a range, and one outside of it is refused."""

from dataclasses import fields, replace
from typing import Any

import pytest

from parley._node.dialects.limits import RANGES, NamedLimits, RelayLimits, SimProtoLimits
from tests.sweep import sweep

ALL = (SimProtoLimits(), NamedLimits(), RelayLimits())
EACH = [(limits, field.name) for limits in ALL for field in fields(limits)]


@sweep(("limits", "name"), EACH, ids=lambda value: str(value)[:24])
def test_each_number_has_a_range_and_a_default_inside(limits: Any, name: str) -> None:
    least, greatest = RANGES[name]
    assert least <= getattr(limits, name) <= greatest
    kind = type(getattr(limits, name))
    for value in (kind(least), kind(greatest)):
        assert getattr(replace(limits, **{name: value}), name) == value


@sweep(("limits", "name"), EACH, ids=lambda value: str(value)[:24])
def test_what_is_outside_is_refused(limits: Any, name: str) -> None:
    least, greatest = RANGES[name]
    below = least - 1 if type(getattr(limits, name)) is int else least / 2
    for value in (below, greatest + 1, -1, float("nan"), float("inf"), True, "1", None):
        with pytest.raises(ValueError, match=name):
            replace(limits, **{name: value})


def test_a_count_is_no_fraction() -> None:
    with pytest.raises(ValueError, match="a whole number"):
        SimProtoLimits(dialogs=1.5)  # type: ignore[arg-type]  # that is the test
