"""One connection with named events: the destination of each event, and the reasons for its end."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.core import NEVER
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, BromineType, Flavour, encode_error
from parley._node.dialects.named.core import COPIED_SIZE, FIRST_ID, TURN_EVENTS, NamedCore
from parley._node.messaging.named_events import UNREAD, OutgoingEmit
from parley._node.protocol.codes import LOST, CloseCode, ResultCode
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LimitReachedError,
    LocalProtocolError,
    PayloadTooLargeError,
)
from parley._node.protocol.limits import CLOSE_LINGER
from parley._node.protocol.reports import ConnectionEnded
from tests.node.dialects.named.events import FLAVOURS, ask, on_wire, reply
from tests.node.dialects.named.test_codec import read

PLAIN, TYPED = Flavour.PLAIN, Flavour.TYPED


class Line:
    """A core at time `now`, and the bytes that the other side sends and receives."""

    def __init__(self, flavour: Flavour, **limits: Any) -> None:
        self.flavour = flavour
        self.now = 100.0
        self.core = NamedCore(self.now, DialectLimits(**limits), flavour)

    def say(self, *events: BromineEvent) -> list[Any]:
        """Deliver events, and return the reports."""
        return self.say_raw(b"".join(on_wire(event, self.flavour) for event in events))

    def say_raw(self, data: bytes) -> list[Any]:
        self.core.receive_data(data, self.now)
        return self.reports()

    def reports(self) -> list[Any]:
        return self.core.reports()

    def heard(self) -> list[BromineEvent]:
        return read(self.core.data_to_send(self.now), self.flavour)

    def ask(self, timeout: float | None = None) -> OutgoingEmit:
        emit = OutgoingEmit(lambda: None)
        self.core.ask(emit, "ask", b"", self.now, timeout, "game")
        return emit


@pytest.fixture(params=FLAVOURS)
def line(request: pytest.FixtureRequest) -> Line:
    return Line(request.param)


def taken(emit: OutgoingEmit) -> list[bytes]:
    return [emit.take().raw for _ in range(len(emit.replies))]


# Sending.


def test_events_have_ids_of_their_own(line: Line) -> None:
    line.core.emit("a", b"1")
    line.core.emit("b", b"2", "game")
    assert line.heard() == [
        BromineEvent(FIRST_ID, BromineType.INITIATOR, None, "", "a", b"1"),
        BromineEvent(FIRST_ID + 1, BromineType.INITIATOR, None, "game", "b", b"2"),
    ]


@pytest.mark.parametrize(("name", "told"), [("pong", "pong"), ("", "reply")])
def test_a_reply_refers_to_the_event_it_replies_to(line: Line, name: str, told: str) -> None:
    (event,) = line.say(ask(event_id=42))
    line.core.reply(event, b"data", name)
    assert line.heard() == [BromineEvent(FIRST_ID, BromineType.RESPONSE, 42, "", told, b"data")]


def test_long_data_is_sent_as_it_is(line: Line) -> None:
    data = bytes(COPIED_SIZE + 1)
    line.core.emit("a", data)
    assert line.core.outbox.count == 2
    assert [event.data for event in line.heard()] == [data]


def test_a_returned_value_is_sent_as_a_reply(line: Line) -> None:
    (event,) = line.say(ask(event_id=42))
    line.core.finish(event, b"value", line.now)
    kind, name = BromineType.RESPONSE, "reply"
    if line.flavour is TYPED:
        kind, name = BromineType.END, "end"
    assert line.heard() == [BromineEvent(FIRST_ID, kind, 42, "", name, b"value")]
    assert line.core.running == 0


def test_a_handler_without_a_result_sends_an_end_only_with_types() -> None:
    for flavour, ends in ((PLAIN, []), (TYPED, [(BromineType.END, "end", b"")])):
        line = Line(flavour)
        (event,) = line.say(ask(namespace="game"))
        line.core.finish(event, None, line.now)
        assert [(one.type, one.name, one.data) for one in line.heard()] == ends
        assert line.core.running == 0


def test_a_failure_is_an_event_named_error(line: Line) -> None:
    (event,) = line.say(ask(event_id=42))
    line.core.fail(event, 500, "boom", line.now)
    (heard,) = line.heard()
    kind = BromineType.ERROR if line.flavour is TYPED else BromineType.RESPONSE
    assert heard == BromineEvent(FIRST_ID, kind, 42, "", "error", encode_error(500, "boom"))
    assert line.core.running == 0


def test_a_code_of_a_failure_that_has_no_room_goes_as_500(line: Line) -> None:
    for code, said in ((65_535, 65_535), (65_536, 500), (2**32 - 1, 500)):
        (event,) = line.say(ask())
        line.core.fail(event, code, "boom", line.now)
        assert [one.data for one in line.heard()] == [encode_error(said, "boom")]
    assert line.core.running == 0


def test_an_error_is_not_answered_with_an_error(line: Line) -> None:
    error = reply(5, encode_error(500, "boom"), "error", BromineType.ERROR)
    for event in line.say(error):
        line.core.fail(event, 500, "again", line.now)
    assert (line.heard(), line.core.running) == ([], 0)


def test_an_error_reaches_the_emitter_whatever_its_event_is_named(line: Line) -> None:
    for event in line.say(ask("error")):
        line.core.fail(event, 500, "boom", line.now)
    assert [event.name for event in line.heard()] == ["error"]


def test_an_event_that_cannot_be_sent_changes_no_state() -> None:
    line = Line(PLAIN, longest_frame=100, longest_name=8)
    (event,) = line.say(ask())
    with pytest.raises(PayloadTooLargeError):
        line.core.emit("a", bytes(100))
    with pytest.raises(PayloadTooLargeError):
        line.core.finish(event, bytes(100), line.now)
    with pytest.raises(LocalProtocolError):
        line.core.ask(OutgoingEmit(lambda: None), "a" * 9, b"", line.now)
    assert (line.core.queued_bytes, line.core.running, line.core.waiting) == (0, 1, 0)


# Replies.


def test_replies_go_to_the_waiting_emitter(line: Line) -> None:
    first, second = line.ask(), line.ask()
    assert line.say(reply(second.async_id, b"2"), reply(first.async_id, b"1")) == []
    assert line.say(reply(first.async_id, b"3")) == []
    assert (taken(first), taken(second)) == ([b"1", b"3"], [b"2"])
    assert line.core.running == 0


def test_an_unexpected_reply_is_an_ordinary_event(line: Line) -> None:
    emit = line.ask()
    line.core.cancel(emit)
    late, strange = reply(emit.async_id, b"late"), reply(5, b"strange")
    assert line.say(late, strange) == [late, strange]
    assert line.core.running == 2


def test_after_one_wanted_reply_the_others_go_to_handlers(line: Line) -> None:
    emit = line.ask()
    first, second, third = (reply(emit.async_id, data) for data in (b"1", b"2", b"3"))
    assert line.say(first, second) == []
    line.core.stop_waiting(emit)
    assert emit.take().raw == b"1"
    assert line.reports() == [second]
    assert line.say(third) == [third]
    assert (line.core.waiting, line.core.running) == (0, 2)


def test_without_types_no_name_ends_the_replies() -> None:
    line = Line(PLAIN)
    emit = line.ask()
    line.say(reply(emit.async_id, b"1", "end"))
    assert (taken(emit), emit.done, line.core.waiting) == ([b"1"], False, 1)


@pytest.mark.parametrize("data", [b"1", b""])
def test_with_types_an_end_ends_the_replies(data: bytes) -> None:
    line = Line(TYPED)
    emit = line.ask()
    line.say(reply(emit.async_id, b"0", "end"))  # a name is not a type
    assert line.core.waiting == 1
    line.say(reply(emit.async_id, data, "any", BromineType.END))
    assert (taken(emit), emit.done, emit.code) == ([b"0"], True, 0)
    assert (emit.data.raw if emit.data else b"") == data
    assert line.core.waiting == 0


def test_an_unexpected_end_is_dropped() -> None:
    line = Line(TYPED)
    dangling = reply(5, b"1", "end", BromineType.END)
    assert line.say(dangling, dangling._replace(ref_id=None)) == []
    assert (line.core.dropped, line.core.running) == (2, 0)


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (encode_error(404, "none"), 404, "none"),
        (encode_error(0, "none"), ResultCode.HANDLER_FAILED, "none"),
        (b"?", ResultCode.MALFORMED, ""),
    ],
)
def test_an_error_ends_the_replies(line: Line, data: bytes, code: int, text: str) -> None:
    emit = line.ask()
    kind = BromineType.ERROR if line.flavour is TYPED else BromineType.RESPONSE
    line.say(reply(emit.async_id, data, "error", kind))
    assert (emit.done, emit.code, emit.data, line.core.waiting) == (True, code, text, 0)


def test_with_types_the_name_of_an_error_does_not_matter() -> None:
    line = Line(TYPED)
    emit = line.ask()
    line.say(reply(emit.async_id, b"1", "error"))
    assert (taken(emit), line.core.waiting) == ([b"1"], 1)
    line.say(reply(emit.async_id, b"1", "any", BromineType.ERROR))
    assert (emit.done, line.core.waiting) == (True, 0)


def test_unread_replies_are_limited_for_each_event(line: Line) -> None:
    line.core = NamedCore(line.now, DialectLimits(client_memory=1_400), line.flavour)
    read, unread = line.ask(), line.ask()
    for _ in range(3):
        line.say(reply(read.async_id, bytes(500)))
        assert len(taken(read)) == 1
    line.say(*(reply(unread.async_id, bytes(500)) for _ in range(2)), reply(read.async_id, b"1"))
    assert (unread.done, unread.code, read.done) == (True, UNREAD, False)
    assert (taken(read), line.core.closing, line.core.waiting) == ([b"1"], False, 1)


def test_as_many_events_wait_for_replies_as_may() -> None:
    line = Line(PLAIN, requests=2)
    first, _ = line.ask(), line.ask()
    with pytest.raises(LimitReachedError, match="2 events already wait"):
        line.ask()
    line.core.emit("a", b"")
    line.core.cancel(first)
    assert not line.ask().done


def test_who_is_told_may_give_up(line: Line) -> None:
    emit = OutgoingEmit(lambda: line.core.cancel(emit))
    line.core.ask(emit, "ask", b"", line.now, 10.0)
    line.say(reply(emit.async_id, b"1"))
    assert (taken(emit), emit.done, line.core.waiting) == ([b"1"], True, 0)


def test_replies_are_waited_for_as_long_as_was_said(line: Line) -> None:
    emit, patient = line.ask(timeout=5.0), line.ask(timeout=float("inf"))
    line.say(reply(emit.async_id, b"1"))
    due = line.core.next_deadline()
    assert 105.0 <= due <= 105.1
    line.core.handle_deadline(104.9)
    assert not emit.done
    line.core.handle_deadline(due)
    assert (emit.done, emit.code, patient.done) == (True, ResultCode.DEADLINE_EXCEEDED, False)
    assert line.say(reply(emit.async_id, b"2")) != []


# Limits on running handlers.


def test_no_more_events_are_taken_than_may_run(line: Line) -> None:
    line.core = NamedCore(line.now, DialectLimits(requests=3), line.flavour)
    coming = [ask(event_id=number) for number in range(10)]
    running = line.say(*coming)
    assert (running, line.core.wants_data) == (coming[:3], False)
    assert line.say(ask(event_id=10)) == []  # data that the transport had already read
    while running:
        line.core.release(running.pop(0), line.now)
        running += line.core.reports()
        assert len(running) <= 3
    assert line.core.wants_data
    assert line.say(ask(event_id=11)) == [ask(event_id=11)]


def test_replies_need_no_room_but_wait_in_the_line(line: Line) -> None:
    line.core = NamedCore(line.now, DialectLimits(requests=1), line.flavour)
    emit = line.ask()
    (event,) = line.say(ask(), reply(emit.async_id, b"1"))
    assert taken(emit) == []
    line.core.release(event, line.now)
    assert taken(emit) == [b"1"]


@pytest.mark.parametrize("handled", [True, False])
def test_others_have_their_turn_while_much_is_taken(line: Line, handled: bool) -> None:
    turns: list[float] = []
    line.core.take_turns(lambda: turns.append(line.now))
    coming = [ask(event_id=number) for number in range(3 * TURN_EVENTS + 1)]
    raw = b"".join(on_wire(event, line.flavour) for event in coming)
    taken = line.say_raw(raw[:-1])
    counts = [(len(taken), len(turns))]
    assert line.say_raw(raw[-1:]) == []
    while not line.core.wants_data:
        if handled:
            line.core.release(taken[-1], line.now)
        assert line.reports() == []
        line.core.go_on(line.now)
        taken += line.reports()
        counts.append((len(taken), len(turns)))
    assert counts == [(64, 1), (128, 2), (192, 3), (193, 3)]
    assert taken == coming


def test_events_that_arrive_slowly_need_no_turns(line: Line) -> None:
    turns: list[float] = []
    line.core.take_turns(lambda: turns.append(line.now))
    taken = [event for number in range(200) for event in line.say(ask(event_id=number))]
    assert (len(taken), turns, line.core.wants_data) == (200, [], True)


def test_a_turn_after_the_end_has_no_effect(line: Line) -> None:
    line.core.take_turns(lambda: None)
    line.say(*(ask(event_id=number) for number in range(TURN_EVENTS + 1)))
    line.core.close(line.now)
    line.core.go_on(line.now)
    assert [type(report) for report in line.reports()] == [ConnectionEnded]


def test_a_violation_is_met_where_it_stands(line: Line) -> None:
    line.core = NamedCore(line.now, DialectLimits(requests=1), line.flavour)
    (event,) = line.say_raw(on_wire(ask(), line.flavour) + b"\0" * 20)
    assert not line.core.closing
    line.core.release(event, line.now)
    (ended,) = line.reports()
    assert ended.code == CloseCode.PROTOCOL_ERROR


# The end.


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("ffffffffffffffff 0020", CloseCode.FRAME_TOO_LARGE),
        ("0000000000000001 0020", CloseCode.PROTOCOL_ERROR),
    ],
)
def test_a_malformed_event_ends_the_connection(line: Line, raw: str, code: CloseCode) -> None:
    emit = line.ask()
    before = line.say(ask())
    (ended,) = line.say_raw(bytes.fromhex(raw))
    assert before == [ask()]
    assert (type(ended), ended.code, ended.remote) == (ConnectionEnded, code, False)
    assert (emit.code, emit.close_code) == (LOST, code)
    assert len(line.heard()) == 1  # queued data is sent
    assert line.core.wants_eof
    line.core.handle_deadline(line.now + CLOSE_LINGER)
    assert line.core.ended


def test_silence_ends_it() -> None:
    line = Line(PLAIN, idle_timeout=10.0)
    assert line.core.next_deadline() == 110.0
    line.now = 105.0
    line.say(ask())
    line.core.handle_deadline(110.0)
    assert not line.core.closing
    assert line.core.next_deadline() == 115.0
    line.core.handle_deadline(115.0)
    (ended,) = line.reports()
    assert ended.code == CloseCode.TIMEOUT


def test_the_end_of_the_transport_fails_waiting_events(line: Line) -> None:
    emit = line.ask(timeout=10.0)
    line.core.receive_eof(line.now)
    (ended,) = line.reports()
    assert ended.code == CloseCode.CONNECTION_LOST
    assert (emit.code, emit.close_code) == (LOST, CloseCode.CONNECTION_LOST)
    assert (line.core.ended, line.core.next_deadline()) == (True, NEVER)


def test_nothing_is_sent_after_the_end(line: Line) -> None:
    (event,) = line.say(ask())
    line.core.close(line.now)
    sends: list[Callable[[], None]] = [
        lambda: line.core.emit("a", b""),
        lambda: line.core.finish(event, b"", line.now),
        lambda: line.core.fail(event, 500, "", line.now),
    ]
    for send in sends:
        with pytest.raises(ConnectionClosedError):
            send()
    line.core.release(event, line.now)
    assert (line.core.running, line.heard()) == (0, [])
    assert [type(report) for report in line.say(ask())] == [ConnectionEnded]


def test_unprocessed_events_are_dropped_at_the_end(line: Line) -> None:
    line.core = NamedCore(line.now, DialectLimits(requests=1), line.flavour)
    (event,) = line.say(ask(), ask())
    line.core.close(line.now)
    assert [type(one) for one in line.core.reports()] == [ConnectionEnded]
    line.core.release(event, line.now)
    assert line.core.reports() == []


@given(st.lists(st.binary(max_size=40), max_size=10), st.sampled_from(FLAVOURS))
def test_the_core_raises_no_error_for_any_bytes(pieces: list[bytes], flavour: Flavour) -> None:
    line = Line(flavour)
    reports = [report for piece in pieces for report in line.say_raw(piece)]
    ends = [report for report in reports if isinstance(report, ConnectionEnded)]
    assert len(ends) <= 1
    assert bool(ends) == line.core.closing
