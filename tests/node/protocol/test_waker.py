"""Tests of node/protocol/waker.py: what is queued wakes the driver."""

from collections.abc import Callable

import pytest

from parley._node.protocol.account import Account
from parley._node.protocol.codes import CALL, MAIN_STREAM, SIM
from parley._node.protocol.connection import Connection
from parley._node.protocol.outbox import Outbox, OutgoingEvent
from parley._node.protocol.waker import Waker
from tests.node.protocol.pair import open_pair

NEVER = float("inf")


def woken(waker: Waker) -> list[int]:
    """How often it woke so far, in a list that grows."""
    times: list[int] = []
    waker.wake = lambda: times.append(len(times))
    return times


def queue(outbox: Outbox, size: int = 1) -> None:
    outbox.put(OutgoingEvent(MAIN_STREAM, 0, SIM, CALL, bytes(size), False, 0), None)


def test_a_core_without_a_driver_wakes_nobody() -> None:
    outbox = Outbox(Account(1 << 20))
    queue(outbox)
    outbox.waker.changed()
    assert outbox.count == 1


def test_what_is_queued_wakes_a_driver_that_sleeps() -> None:
    outbox = Outbox(Account(1 << 20))
    times = woken(outbox.waker)
    queue(outbox)
    outbox.waker.changed()
    assert len(times) == 2


@pytest.mark.parametrize(("count", "size"), [(4, NEVER), (NEVER, 40)])
def test_one_that_will_flush_is_woken_when_much_waits(count: float, size: float) -> None:
    outbox = Outbox(Account(1 << 20))
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
