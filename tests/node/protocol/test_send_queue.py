"""Tests of the send queues: turns, credit, dropping."""

from collections.abc import Callable

import pytest

from parley._node.protocol.codes import CALL, DATA, FINISH, MAIN_STREAM, SIM, STREAM
from parley._node.protocol.connection import Connection
from parley._node.protocol.flow_control import SendCredit
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import OUTGOING_WEIGHT, MemoryBudget
from parley._node.protocol.send_queue import OutgoingEvent, SendQueue, Waker
from tests.node.protocol.pair import open_pair


def event(
    stream: int, number: int = 0, cost: int = 0, size: int = 10, releases: int = 0
) -> OutgoingEvent:
    return OutgoingEvent(stream, number, 64, 1, b"x" * size, False, cost, releases)


def drained(outbox: SendQueue) -> list[tuple[int, int]]:
    taken = []
    while one := outbox.take(1):
        taken += [(waiting.stream, waiting.async_id) for waiting in one]
    return taken


def test_empty() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    assert not outbox
    assert not outbox.turns
    assert outbox.take(1) == []
    assert outbox.waiting(1) == 0


def test_streams_take_turns_and_keep_their_order() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    for number in range(3):
        outbox.put(event(3, number), SendCredit(1_000))
    outbox.put(event(1, 7), None)
    outbox.put(event(5, 8), SendCredit(1_000))
    assert drained(outbox) == [(3, 0), (1, 7), (5, 8), (3, 1), (3, 2)]


def test_size_counts_payloads_that_wait() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    outbox.put(event(1, size=5), None)
    outbox.put(event(1, size=7), None)
    assert (outbox.size, outbox.waiting(1)) == (12, 2)
    assert outbox
    assert outbox.turns
    outbox.take(1)
    assert (outbox.size, outbox.waiting(1)) == (7, 1)
    outbox.clear()
    assert (outbox.size, outbox.waiting(1), bool(outbox), bool(outbox.turns)) == (
        0,
        0,
        False,
        False,
    )
    assert outbox.take(1) == []


def test_credit_is_spent_and_one_event_goes_below_zero() -> None:
    outbox, credit = SendQueue(MemoryBudget(1 << 20)), SendCredit(100)
    for number in range(3):
        outbox.put(event(3, number, cost=74), credit)
    assert drained(outbox) == [(3, 0), (3, 1)]
    assert credit.left == 100 - 2 * 74
    assert outbox
    assert not outbox.turns


def test_a_blocked_stream_holds_up_no_other() -> None:
    outbox, credit = SendQueue(MemoryBudget(1 << 20)), SendCredit(0)
    outbox.put(event(3, 1, cost=74), credit)
    outbox.put(event(1, 2), None)
    assert drained(outbox) == [(1, 2)]
    credit.grant(1)
    assert outbox.unblock(3)
    assert not outbox.unblock(3)
    assert not outbox.unblock(5)
    assert drained(outbox) == [(3, 1)]


def test_what_costs_nothing_waits_only_for_its_order() -> None:
    outbox, credit = SendQueue(MemoryBudget(1 << 20)), SendCredit(0)
    outbox.put(event(3, 1, cost=0), credit)
    outbox.put(event(3, 2, cost=74), credit)
    outbox.put(event(3, 3, cost=0), credit)
    assert drained(outbox) == [(3, 1)]


def test_drop_waiting_and_blocked() -> None:
    for blocked in (False, True):
        outbox = SendQueue(MemoryBudget(1 << 20))
        outbox.put(event(3, 1, cost=74), SendCredit(0 if blocked else 10))
        outbox.put(event(3, 2, cost=74), SendCredit(0))
        outbox.put(event(1, 9), None)
        if blocked:
            assert drained(outbox) == [(1, 9)]
        assert [dropped.async_id for dropped in outbox.drop(3)] == [1, 2]
        assert outbox.drop(3) == []
        assert drained(outbox) == ([] if blocked else [(1, 9)])
        assert outbox.size == 0


