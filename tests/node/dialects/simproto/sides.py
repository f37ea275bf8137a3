"""Two sides of a SimProto connection in one process, or one side and raw bytes.

A `Side` acts like a gateway, immediately. Calls of `echo` are answered with their data, those of
`wait` never; `news` accepts subscriptions, and `secret` rejects them with `no`.
"""

from collections.abc import Sequence
from typing import Any

from parley._lbm.codec import decode_value
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import (
    HEAD_SIZE,
    REQUEST,
    REQUEST_HEAD,
    RESPONSE,
    RPC,
    serialise_message,
)
from parley._node.dialects.simproto.core import RequestReceived, SimProtoCore
from parley._node.dialects.simproto.feeds import SimProtoFeed
from parley._node.dialects.simproto.requests import SimProtoRequest
from parley._node.dialects.simproto.sim import NoteQueue, Sim, UnsubscribeAnswered
from parley._node.messaging.fanout import Fanout
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.notes import Batch, encode_note
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.reports import ConnectionEnded

LIMITS = DialectLimits()
TIGHT = DialectLimits(
    longest_frame=256,
    longest_name=16,
    requests=4,
    client_memory=1 << 20,
    write_buffer=1_024,
    answer_timeout=30.0,
    idle_before_ping=15.0,
    ping_timeout=10.0,
)


def request(kind: int, topic: str | bytes, data: bytes = b"", dialog: int = 1) -> bytes:
    name = topic.encode() if isinstance(topic, str) else topic
    return serialise_message(REQUEST, dialog, REQUEST_HEAD.pack(kind, len(name)) + name + data)


class Publisher:
    """The publisher of a side's topics; it only sends bytes, unchanged."""

    def __init__(self, side: "Side") -> None:
        self._side = side
        self.core = side.core
        self.room = side.sim.room
        self.cut: list[SimProtoFeed] = []

    def now(self) -> float:
        return self._side.now

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        return batch.in_form("bytes", bytes_of)

    def cut_off(self, feed: SimProtoFeed) -> None:
        self.cut.append(feed)


def bytes_of(note: bytes) -> bytes | None:
    value = decode_value(note)
    return value if isinstance(value, bytes) else None


