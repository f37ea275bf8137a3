"""Target `audit`: a node's reaction to an event matches the audit's row about it.

They agree for every event: which topic ran, with which code, and that events that the row calls
malformed had no effect. The input is a byte for the setting and a script of the peer's events on an
unencrypted connection; steps of other kinds are events as well.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from parley._lbm.errors import LbmDecodeError
from parley._node.bus.remote.messages import decode_answer, decode_request
from parley._node.journal.audit.content import (
    LONGEST_TOPIC,
    Content,
    Label,
    read_content,
    read_label,
    single_events,
)
from parley._node.journal.audit.rows import MALFORMED, OK
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.incoming_calls import SHORT_PAYLOAD, IncomingCall
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.outgoing_calls import ChunkInbox, OutgoingCall
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import LABEL, Topics
from parley._node.protocol import codes
from parley._node.protocol.codes import BUS, CONNECTION, NAMED, SIM, STREAM, BusType, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import INNER_HEAD, NO_PAYLOAD, Event, serialise_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import (
    ConnectionEnded,
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    WindowReceived,
)
from tests.fuzz.allowed import ALLOWED, MESSAGING
from tests.fuzz.application import Reader
from tests.fuzz.events import SETTINGS
from tests.fuzz.meeting import START, fixed_randomness, opened
from tests.fuzz.script import parse
from tests.node.messaging.fake import Handlers

MAX_SIZE: Final = 4096
# Unencrypted connections don't have them.
_MEMORY: Final = 1 << 26
_OF_ENCRYPTION: Final = range(codes.SEAL, codes.REKEY_ANSWER + 1)
# The expected reaction to a valid event that reached messaging.
_RUN: Final = ("call", "subscribe", "unsubscribe", "emit")
_ENDS: Final = {"result": (0,), "error": (), "end": ()}
# Topics of which we do not take up the subscription, and calls that wait for their Cancel.
_NOT_READ: Final = "u"
_HELD: Final = "h"
Did = tuple[Any, ...]
_REFUSED: Final[Did] = ("malformed",)


class Node:
    """A node's messaging layer, which records in `did` its reaction to each event."""

    def __init__(self, core: Connection) -> None:
        self.core = core
        self.did: list[Did] = []
        self.delivered = False
        self.over = False
        self.labels: dict[int, str] = {}
        self.held: set[tuple[int, int]] = set()
        self._readers: list[tuple[str, Reader]] = []
        self.calls = RequestMux(
            core, Handlers(self._find, self._run, self._stop, find_event=self._find_event)
        )
        self.topics = Topics(core, self.calls.incoming, self._knows)
        self._dispatch = Dispatch(core, self.calls, self.topics, self._stream_event)

    def hear(self, event: Event) -> None:
        """Take one event of the peer."""
        self.did, self.delivered = [], False
        asked = self._asked_for(event)
        if asked is not None:
            event = Event(1, asked.async_id, *event.head[2:], event.payload)
        self.core.receive_data(frame(serialise_raw(event)), START)
        for report in self.core.reports():
            self._take(report)
        self.core.data_to_send(START)
        self.core.reports()
        self._look_at(event, asked)

    def _asked_for(self, event: Event) -> OutgoingCall | None:
        """Send a request that such an event answers."""
        if not _answers(event):
            return None
        call: OutgoingCall = OutgoingEmit(_nothing)
        if event.category == SIM:
            call = OutgoingCall(_nothing)
            call.on_final = lambda code, stream: self.did.append(("result", code, stream))
            call.chunks = ChunkInbox(1 << 20, _nothing, lambda credit: None, self.core.account)
        return self.calls.outgoing.ask(call, call.category, 1, b"\xa0", START, None)

    def _take(self, report: Report) -> None:
        match report:
            case Event():
                self.delivered = True
                try:
                    self._dispatch.receive(report, START)
                except MESSAGING:
                    self.over = True
            case StreamOpened(stream, label):
                self.did.append(("open", label))
                self.labels[stream] = label
                self._subscribe(stream, label)
            case StreamFinished():
                self.topics.changed(report)
            case StreamReset(stream, code):
                self.did.append(("reset", stream, code))
                self.topics.changed(report)
            case WindowReceived(stream, request):
                self.did.append(("window", stream, request))
            case ConnectionEnded(code, remote=remote):
                self.over = True
                if remote:
                    self.did.append(("close", code))

    def _subscribe(self, stream: int, label: str) -> None:
        topic = label.removeprefix(LABEL)
        if topic == label:
            return
        self.topics.expect(topic)
        if self.topics.stream_opened(stream, label) and not topic.startswith(_NOT_READ):
            reader = Reader(partial(self.core.consume, stream), self.core.account)
            if self.topics.read(topic, stream, reader):
                self._readers.append((topic, reader))

    def _look_at(self, event: Event, asked: OutgoingCall | None) -> None:
        """Return the unread events after the event."""
        for topic, reader in self._readers:
            while len(reader.inbox):
                before = reader.inbox.malformed
                notes, _ = reader.inbox.take()
                reader.inbox.used()
                is_right = reader.inbox.malformed == before
                self.did.append(
                    ("notes", topic[:LONGEST_TOPIC], len(notes)) if is_right else _REFUSED
                )
        if isinstance(asked, OutgoingEmit):
            while asked.replies:
                self.did.append(("reply", asked.take().name[:LONGEST_TOPIC]))
            if asked.done:
                name = "end" if event.subcategory == codes.END else "error"
                self.did.append((name, asked.code))
        elif asked is not None and asked.chunks:
            try:
                asked.chunks.take()
            except ALLOWED["audit"]:
                self.did.append(_REFUSED)
            else:
                self.did.append(("chunk",))

    # Of messaging.

    def _find(self, subcategory: int, topic: str) -> ResultCode:
        name = "call" if subcategory == codes.CALL else "subscribe"
        self.did.append((name, topic[:LONGEST_TOPIC]))
        held = name == "call" and topic.startswith(_HELD)
        return ResultCode.ACCEPTED if held else ResultCode.TOPIC_NOT_FOUND

    def _find_event(self, namespace: str, name: str) -> ResultCode:
        self.did.append(("emit", name[:LONGEST_TOPIC], namespace[:LONGEST_TOPIC]))
        return ResultCode.TOPIC_NOT_FOUND

    def _knows(self, topic: str) -> bool:
        self.did.append(("unsubscribe", topic[:LONGEST_TOPIC]))
        return False

    def _run(self, call: IncomingCall) -> None:
        self.held.add((call.stream, call.async_id))

    def _stop(self, call: IncomingCall) -> None:
        self.held.discard((call.stream, call.async_id))
        self.did.append(("cancel", call.async_id))

    def _stream_event(self, event: Event) -> bool:
        """Read an event as the bus does, on either side, on a separate stream."""
        if event.category == BUS and self.labels.get(event.stream) == codes.BUS_LABEL:
            try:
                self.did.append(("bus", *_read_bus(event)))
            except LbmDecodeError:
                self.did.append(_REFUSED)
        return False


