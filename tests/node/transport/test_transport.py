"""Tests of the write barrier in node/transport/transport.py."""

import pytest

from parley._node.transport.driver import BARRIER_GRACE
from parley._node.transport.transport import HELD_SIZE, WriteBarrier
from tests.node.transport.test_driver import FakeOutlet, Scene


def gated() -> tuple[Scene, WriteBarrier]:
    """Return a connected driver behind a barrier."""
    scene, gate = Scene(), WriteBarrier()
    scene.driver.barrier = gate
    scene.connect()
    scene.core.told.clear()
    return scene, gate


def told(scene: Scene, what: str) -> list[object]:
    """Return the calls of one kind that the core received."""
    return [entry[-1] for entry in scene.core.told if entry[0] == what]


def test_who_waits_goes_on_once_and_in_order() -> None:
    gate, went = WriteBarrier(), []

    def first() -> None:
        went.append(1)

    def second() -> None:
        went.append(2)

    gate.shut()
    for resume in (first, second, first):
        gate.wait(resume)
    gate.reopen()
    gate.reopen()
    assert went == [1, 2]
    gate.wait(first)
    gate.leave(first)
    gate.leave(second)
    gate.reopen()
    assert went == [1, 2]


def test_behind_a_shut_gate_nothing_is_read_and_nothing_leaves() -> None:
    scene, gate = gated()
    gate.shut()
    scene.core.chunks = [b"out"]
    scene.driver.received(b"in")
    scene.driver.received(b"more")
    scene.loop.turn()
    assert told(scene, "receive_data") == []
    assert scene.transport.done == ["pause"]
    assert not scene.loop.due  # and doesn't poll
    gate.reopen()
    scene.loop.turn()
    assert b"".join(told(scene, "receive_data")) == b"inmore"  # type: ignore[arg-type] # bytes
    assert scene.transport.done == ["pause", "resume", b"out"]


def test_a_gate_that_shuts_while_a_turn_is_due_is_seen_then() -> None:
    scene, gate = gated()
    scene.driver.reads.size = 2
    scene.core.on_data = gate.shut
    scene.driver.received(b"abcd")
    scene.loop.turn()
    assert told(scene, "receive_data") == [b"ab"]
    scene.core.on_data = lambda: None
    gate.reopen()
    scene.loop.turn()
    assert told(scene, "receive_data") == [b"ab", b"cd"]


def test_callers_wait_for_room_only_with_much_in_the_queue() -> None:
    scene, gate = gated()
    gate.shut()
    rooms = [scene.driver.can_send]
    scene.core.queued_bytes = scene.driver.high_water + 1
    rooms.append(scene.driver.can_send)
    gate.reopen()
    rooms.append(scene.driver.can_send)
    assert rooms == [True, False, True]


def test_the_core_s_time_stands_still_and_its_grace_lets_it_read_first() -> None:
    scene, gate = gated()
    gate.shut()
    scene.core.deadline = scene.loop.time + 1
    scene.earliest = scene.loop.time + 2
    scene.core.wake()
    scene.loop.turn()
    scene.loop.move(5)
    assert told(scene, "handle_deadline") == []
    assert scene.upper_rang  # but calls still time out
    scene.earliest = float("inf")
    gate.reopen()
    scene.loop.turn()
    scene.loop.move(BARRIER_GRACE / 2)
    assert told(scene, "handle_deadline") == []
    scene.loop.move(BARRIER_GRACE)
    assert told(scene, "handle_deadline")


def test_a_connection_that_ends_waits_no_more() -> None:
    scene, gate = gated()
    gate.shut()
    scene.driver.received(b"last")
    scene.driver.ended()
    assert told(scene, "receive_data") == [b"last"]
    assert scene.closed == 1
    scene.core.told.clear()
    gate.reopen()
    scene.loop.turn()
    assert scene.core.told == []


class Record:
    """A journal whose positions a test sets."""

    def __init__(self) -> None:
        self.recorded = self.safe = 0
        self.gate = WriteBarrier(lambda: self.recorded, lambda: self.safe)
        self.transport = FakeOutlet()
        self.rooms = 0
        self.held = self.gate.guarded(self.transport, self.room)

    def room(self) -> None:
        self.rooms += 1


def test_without_a_record_nothing_is_held() -> None:
    transport = FakeOutlet()
    assert WriteBarrier().guarded(transport, lambda: None) is transport


def test_bytes_leave_in_order_when_their_record_is_safe() -> None:
    record = Record()
    assert record.held.write(b"a")
    record.recorded = 10
    assert record.held.write(b"b")
    record.recorded = 20
    record.held.write(b"c")
    record.held.write_eof()
    record.held.pause_reading()
    record.held.resume_reading()
    assert record.transport.done == [b"a", "pause", "resume"]
    record.safe = 15
    record.gate.release()
    assert record.transport.done[3:] == [b"b"]
    record.safe = 20
    record.gate.release()
    assert record.transport.done[4:] == [b"c", "eof"]
    assert not record.gate.holding
    record.held.write_eof()
    assert record.transport.done[6:] == ["eof"]


@pytest.mark.parametrize("transport_full", [False, True])
def test_what_is_held_is_bounded_and_room_is_said(transport_full: bool) -> None:
    record = Record()
    record.recorded = 1
    assert not record.held.write(bytes(HELD_SIZE))
    record.transport.more = not transport_full
    record.safe = 1
    record.gate.release()
    assert record.rooms == (0 if transport_full else 1)  # otherwise the transport reports it


def test_what_is_held_by_one_that_closes_is_lost() -> None:
    record = Record()
    record.recorded = 1
    record.held.write(b"a")
    record.held.close()
    record.safe = 1
    record.gate.release()
    assert record.transport.done == ["close"]
    assert not record.gate.holding


def test_a_gate_that_retires_holds_nothing_ever_again() -> None:
    record = Record()
    record.recorded = 1
    record.gate.shut()
    record.held.write(b"a")
    record.gate.retire()
    record.recorded = 2
    record.held.write(b"b")
    assert record.transport.done == [b"a", b"b"]
    assert record.gate.open
