"""Tests of node/messaging/named_events.py: one End or Error each, and bounds on both sides."""

from functools import partial
from typing import Any

import pytest

from parley._lbm import keys
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.formats import FormatError
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.named_events import (
    REPLIES_MEMORY,
    UNREAD,
    IncomingEmit,
    OutgoingEmit,
    Reply,
)
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import (
    CANCEL,
    CHUNK,
    EMIT,
    END,
    ERROR,
    LOST,
    NAMED,
    REPLY_EVENT,
    RESULT,
    SIM,
    ResultCode,
)
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import REQUEST_WEIGHT
from tests.node.messaging.fake import MAX_PAYLOAD, FakeConnection, Handlers, Sent, event
from tests.reference.wire import TYPES, cells_payload
from tests.vectors.load import Vector, unhex, vectors

NONE = make_payload(None, "lbm")
CODES = {
    "nobody": ResultCode.TOPIC_NOT_FOUND,
    "other side": ResultCode.WRONG_SUPERCATEGORY,
    "draining": ResultCode.OVERLOADED,
}


class Shell:
    """A runner of handlers and waits for replies that only records its calls."""

    def __init__(self, memory: int = 1 << 30) -> None:
        self.connection = FakeConnection(memory)
        self.started: list[IncomingEmit] = []
        self.stopped: list[IncomingCall] = []
        self.asked_for: list[tuple[str, str]] = []
        core = self.connection.as_connection
        self.calls = RequestMux(
            core,
            Handlers(
                lambda subcategory, topic: ResultCode.TOPIC_NOT_FOUND,
                self._run,
                self.stopped.append,
                find_event=self._find,
            ),
        )
        self.named, self.outgoing = self.calls.named, self.calls.outgoing
        topics = Topics(core, self.calls.incoming, lambda topic: False)
        self.dispatch = Dispatch(core, self.calls, topics, lambda event: False)

    def _find(self, namespace: str, name: str) -> ResultCode:
        self.asked_for.append((namespace, name))
        return CODES.get(name, ResultCode.ACCEPTED)

    def _run(self, call: IncomingCall) -> None:
        assert isinstance(call, IncomingEmit)
        self.started.append(call)

    def receive(self, subcategory: int, payload: bytes, async_id: int = 0, cost: int = 0) -> None:
        self.dispatch.receive(
            event(subcategory, payload, async_id=async_id, category=NAMED, cost=cost), 1.0
        )

    def emit(self, name: str, async_id: int = 0, **cells: Any) -> None:
        self.receive(EMIT, cells_payload(name=name, **cells), async_id)

    def ask(self, timeout: float | None = None) -> OutgoingEmit:
        emit = OutgoingEmit(lambda: None)
        self.named.ask(emit, "ping", "", NONE, 0.0, timeout)
        return emit

    def sent(self) -> Sent:
        (sent,) = self.connection.take()
        return sent


def reply_data(emit: OutgoingEmit) -> list[object]:
    return [emit.take().data for _ in range(len(emit.replies))]


# Sent bytes.


@pytest.mark.parametrize(
    ("namespace", "payload", "cells"),
    [
        ("", NONE, {"data": None, "format": 16}),
        ("game", make_payload([1], "lbm"), {"namespace": "game", "data": [1], "format": 16}),
        ("", make_payload([1], "json"), {"data": b"[1]", "format": 3}),
        ("", make_payload(b"x", "raw"), {"data": b"x"}),
        ("", make_payload(Tandem(b"", b""), "lbm"), {"data": bytes(16)}),
    ],
)
def test_an_emit(namespace: str, payload: Payload, cells: dict[str, Any]) -> None:
    shell = Shell()
    wanted = cells_payload(name="ping", **cells)
    shell.named.emit("ping", namespace, payload)
    assert shell.sent() == (1, 0, NAMED, EMIT, wanted)
    shell.named.ask(OutgoingEmit(lambda: None), "ping", namespace, payload, 0.0, None)
    assert shell.sent() == (1, 1, NAMED, EMIT, wanted)


