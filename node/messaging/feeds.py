"""Delivery of one topic's notes to a native subscriber (sections 12 and 18)."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from parley._node.messaging.fanout import Feed
from parley._node.messaging.notes import (
    BATCH_ROOM,
    DROPPED_HEADER,
    NOTES_OVERHEAD,
    NOTIFY_OVERHEAD,
    NUMBER_OVERHEAD,
    Batch,
    slow_text,
)
from parley._node.messaging.topic_history import Beginning, TopicHistory, TopicPosition
from parley._node.protocol.codes import SIM, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import LocalError
from parley._node.protocol.limits import NOTES_COUNT

if TYPE_CHECKING:
    from parley._node.messaging.fanout import Fanout

# The most events of one subscription in the connection's send queue.
WAITING_EVENTS: Final = 4
# No limit: a subscriber's queue is always shorter.
LAST_EVENTS: Final = 1 << 31


class StreamFeed(Feed):
    """The queue of notes for one native subscriber, sent on its subscription's stream.

    If the topic keeps a history, `begins` is the position that the acceptance reports.
    """

    begins: Beginning | None = None

    __slots__ = (
        "_asked",
        "_connection",
        "_finished",
        "_handed_on",
        "_room",
        "awaits_finish",
        "max_payload",
        "stream",
    )

    def __init__(
        self,
        fanout: "Fanout",
        connection: Connection,
        stream: int,
        max_payload: int,
        owner: object,
        on_closed: Callable[[Any], None],
    ) -> None:
        super().__init__(fanout, owner, on_closed, connection.account)
        self._connection = connection
        self.max_payload = max_payload
        # The space for notes in one event.
        self._room = min(BATCH_ROOM, max_payload - NOTES_OVERHEAD)
        # How many notes were in each of the last events in the connection's queue.
        self._handed_on: deque[int] = deque(maxlen=WAITING_EVENTS)
        # Whether a notification was requested for when the stream's queue is empty.
        self._asked = False
        self._finished = False
        self.stream = stream
        self.awaits_finish = True  # Whether the subscriber's Finish is still expected.

    def push(self, batch: Batch) -> None:
        """Send a batch, or queue it until the subscriber accepts more."""
        connection, stream = self._connection, self.stream
        if (
            self.waiting
            or self._untold
            or not self.open
            or batch.size > self._room
            or connection.outbox.waiting(stream) >= WAITING_EVENTS
        ):
            super().push(batch)
            return
        # The subscriber keeps up: the batch isn't queued here.
        subcategory, payload = batch.payload()
        if len(payload) > self.max_payload:
            self._lost(len(batch.notes))  # It is too long for every subscriber of this connection.
            return
        try:
            connection.send(stream, 0, SIM, subcategory, payload)
            self._handed_on.append(len(batch.notes))
        except LocalError:
            self.close()  # the connection is closing, or the stream was reset

    def pump(self, events: int = WAITING_EVENTS) -> None:
        """Move notes to the connection's queue until it has `events` events of this stream."""
        connection, stream = self._connection, self.stream
        try:
            while self.waiting and connection.outbox.waiting(stream) < events:
                batch = self._next()
                if batch is not None:
                    subcategory, payload = batch.payload()
                    connection.send(stream, 0, SIM, subcategory, payload)
                    self._handed_on.append(len(batch.notes))
            if self.waiting and not self._asked:
                connection.notify_writable(stream)
                self._asked = True
            elif self._finishing and not self.waiting:
                connection.finish_stream(stream)
                self._finished = True
                self.close()
        except LocalError:
            self.close()  # the connection is closing, or the stream was reset
        self._drained()

    def flush(self) -> None:
        """Move all notes to the connection's queue, before the connection is closed."""
        self._fanout.flush()
        self.pump(LAST_EVENTS)

    def writable(self) -> None:
        """Continue sending, because the stream's queue is empty."""
        self._asked = False
        if self.open:
            self.pump()

    def reset(self, code: int, text: str) -> None:
        """End the subscription with a Reset; all queued notes are lost."""
        with suppress(LocalError):  # the connection is closing
            self._connection.reset_stream(self.stream, code, text)
        self._finished = False
        self.close()

    @property
    def left(self) -> tuple[int, int]:
        """The unsent notes: bytes of cost in this queue, events in the connection's queue."""
        return self.cost, self._connection.outbox.waiting(self.stream)

    @property
    def is_finishing(self) -> bool:
        """Whether Finish was sent after all notes, and the subscriber has not confirmed it yet."""
        return self._finished and self.awaits_finish

    def over(self) -> None:
        """Record that the subscriber has received everything that it will receive."""
        self.awaits_finish = False
        super().over()

    def _next(self) -> Batch | None:
        """Return the notes of the next event: as many queued notes as fit."""
        batch = self._take()
        room = self._room
        if self._untold:
            batch = self._first_of(batch, 0)
        elif batch.size > room:
            batch = self._first_of(batch, room)
        elif self.waiting and batch.headers is None and batch.size * 2 < room:
            batch = self._merge_batches(batch, room)
        if self._untold:
            batch = self._with_dropped_count(batch)
        if len(batch.notes) == 1 and len(batch.payload()[1]) > self.max_payload:
            self._lost(1)  # It is too long for every subscriber of this connection.
            return None
        return batch

    def _merge_batches(self, batch: Batch, room: int) -> Batch:
        """Merge small batches of several iterations into one."""
        waiting, notes, size = self.waiting, list(batch.notes), batch.size
        while waiting:
            more = waiting[0]
            count = len(notes) + len(more.notes)
            if more.headers is not None or size + more.size > room or count > NOTES_COUNT:
                break
            if more.missing:
                break
            notes += more.notes
            size += more.size
            self._take()
        return Batch(notes) if len(notes) > len(batch.notes) else batch

    def _first_of(self, batch: Batch, room: int) -> Batch:
        """Return the notes that fit into `room` bytes, at least one; queue the rest again."""
        if len(batch.notes) == 1:
            return batch
        count = size = 0
        for note in batch.notes:
            size += len(note)
            if count and size > room:
                break
            count += 1
        first, rest = batch.split(count)
        self._put_back(rest)
        return first

    def _with_dropped_count(self, batch: Batch) -> Batch:
        """Add the number of lost notes to a note, if the header fits."""
        telling = batch.with_header(DROPPED_HEADER, self.dropped)
        if len(telling.payload()[1]) > self.max_payload:
            return batch
        self._untold = False
        return telling

    def _cut_off(self) -> None:
        self.reset(CloseCode.SLOW_CONSUMER, slow_text(self.dropped))

    def _unwritten(self) -> int:
        """Return how many notes are in the connection's queue; a Reset discards them."""
        events = self._connection.outbox.waiting(self.stream)
        return sum(list(self._handed_on)[-events:]) if events else 0


