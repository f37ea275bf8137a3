"""The histories of attempts, and their limits."""

from parley._node.bus.dead_letters import LONGEST_ERROR, LONGEST_HISTORY
from parley._node.bus.model import Failure
from parley._node.bus.sqlite.events import failures_of, with_failure


def test_a_history_keeps_the_first_failure_and_the_last_ones() -> None:
    text = None
    for attempt in range(1, LONGEST_HISTORY + 11):
        text = with_failure(text, attempt, "c", 5.0, "no")
        assert len(failures_of(text)) == min(attempt, LONGEST_HISTORY)
    kept = [failure.attempt for failure in failures_of(text)]
    assert kept == [1, *range(12, LONGEST_HISTORY + 11)]


def test_an_error_is_one_bounded_line_of_text() -> None:
    text = with_failure(None, 1, "c", 5.0, "two\nlines \ud800" + "x" * 2 * LONGEST_ERROR)
    (failure,) = failures_of(text)
    assert failure == Failure(1, "c", 5.0, failure.error)
    assert failure.error.startswith("two lines ?x")
    assert len(failure.error) == LONGEST_ERROR


def test_event_without_failures_has_no_history() -> None:
    assert failures_of(None) == []