@pytest.mark.parametrize(
    ("name", "cells"),
    [("", {}), ("ping", {}), ("tick", {"name": "tick"})],
)
def test_a_reply(name: str, cells: dict[str, Any]) -> None:
    shell = Shell()
    shell.emit("ping", 7)
    (emit,) = shell.started
    body = shell.named.encode_reply(emit, name, make_payload(5, "lbm"))
    assert shell.named.reply(emit, body)
    assert shell.sent() == (1, 7, NAMED, REPLY_EVENT, cells_payload(**cells, data=5, format=16))


@pytest.mark.parametrize(
    ("code", "data", "subcategory", "payload"),
    [
        (0, None, END, b"\xa0"),
        (0, 5, END, cells_payload(data=5, format=16)),
        (404, "no", ERROR, cells_payload(code=404, text="no")),
        (16, None, ERROR, cells_payload(code=500, text="the handler failed")),
    ],
)
def test_an_end(code: int, data: Any, subcategory: int, payload: bytes) -> None:
    shell = Shell()
    shell.emit("ping", 7)
    (emit,) = shell.started
    shell.calls.incoming.answer(emit, code, data)
    shell.calls.incoming.answer(emit, 0, "again")
    assert shell.sent() == (1, 7, NAMED, subcategory, payload)
    with pytest.raises(LocalProtocolError):
        shell.named.reply(emit, b"\xa0")


def test_a_last_reply_that_is_too_large_is_an_error() -> None:
    shell = Shell()
    shell.emit("ping", 7)
    shell.calls.incoming.answer(shell.started[0], 0, bytes(MAX_PAYLOAD))
    sent = shell.sent()
    assert (sent.category, sent.subcategory) == (NAMED, ERROR)
    assert sent.cells[keys.CODE] == ResultCode.PAYLOAD_TOO_LARGE


def test_what_cannot_be_sent_leaves_nothing() -> None:
    shell = Shell()
    emit = OutgoingEmit(lambda: None)
    with pytest.raises(PayloadTooLargeError):
        shell.named.ask(emit, "x", "", make_payload(bytes(MAX_PAYLOAD), "raw"), 0.0, 1.0)
    with pytest.raises(FormatError):
        shell.named.ask(emit, "x", "", make_payload({1: 2}, "json"), 0.0, 1.0)
    shell.connection.closed = True
    for send in (
        partial(shell.named.ask, emit, "x", "", NONE, 0.0, 1.0),
        partial(shell.named.emit, "x", "", NONE),
    ):
        with pytest.raises(ConnectionClosedError):
            send()
    assert len(shell.outgoing) == len(shell.calls.deadlines) == 0


# Received events.


def test_an_event_is_looked_for_by_namespace_and_name() -> None:
    shell = Shell()
    shell.emit("ping", 1)
    shell.emit("ping", 2, namespace="game", data=b"x", format=3)
    shell.emit("ping", 3, namespace="")
    assert shell.asked_for == [("", "ping"), ("game", "ping"), ("", "ping")]
    assert [(emit.namespace, emit.payload.format) for emit in shell.started] == [
        ("", 16),
        ("game", 3),
        ("", 16),
    ]
    assert shell.connection.take() == []


@pytest.mark.parametrize(
    ("name", "answer", "code"),
    [("nobody", END, None), ("other side", ERROR, 22), ("draining", ERROR, 19)],
)
def test_an_event_that_does_not_run(name: str, answer: int, code: int | None) -> None:
    shell = Shell()
    shell.emit(name, 7)
    sent = shell.sent()
    assert (sent.async_id, sent.subcategory) == (7, answer)
    assert sent.cells.get(keys.CODE) == code
    assert sent.payload == b"\xa0" or keys.TEXT in sent.cells
    assert shell.connection.dropped == (0 if code else 1)
    shell.emit(name)
    assert shell.connection.take() == []
    assert shell.connection.dropped == (1 if code else 2)
    assert shell.started == []
    shell.emit(name, 7)  # the id is free at once
    assert shell.sent().async_id == 7


MALFORMED = [
    b"",
    b"junk",
    b"\x80",
    cells_payload(data=1, format=16),
    cells_payload(name=5),
    cells_payload(name="x", namespace=1),
    cells_payload(name="x", data=1),
    cells_payload(name="x", format=3),
    cells_payload(name="x", data="text", format=3),
    cells_payload(name="x", data=b"", format=256),
    cells_payload(name="x") + b"\0",
]


