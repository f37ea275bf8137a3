"""Tests of node/messaging/incoming_calls.py: Chunks behind a Result that has no credit."""

from functools import partial

import pytest

from parley._node.messaging.incoming_calls import BlockedAnswers, IncomingCall
from parley._node.protocol.codes import CALL, RESULT, SIM
from parley._node.protocol.errors import ConnectionClosedError
from tests.node.messaging.fake import FakeConnection, Shell, call_event, cancel_event


def new_call(stream: int, async_id: int = 1) -> IncomingCall:
    return IncomingCall(CALL, "x", {}, stream, async_id, 0, 0)


def new_room() -> tuple[FakeConnection, BlockedAnswers]:
    connection = FakeConnection()
    return connection, BlockedAnswers(connection.as_connection)


def test_there_is_room_where_nothing_waits_and_always_on_stream_1() -> None:
    connection, room = new_room()
    connection.unwritten = {1: 100, 3: 0}
    assert room.is_free(new_call(1))
    assert room.is_free(new_call(3))
    assert (connection.asked, len(room)) == ([], 0)


def test_who_waits_is_woken_once_and_per_stream() -> None:
    connection, room = new_room()
    connection.unwritten = {3: 1, 5: 1}
    calls = [new_call(3), new_call(3, 2), new_call(5)]
    woken: list[int] = []
    for number, call in enumerate(calls):
        call.add_waker(partial(woken.append, number))
        assert not room.is_free(call)
    assert set(connection.asked) == {3, 5}
    room.writable(3)
    room.writable(3)
    assert sorted(woken) == [0, 1]
    room.writable(5)
    assert (sorted(woken), len(room)) == ([0, 1, 2], 0)


def test_an_answered_call_is_forgotten() -> None:
    connection, room = new_room()
    connection.unwritten = {3: 1}
    call = new_call(3)
    assert not room.is_free(call)
    room.forget(call)
    room.forget(call)
    assert len(room) == 0


def test_a_closing_connection_has_none() -> None:
    connection, room = new_room()
    connection.unwritten = {3: 1}
    connection.closed = True
    with pytest.raises(ConnectionClosedError):
        room.is_free(new_call(3))


def test_no_chunk_is_queued_behind_what_waits_on_its_stream() -> None:
    shell = Shell()
    for async_id in (1, 2):
        shell.receive(call_event("x", async_id, stream=3, window=1 << 20))
    first, second = shell.started
    woken: list[int] = []
    second.add_waker(lambda: woken.append(1))
    shell.incoming.answer(first, 0)
    assert not shell.incoming.chunk(second, b"\xa0")
    (result,) = shell.connection.take()
    assert (result.category, result.subcategory) == (SIM, RESULT)
    shell.incoming.stream_writable(3)
    assert woken == [1]
    assert shell.incoming.chunk(second, b"\xa0")


def test_a_cancelled_call_is_waited_for_no_more() -> None:
    shell = Shell()
    shell.receive(call_event("x", 1, stream=3))
    shell.receive(call_event("x", 2, stream=3))
    first, second = shell.started
    woken: list[int] = []
    second.add_waker(lambda: woken.append(1))
    shell.incoming.answer(first, 0)
    assert not shell.incoming.chunk(second, b"\xa0")
    shell.receive(cancel_event(2, stream=3))
    shell.incoming.stream_writable(3)
    assert woken == []
