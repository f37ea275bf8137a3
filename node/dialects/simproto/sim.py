"""The sim layer of one SimProto connection: requests and subscriptions in both directions."""

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from parley._node.dialects.core import NEVER
from parley._node.dialects.simproto.codec import (
    ACCEPTED,
    NOT_FOUND,
    NOT_SUBSCRIBED,
    NOTIFY,
)
from parley._node.dialects.simproto.core import RequestReceived, SimProtoCore
from parley._node.dialects.simproto.feeds import DialogScheduler, SimProtoFeed
from parley._node.dialects.simproto.requests import (
    SimProtoIncoming,
    SimProtoOutgoing,
    SimProtoRequest,
)
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.limits import EVENT_COST


class NoteQueue:
    """The unread notes of one subscription.

    Notes within `window` bytes of cost (a note's data and 64) are acknowledged on arrival. Further
    notes, up to twice the window and always at least one, are acknowledged `patience` seconds later
    at most.
    """

    __slots__ = (
        "_acknowledge",
        "_held",
        "_held_size",
        "_on_note",
        "_patience",
        "_size",
        "_waiting",
        "_window",
        "closed",
    )

    def __init__(
        self,
        window: int,
        patience: float,
        acknowledge: Callable[[int], None],
        on_note: Callable[[], None],
    ) -> None:
        self._window = window
        self._patience = patience
        self._acknowledge = acknowledge
        self._on_note = on_note
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._held: deque[tuple[int, int, float]] = deque()  # dialog, cost, deadline
        self._held_size = 0
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def deadline(self) -> float:
        """When the next note must be acknowledged."""
        return self._held[0][2] if self._held else NEVER

    def put(self, data: bytes, dialog: int, now: float) -> bool:
        """Add a note; returns False if the queue is full."""
        cost, limit = len(data) + EVENT_COST, 2 * self._window
        # The first note beyond the window is always accepted, because its publisher could not know.
        if self._size > limit or (self._held and self._size + cost > limit):
            return False
        self._waiting.append(data)
        self._size += cost
        if self._size > self._window and len(self._waiting) > 1:
            self._held.append((dialog, cost, now + self._patience))
            self._held_size += cost
        else:
            self._acknowledge(dialog)
        self._on_note()
        return True

    def take(self) -> bytes:
        """Remove and return the next note's data.

        Raises:
            IndexError: the queue is empty.
        """
        data = self._waiting.popleft()
        self._size -= len(data) + EVENT_COST
        while self._held and (
            self._size - self._held_size + self._held[0][1] <= self._window
            or len(self._held) == len(self._waiting)  # the next note that the application reads
        ):
            self._release()
        return data

    def handle_deadline(self, now: float) -> None:
        while self._held and self._held[0][2] <= now:
            self._release()

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()
        self._size = 0
        while self._held:
            self._release()

    def _release(self) -> None:
        dialog, cost, _ = self._held.popleft()
        self._held_size -= cost
        self._acknowledge(dialog)


class UnsubscribeAnswered(NamedTuple):
    """Report: an Unsubscribe sent by this side was answered."""

    topic: str


class NoteReader(Protocol):
    """A subscription of this side."""

    queue: NoteQueue

    def cut_off(self) -> None:
        """Handle the end of the subscription because it wasn't read in time."""

    def lost(self, code: int, text: str) -> None:
        """Handle the end of the connection; received notes stay readable."""