@pytest.mark.parametrize("payload", MALFORMED)
def test_a_malformed_event(payload: bytes) -> None:
    shell = Shell()
    shell.receive(EMIT, payload, 7)
    assert shell.sent()[1:] == (
        7,
        NAMED,
        ERROR,
        cells_payload(code=23, text="malformed request"),
    )
    shell.receive(EMIT, payload)
    assert shell.connection.take() == []
    assert (shell.connection.dropped, shell.started) == (1, [])


EMITS = {"Emit": EMIT, "Named Reply": REPLY_EVENT, "Error": ERROR, "End": END}


def of_events(vector: Vector) -> bool:
    return vector["event"] in EMITS


@vectors("payloads", of_events)
def test_the_vectors(vector: Vector) -> None:
    """As requests and as answers; the receiver decides how to handle a bad answer."""
    shell = Shell()
    kind = EMITS[vector["event"]]
    good = "expected" in vector
    payload = unhex(vector["expected" if good else "input"])
    if kind == EMIT:
        shell.receive(kind, payload, 7)
        assert len(shell.started) == good
        if not good:
            assert shell.sent().cells[keys.CODE] == ResultCode.MALFORMED
        return
    emit = shell.ask()
    shell.receive(kind, payload, emit.async_id)
    if kind == REPLY_EVENT:
        assert (len(emit.replies), shell.connection.dropped) == ((1, 0) if good else (0, 1))
        assert not emit.done
    else:
        wrong = emit.code == ResultCode.MALFORMED
        assert emit.done
        assert wrong is not good


def test_an_id_in_use_ends_the_connection() -> None:
    shell = Shell()
    shell.emit("ping", 7)
    for name in ("ping", "nobody", "draining"):
        with pytest.raises(RemoteProtocolError):
            shell.emit(name, 7)
    with pytest.raises(RemoteProtocolError):
        shell.receive(EMIT, b"junk", 7)
    with pytest.raises(RemoteProtocolError):
        shell.dispatch.receive(event(1, cells_payload(topic="x"), async_id=7), 1.0)


@pytest.mark.parametrize("async_ids", [False, True], ids=["silent", "asking"])
def test_no_more_events_than_the_bound(async_ids: bool) -> None:
    shell = Shell()
    for number in range(UNANSWERED_REQUESTS + 3):
        shell.emit("ping", (number + 1) * async_ids)
    assert len(shell.started) == UNANSWERED_REQUESTS
    sent = shell.connection.take()
    assert [one.cells[keys.CODE] for one in sent] == [19] * 3 * async_ids
    assert shell.connection.dropped == 3 * (not async_ids)
    shell.calls.incoming.answer(shell.started[0], 0)
    shell.emit("ping", 9_999 * async_ids)
    assert len(shell.started) == UNANSWERED_REQUESTS + 1


@pytest.mark.parametrize("async_ids", [False, True], ids=["silent", "asking"])
def test_no_more_bytes_than_the_bound(async_ids: bool) -> None:
    shell = Shell(memory=REQUEST_WEIGHT + 2_000)
    data: list[Any] = [0] * 10  # weighs more in memory than on the wire
    for number in range(3):
        shell.emit("ping", (number + 1) * async_ids, data=data, format=16)
    assert len(shell.started) == 1
    assert len(shell.connection.take()) == 2 * async_ids


def test_what_an_event_costs_is_kept_until_its_end() -> None:
    shell = Shell()
    payload = cells_payload(name="ping")
    shell.receive(EMIT, payload, 7, 100)
    shell.receive(EMIT, cells_payload(name="nobody"), 8, 50)
    shell.receive(EMIT, b"junk", 9, 25)
    assert shell.connection.consumed == [(1, 50), (1, 25)]
    shell.calls.incoming.answer(shell.started[0], 0)
    assert shell.connection.consumed[2:] == [(1, 100)]


