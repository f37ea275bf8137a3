"""Delays grow, stay within their limits, and are random."""

import pytest

from parley._node.backoff import Backoff
from parley._node.errors import ConfigError


def test_they_grow_up_to_the_longest() -> None:
    pauses = Backoff(first=0.5, longest=3.0)
    assert [pauses.delay(count, 1.0) for count in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert pauses.delay(10**9, 1.0) == 3.0


def test_the_fraction_spreads_them_over_the_upper_half() -> None:
    pauses = Backoff(first=2.0)
    assert [pauses.delay(1, fraction) for fraction in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    "wrong", [{"first": 0.0}, {"longest": float("inf")}, {"steady": -1.0}, {"longest": 0.1}]
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Backoff(**wrong)
