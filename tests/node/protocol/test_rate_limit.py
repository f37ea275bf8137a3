"""Tests of node/protocol/rate_limit.py: a burst, then a steady rate."""

from hypothesis import given
from hypothesis import strategies as st

from parley._node.protocol.rate_limit import Rate, TokenBucket

rates = st.builds(Rate, st.integers(1, 100), st.floats(0.001, 100))


@given(rates, st.floats(0, 1e6))
def test_the_burst_at_once_and_then_one_each_interval(rate: Rate, start: float) -> None:
    allowance = TokenBucket(rate)
    at_once = [allowance.take(start) for _ in range(int(rate.burst) + 2)]
    assert at_once == [True] * int(rate.burst) + [False] * 2
    for turn in range(1, 20):
        assert allowance.take(start + turn * rate.seconds)
        assert not allowance.take(start + turn * rate.seconds)


@given(rates, st.lists(st.floats(0, 50), max_size=60))
def test_never_more_than_burst_and_rate_in_any_span_of_time(
    rate: Rate, pauses: list[float]
) -> None:
    allowance, now, taken = TokenBucket(rate), 0.0, []
    for pause in pauses:
        now += pause * rate.seconds
        if allowance.take(now):
            taken.append(now)
            for count, since in enumerate(reversed(taken), 1):
                assert count <= rate.burst + (now - since) / rate.seconds + 2e-3


def test_a_use_that_was_none_can_be_used_again() -> None:
    allowance = TokenBucket(Rate(2, 10.0))
    assert [allowance.take(0.0), allowance.take(0.0), allowance.take(0.0)] == [True, True, False]
    assert (allowance.next_at(), allowance.is_full(19.9), allowance.is_full(20.0)) == (
        10.0,
        False,
        True,
    )
    allowance.give_back()
    assert [allowance.take(0.0), allowance.take(9.9), allowance.take(10.0)] == [True, False, True]
