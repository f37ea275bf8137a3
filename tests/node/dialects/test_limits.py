"""Limits of the dialects: every number has a range, and values outside are rejected."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from parley._node.dialects.limits import (
    DialectLimits,
)

HINTS = get_type_hints(DialectLimits, include_extras=True)


@pytest.mark.parametrize("name", HINTS)
def test_each_number_has_a_range_and_a_default_inside(name: str) -> None:
    (meta,) = HINTS[name].__metadata__
    kind = type(getattr(DialectLimits(), name))
    for value in (meta.ge, meta.le):
        found = getattr(DialectLimits(**{name: kind(value)}), name)
        assert found == value or (name, value) == ("write_buffer", 0)
    below = meta.ge - 1 if kind is int else meta.ge / 2
    wrong: tuple[Any, ...] = (below, meta.le + 1, -1, float("nan"), float("inf"), True, "1", None)
    for value in wrong:
        with pytest.raises(ValueError, match=name):
            DialectLimits(**{name: value})


def test_the_write_buffer_is_half_of_the_clients_memory() -> None:
    assert DialectLimits(client_memory=1 << 20).write_buffer == 1 << 19
    assert DialectLimits(client_memory=1_024).write_buffer == 1_024
    with pytest.raises(ValueError, match="invalid write_buffer 1023"):
        DialectLimits(write_buffer=1_023)


def test_a_count_is_no_fraction() -> None:
    with pytest.raises(ValueError, match=r"requests is 1\.5: expected int"):
        DialectLimits(requests=1.5)  # type: ignore[arg-type]  # that is the test
    assert {field.name for field in fields(DialectLimits)} == HINTS.keys()