def test_cancel_stops_the_handler() -> None:
    shell = Shell()
    shell.emit("ping", 7)
    shell.dispatch.receive(event(CANCEL, cells_payload(request=7)), 2.0)
    assert shell.stopped == shell.started
    text = cells_payload(code=18, text="cancelled")
    assert shell.sent() == (1, 7, NAMED, ERROR, text)
    shell.calls.incoming.answer(shell.started[0], 0, "too late")
    assert shell.connection.take() == []


def test_the_end_of_the_connection_stops_handlers_and_ends_waits() -> None:
    shell = Shell()
    shell.emit("ping", 7)
    shell.emit("ping")
    emit = shell.ask()
    shell.connection.take()
    shell.calls.connection_ended(1, "bye")
    assert set(shell.stopped) == set(shell.started)
    assert (emit.code, emit.close_code, emit.close_text) == (LOST, 1, "bye")
    assert shell.connection.take() == []


# Answers to our events.


def test_replies_and_the_last_one() -> None:
    shell = Shell()
    emit = shell.ask(5.0)
    shell.receive(REPLY_EVENT, cells_payload(data=1, format=16), 1)
    shell.receive(REPLY_EVENT, cells_payload(name="tick", data=b"[2]", format=3), 1)
    shell.receive(REPLY_EVENT, cells_payload(), 1)
    assert [reply.name for reply, _ in emit.replies] == ["", "tick", ""]
    assert reply_data(emit) == [1, [2], None]
    assert not emit.done
    shell.receive(END, cells_payload(data="last", format=16), 1)
    assert isinstance(emit.data, Reply)
    assert (emit.done, emit.code, emit.data.data, emit.data.last) == (True, 0, "last", True)
    assert len(shell.outgoing) == len(shell.calls.deadlines) == 0
    shell.receive(END, b"\xa0", 1)
    shell.receive(REPLY_EVENT, cells_payload(data=1, format=16), 1)
    assert shell.connection.dropped == 2


@pytest.mark.parametrize(
    "payload", [b"\xa0", b"", cells_payload(name="x"), b"\xa1\x19\x01\x2c\x01"]
)
def test_an_end_without_a_reply(payload: bytes) -> None:
    shell = Shell()
    emit = shell.ask()
    shell.receive(END, payload, 1)
    assert (emit.done, emit.code, emit.data) == (True, 0, None)


@pytest.mark.parametrize(
    ("subcategory", "payload", "code", "data"),
    [
        (ERROR, cells_payload(code=500, text="failed"), 500, "failed"),
        (ERROR, cells_payload(code=20), 20, ""),
        (ERROR, cells_payload(code=2**32 - 1, text=""), 2**32 - 1, ""),
        (ERROR, cells_payload(code=0, text="x"), 23, None),
        (ERROR, cells_payload(code=2**32, text="x"), 23, None),
        (ERROR, cells_payload(text="x"), 23, None),
        (ERROR, cells_payload(code=1, text=5), 23, None),
        (ERROR, b"junk", 23, None),
        (ERROR, b"", 23, None),
        (END, b"junk", 23, None),
        (END, cells_payload(data=1), 23, None),
        (END, cells_payload(format=3), 23, None),
    ],
)
def test_ends_that_are_no_success(subcategory: int, payload: bytes, code: int, data: Any) -> None:
    shell = Shell()
    emit = shell.ask()
    shell.receive(subcategory, payload, 1)
    assert (emit.done, emit.code, emit.data) == (True, code, data)
    assert len(shell.outgoing) == 0


@pytest.mark.parametrize("payload", [b"junk", b"", cells_payload(data=1), cells_payload(format=3)])
def test_a_malformed_reply_is_dropped(payload: bytes) -> None:
    shell = Shell()
    emit = shell.ask()
    shell.receive(REPLY_EVENT, payload, 1)
    assert (emit.done, len(emit.replies), shell.connection.dropped) == (False, 0, 1)


