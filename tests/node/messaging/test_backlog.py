"""Tests of node/messaging/backlog.py: what was written counts no more."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from node.messaging.backlog import _TRIM_EVERY, AnswerBacklog


def test_answers_count_until_they_are_written() -> None:
    waiting = Counter({1: 3, 2: 1})
    backlog = AnswerBacklog(waiting.__getitem__)
    for stream, size in [(1, 10), (1, 20), (1, 30), (2, 5)]:
        backlog.add(stream, size)
    backlog.trim()
    assert backlog.size == 65
    waiting[1] = 1
    backlog.trim()
    assert backlog.size == 35
    waiting.clear()
    backlog.trim()
    assert backlog.size == 0
    assert not backlog._sizes


def test_it_trims_itself() -> None:
    """Many refusals, of which nobody ever asks how much waits."""
    backlog = AnswerBacklog(lambda stream: 0)
    for stream in range(10_000):
        backlog.add(stream, 7)
    assert len(backlog._sizes) < _TRIM_EVERY
    assert backlog.size < 7 * _TRIM_EVERY


def test_other_events_that_wait_make_it_larger_never_smaller() -> None:
    backlog = AnswerBacklog(lambda stream: 100)
    backlog.add(1, 5)
    backlog.trim()
    assert backlog.size == 5


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 100), st.integers(0, 3))))
def test_after_a_trim_it_is_exact(steps: list[tuple[int, int, int]]) -> None:
    queues: dict[int, list[int]] = {1: [], 2: [], 3: []}
    backlog = AnswerBacklog(lambda stream: len(queues[stream]))
    for stream, size, written in steps:
        queues[stream].append(size)
        backlog.add(stream, size)
        assert backlog.size >= sum(map(sum, queues.values()))
        del queues[stream][:written]
        backlog.trim()
        assert backlog.size == sum(map(sum, queues.values()))
