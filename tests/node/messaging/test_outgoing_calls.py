"""Tests of node/messaging/outgoing_calls.py: an id is busy until its final answer came."""

import math

import pytest

from parley._lbm import keys
from parley._lbm.errors import LbmEncodeError
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.outgoing_calls import ChunkInbox, OutgoingCall
from parley._node.protocol.codes import (
    CALL,
    CANCEL,
    EMIT,
    NAMED,
    RESULT,
    SIM,
    STREAMED,
    SUBSCRIBE,
    UNSUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LimitReachedError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from parley._node.protocol.limits import EVENT_COST, LARGEST_CREDIT
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.request_ids import LAST_ASYNC_ID
from tests.node.messaging.fake import MAX_PAYLOAD, Shell, chunk_event, event, result_event


def test_a_call_says_what_it_has_and_no_more() -> None:
    shell = Shell()
    shell.outgoing.call("a", None, 0.0, None, shell.wake)
    shell.outgoing.call("b", [1], 0.0, 1.5, shell.wake, {"h": 2})
    shell.outgoing.call("c", None, 0.0, math.inf, shell.wake, {})
    first, second, third = shell.connection.take()
    assert first[:4] == (1, 1, SIM, CALL)
    assert first.cells == {keys.TOPIC: "a"}
    assert second.async_id == 2
    assert second.cells == {
        keys.TOPIC: "b",
        keys.DATA: [1],
        keys.DEADLINE_MS: 1500,
        keys.HEADERS: {"h": 2},
    }
    assert third.cells == {keys.TOPIC: "c"}


@pytest.mark.parametrize(
    ("timeout", "deadline"), [(0, 1), (-5, 1), (1e-9, 1), (1e300, 10**12), (0.0015, 1)]
)
def test_odd_timeouts(timeout: float, deadline: int) -> None:
    shell = Shell()
    shell.ask(timeout)
    (sent,) = shell.connection.take()
    assert sent.cells[keys.DEADLINE_MS] == deadline
    assert shell.calls.deadlines.earliest < math.inf


def test_an_answer_ends_the_call_and_frees_its_id() -> None:
    shell = Shell()
    call = shell.ask(5)
    shell.receive(result_event(call.async_id, 7, "data"), 1.0)
    assert (call.done, call.code, call.data, shell.woken) == (True, 7, "data", 1)
    assert len(shell.calls.deadlines) == 0
    shell.receive(result_event(call.async_id, 0, "again"), 1.0)
    assert (call.code, shell.woken, shell.connection.dropped) == (7, 1, 1)


@pytest.mark.parametrize("payload", [b"", b"junk", b"\xa0", b"\xa1\x10\x20", b"\xa1\x10\x61x"])
def test_a_malformed_answer_is_an_answer(payload: bytes) -> None:
    shell = Shell()
    call = shell.ask()
    shell.receive(event(RESULT, payload, async_id=call.async_id), 1.0)
    assert (call.done, call.code, call.data) == (True, ResultCode.MALFORMED, None)


def test_the_deadline_gives_up_once() -> None:
    shell = Shell()
    call = shell.ask(1.0)
    shell.connection.take()
    shell.calls.expire_calls(0.99)
    assert not call.done
    shell.calls.expire_calls(1.1)
    assert (call.done, call.code, shell.woken) == (True, ResultCode.DEADLINE_EXCEEDED, 1)
    (cancel,) = shell.connection.take()
    assert cancel[:4] == (1, 0, SIM, CANCEL)
    assert cancel.cells == {keys.REQUEST: call.async_id}
    shell.outgoing.cancel(call)
    shell.calls.expire_calls(9.0)
    shell.receive(result_event(call.async_id, 0, "late"), 9.0)
    assert (call.code, call.data, shell.woken) == (ResultCode.DEADLINE_EXCEEDED, None, 1)
    assert shell.connection.take() == []
    assert shell.connection.dropped == 0


def test_a_call_given_up_keeps_its_id_until_its_answer() -> None:
    shell = Shell()
    calls = [shell.ask() for _ in range(LAST_ASYNC_ID)]
    shell.outgoing.cancel(calls[6])
    with pytest.raises(LimitReachedError):
        shell.ask()
    shell.receive(result_event(7, ResultCode.CANCELLED))
    assert shell.ask().async_id == 7
    assert shell.woken == 0


def test_a_call_that_cannot_be_sent_leaves_nothing() -> None:
    shell = Shell()
    with pytest.raises(PayloadTooLargeError):
        shell.outgoing.call("x", bytes(MAX_PAYLOAD), 0.0, 1.0, shell.wake)
    with pytest.raises(LbmEncodeError):
        shell.outgoing.call("x", {1, 2}, 0.0, 1.0, shell.wake)  # type: ignore[arg-type]  # that is the test
    shell.connection.closed = True
    with pytest.raises(ConnectionClosedError):
        shell.ask(1.0)
    assert len(shell.outgoing) == 0
    assert len(shell.calls.deadlines) == 0


def test_giving_up_on_a_closed_connection_is_fine() -> None:
    shell = Shell()
    first, second = shell.ask(), shell.ask(1.0)
    shell.connection.closed = True
    shell.outgoing.cancel(first)
    shell.calls.expire_calls(2.0)
    assert second.code == ResultCode.DEADLINE_EXCEEDED


# Streamed answers.


def test_a_call_names_its_window() -> None:
    shell = Shell()
    shell.outgoing.call("x", None, 0.0, None, shell.wake, window=LARGEST_CREDIT)
    (sent,) = shell.connection.take()
    assert sent.cells == {keys.TOPIC: "x", keys.WINDOW: LARGEST_CREDIT}


@pytest.mark.parametrize("window", [0, -1, LARGEST_CREDIT + 1])
def test_a_window_out_of_range_is_not_sent(window: int) -> None:
    shell = Shell()
    for ask in (shell.outgoing.call, shell.outgoing.subscribe):
        with pytest.raises(ValueError, match="window"):
            ask("x", None, 0.0, None, shell.wake, window=window)
    assert shell.connection.sent == []
    assert len(shell.outgoing) == 0


def test_chunks_go_to_who_reads_them() -> None:
    shell = Shell()
    call = shell.ask()
    call.chunks = ChunkInbox(1000, shell.wake, lambda credit: None, MemoryBudget(1 << 20))
    shell.receive(chunk_event(call.async_id, "a"))
    shell.receive(chunk_event(call.async_id, "b"))
    assert [call.chunks.take(), call.chunks.take()] == ["a", "b"]
    assert not call.done
    shell.receive(result_event(call.async_id, 0))
    assert (call.done, shell.woken, shell.connection.dropped) == (True, 3, 0)


def test_chunks_at_no_credit_are_a_violation() -> None:
    shell = Shell()
    call = shell.ask()
    call.chunks = ChunkInbox(1, shell.wake, lambda credit: None, MemoryBudget(1 << 20))
    shell.receive(chunk_event(call.async_id, "a"))
    with pytest.raises(RemoteProtocolError):
        shell.receive(chunk_event(call.async_id, "b"))


def test_chunks_of_a_call_that_expects_none_cancel_it_once() -> None:
    shell = Shell()
    call = shell.ask(1.0)
    shell.connection.take()
    shell.receive(chunk_event(call.async_id, 1))
    shell.receive(chunk_event(call.async_id, 2))
    (cancel,) = shell.connection.take()
    assert cancel.cells == {keys.REQUEST: call.async_id}
    assert (call.done, call.code, shell.woken) == (True, STREAMED, 1)
    assert len(shell.outgoing) == 1
    shell.receive(result_event(call.async_id, ResultCode.CANCELLED))
    assert (call.code, len(shell.outgoing), len(shell.calls.deadlines)) == (STREAMED, 0, 0)


def test_chunks_that_nobody_waits_for_are_dropped() -> None:
    shell = Shell()
    call = shell.ask()
    call.chunks = ChunkInbox(1000, shell.wake, lambda credit: None, MemoryBudget(1 << 20))
    shell.outgoing.cancel(call)
    for async_id in (call.async_id, 99):
        shell.receive(chunk_event(async_id, 1))
    shell.receive(chunk_event(call.async_id, 1, stream=3))
    assert (len(call.chunks), shell.connection.dropped) == (0, 3)


@pytest.mark.parametrize("window", [None, 1000])
@pytest.mark.parametrize("end", ["given up", "late", "not expected", "no memory"])
def test_chunks_of_a_call_that_is_over_use_up_its_credit(window: int | None, end: str) -> None:
    """Whatever ended it: up to its credit they are dropped, beyond it they are a violation."""
    shell = Shell()
    call = shell.ask(1.0)
    left = window or shell.connection.limits.stream_window
    if window is not None:
        account = MemoryBudget(100 if end == "no memory" else 1 << 20)
        call.chunks = ChunkInbox(window, shell.wake, lambda credit: None, account)
    event = chunk_event(call.async_id, "x" * 30)
    cost = len(event.payload) + EVENT_COST
    if end == "given up":
        shell.outgoing.cancel(call)
    elif end == "late":
        shell.calls.expire_calls(2.0)
    while left > 0:
        shell.receive(event)
        left -= cost
    with pytest.raises(RemoteProtocolError) as caught:
        shell.receive(event)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    shell.receive(result_event(call.async_id, ResultCode.CANCELLED))
    assert len(shell.outgoing) == 0
    assert not any(shell.connection.charged)


def test_chunks_for_an_event_are_charged() -> None:
    shell = Shell()
    emit = shell.outgoing.ask(OutgoingEmit(shell.wake), NAMED, EMIT, b"", 0.0, None)
    shell.receive(chunk_event(emit.async_id, 1))
    assert shell.connection.charged == [True]


# Subscriptions.


def test_subscribe_and_unsubscribe_say_what_they_have() -> None:
    shell = Shell()
    shell.outgoing.subscribe("a", None, 0.0, None, shell.wake)
    shell.outgoing.subscribe("b", 1, 0.0, 5.0, shell.wake, window=9)
    shell.outgoing.unsubscribe("a", 0.0, 5.0, shell.wake)
    first, second, third = shell.connection.take()
    assert [event[:4] for event in (first, second, third)] == [
        (1, 1, SIM, SUBSCRIBE),
        (1, 2, SIM, SUBSCRIBE),
        (1, 3, SIM, UNSUBSCRIBE),
    ]
    assert first.cells == {keys.TOPIC: "a"}
    assert second.cells == {keys.TOPIC: "b", keys.DATA: 1, keys.WINDOW: 9}
    assert third.cells == {keys.TOPIC: "a"}


@pytest.mark.parametrize("given_up", [False, True])
def test_on_final_is_told_of_the_answer_whether_somebody_waits_or_not(given_up: bool) -> None:
    shell = Shell()
    told: list[tuple[int, int]] = []
    call = shell.ask()
    call.on_final = lambda code, stream: told.append((code, stream))
    if given_up:
        shell.outgoing.cancel(call)
    cells = {keys.CODE: 0, keys.STREAM: 6}
    shell.receive(event(RESULT, cells, async_id=call.async_id))  # type: ignore[arg-type]  # cells
    assert told == [(0, 6)]
    assert shell.woken == (not given_up)


def test_the_first_answer_is_the_answer() -> None:
    woken: list[str] = []
    call = OutgoingCall(lambda: woken.append("done"))
    assert not call.done
    call.finish(0, "first")
    call.finish(16, "second")
    assert (call.done, call.code, call.data, woken) == (True, 0, "first", ["done"])
