"""Tests of node/messaging/calls.py: one answer for each call, whatever happens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbm import keys
from lbm.codec import Encodable
from lbm.errors import LbmEncodeError
from node.messaging.calls import Calls, held_size
from node.messaging.pending import LOST, IncomingCall, OutgoingCall
from node.protocol.codes import CALL, CANCEL, NOTIFY, RESULT, SIM, CloseCode, ResultCode
from node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from node.protocol.requests import LAST_ASYNC_ID
from tests.node.messaging.fake import (
    MAX_PAYLOAD,
    FakeConnection,
    call_event,
    cancel_event,
    event,
    result_event,
)


class Shell:
    """What runs the handlers: it only notes what it is told."""

    def __init__(self, **limits: int) -> None:
        self.connection = FakeConnection()
        self.started: list[IncomingCall] = []
        self.stopped: list[IncomingCall] = []
        self.woken = 0
        self.calls = Calls(
            self.connection.as_connection,
            lambda topic: topic != "nobody",
            self.started.append,
            self.stopped.append,
            **limits,
        )

    def ask(self, timeout: float | None = None, now: float = 0.0) -> OutgoingCall:
        return self.calls.call("x", None, now, timeout, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def codes(self) -> list[tuple[int, object]]:
        """The async ids and codes of the answers sent since the last time."""
        sent = self.connection.take()
        assert all((event.category, event.subcategory) == (SIM, RESULT) for event in sent)
        return [(event.async_id, event.cells[keys.CODE]) for event in sent]


# Asking.


def test_a_call_says_what_it_has_and_no_more() -> None:
    shell = Shell()
    shell.calls.call("a", None, 0.0, None, shell.wake)
    shell.calls.call("b", [1], 0.0, 1.5, shell.wake, {"h": 2})
    shell.calls.call("c", None, 0.0, math.inf, shell.wake, {})
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
    assert shell.calls.next_deadline() < math.inf


def test_an_answer_ends_the_call_and_frees_its_id() -> None:
    shell = Shell()
    call = shell.ask(5)
    assert shell.calls.receive(result_event(call.async_id, 7, "data"), 1.0)
    assert (call.done, call.code, call.data, shell.woken) == (True, 7, "data", 1)
    assert shell.calls.next_deadline() == math.inf
    shell.calls.receive(result_event(call.async_id, 0, "again"), 1.0)
    assert (call.code, shell.woken, shell.calls.dropped) == (7, 1, 1)


@pytest.mark.parametrize("payload", [b"", b"junk", b"\xa0", b"\xa1\x10\x20", b"\xa1\x10\x61x"])
def test_a_malformed_answer_is_an_answer(payload: bytes) -> None:
    shell = Shell()
    call = shell.ask()
    shell.calls.receive(event(RESULT, payload, async_id=call.async_id), 1.0)
    assert (call.done, call.code, call.data) == (True, ResultCode.MALFORMED, None)


def test_the_deadline_gives_up_once() -> None:
    shell = Shell()
    call = shell.ask(1.0)
    shell.connection.take()
    shell.calls.handle_deadline(0.99)
    assert not call.done
    shell.calls.handle_deadline(1.1)
    assert (call.done, call.code, shell.woken) == (True, ResultCode.DEADLINE_EXCEEDED, 1)
    (cancel,) = shell.connection.take()
    assert cancel[:4] == (1, 0, SIM, CANCEL)
    assert cancel.cells == {keys.REQUEST: call.async_id}
    shell.calls.give_up(call)
    shell.calls.handle_deadline(9.0)
    shell.calls.receive(result_event(call.async_id, 0, "late"), 9.0)
    assert (call.code, call.data, shell.woken) == (ResultCode.DEADLINE_EXCEEDED, None, 1)
    assert shell.connection.take() == []
    assert shell.calls.dropped == 0


def test_a_call_given_up_keeps_its_id_until_its_answer() -> None:
    shell = Shell()
    calls = [shell.ask() for _ in range(LAST_ASYNC_ID)]
    shell.calls.give_up(calls[6])
    with pytest.raises(LocalProtocolError):
        shell.ask()
    shell.calls.receive(result_event(7, ResultCode.CANCELLED), 0.0)
    assert shell.ask().async_id == 7
    assert shell.woken == 0


def test_a_call_that_cannot_be_sent_leaves_nothing() -> None:
    shell = Shell()
    with pytest.raises(PayloadTooLargeError):
        shell.calls.call("x", bytes(MAX_PAYLOAD), 0.0, 1.0, shell.wake)
    with pytest.raises(LbmEncodeError):
        shell.calls.call("x", {1, 2}, 0.0, 1.0, shell.wake)  # type: ignore[arg-type]  # that is the test
    shell.connection.closed = True
    with pytest.raises(ConnectionClosedError):
        shell.ask(1.0)
    assert len(shell.calls._outgoing) == 0
    assert shell.calls.next_deadline() == math.inf


def test_giving_up_on_a_closed_connection_is_fine() -> None:
    shell = Shell()
    first, second = shell.ask(), shell.ask(1.0)
    shell.connection.closed = True
    shell.calls.give_up(first)
    shell.calls.handle_deadline(2.0)
    assert second.code == ResultCode.DEADLINE_EXCEEDED


# Being asked.


def test_a_handler_gets_what_came() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5, data=[1], deadline=1500, headers={"h": 1}), 10.0)
    shell.calls.receive(call_event("y", 0), 10.0)
    first, second = shell.started
    assert (first.topic, first.data, first.headers) == ("x", [1], {"h": 1})
    assert first.deadline == 11.5
    assert (second.topic, second.data, second.headers, second.deadline) == ("y", None, {}, None)
    assert shell.calls.waiting() == [first, second]


def test_a_call_is_answered_once() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5), 0.0)
    (call,) = shell.started
    shell.calls.answer(call, 0, "first")
    shell.calls.answer(call, 16, "second")
    (sent,) = shell.connection.take()
    assert sent[:4] == (1, 5, SIM, RESULT)
    assert sent.cells == {keys.CODE: 0, keys.DATA: "first"}
    assert shell.calls.waiting() == []
    shell.calls.receive(cancel_event(5), 0.0)
    assert shell.stopped == []


def test_a_call_without_id_gets_no_answer() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 0), 0.0)
    shell.calls.answer(shell.started[0], 0, "x")
    assert shell.connection.sent == []
    assert shell.calls.waiting() == []


def test_an_answer_without_encoding_leaves_the_call_unanswered() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5), 0.0)
    with pytest.raises(LbmEncodeError):
        shell.calls.answer(shell.started[0], 0, object())  # type: ignore[arg-type]  # that is the test
    shell.calls.answer(shell.started[0], 16)
    assert shell.codes() == [(5, 16)]


def test_an_answer_that_is_too_large_is_code_21() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5), 0.0)
    shell.calls.answer(shell.started[0], 0, bytes(MAX_PAYLOAD))
    assert shell.codes() == [(5, ResultCode.PAYLOAD_TOO_LARGE)]


@pytest.mark.parametrize(
    "bad",
    [
        call_event(7, 5),
        call_event("x", 5, deadline="soon"),
        call_event("x", 5, headers=[1]),
        event(CALL, b"junk", async_id=5),
        event(CALL, b"", async_id=5),
        event(CALL, {}, async_id=5),
    ],
)
def test_malformed_calls_are_code_23(bad: object) -> None:
    shell = Shell()
    assert shell.calls.receive(bad, 0.0)  # type: ignore[arg-type]  # an event
    assert shell.codes() == [(5, ResultCode.MALFORMED)]
    assert shell.started == []


def test_an_unknown_topic_is_code_1_and_without_id_nothing() -> None:
    shell = Shell()
    shell.calls.receive(call_event("nobody", 5), 0.0)
    shell.calls.receive(call_event("nobody", 0), 0.0)
    assert shell.codes() == [(5, ResultCode.TOPIC_NOT_FOUND)]
    assert shell.calls.dropped == 1


@pytest.mark.parametrize("second", [call_event("x", 5), call_event("nobody", 5), call_event(1, 5)])
def test_an_id_in_use_is_a_violation(second: object) -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5), 0.0)
    shell.calls.receive(call_event("x", 5, stream=4), 0.0)  # another stream's are its own
    with pytest.raises(RemoteProtocolError) as caught:
        shell.calls.receive(second, 0.0)  # type: ignore[arg-type]  # an event
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    assert len(shell.started) == 2


def test_cancel_answers_and_stops() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5), 0.0)
    shell.calls.receive(cancel_event(5), 0.0)
    assert shell.codes() == [(5, ResultCode.CANCELLED)]
    assert shell.stopped == shell.started
    shell.calls.answer(shell.started[0], 0, "too late")
    shell.calls.receive(cancel_event(5), 0.0)
    shell.calls.receive(cancel_event(6), 0.0)
    shell.calls.receive(cancel_event("x"), 0.0)
    assert shell.codes() == []
    assert shell.calls.dropped == 1
    shell.calls.receive(call_event("x", 5), 0.0)
    assert len(shell.started) == 2


def test_the_deadline_answers_and_stops() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5, deadline=1000), 0.0)
    shell.calls.receive(call_event("x", 0, deadline=1000), 0.0)
    assert 1.0 < shell.calls.next_deadline() < 1.1
    shell.calls.handle_deadline(1.1)
    assert shell.codes() == [(5, ResultCode.DEADLINE_EXCEEDED)]
    assert set(shell.stopped) == set(shell.started)
    assert shell.calls.waiting() == []
    assert shell.calls.next_deadline() == math.inf


def test_a_deadline_beyond_all_clocks() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5, deadline=2**64 - 1), 0.0)
    assert 10**9 <= shell.calls.next_deadline() < 10**9 + 1


# Bounds.


def test_no_more_calls_than_the_bound() -> None:
    shell = Shell(count_limit=2)
    for async_id in (1, 2, 3, 0, 0, 0):
        shell.calls.receive(call_event("x", async_id), 0.0)
    assert shell.codes() == [(3, ResultCode.OVERLOADED)]
    assert shell.calls.dropped == 3
    shell.calls.answer(shell.started[0], 0)
    shell.calls.receive(call_event("x", 0), 0.0)
    shell.calls.receive(call_event("x", 4), 0.0)
    assert len(shell.started) == 4


@pytest.mark.parametrize("async_id", [0, 5])
def test_no_more_bytes_than_the_bound(async_id: int) -> None:
    """Whether they want an answer or not."""
    shell = Shell(size_limit=3000)
    shell.calls.receive(call_event("x", async_id, data=bytes(2000)), 0.0)
    shell.calls.receive(call_event("x", 6, data=bytes(2000)), 0.0)
    assert shell.codes() == [(6, ResultCode.OVERLOADED)]
    shell.calls.answer(shell.started[0], 0)
    shell.calls.receive(call_event("x", 7, data=bytes(2000)), 0.0)
    assert len(shell.started) == 2


def test_small_items_count_as_what_they_hold() -> None:
    shell = Shell(size_limit=10_000)
    heavy: list[Encodable] = [{}] * 100
    shell.calls.receive(call_event("x", 1, data=heavy), 0.0)
    shell.calls.receive(call_event("x", 2, headers={"h": heavy}), 0.0)
    assert shell.codes() == [(2, ResultCode.OVERLOADED)]
    shell.calls.receive(call_event("x", 3, data=bytes(200)), 0.0)
    assert len(shell.started) == 2
    assert held_size({1: [{}, [1, {"a": b"x"}]], 2: "x"}, 5) == 64 * 7


def test_answers_that_are_not_read_count_against_the_bound() -> None:
    shell = Shell(size_limit=3000)
    for async_id in (1, 2):
        shell.calls.receive(call_event("x", async_id), 0.0)
        shell.calls.answer(shell.started[-1], 0, bytes(1500))
    shell.calls.receive(call_event("x", 3), 0.0)
    assert [code for _, code in shell.codes()] == [0, 0, ResultCode.OVERLOADED]
    shell.calls.receive(call_event("x", 4), 0.0)
    assert len(shell.started) == 3


def test_refusals_that_nobody_reads_end_the_connection() -> None:
    shell = Shell()
    # Over all streams: who may open a thousand may not have a thousand times as many.
    shell.connection.unwritten.update({1: LAST_ASYNC_ID, 3: 1})
    with pytest.raises(RemoteProtocolError) as caught:
        shell.calls.receive(call_event("nobody", 5), 0.0)
    assert caught.value.code == CloseCode.OVERLOADED


# Credit.


def test_a_call_holds_its_credit_until_it_is_answered() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5, stream=4, cost=100), 0.0)
    shell.calls.receive(call_event("x", 0, stream=4, cost=101), 0.0)
    assert shell.connection.consumed == []
    for call in shell.started:
        shell.calls.answer(call, 0)
    assert shell.connection.consumed == [(4, 100), (4, 101)]


def test_whatever_else_came_gives_its_credit_back_at_once() -> None:
    shell = Shell()
    shell.calls.receive(call_event("nobody", 5, stream=4, cost=100), 0.0)
    shell.calls.receive(event(CANCEL, {keys.REQUEST: 9}, stream=4, cost=101), 0.0)
    shell.calls.receive(event(RESULT, {keys.CODE: 0}, async_id=9, stream=4, cost=102), 0.0)
    assert not shell.calls.receive(event(NOTIFY, {}, stream=4, cost=103), 0.0)
    assert shell.connection.consumed == [(4, 100), (4, 101), (4, 102)]


# Ends.


def test_the_end_of_the_connection_ends_all() -> None:
    shell = Shell()
    asked = [shell.ask(1.0), shell.ask()]
    given_up = shell.ask()
    shell.calls.give_up(given_up)
    for async_id in (5, 0):
        shell.calls.receive(call_event("x", async_id), 0.0)
    shell.connection.closed = True
    shell.calls.connection_ended(CloseCode.GOING_AWAY, "bye")
    for call in asked:
        assert (call.code, call.close_code, call.close_text) == (LOST, 1, "bye")
    assert shell.woken == 2
    assert set(shell.stopped) == set(shell.started)
    for incoming in shell.started:
        shell.calls.answer(incoming, 0)
    shell.calls.handle_deadline(9.0)
    assert shell.calls.waiting() == []
    assert shell.woken == 2


def test_a_reset_stream_stops_its_handlers_only() -> None:
    shell = Shell()
    for stream, async_id in [(4, 5), (4, 0), (1, 5), (6, 0)]:
        shell.calls.receive(call_event("x", async_id, stream=stream, cost=10), 0.0)
    shell.connection.gone.add(4)
    shell.calls.stream_reset(4)
    assert [call.stream for call in shell.stopped] == [4, 4]
    assert [call.stream for call in shell.calls.waiting()] == [1, 6]
    assert shell.connection.sent == []
    assert shell.connection.consumed == [(4, 10), (4, 10)]


def test_an_answer_on_a_closing_connection_or_a_gone_stream_is_dropped() -> None:
    shell = Shell()
    shell.calls.receive(call_event("x", 5, stream=4), 0.0)
    shell.calls.receive(call_event("x", 6), 0.0)
    shell.connection.gone.add(4)
    shell.calls.answer(shell.started[0], 0)
    shell.connection.closed = True
    shell.calls.answer(shell.started[1], 0, bytes(MAX_PAYLOAD))
    assert shell.connection.sent == []
    assert shell.calls.waiting() == []


@given(st.data())
def test_each_id_gets_exactly_one_answer(data: st.DataObject) -> None:
    """Whatever the order of calls, cancels, answers, deadlines and resets."""
    shell = Shell(count_limit=5, size_limit=300)
    now = 0.0
    open_ids: set[int] = set()
    answered: set[int] = set()
    for number in range(1, 40):
        step = data.draw(st.sampled_from(["call", "call", "cancel", "answer", "time"]))
        if step == "call":
            topic = data.draw(st.sampled_from(["x", "x", "x", "nobody", 5]))
            deadline = data.draw(st.integers(1, 3000))
            shell.calls.receive(call_event(topic, number, deadline=deadline), now)
            open_ids.add(number)
        elif step == "cancel":
            shell.calls.receive(cancel_event(data.draw(st.integers(0, 40))), now)
        elif step == "answer" and shell.started:
            shell.calls.answer(data.draw(st.sampled_from(shell.started)), 0)
        elif step == "time":
            now += data.draw(st.floats(0, 2))
            shell.calls.handle_deadline(now)
        for async_id, _ in shell.codes():
            assert async_id in open_ids
            assert async_id not in answered
            answered.add(async_id)
    assert open_ids - answered == {call.async_id for call in shell.calls.waiting()}
    shell.calls.handle_deadline(now + 10)
    assert {async_id for async_id, _ in shell.codes()} == open_ids - answered