class Side:
    """A core with its sim layer, at a constant time unless `now` is set."""

    def __init__(self, limits: DialectLimits = LIMITS) -> None:
        self.now = 0.0
        self.core = SimProtoCore(self.now, limits)
        self.sim = Sim(self.core, self._find, lambda call: self.run(call), self._stop, self._knows)
        self.fanouts = {
            name: Fanout(name, 1 << 20, "drop-oldest") for name in ("news", "odd", "secret")
        }
        self.pending: list[IncomingCall] = []  # calls of `wait`
        self.stopped: list[IncomingCall] = []
        self.reports: list[Any] = []
        self.ended: ConnectionEnded | None = None
        self.publisher = Publisher(self)
        self.run = self._run

    @property
    def code(self) -> CloseCode | None:
        return None if self.ended is None else CloseCode(self.ended.code)

    def receive(self, data: bytes) -> bytes:
        """Deliver bytes, and return the answer."""
        self.core.receive_data(data, self.now)
        return self.said()

    def said(self) -> bytes:
        """Process the reports, and return the bytes to write."""
        while self.core.happened:
            for report in self.core.reports():
                self.reports.append(report)
                if isinstance(report, RequestReceived | UnsubscribeAnswered):
                    self.sim.take(report, self.now)
                elif isinstance(report, ConnectionEnded):
                    assert self.ended is None
                    self.ended = report
                    self.sim.connection_ended(report.code, report.text)
        said = b""
        while data := self.core.data_to_send(self.now):
            said += data
        return said

    def at(self, now: float) -> bytes:
        """Set the time, and return the bytes to write."""
        self.now = now
        self.core.handle_deadline(now)
        self.sim.handle_deadline(now)
        return self.said()

    def publish(self, topic: str, *notes: object) -> None:
        for note in notes:
            self.fanouts[topic].add(encode_note(note))  # type: ignore[arg-type]  # any value
        self.fanouts[topic].flush()

    # The gateway's part.

    def _knows(self, topic: str) -> bool:
        return topic in self.fanouts

    def _find(self, kind: int, topic: str) -> ResultCode:
        if kind == RPC:
            known = topic in ("echo", "wait", "fail")
        else:
            known = topic in self.fanouts
            if self.sim.is_subscribed(topic):
                return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.ACCEPTED if known else ResultCode.TOPIC_NOT_FOUND

    def _run(self, call: IncomingCall) -> None:
        answer = self.sim.incoming.answer
        data = call.data if isinstance(call.data, bytes) else b""
        if call.subcategory == RPC:
            if call.topic == "wait":
                self.pending.append(call)
            elif call.topic == "fail":
                answer(call, ResultCode.HANDLER_FAILED, b"details", self.now)
            else:
                answer(call, ResultCode.ACCEPTED, data, self.now)
        else:
            self._decide(call, data)
            self.sim.incoming.decided(call, self.now)

    def _decide(self, call: IncomingCall, data: bytes) -> None:
        answer = self.sim.incoming.answer
        if call.topic == "secret":
            answer(call, ResultCode.REJECTED, b"no", self.now)
        elif call.topic == "odd":
            answer(call, ResultCode.OVERLOADED, b"details", self.now)
        else:
            answer(call, ResultCode.ACCEPTED, data, self.now)
            fanout = self.fanouts[call.topic]
            feed = SimProtoFeed(fanout, self.publisher, self, self.sim.remove_feed)
            self.sim.add_feed(feed)
            fanout.join(feed)

    def _stop(self, call: IncomingCall) -> None:
        self.stopped.append(call)


def exchange(one: Side, other: Side) -> None:
    said = one.said()
    while said:
        said = one.receive(other.receive(said))
    answered = other.said()
    if answered:
        one.receive(answered)
        exchange(one, other)


def call(side: Side, topic: str = "echo", data: bytes = b"hi", **options: float) -> list[object]:
    """Call a topic; the list gets code and data when the call is done."""
    answer: list[object] = []

    def on_done() -> None:
        answer.extend((asked.code, asked.data))

    asked = side.sim.outgoing.call(topic, data, side.now, options.get("timeout"), on_done)
    return answer


def code_of(said: bytes) -> int:
    """Return the code of the first response."""
    assert said[0] == RESPONSE
    return said[HEAD_SIZE]


class Notes:
    """A reader with a window of two notes."""

    def __init__(self, side: Side, topic: str = "news", window: int = 200) -> None:
        self.side = side
        self.topic = topic
        self.queue = NoteQueue(window, 10.0, self._acknowledge, lambda: None)
        self.call: SimProtoRequest | None = None
        self.end: tuple[int, str] | str = ""

    def subscribe(self, data: bytes = b"") -> "Notes":
        self.call = self.side.sim.outgoing.subscribe(self.topic, data, 0.0, None, lambda: None)
        self.side.sim.subscriptions.expect(self.topic, self, self.call)
        return self

    @property
    def answer(self) -> tuple[int, object] | None:
        assert self.call is not None
        return (self.call.code, self.call.data) if self.call.done else None

    def leave(self) -> SimProtoRequest | None:
        self.queue.close()
        return self.side.sim.subscriptions.leave(self.topic, self, self.side.now)

    def read(self) -> list[bytes]:
        return [self.queue.take() for _ in range(len(self.queue))]

    def cut_off(self) -> None:
        self.end = "cut off"

    def lost(self, code: int, text: str) -> None:
        self.end = code, text

    def _acknowledge(self, dialog: int) -> None:
        self.side.sim.subscriptions.acknowledge(dialog, self.side.now)