def test_a_held_stream_waits_for_the_event_that_releases_it() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    outbox.hold(3)
    outbox.put(event(3, 1), SendCredit(1_000))
    outbox.put(event(1, 2), None)
    outbox.put(event(1, 3, releases=3), None)
    outbox.put(event(1, 4), None)
    assert not outbox.unblock(3)  # it doesn't wait for credit
    assert drained(outbox) == [(1, 2), (1, 3), (1, 4), (3, 1)]
    outbox.put(event(3, 5), SendCredit(1_000))
    assert drained(outbox) == [(3, 5)]


def test_holding_a_stream_that_waits_already() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    outbox.put(event(3, 1), SendCredit(1_000))
    outbox.hold(3)
    outbox.hold(3)
    assert drained(outbox) == []
    assert outbox.waiting(3) == 1
    outbox.release(3)
    assert drained(outbox) == [(3, 1)]
    outbox.release(3)  # No change.
    assert not outbox


def test_a_released_stream_still_needs_credit() -> None:
    outbox, credit = SendQueue(MemoryBudget(1 << 20)), SendCredit(0)
    outbox.hold(3)
    outbox.put(event(3, 1, cost=10), credit)
    outbox.release(3)
    assert drained(outbox) == []
    credit.grant(5)
    assert outbox.unblock(3)
    assert drained(outbox) == [(3, 1)]


def test_dropping_what_releases_a_stream_releases_it() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    outbox.hold(3)
    outbox.put(event(3, 1), SendCredit(1_000))
    outbox.put(event(5, 2, releases=3), SendCredit(1_000))
    outbox.drop(5)
    assert drained(outbox) == [(3, 1)]


def test_a_stream_that_was_dropped_is_held_no_more() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    outbox.hold(3)
    outbox.put(event(3, 1), SendCredit(1_000))
    outbox.drop(3)
    outbox.put(event(3, 2), SendCredit(1_000))
    assert drained(outbox) == [(3, 2)]
    outbox.hold(3)
    outbox.clear()
    outbox.put(event(3, 3), SendCredit(1_000))
    assert drained(outbox) == [(3, 3)]


def test_views_become_bytes_of_their_own() -> None:
    outbox, whole = SendQueue(MemoryBudget(1 << 20)), bytes(range(200))
    for number in range(3):
        view = memoryview(whole)[number : number + 10]
        outbox.put(OutgoingEvent(3, number, 64, 1, view), SendCredit(1_000))
    outbox.put(event(1, 7), None)
    outbox.own(3)
    outbox.own(5)  # it has no queued events
    assert (outbox.size, outbox.count, outbox.waiting(3)) == (40, 4, 3)
    payloads = {}
    while taken := outbox.take(1):  # one at a time, so events are not joined
        payloads[taken[0].stream, taken[0].async_id] = taken[0].payload
    assert all(type(payload) is bytes for payload in payloads.values())
    assert [payloads[3, number] for number in range(3)] == [whole[n : n + 10] for n in range(3)]


def data(stream: int, payload: bytes | memoryview) -> OutgoingEvent:
    return OutgoingEvent(stream, 0, STREAM, DATA, payload, False, len(payload) + EVENT_COST)


def test_data_joins_what_waits_last_up_to_a_size() -> None:
    account = MemoryBudget(1 << 20)
    outbox, credit = SendQueue(account), SendCredit(1_000)
    assert not outbox.extend(3, b"nothing waits", 100)
    outbox.put(data(3, memoryview(b"one")), credit)
    assert outbox.extend(3, b"two", 9)
    assert outbox.extend(3, memoryview(b"six"), 9)
    assert not outbox.extend(3, b"!", 9)
    assert (outbox.count, outbox.size, account.held) == (1, 9, 9 + OUTGOING_WEIGHT)
    (event,) = outbox.take(100)
    assert (event.payload, event.cost) == (b"onetwosix", 9 + EVENT_COST)
    assert (credit.left, outbox.size, account.held) == (1_000 - 9 - EVENT_COST, 0, 0)