class Subscriptions:
    """This side's subscriptions by topic, requested or accepted.

    `dropped` counts notes without a reader.
    """

    __slots__ = ("_core", "_holding", "_leaving", "_outgoing", "_readers", "dropped")

    def __init__(self, core: SimProtoCore, outgoing: SimProtoOutgoing) -> None:
        self._core = core
        self._outgoing = outgoing
        self._readers: dict[str, NoteReader] = {}
        self._holding: set[NoteQueue] = set()  # queues with delayed acknowledgements
        self._leaving: Counter[str] = Counter()  # Unsubscribes that wait for their response
        self.dropped = 0

    def expect(self, topic: str, reader: NoteReader, call: SimProtoRequest) -> None:
        """Register the reader of a Subscribe that was sent; notes may arrive before the
        response.
        """
        first = self._readers.setdefault(topic, reader) is reader

        def answered(code: int, stream: int) -> None:
            if first and self._readers.get(topic) is reader and (code or call.done):
                if code:
                    del self._readers[topic]
                else:
                    # Accepted, but the reader stopped waiting.
                    self.leave(topic, reader, self._core.heard)

        call.on_final = answered

    def reads(self, topic: str, reader: NoteReader) -> bool:
        return self._readers.get(topic) is reader

    def leave(
        self, topic: str, reader: NoteReader, now: float, on_done: Callable[[], None] | None = None
    ) -> SimProtoRequest | None:
        """Unsubscribe, and return the request, or None if none is needed or possible.

        `on_done` is called when the request is answered.
        """
        if self._readers.get(topic) is not reader:
            return None
        del self._readers[topic]
        with suppress(LocalError):  # closing, or too much waits; later notes are answered with 2
            call = self._outgoing.unsubscribe(topic, now, on_done or _nothing)
            self._leaving[topic] += 1
            # Report it in order, because earlier notes don't belong to the next subscription.
            call.on_final = lambda code, stream: self._unsubscribed(topic)
            return call
        return None

    def left(self, report: UnsubscribeAnswered) -> None:
        self._leaving -= Counter((report.topic,))

    def note_received(self, request: RequestReceived, now: float) -> None:
        dialog, _, topic, data = request
        reader = None if topic is None or topic in self._leaving else self._readers.get(topic)
        if topic is None or reader is None or reader.queue.closed:
            self.dropped += 1
            code = NOT_FOUND if topic is None else NOT_SUBSCRIBED
            self._core.answer(dialog, code, b"", now)
        elif not reader.queue.put(data, dialog, now):
            self.dropped += 1
            self._core.answer(dialog, NOT_SUBSCRIBED, b"", now)
            self.leave(topic, reader, now)
            reader.cut_off()
        elif reader.queue.deadline != NEVER:
            self._holding.add(reader.queue)

    def acknowledge(self, dialog: int, now: float) -> None:
        self._core.answer(dialog, ACCEPTED, b"", now)

    def next_deadline(self) -> float:
        return min((queue.deadline for queue in self._holding), default=NEVER)

    def handle_deadline(self, now: float) -> None:
        for queue in self._holding:
            queue.handle_deadline(now)
        self._holding = {queue for queue in self._holding if queue.deadline != NEVER}

    def connection_ended(self, code: int, text: str) -> None:
        readers, self._readers = self._readers, {}
        self._holding.clear()
        for reader in readers.values():
            reader.lost(code, text)

    def _unsubscribed(self, topic: str) -> None:
        self._core.happened.append(UnsubscribeAnswered(topic))


def _nothing() -> None:
    return


class Sim:
    """All requests and subscriptions of one connection.

    `find`, `run` and `stop` are as in `SimProtoIncoming`; `knows` returns whether this side
    publishes a topic.
    """

    __slots__ = ("_core", "_feeds", "_knows", "incoming", "outgoing", "room", "subscriptions")

    def __init__(
        self,
        core: SimProtoCore,
        find: Callable[[int, str], ResultCode],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        knows: Callable[[str], bool],
    ) -> None:
        self._core = core
        self._knows = knows
        self._feeds: dict[str, SimProtoFeed] = {}
        self.outgoing = SimProtoOutgoing(core)
        self.incoming = SimProtoIncoming(core, find, run, stop, self._unsubscribe)
        self.subscriptions = Subscriptions(core, self.outgoing)
        self.room = DialogScheduler(core)

    def take(self, report: RequestReceived | UnsubscribeAnswered, now: float) -> None:
        """Process a report of the core."""
        if isinstance(report, UnsubscribeAnswered):
            self.subscriptions.left(report)
        elif report.kind == NOTIFY:
            self.subscriptions.note_received(report, now)
        else:
            self.incoming.request_received(report, now)

    # Topics of this side.

    def is_subscribed(self, topic: str) -> bool:
        return topic in self._feeds

    def add_feed(self, feed: SimProtoFeed) -> None:
        self._feeds[feed.topic] = feed

    def remove_feed(self, feed: SimProtoFeed) -> None:
        if self._feeds.get(feed.topic) is feed:
            del self._feeds[feed.topic]

    @property
    def has_feeds(self) -> bool:
        return bool(self._feeds)

    def finish(self) -> None:
        """End all feeds once the notes published so far are sent."""
        for feed in list(self._feeds.values()):
            feed.flush()
            if feed.open:
                feed.finish()

    def flush(self) -> None:
        for feed in list(self._feeds.values()):
            feed.flush()

    # Deadlines and the end.

    def next_deadline(self) -> float:
        return min(self.outgoing.deadlines.earliest, self.subscriptions.next_deadline())

    def handle_deadline(self, now: float) -> None:
        self.outgoing.handle_deadline(now)
        self.subscriptions.handle_deadline(now)

    def connection_ended(self, code: int, text: str) -> None:
        self._core.lose_all(code, text)
        self.incoming.connection_ended()
        self.subscriptions.connection_ended(code, text)
        for feed in list(self._feeds.values()):
            feed.lost()
        self.room.end()

    # Internals.

    def _unsubscribe(self, topic: str) -> int:
        feed = self._feeds.get(topic)
        if feed is None:
            return NOT_SUBSCRIBED if self._knows(topic) else NOT_FOUND
        feed.close()
        return ACCEPTED