def test_answers_of_another_kind() -> None:
    """A Result to an event, an End or Error to a call: their requests have failed."""
    shell = Shell()
    emit = shell.ask(5.0)
    shell.dispatch.receive(event(RESULT, cells_payload(code=0, data=5), async_id=1), 1.0)
    assert (emit.done, emit.code, emit.data) == (True, ResultCode.MALFORMED, None)
    for kind in (END, ERROR):
        finals: list[tuple[int, int]] = []
        call = shell.outgoing.subscribe("x", None, 0.0, 5.0, lambda: None)
        call.on_final = lambda code, stream, to=finals: to.append((code, stream))
        shell.receive(kind, cells_payload(code=1, data=5, format=16), call.async_id)
        assert (call.done, call.code, call.data) == (True, ResultCode.MALFORMED, None)
        assert finals == [(ResultCode.MALFORMED, 0)]
    assert len(shell.outgoing) == len(shell.calls.deadlines) == 0


def test_parts_of_another_kind_change_nothing() -> None:
    """A Reply to a call, a Chunk to an event."""
    shell = Shell()
    emit = shell.ask()
    call = shell.outgoing.call("x", None, 0.0, None, lambda: None)
    shell.connection.take()
    shell.receive(REPLY_EVENT, cells_payload(data=1, format=16), call.async_id)
    shell.dispatch.receive(event(CHUNK, cells_payload(data=1), async_id=emit.async_id), 1.0)
    assert (emit.done, call.done, shell.connection.dropped) == (False, False, 2)
    assert shell.connection.take() == []


def test_answers_on_another_stream_or_to_nobody() -> None:
    shell = Shell()
    emit = shell.ask()
    for kind in (REPLY_EVENT, END, ERROR):
        for stream, async_id in ((3, 1), (1, 2), (1, 0)):
            shell.dispatch.receive(Event(stream, async_id, NAMED, kind, b"\xa0", 0), 1.0)
    assert (emit.done, len(emit.replies), shell.connection.dropped) == (False, 0, 9)


def test_the_deadline_cancels() -> None:
    shell = Shell()
    emit = shell.ask(1.5)
    shell.connection.take()
    shell.calls.expire_calls(1.0)
    assert not emit.done
    shell.calls.expire_calls(1.6)
    assert emit.code == ResultCode.DEADLINE_EXCEEDED
    assert shell.sent() == (1, 0, SIM, CANCEL, cells_payload(request=1))
    shell.receive(ERROR, cells_payload(code=18, text=""), 1)
    assert (len(shell.outgoing), shell.connection.dropped) == (0, 0)


def test_replies_that_nobody_reads_end_their_event_and_nothing_else() -> None:
    shell = Shell()
    emit, other = shell.ask(), shell.ask()
    shell.connection.take()
    body = cells_payload(data=bytes(4_000), format=16)
    count = REPLIES_MEMORY // len(body) + 1
    for _ in range(count):
        shell.receive(REPLY_EVENT, body, emit.async_id)
    assert (emit.done, emit.code) == (True, UNREAD)
    assert shell.sent() == (1, 0, SIM, CANCEL, cells_payload(request=1))
    held = len(emit.replies)
    for _ in range(count):
        shell.receive(REPLY_EVENT, body, emit.async_id)
    assert (len(emit.replies), other.done) == (held, False)
    assert shell.connection.take() == []
    assert shell.connection.dropped == 2 * count - held - 1


def test_small_items_of_replies_weigh_what_they_take() -> None:
    shell = Shell()
    emit = shell.ask()
    body = cells_payload(data=[None] * 11_000, format=16)  # about a megabyte of memory
    for _ in range(6):
        shell.receive(REPLY_EVENT, body, emit.async_id)
    assert emit.code == UNREAD
    assert len(emit.replies) == 4


def test_who_left_keeps_the_id_until_the_end() -> None:
    shell = Shell()
    emit = shell.ask(1.0)
    shell.connection.take()
    shell.outgoing.stop_waiting(emit)
    shell.calls.expire_calls(9.0)
    shell.receive(REPLY_EVENT, cells_payload(data=1, format=16), 1)
    assert (shell.connection.take(), len(emit.replies), shell.connection.dropped) == ([], 0, 1)
    assert shell.ask().async_id == 2
    shell.receive(END, b"\xa0", 1)
    assert (len(shell.outgoing), shell.connection.dropped) == (1, 1)


def test_a_call_is_no_event() -> None:
    assert (OutgoingCall.category, OutgoingEmit.category) == (SIM, NAMED)
    assert TYPES["Emit"] == (NAMED, EMIT)