def test_data_does_not_join_what_is_no_data_or_of_another_stream() -> None:
    outbox, credit = SendQueue(MemoryBudget(1 << 20)), SendCredit(1_000)
    outbox.put(data(3, b"one"), credit)
    outbox.put(event(3, 7, cost=74), credit)
    outbox.put(OutgoingEvent(5, 0, STREAM, FINISH, b"\0"), credit)
    assert not outbox.extend(3, b"two", 100)
    assert not outbox.extend(5, b"two", 100)
    assert drained(outbox) == [(3, 0), (5, 0), (3, 7)]


def test_joined_data_wakes_whoever_writes() -> None:
    outbox, woken = SendQueue(MemoryBudget(1 << 20)), list[int]()
    outbox.waker.wake = lambda: woken.append(outbox.size)
    outbox.waker.count, outbox.waker.size = 1_000, 8
    outbox.put(data(3, b"four"), SendCredit(1_000))
    assert not woken
    assert outbox.extend(3, b"more", 100)
    assert woken == [8]


NEVER = 1 << 62


def woken(waker: Waker) -> list[int]:
    """Return a list with the count of wake-ups, which is updated."""
    times: list[int] = []
    waker.wake = lambda: times.append(len(times))
    return times


def queue(outbox: SendQueue, size: int = 1) -> None:
    outbox.put(OutgoingEvent(MAIN_STREAM, 0, SIM, CALL, bytes(size), False, 0), None)


def test_a_core_without_a_driver_wakes_nobody() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    queue(outbox)
    outbox.waker.changed()
    assert outbox.count == 1


def test_what_is_queued_wakes_a_driver_that_sleeps() -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    times = woken(outbox.waker)
    queue(outbox)
    outbox.waker.changed()
    assert len(times) == 2


@pytest.mark.parametrize(("count", "size"), [(4, NEVER), (NEVER, 40)])
def test_one_that_will_flush_is_woken_when_much_waits(count: int, size: int) -> None:
    outbox = SendQueue(MemoryBudget(1 << 20))
    times = woken(outbox.waker)
    outbox.waker.count, outbox.waker.size = count, size
    for _ in range(3):
        queue(outbox, 10)
        outbox.waker.changed()
    assert times == []
    queue(outbox, 10)
    assert len(times) == 1


Action = Callable[[Connection], object]
ACTIONS: tuple[Action, ...] = (
    lambda core: core.open_stream("x"),
    lambda core: core.ping(0.0),
    lambda core: core.update_keys(0.0),
    lambda core: core.rekey(0.0),
    lambda core: core.send(MAIN_STREAM, 0, SIM, CALL, b""),
    lambda core: core.streams.grant(MAIN_STREAM, 1, 1),
)


@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_has_something_to_say_wakes(action: Action) -> None:
    core = open_pair().a.core
    times = woken(core.outbox.waker)
    action(core)
    assert times


def test_of_a_stream_it_is_woken_for_its_end_and_for_its_report() -> None:
    core = open_pair().a.core
    first, second = core.open_stream("x"), core.open_stream("y")
    times = woken(core.outbox.waker)
    core.notify_writable(first)
    assert len(times) == 1
    core.finish_stream(first)
    core.reset_stream(second, 99)
    assert len(times) == 3


def test_a_stream_that_is_held_no_more_wakes() -> None:
    core = open_pair().a.core
    held = core.open_stream("x")
    core.streams.hold(held)
    core.send_data(held, b"note")
    core.data_to_send(0.0)
    times = woken(core.outbox.waker)
    core.streams.release(held)
    assert times
    assert core.outbox.waiting(held) == 1
    core.data_to_send(0.0)
    assert core.outbox.waiting(held) == 0
