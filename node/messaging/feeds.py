"""The notes of one topic on their way to one native subscriber (sections 12 and 18)."""

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

# Events of one subscription that wait in the connection's own queue at a time.
WAITING_EVENTS: Final = 4
# All of them: what may wait for a subscriber is less.
LAST_EVENTS: Final = 1 << 31


class StreamFeed(Feed):
    """The notes that wait for one subscriber, on the stream of its subscription. `begins` is
    what its acceptance says of that, of a topic that remembers."""

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
        self._room = min(BATCH_ROOM, max_payload - NOTES_OVERHEAD)  # for the notes of an event
        # How many notes were in each of the last events handed on to the connection.
        self._handed_on: deque[int] = deque(maxlen=WAITING_EVENTS)
        self._asked = False  # to be told when the stream is empty
        self._finished = False
        self.stream = stream
        self.awaits_finish = True  # that of the subscriber; before and after ours

    def push(self, batch: Batch) -> None:
        """Send a batch, or keep it until the subscriber accepts more."""
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
            self._lost(len(batch.notes))  # no subscriber of this connection can ever take it
            return
        try:
            connection.send(stream, 0, SIM, subcategory, payload)
            self._handed_on.append(len(batch.notes))
        except LocalError:
            self.close()  # the connection is closing, or the stream was reset

    def pump(self, events: int = WAITING_EVENTS) -> None:
        """Hand on to the connection what it may write soon, up to so many events."""
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
        """Hand on everything: the connection is about to be closed."""
        self._fanout.flush()
        self.pump(LAST_EVENTS)

    def writable(self) -> None:
        """Nothing of us waits on the connection any more."""
        self._asked = False
        if self.open:
            self.pump()

    def reset(self, code: int, text: str) -> None:
        """End the subscription by Reset: all that waits is lost."""
        with suppress(LocalError):  # the connection is closing
            self._connection.reset_stream(self.stream, code, text)
        self._finished = False
        self.close()

    @property
    def left(self) -> tuple[int, int]:
        """What it has not been sent: bytes of cost here, events on the connection."""
        return self.cost, self._connection.outbox.waiting(self.stream)

    @property
    def is_finishing(self) -> bool:
        """Whether Finish went after all notes, and the subscriber has not answered it yet."""
        return self._finished and self.awaits_finish

    def over(self) -> None:
        """Nothing of it is on its way any more: the subscriber has all, or gets no more."""
        self.awaits_finish = False
        super().over()

    # Inside.

    def _next(self) -> Batch | None:
        """The next event's notes: as many of what waits as fit in one."""
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
            self._lost(1)  # no subscriber of this connection can ever take it
            return None
        return batch

    def _merge_batches(self, batch: Batch, room: int) -> Batch:
        """Small batches of several turns, as one."""
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
        """The notes that fit into `room`, at least one; the rest goes back."""
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
        """A note with the number of those that were lost, unless it has no room for it."""
        telling = batch.with_header(DROPPED_HEADER, self.dropped)
        if len(telling.payload()[1]) > self.max_payload:
            return batch
        self._untold = False
        return telling

    def _cut_off(self) -> None:
        self.reset(CloseCode.SLOW_CONSUMER, slow_text(self.dropped))

    def _unwritten(self) -> int:
        """How many notes wait on the connection: Reset takes them with it."""
        events = self._connection.outbox.waiting(self.stream)
        return sum(list(self._handed_on)[-events:]) if events else 0


# No number of a note is as high.
_NEVER: Final = 1 << 64


class HistoryFeed(StreamFeed):
    """The notes for one subscriber that has those up to `after`. Each note has a number; an
    event says that of its first note if it is not the one after the last that went."""

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
        # A note that only fits without its number could not be told from one that is lost.
        room = max_payload - NUMBER_OVERHEAD
        super().__init__(fanout, connection, stream, room, owner, on_closed)
        self._kept = kept
        self.begins = kept.begin(after)
        # The number of the next note that is handed on: of the first that waits, if any does.
        self._next_number = self.begins.position.number + 1
        self._is_behind = self._next_number <= kept.last
        self._tells = True  # the next event says its number
        self._replaced = 0  # notes directly before the next one that were replaced
        self._until = _NEVER  # the last note that it gets, once it is finishing

    @property
    def behind(self) -> int:
        """How many notes it is yet to read out of those that are kept."""
        return self._kept.count(self._next_number, self._end) if self._is_behind else 0

    @property
    def left(self) -> tuple[int, int]:
        """What it has not been sent: bytes of cost and notes here, events on the connection."""
        cost, events = super().left
        return cost + self.behind, events

    def push(self, batch: Batch) -> None:
        """Send a batch, or keep it; one that is behind finds it among those that are kept."""
        if not self._is_behind:
            Feed.push(self, batch)

    def pump(self, events: int = WAITING_EVENTS) -> None:
        """Hand on to the connection what it may write soon, up to so many events."""
        if self._is_behind and self.open:
            self._read_on(events)
        if self.open and not self._is_behind:
            super().pump(events)

    def flush(self) -> None:
        """Hand on everything, as far as it would wait for any subscriber: the connection is
        about to be closed."""
        self._fanout.flush()
        self.pump(WAITING_EVENTS + self._fanout.limit // BATCH_ROOM)
        if not self._is_behind:
            self.pump(LAST_EVENTS)

    def finish(self) -> None:
        """Nothing more is published: the end goes after what waits, and what is kept."""
        self._until = self._fanout.emitted
        super().finish()

    # Inside.

    @property
    def _end(self) -> int:
        """The last note that went to all others: what follows it will be pushed here as well,
        once this feed is live."""
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
        """What is not kept any more is lost, and so is what this connection can never carry:
        thousands of notes may be that. Replaced notes are passed over. Whether there is a note to
        be read then."""
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
                numbered = batch.with_number(self._next_number)  # they count as a gap
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
        """What waits is kept as well: it is read from there, and takes no room here."""
        while self.waiting:
            self._take()
        self._is_behind = True
        self.pump()

    def _lost(self, count: int) -> None:
        """Numbers tell of it, and no header does."""
        super()._lost(count)
        self._untold = False
        self._pass_over(count)
        self._replaced = 0

    def _pass_over(self, count: int) -> None:
        """The next note has a number that is higher by this."""
        self._next_number += count
        self._replaced += count
        self._tells = True

    def _unwritten(self) -> int:
        return super()._unwritten() + self.behind
