"""Tests of limits: their ranges, the agreement of two sides, and the longest frame."""

from collections.abc import Callable
from fractions import Fraction
from typing import cast

import pytest

from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.limits import NEGOTIATED, Limits, frame_limit
from tests.sweep import sweep

NAMES = sorted(NEGOTIATED)
# Repeated from section 5.
TABLE = {
    "max_payload": (7, 1_024, 67_108_864, 1_048_576),
    "seal_events": (8, 1, 65_536, 64),
    "seal_delay_ms": (9, 0, 60_000, 20),
    "stream_window": (10, 1_024, 67_108_864, 262_144),
    "max_streams": (11, 0, 65_536, 1_024),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_table(name: str) -> None:
    limit = NEGOTIATED[name]
    assert (limit.key, limit.minimum, limit.maximum, limit.default) == TABLE[name]


@pytest.mark.parametrize("name", NAMES)
def test_our_own_must_be_in_range(name: str) -> None:
    _, minimum, maximum, default = TABLE[name]
    for value in (minimum, maximum):
        assert getattr(Limits(**{name: value}), name) == value
    for value in (minimum - 1, maximum + 1):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: value})
    assert getattr(Limits(), name) == default


@sweep("kind", [float, Fraction, str])
@sweep("name", NAMES)
def test_our_own_must_be_ints(name: str, kind: Callable[[int], object]) -> None:
    """Values that equal an int, such as True, have another encoding but the same hash."""
    with pytest.raises(ValueError, match=name):
        Limits(**{name: cast(int, kind(TABLE[name][3]))})


@pytest.mark.parametrize(("name", "value"), [("seal_events", True), ("max_streams", False)])
def test_a_truth_value_is_no_limit(name: str, value: bool) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_reading_the_other_sides(name: str) -> None:
    key, minimum, maximum, default = TABLE[name]
    assert getattr(Limits.from_cells({}), name) == default
    assert getattr(Limits.from_cells({key: minimum}), name) == minimum
    assert getattr(Limits.from_cells({key: maximum}), name) == maximum
    for value in (maximum + 1, 2**64 - 1):
        assert getattr(Limits.from_cells({key: value}), name) == maximum
    for bad in (minimum - 1, -1, -(2**64), True, None, 1.0, "1", b"1", [1], {1: 1}):
        with pytest.raises(LbmDecodeError):
            Limits.from_cells({key: bad})


@pytest.mark.parametrize("name", NAMES)
def test_the_minimum_of_both_holds(name: str) -> None:
    low, high = Limits(**{name: TABLE[name][1]}), Limits(**{name: TABLE[name][2]})
    assert low.agreed_with(high) == high.agreed_with(low)
    assert getattr(low.agreed_with(high), name) == TABLE[name][1]


def test_cells_are_read_back() -> None:
    limits = Limits(2_048, 7, 11, 4_096, 0)
    assert limits.cells() == {7: 2_048, 8: 7, 9: 11, 10: 4_096, 11: 0}
    assert Limits.from_cells(limits.cells()) == limits


@pytest.mark.parametrize(
    ("max_payload", "sealing", "signature", "longest"),
    [
        (1_024, "chain", 64, 16_384),
        (1_024, None, 0, 16_384),
        (16_384 - 105, "chain", 64, 16_384),
        (16_384 - 104, "chain", 64, 16_385),
        (16_384 - 87, "each", 64, 16_385),
        (2**20, "chain", 64, 2**20 + 24 + 64 + 17),
        (2**20, "each", 3_309, 2**20 + 24 + 3_309),
        (2**20, None, 0, 2**20 + 8),
    ],
)
def test_the_longest_frame(
    max_payload: int, sealing: str | None, signature: int, longest: int
) -> None:
    assert frame_limit(max_payload, sealing=sealing, signature_size=signature) == longest
