"""The estimate of a connection's round-trip time."""

import pytest

from parley._node.remote.live_connection import LARGEST_ROUND_TRIP, MEASURE_INTERVAL, RoundTrip
from tests.node.network import eventually, meeting


def test_it_is_zero_before_the_first_measurement() -> None:
    assert RoundTrip().estimate == 0.0


def test_it_converges_on_a_steady_round_trip_from_above() -> None:
    round_trip = RoundTrip()
    round_trip.answered(1, 0.3)
    assert round_trip.estimate == pytest.approx(0.9)
    for _ in range(30):
        round_trip.answered(1, 0.3)
    assert 0.3 <= round_trip.estimate < 0.31


def test_it_is_bounded() -> None:
    round_trip = RoundTrip()
    round_trip.answered(1, 1_000.0)
    assert round_trip.estimate == LARGEST_ROUND_TRIP


def test_one_ping_at_a_time_and_not_too_often() -> None:
    round_trip = RoundTrip()
    assert round_trip.is_due(0.0)
    round_trip.sent(7, 0.0)
    assert not round_trip.is_due(MEASURE_INTERVAL * 100)
    round_trip.answered(8, 0.1)  # of another Ping
    assert not round_trip.is_due(MEASURE_INTERVAL * 100)
    round_trip.answered(7, 0.1)
    assert not round_trip.is_due(MEASURE_INTERVAL - 0.1)
    assert round_trip.is_due(MEASURE_INTERVAL)


@pytest.mark.anyio
async def test_a_connection_measures_it() -> None:
    async with meeting() as met:
        live = met.peer.live
        live.measure_round_trip()
        await eventually(lambda: live.round_trip.estimate > 0)
        await met.peer.close()
        live.measure_round_trip()  # Empty if it is closed.