# Larger than every note number.
_NEVER: Final = 1 << 64


class HistoryFeed(StreamFeed):
    """The queue of a subscriber that already has the notes up to `after`.

    Notes are numbered. An event includes the number of its first note unless it directly follows
    the last note that was sent.
    """

    __slots__ = ("_is_behind", "_kept", "_next_number", "_replaced", "_tells", "_until", "begins")

    def __init__(
        self,
        fanout: "Fanout",
        kept: TopicHistory,
        after: TopicPosition | None,
        connection: Connection,
        stream: int,
        max_payload: int,
        owner: object,
        on_closed: Callable[[Any], None],
    ) -> None:
        # Reserve space for the number: without it, the subscriber would count the note as lost.
        room = max_payload - NUMBER_OVERHEAD
        super().__init__(fanout, connection, stream, room, owner, on_closed)
        self._kept = kept
        self.begins = kept.begin(after)
        # The number of the next note to send: the first queued one, if any.
        self._next_number = self.begins.position.number + 1
        self._is_behind = self._next_number <= kept.last
        self._tells = True  # Whether the next event must include its number.
        self._replaced = 0  # How many notes directly before the next one were replaced.
        self._until = _NEVER  # The last note to send, once it is finishing.

    @property
    def behind(self) -> int:
        """How many notes of the history it still has to read."""
        return self._kept.count(self._next_number, self._end) if self._is_behind else 0

    @property
    def left(self) -> tuple[int, int]:
        """The unsent notes: bytes of cost and notes here, events in the connection's
        queue.
        """
        cost, events = super().left
        return cost + self.behind, events

    def push(self, batch: Batch) -> None:
        """Send or queue a batch; a feed that is behind will read it from the history instead."""
        if not self._is_behind:
            Feed.push(self, batch)

    def pump(self, events: int = WAITING_EVENTS) -> None:
        """Move notes to the connection's queue until it has `events` events of this stream."""
        if self._is_behind and self.open:
            self._read_on(events)
        if self.open and not self._is_behind:
            super().pump(events)

    def flush(self) -> None:
        """Move notes to the connection's queue before the connection is closed, up to the usual
        limit.
        """
        self._fanout.flush()
        self.pump(WAITING_EVENTS + self._fanout.limit // BATCH_ROOM)
        if not self._is_behind:
            self.pump(LAST_EVENTS)

    def finish(self) -> None:
        """Accept no more notes; send the end after the queued notes and the history."""
        self._until = self._fanout.emitted
        super().finish()

    @property
    def _end(self) -> int:
        """The last note sent to all subscribers; later notes are pushed once this feed is live."""
        return min(self._fanout.emitted, self._until)

    def _read_on(self, events: int) -> None:
        connection, stream = self._connection, self.stream
        try:
            while self._skip_lost():
                if connection.outbox.waiting(stream) >= events:
                    if not self._asked:
                        connection.notify_writable(stream)
                        self._asked = True
                    return
                self._put(self._kept.read(self._next_number, self._end, self._room))
                batch = self._next()
                if batch is not None:
                    subcategory, payload = batch.payload()
                    connection.send(stream, 0, SIM, subcategory, payload)
                    self._handed_on.append(len(batch.notes))
        except LocalError:
            self.close()  # the connection is closing, or the stream was reset
        self._is_behind = False

    def _skip_lost(self) -> bool:
        """Skip notes that were discarded, replaced, or are too long; return whether a note is left.

        There can be thousands of these.
        """
        kept, end = self._kept, self._end
        forgotten = min(kept.first - 1, end) + 1 - self._next_number
        if forgotten > 0:
            self._lost(forgotten)
        while self._next_number <= end:
            if replaced := kept.replaced(self._next_number, end):
                self._pass_over(replaced)
                continue
            too_long = kept.too_long(self._next_number, end, self.max_payload - NOTIFY_OVERHEAD)
            if not too_long:
                return True
            self._lost(too_long)
        return False

    def _next(self) -> Batch | None:
        batch = super()._next()
        if batch is None:
            return None
        if self._tells:
            numbered = batch.with_number(self._next_number, self._replaced)
            if len(numbered.payload()[1]) > self.max_payload + NUMBER_OVERHEAD:
                # Without the number of replaced notes, the subscriber counts them as missing.
                numbered = batch.with_number(self._next_number)
            self._tells, self._replaced = False, 0
            self._next_number += len(batch.notes)
            return numbered
        self._next_number += len(batch.notes)
        return batch

    def _take(self) -> Batch:
        batch = super()._take()
        if batch.missing:
            self._pass_over(batch.missing)
            self._replaced = batch.replaced
        return batch

    def _overflow(self) -> None:
        while self._is_over:
            if self._kept.first <= self._next_number:
                self._fall_behind()
                return
            self._drop_oldest()

    def _fall_behind(self) -> None:
        """Discard the queue, which is also in the history, and read it from there later."""
        while self.waiting:
            self._take()
        self._is_behind = True
        self.pump()

    def _lost(self, count: int) -> None:
        """Count lost notes; the subscriber recognises them by their numbers, without a header."""
        super()._lost(count)
        self._untold = False
        self._pass_over(count)
        self._replaced = 0

    def _pass_over(self, count: int) -> None:
        """Increase the number of the next note."""
        self._next_number += count
        self._replaced += count
        self._tells = True

    def _unwritten(self) -> int:
        return super()._unwritten() + self.behind
