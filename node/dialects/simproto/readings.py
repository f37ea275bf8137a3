"""The topics of the other side that we read: our subscriptions on one SimProto connection.

One rule: a note has one response: 0 if somebody reads its topic, else 2. Knows what a
reader is told, not what it does.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from node.dialects.simproto.asking import Asking, OutgoingRequest
from node.dialects.simproto.core import RequestReceived, SimProtoCore
from node.dialects.simproto.note_queue import NEVER, NoteQueue
from node.dialects.simproto.packets import ACCEPTED, NOT_FOUND, NOT_SUBSCRIBED
from node.protocol.errors import LocalProtocolError


class Left(NamedTuple):
    """The report that an Unsubscribe of ours was answered."""

    topic: str


class Reader(Protocol):
    """A subscription of ours."""

    queue: NoteQueue

    def cut_off(self) -> None:
        """It was not read in time, and is over."""

    def lost(self, code: int, text: str) -> None:
        """The connection is over; what came stays readable."""


class Readings:
    """Our subscriptions by topic: asked for, or accepted. `dropped` counts notes that
    nobody read."""

    __slots__ = ("_asking", "_core", "_holding", "_leaving", "_readers", "dropped")

    def __init__(self, core: SimProtoCore, asking: Asking) -> None:
        self._core = core
        self._asking = asking
        self._readers: dict[str, Reader] = {}
        self._holding: set[NoteQueue] = set()  # those that hold acknowledgements back
        self._leaving: Counter[str] = Counter()  # Unsubscribes that wait for their response
        self.dropped = 0

    def expect(self, topic: str, reader: Reader, call: OutgoingRequest) -> None:
        """A Subscribe of ours is on its way. Notes may come before its response does."""
        first = self._readers.setdefault(topic, reader) is reader

        def answered(code: int, stream: int) -> None:
            if first and self._readers.get(topic) is reader and (code or call.done):
                if code:
                    del self._readers[topic]
                else:
                    # Accepted, but nobody waits for it any more.
                    self.leave(topic, reader, self._core.heard)

        call.on_final = answered

    def reads(self, topic: str, reader: Reader) -> bool:
        """Whether the notes of a topic go to this reader."""
        return self._readers.get(topic) is reader

    def leave(
        self, topic: str, reader: Reader, now: float, on_done: Callable[[], None] | None = None
    ) -> OutgoingRequest | None:
        """Want no more notes; returns the Unsubscribe, or None if there is nobody to tell.
        `on_done` is called when that is answered."""
        if self._readers.get(topic) is not reader:
            return None
        del self._readers[topic]
        with suppress(LocalProtocolError):  # closing, or too much waits: notes are answered 2
            call = self._asking.unsubscribe(topic, now, on_done or _nothing)
            self._leaving[topic] += 1
            # In its order: notes that came before it are not the next subscription's.
            call.on_final = lambda code, stream: self._core.happened.append(Left(topic))
            return call
        return None

    def left(self, report: Left) -> None:
        """An Unsubscribe was answered."""
        self._leaving -= Counter((report.topic,))

    def note_received(self, request: RequestReceived, now: float) -> None:
        """Take a Notify."""
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
        """A note has its place."""
        self._core.answer(dialog, ACCEPTED, b"", now)

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return min((queue.deadline for queue in self._holding), default=NEVER)

    def handle_deadline(self, now: float) -> None:
        """Acknowledge what can wait no longer."""
        for queue in self._holding:
            queue.handle_deadline(now)
        self._holding = {queue for queue in self._holding if queue.deadline != NEVER}

    def connection_ended(self, code: int, text: str) -> None:
        """Nothing comes any more."""
        readers, self._readers = self._readers, {}
        self._holding.clear()
        for reader in readers.values():
            reader.lost(code, text)


def _nothing() -> None:
    return
