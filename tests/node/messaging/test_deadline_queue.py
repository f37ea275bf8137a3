"""Tests of node/messaging/deadline_queue.py: never early, never forgotten, and no pile."""

from hypothesis import given
from hypothesis import strategies as st

from parley._node.messaging.deadline_queue import NO_SLOT, SPARE, DeadlineQueue

STEP = 1 / 64


def test_nothing_is_due_where_nothing_is_watched() -> None:
    deadlines: DeadlineQueue[str] = DeadlineQueue()
    assert deadlines.earliest == float("inf")
    assert deadlines.pop_due(1e12) == []
    assert len(deadlines) == 0


def test_a_deadline_is_due_at_the_end_of_its_step() -> None:
    deadlines: DeadlineQueue[str] = DeadlineQueue()
    deadlines.add("a", 10.0)
    assert deadlines.earliest == 10.0 + STEP
    assert deadlines.pop_due(10.0) == []
    assert deadlines.pop_due(10.0 + STEP) == ["a"]
    assert deadlines.pop_due(10.0 + STEP) == []
    assert deadlines.earliest == float("inf")


def test_what_is_discarded_is_not_due() -> None:
    deadlines: DeadlineQueue[str] = DeadlineQueue()
    first, second = deadlines.add("a", 1.0), deadlines.add("b", 1.0)
    deadlines.add("c", 2.0)
    first.discard("a")
    first.discard("a")
    assert deadlines.earliest == 1.0 + STEP
    second.discard("b")
    assert deadlines.earliest == 1.0 + STEP  # Not polled yet.
    assert deadlines.pop_due(0.5) == []
    assert deadlines.earliest == 2.0 + STEP
    NO_SLOT.discard("nobody")
    assert deadlines.pop_due(5.0) == ["c"]


def test_a_step_may_be_used_again_after_it_was_emptied() -> None:
    deadlines: DeadlineQueue[str] = DeadlineQueue()
    deadlines.add("a", 1.0).discard("a")
    deadlines.add("b", 1.0)
    assert deadlines.earliest == 1.0 + STEP
    assert deadlines.pop_due(2.0) == ["b"]
    assert deadlines.pop_due(2.0) == []


def test_far_deadlines_that_were_discarded_do_not_pile_up() -> None:
    """As when a peer asks for answers by ever later times, and is answered."""
    deadlines: DeadlineQueue[int] = DeadlineQueue()
    deadlines.add(-1, 1.0)  # keeps the front of the heap occupied
    for number in range(10_000):
        deadlines.add(number, 100.0 + number).discard(number)
    assert len(deadlines.order) <= SPARE + 3
    assert len(deadlines.slots) <= SPARE + 3
    assert deadlines.pop_due(1e9) == [-1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "discard", "due"]),
            st.integers(0, 9),
            st.floats(0, 20, allow_nan=False),
        ),
        max_size=80,
    )
)
def test_it_is_a_table_of_deadlines(steps: list[tuple[str, int, float]]) -> None:
    deadlines: DeadlineQueue[int] = DeadlineQueue()
    model: dict[int, tuple[float, set[int]]] = {}
    now = 0.0
    for step, item, time in steps:
        looked = False
        if step == "add" and item not in model:
            model[item] = now + time, deadlines.add(item, now + time)
        elif step == "discard" and item in model:
            model.pop(item)[1].discard(item)
        elif step == "due":
            now += time
            looked = True
            due = deadlines.pop_due(now)
            assert all(model[late][0] <= now for late in due)
            for late in due:
                del model[late]
            assert all(deadline + STEP > now for deadline, _ in model.values())
        assert len(deadlines) == len(model)
        if model:
            first = min(deadline for deadline, _ in model.values())
            assert deadlines.earliest <= first + STEP
            assert not looked or first < deadlines.earliest
        else:
            assert not looked or deadlines.earliest == float("inf")