def _nothing() -> None:
    return


def _read_bus(event: Event) -> tuple[str | None, int | None]:
    """The name and the code."""
    if event.subcategory == BusType.ANSWER:
        return None, decode_answer(event.payload).code
    request: Any = decode_request(event.subcategory, event.payload)
    return getattr(request, "name", getattr(request, "stream", None)), None


def _said_of(event: Event, row: Content, topic: str | None) -> Did:
    """Return a node's reaction to an event according to the row, or None."""
    if event.category == BUS:
        return ("bus", topic, row.code) if row.status == OK else _REFUSED
    if row.status == MALFORMED:
        of_ends = _ENDS.get(row.type or "")
        return _REFUSED if of_ends is None else (row.type, ResultCode.MALFORMED, *of_ends)
    say: dict[str, Callable[[], Did]] = {
        "emit": lambda: ("emit", topic, row.namespace or ""),
        "result": lambda: ("result", row.code, row.opens or 0),
        "error": lambda: ("error", row.code),
        "end": lambda: ("end", 0),
        "chunk": lambda: ("chunk",),
        "reply": lambda: ("reply", topic or ""),
        "notify": lambda: ("notes", topic, 1),
        "notes": lambda: ("notes", topic, len(row.notes or ())),
        "cancel": lambda: ("cancel", row.request),
        "window": lambda: ("window", row.opens, row.request),
        "reset": lambda: ("reset", row.opens, row.code),
        "close": lambda: ("close", row.code),
        "open": lambda: ("open", row.label),
    }
    return say.get(row.type or "", lambda: (row.type, topic))()


def fuzz(data: bytes) -> None:
    """Say all of it, and compare after each event."""
    setting = SETTINGS[data[0] % len(SETTINGS)] if data else SETTINGS[0]
    with fixed_randomness():
        core, _ = opened(setting)
        core.account.limit = _MEMORY  # Refusals for lack of capacity are not part of the audit.
        node, labels = Node(core), dict[int, Label]()
        for step in parse(data[1:]):
            if not step.category or not step.subcategory:
                continue
            if step.category == CONNECTION and step.subcategory in _OF_ENCRYPTION:
                continue
            number = step.category, step.subcategory
            _compare(node, labels, Event(step.stream, step.async_id, *number, step.payload))
            if node.over:
                break


def _compare(node: Node, labels: dict[int, Label], event: Event) -> None:
    if _answers(event):
        event = Event(1, *event.head[1:], event.payload)
    number = event.category << 8 | event.subcategory
    plain = INNER_HEAD.pack(*event.head[1:]) + (event.payload or NO_PAYLOAD)
    inside = single_events(event.stream, plain)
    if len(inside) > 1:
        # As if each had come alone: target `batch` sees to it that this is the same.
        for _, async_id, kind, payload in inside:
            if not node.over:
                one = Event(event.stream, async_id, kind >> 8, kind & 255, payload)
                _compare(node, labels, one)
        return
    node.hear(event)
    row = read_content(event.stream, number, event.payload or NO_PAYLOAD)
    if row.label is not None:
        labels[event.stream] = read_label(row.label)
    topic = row.topic
    if event.stream in labels:
        topic = labels[event.stream].topic_of(number, topic)
    said = _said_of(event, row, topic)
    did = node.did
    if row.status == MALFORMED and len(event.payload) > SHORT_PAYLOAD:
        # Of a long call the topic is looked up before the rest is read; it does not run.
        did = [one for one in did if one[0] != "call"]
        assert node.over or (event.stream, event.async_id) not in node.held
    assert all(one == said for one in did), f"did {did}, and the row says {said}"
    if row.status == MALFORMED and (event.category <= STREAM or not event.stream):
        assert node.over, "a violation by the row alone"
    # A Subscribe without async id is dropped: its answer would have named the stream.
    taken = bool(event.async_id) or row.type != "subscribe"
    if row.status == OK and node.delivered and not node.over and row.type in _RUN and taken:
        assert node.did, f"the row says {said}, and nothing was done"
    if row.status == OK and row.type == "cancel" and node.delivered:
        assert (event.stream, row.request) not in node.held, "it was not cancelled"


def _answers(event: Event) -> bool:
    """Return whether it is an answer, which must match a request of this side on stream 1."""
    if event.category == NAMED:
        return event.subcategory in (codes.REPLY_EVENT, codes.ERROR, codes.END)
    return event.category == SIM and event.subcategory in (codes.RESULT, codes.CHUNK)
