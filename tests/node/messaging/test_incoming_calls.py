"""Tests of node/messaging/incoming_calls.py: one answer for each request, whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmEncodeError
from parley._node.protocol.codes import (
    CALL,
    CANCEL,
    CHUNK,
    RESULT,
    SIM,
    SUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import (
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import EVENT_COST, LARGEST_CREDIT
from parley._node.protocol.memory_budget import REQUEST_WEIGHT
from parley._node.protocol.reports import WindowReceived
from parley._node.protocol.request_ids import LAST_ASYNC_ID
from tests.node.messaging.fake import MAX_PAYLOAD, Shell, call_event, cancel_event, event


def test_a_handler_gets_what_came() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, data=[1], deadline=1500, headers={"h": 1}), 10.0)
    shell.receive(call_event("y", 0), 10.0)
    first, second = shell.started
    assert (first.topic, first.data, first.headers) == ("x", [1], {"h": 1})
    assert first.deadline == 11.5
    assert (second.topic, second.data, second.headers, second.deadline) == ("y", None, {}, None)
    assert shell.waiting() == [first, second]


def test_a_call_is_answered_once() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5))
    (call,) = shell.started
    shell.incoming.answer(call, 0, "first")
    shell.incoming.answer(call, 16, "second")
    (sent,) = shell.connection.take()
    assert sent[:4] == (1, 5, SIM, RESULT)
    assert sent.cells == {keys.CODE: 0, keys.DATA: "first"}
    assert shell.waiting() == []
    shell.receive(cancel_event(5))
    assert shell.stopped == []


def test_a_call_without_id_gets_no_answer() -> None:
    shell = Shell()
    shell.receive(call_event("x", 0))
    shell.incoming.answer(shell.started[0], 0, "x")
    assert shell.connection.sent == []
    assert shell.waiting() == []


def test_an_answer_without_encoding_leaves_the_call_unanswered() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5))
    with pytest.raises(LbmEncodeError):
        shell.incoming.answer(shell.started[0], 0, object())  # type: ignore[arg-type]  # that is the test
    shell.incoming.answer(shell.started[0], 16)
    assert shell.codes() == [(5, 16)]


def test_an_answer_that_is_too_large_is_code_21() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5))
    shell.incoming.answer(shell.started[0], 0, bytes(MAX_PAYLOAD))
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
    shell.receive(bad)  # type: ignore[arg-type]  # an event
    assert shell.codes() == [(5, ResultCode.MALFORMED)]
    assert shell.started == []


def test_an_unknown_topic_is_code_1_and_without_id_nothing() -> None:
    shell = Shell()
    shell.receive(call_event("nobody", 5))
    shell.receive(call_event("nobody", 0))
    assert shell.codes() == [(5, ResultCode.TOPIC_NOT_FOUND)]
    assert shell.connection.dropped == 1


@pytest.mark.parametrize("second", [call_event("x", 5), call_event("nobody", 5), call_event(1, 5)])
def test_an_id_in_use_is_a_violation(second: object) -> None:
    shell = Shell()
    shell.receive(call_event("x", 5))
    shell.receive(call_event("x", 5, stream=4))  # another stream's are its own
    with pytest.raises(RemoteProtocolError) as caught:
        shell.receive(second)  # type: ignore[arg-type]  # an event
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    assert len(shell.started) == 2


def test_cancel_answers_and_stops() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5))
    shell.receive(cancel_event(5))
    assert shell.codes() == [(5, ResultCode.CANCELLED)]
    assert shell.stopped == shell.started
    shell.incoming.answer(shell.started[0], 0, "too late")
    shell.receive(cancel_event(5))
    shell.receive(cancel_event(6))
    shell.receive(cancel_event("x"))
    assert shell.codes() == []
    assert shell.connection.dropped == 1
    shell.receive(call_event("x", 5))
    assert len(shell.started) == 2


def test_the_deadline_answers_and_stops() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, deadline=1000))
    shell.receive(call_event("x", 0, deadline=1000))
    assert 1.0 < shell.calls.deadlines.earliest < 1.1
    shell.calls.expire_calls(1.1)
    assert shell.codes() == [(5, ResultCode.DEADLINE_EXCEEDED)]
    assert set(shell.stopped) == set(shell.started)
    assert shell.waiting() == []
    assert len(shell.calls.deadlines) == 0


def test_a_deadline_beyond_all_clocks() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, deadline=2**64 - 1))
    assert 10**9 <= shell.calls.deadlines.earliest < 10**9 + 1


# Bounds.


def test_no_more_calls_than_the_bound() -> None:
    shell = Shell(count_limit=2)
    for async_id in (1, 2, 3, 0, 0, 0):
        shell.receive(call_event("x", async_id))
    assert shell.codes() == [(3, ResultCode.OVERLOADED)]
    assert shell.connection.dropped == 3
    shell.incoming.answer(shell.started[0], 0)
    shell.receive(call_event("x", 0))
    shell.receive(call_event("x", 4))
    assert len(shell.started) == 4


@pytest.mark.parametrize("async_id", [0, 5])
def test_no_more_bytes_than_the_bound(async_id: int) -> None:
    """Whether they want an answer or not."""
    shell = Shell(memory=REQUEST_WEIGHT + 3000)
    shell.receive(call_event("x", async_id, data=bytes(2000)))
    shell.receive(call_event("x", 6, data=bytes(2000)))
    assert shell.codes() == [(6, ResultCode.OVERLOADED)]
    shell.incoming.answer(shell.started[0], 0)
    shell.receive(call_event("x", 7, data=bytes(2000)))
    assert len(shell.started) == 2


def test_small_items_count_as_what_they_hold() -> None:
    shell = Shell(memory=2 * REQUEST_WEIGHT + 16_000)
    heavy: list[Encodable] = [{}] * 100
    shell.receive(call_event("x", 1, data=heavy))
    shell.receive(call_event("x", 2, headers={"h": heavy}))
    assert shell.codes() == [(2, ResultCode.OVERLOADED)]
    shell.receive(call_event("x", 3, data=bytes(200)))
    assert len(shell.started) == 2


def test_answers_that_are_not_read_count_against_the_bound() -> None:
    shell = Shell(memory=REQUEST_WEIGHT + 2000)
    for async_id in (1, 2):
        shell.receive(call_event("x", async_id))
        shell.incoming.answer(shell.started[-1], 0, bytes(1500))
    shell.receive(call_event("x", 3))
    assert [code for _, code in shell.codes()] == [0, 0, ResultCode.OVERLOADED]
    shell.receive(call_event("x", 4))
    assert len(shell.started) == 3


@pytest.mark.parametrize("topic", ["nobody", "x"])
def test_answers_that_nobody_reads_end_the_connection(topic: str) -> None:
    shell = Shell()
    # Over all streams: who may open a thousand may not have a thousand times as many.
    shell.connection.unwritten.update({1: LAST_ASYNC_ID, 3: 1})
    with pytest.raises(RemoteProtocolError) as caught:
        shell.receive(call_event(topic, 5))
    assert caught.value.code == CloseCode.OVERLOADED
    assert shell.started == []


# Credit.


def test_a_call_holds_its_credit_until_it_is_answered() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, stream=4, cost=100))
    shell.receive(call_event("x", 0, stream=4, cost=101))
    assert shell.connection.consumed == []
    for call in shell.started:
        shell.incoming.answer(call, 0)
    assert shell.connection.consumed == [(4, 100), (4, 101)]


def test_whatever_else_came_gives_its_credit_back_at_once() -> None:
    shell = Shell()
    shell.receive(call_event("nobody", 5, stream=4, cost=100))
    shell.receive(event(CANCEL, {keys.REQUEST: 9}, stream=4, cost=101))
    assert shell.connection.consumed == [(4, 100), (4, 101)]


# Ends.


def test_a_reset_stream_stops_its_handlers_only() -> None:
    shell = Shell()
    for stream, async_id in [(4, 5), (4, 0), (1, 5), (6, 0)]:
        shell.receive(call_event("x", async_id, stream=stream, cost=10))
    shell.connection.gone.add(4)
    shell.incoming.stream_reset(4)
    assert [call.stream for call in shell.stopped] == [4, 4]
    assert [call.stream for call in shell.waiting()] == [1, 6]
    assert shell.connection.sent == []
    assert shell.connection.consumed == [(4, 10), (4, 10)]


def test_an_answer_on_a_closing_connection_or_a_gone_stream_is_dropped() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, stream=4))
    shell.receive(call_event("x", 6))
    shell.connection.gone.add(4)
    shell.incoming.answer(shell.started[0], 0)
    shell.connection.closed = True
    shell.incoming.answer(shell.started[1], 0, bytes(MAX_PAYLOAD))
    assert shell.connection.sent == []
    assert shell.waiting() == []


@given(st.data())
def test_each_id_gets_exactly_one_answer(data: st.DataObject) -> None:
    """Whatever the order of calls, cancels, answers, deadlines and resets."""
    shell = Shell(count_limit=5, memory=3 * REQUEST_WEIGHT)
    now = 0.0
    open_ids: set[int] = set()
    answered: set[int] = set()
    for number in range(1, 40):
        step = data.draw(st.sampled_from(["call", "call", "cancel", "answer", "time"]))
        if step == "call":
            topic = data.draw(st.sampled_from(["x", "x", "x", "nobody", 5]))
            deadline = data.draw(st.integers(1, 3000))
            shell.receive(call_event(topic, number, deadline=deadline), now)
            open_ids.add(number)
        elif step == "cancel":
            shell.receive(cancel_event(data.draw(st.integers(0, 40))), now)
        elif step == "answer" and shell.started:
            shell.incoming.answer(data.draw(st.sampled_from(shell.started)), 0)
        elif step == "time":
            now += data.draw(st.floats(0, 2))
            shell.calls.expire_calls(now)
        for async_id, _ in shell.codes():
            assert async_id in open_ids
            assert async_id not in answered
            answered.add(async_id)
    assert open_ids - answered == {call.async_id for call in shell.waiting()}
    shell.calls.expire_calls(now + 10)
    assert {async_id for async_id, _ in shell.codes()} == open_ids - answered


# Streamed answers.


ITEM = b"\xa1\x16\x01"
COST = len(ITEM) + EVENT_COST


def chunks(shell: Shell) -> list[tuple[int, int]]:
    """Stream and async id of the Chunks sent since the last time."""
    sent = shell.connection.take()
    assert all((event.category, event.subcategory) == (SIM, CHUNK) for event in sent)
    return [(event.stream, event.async_id) for event in sent]


def count(shell: Shell, window: int | None = None) -> int:
    """How many items fit into the credit of a call."""
    more = {} if window is None else {"window": window}
    shell.receive(call_event("x", 5, **more))
    (call,) = shell.started
    taken = 0
    while shell.incoming.chunk(call, ITEM):
        taken += 1
    assert chunks(shell) == [(1, 5)] * taken
    return taken


@pytest.mark.parametrize(
    ("window", "items"), [(1, 1), (COST, 1), (COST + 1, 2), (10 * COST, 10), (None, 31)]
)
def test_items_go_out_while_there_is_credit(window: int | None, items: int) -> None:
    assert count(Shell(), window) == items


def test_padding_takes_credit_as_it_does_with_the_reader() -> None:
    shell = Shell()
    shell.connection.padding = 100
    assert count(shell, 3 * COST) == 2


def test_credit_wakes_the_handler() -> None:
    shell = Shell()
    assert count(shell, 1) == 1
    (call,) = shell.started
    woken: list[int] = []
    call.add_waker(lambda: woken.append(1))
    shell.incoming.window_received(WindowReceived(1, 6, 1000))
    shell.incoming.window_received(WindowReceived(3, 5, 1000))
    assert not shell.incoming.chunk(call, ITEM)
    shell.incoming.window_received(WindowReceived(1, 5, COST - 1))
    assert not shell.incoming.chunk(call, ITEM)
    shell.incoming.window_received(WindowReceived(1, 5, 1))
    assert shell.incoming.chunk(call, ITEM)
    assert woken == [1, 1]


def test_credit_above_the_greatest_is_a_violation() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, window=LARGEST_CREDIT))
    with pytest.raises(RemoteProtocolError) as caught:
        shell.incoming.window_received(WindowReceived(1, 5, 1))
    assert caught.value.code == CloseCode.PROTOCOL_ERROR


def test_no_item_follows_the_final_answer() -> None:
    shell = Shell()
    for async_id in (5, 6):
        shell.receive(call_event("x", async_id))
    first, second = shell.started
    shell.incoming.answer(first, 0)
    shell.receive(cancel_event(6))
    shell.connection.take()
    for call in (first, second):
        with pytest.raises(LocalProtocolError):
            shell.incoming.chunk(call, ITEM)
    assert shell.connection.sent == []


def test_a_call_without_id_gets_no_items() -> None:
    shell = Shell()
    shell.receive(call_event("x", 0))
    with pytest.raises(LocalProtocolError):
        shell.incoming.chunk(shell.started[0], ITEM)
    assert shell.connection.sent == []


def test_an_item_that_cannot_be_sent_costs_nothing() -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, stream=4, window=1))
    (call,) = shell.started
    with pytest.raises(PayloadTooLargeError):
        shell.incoming.chunk(call, bytes(MAX_PAYLOAD + 1))
    assert shell.incoming.chunk(call, ITEM)
    shell.connection.take()
    shell.connection.gone.add(4)
    shell.incoming.window_received(WindowReceived(4, 5, 1000))
    with pytest.raises(LocalProtocolError):
        shell.incoming.chunk(call, ITEM)


def test_items_that_are_not_read_count_against_the_bound_until_they_are_written() -> None:
    shell = Shell(memory=2 * REQUEST_WEIGHT + 1500)
    shell.receive(call_event("x", 1))
    while shell.incoming.chunk(shell.started[0], bytes(1000)):
        continue
    assert len(shell.connection.sent) == 2
    shell.receive(call_event("x", 2))
    assert shell.connection.take()[-1].cells == {keys.CODE: ResultCode.OVERLOADED}
    shell.receive(call_event("x", 3))
    assert len(shell.started) == 2


def test_answers_that_were_written_do_not_count_because_items_wait() -> None:
    shell = Shell(memory=2 * REQUEST_WEIGHT + 5000)
    shell.receive(call_event("x", 1, window=LARGEST_CREDIT))
    for async_id in (2, 3):
        shell.receive(call_event("x", async_id))
        shell.incoming.answer(shell.started[-1], 0, bytes(1400))
    shell.connection.take()
    for _ in range(5):
        assert shell.incoming.chunk(shell.started[0], ITEM)
    shell.receive(call_event("x", 4))
    assert len(shell.started) == 4


@pytest.mark.parametrize("window", [0, 2**31, "1"])
def test_a_window_out_of_range_is_malformed(window: object) -> None:
    shell = Shell()
    shell.receive(call_event("x", 5, window=window))
    assert shell.codes() == [(5, ResultCode.MALFORMED)]


# Subscriptions.


def test_a_subscribe_without_id_is_dropped_and_one_with_is_run() -> None:
    shell = Shell()
    for async_id in (0, 5):
        shell.receive(event(SUBSCRIBE, {keys.TOPIC: "x", keys.WINDOW: 7}, async_id=async_id))
    (request,) = shell.started
    assert (request.subcategory, request.window, request.deadline) == (SUBSCRIBE, 7, None)
    assert shell.connection.dropped == 1
    shell.incoming.answer(request, 0, "welcome", stream=4)
    (sent,) = shell.connection.take()
    assert sent.cells == {keys.CODE: 0, keys.DATA: "welcome", keys.STREAM: 4}
    assert shell.connection.releases == [4]


def test_an_answer_that_is_too_large_for_a_stream_that_is_gone_is_dropped() -> None:
    shell = Shell()
    shell.receive(event(SUBSCRIBE, {keys.TOPIC: "x"}, async_id=5, stream=6))
    shell.connection.streams.hold(4)
    shell.connection.gone.add(6)
    shell.incoming.answer(shell.started[0], 0, bytes(MAX_PAYLOAD), stream=4)
    assert shell.waiting() == []
    assert shell.connection.sent == []
    assert shell.connection.streams.held == set()


def test_an_answer_that_cannot_be_sent_still_releases_its_stream() -> None:
    shell = Shell()
    shell.receive(event(SUBSCRIBE, {keys.TOPIC: "x"}, async_id=5, stream=6))
    shell.connection.streams.hold(4)
    shell.connection.gone.add(6)
    shell.incoming.answer(shell.started[0], 0, stream=4)
    assert shell.connection.streams.held == set()


def test_what_a_subscribe_says_in_a_calls_cells_is_not_looked_at() -> None:
    """Headers and deadlines are a call's: elsewhere they are as good as absent."""
    shell = Shell()
    strange: dict[int, Encodable] = {keys.TOPIC: "x", keys.DEADLINE_MS: "soon", keys.HEADERS: 5}
    shell.receive(event(SUBSCRIBE, strange, async_id=5))
    (call,) = shell.started
    assert (call.topic, call.headers, call.deadline) == ("x", {}, None)


def long_call(topic: str, rest: bytes) -> Event:
    """A Call whose topic is followed by a long cell of data, and by whatever else."""
    payload = b"\xa2" + encode({keys.TOPIC: topic})[1:] + b"\x16\x9a\x00\x00\x80\x00" + rest
    return event(CALL, payload, async_id=5)


@pytest.mark.parametrize(
    ("topic", "code"),
    [("nobody", ResultCode.TOPIC_NOT_FOUND), ("x", ResultCode.MALFORMED)],
)
def test_of_a_long_call_the_topic_is_looked_up_first(topic: str, code: ResultCode) -> None:
    """Its data is not LBM: a call that is refused for its topic is refused before decoding."""
    shell = Shell()
    shell.receive(long_call(topic, b"\xff" * 0x8000))
    assert shell.codes() == [(5, code)]


def test_a_long_call_without_room_is_refused_unread() -> None:
    shell = Shell(memory=30_000)
    shell.receive(long_call("x", b"\xff" * 0x8000))
    assert shell.codes() == [(5, ResultCode.OVERLOADED)]
