"""Received notes of a subscription that have not been read yet."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import MAX_UINT
from parley._node.messaging.notes import DROPPED_HEADER, NO_HEADERS
from parley._node.messaging.topic_history import Beginning, TopicPosition
from parley._node.protocol import event_types
from parley._node.protocol.codes import NOTES
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget

# The limit for notes on stream 1, which has no credit, in bytes of memory.
UNPAID_LIMIT: Final = 256 * 1024


class NoteInbox:
    """The unread notes of one reader.

    `on_note` is called when an event has arrived, `consume` with the cost and number of events that
    were read. Events without credit are charged to `account`. `dropped` is the number of lost notes
    as reported by the publisher, `malformed` the number of events that could not be decoded.
    """

    __slots__ = (
        "_account",
        "_consume",
        "_in_use",
        "_in_use_events",
        "_on_note",
        "_unpaid",
        "closed",
        "dropped",
        "malformed",
        "waiting",
    )

    def __init__(
        self,
        on_note: Callable[[], None],
        consume: Callable[[int, int], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self._on_note = on_note
        self._consume = consume
        self.waiting: deque[tuple[int, bytes, int]] = deque()
        self._unpaid = 0
        self._in_use = 0
        self._in_use_events = 0
        self.closed = False
        self.dropped = 0
        self.malformed = 0

    def __len__(self) -> int:
        """Return the number of unread events."""
        return len(self.waiting)

    @property
    def unread_costs(self) -> list[int]:
        """The costs of events whose credit has not been returned."""
        in_use = [self._in_use] if self._in_use else []
        return in_use + [cost for _, _, cost in self.waiting if cost]

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """Store a Notify or Notes; False if it has no credit and the memory budget is exhausted."""
        if self.closed:
            self._consume(cost, 1)
            return True
        if not cost:
            size = len(payload) + EVENT_WEIGHT
            if self._unpaid + size > UNPAID_LIMIT or not self._account.has_room(size):
                return False
            self._pay(size)
        self.waiting.append((subcategory, payload, cost))
        self._on_note()
        return True

    def take(self) -> tuple[list[Value], Mapping[str, Value]]:
        """Return the notes of the next event and their headers; no notes if it is malformed.

        Call `used` after the notes were processed.

        Raises:
            IndexError: the inbox is empty.
        """
        subcategory, payload, cost = self.waiting.popleft()
        if cost:
            self._in_use += cost
            self._in_use_events += 1
        else:
            self._pay(-len(payload) - EVENT_WEIGHT)
        try:
            return self._read(subcategory, payload)
        except LbmDecodeError:
            self.malformed += 1
            return [], NO_HEADERS

    def used(self) -> None:
        """Return the credit of the events that were taken."""
        if self._in_use:
            cost, count = self._in_use, self._in_use_events
            self._in_use = self._in_use_events = 0
            self._consume(cost, count)

    def close(self) -> None:
        """Discard all unread and future events."""
        self.closed = True
        self.used()
        while self.waiting:
            _, _, cost = self.waiting.popleft()
            if cost:
                self._consume(cost, 1)
        self._pay(-self._unpaid)

    def _read(self, subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[str, Value]]:
        """Decode the notes of an event and their headers; raise LbmDecodeError if it is
        malformed.
        """
        if subcategory == NOTES:
            notes: list[Value] = event_types.NOTES.read(payload)[keys.NOTES]
            return notes, NO_HEADERS
        cells = event_types.NOTIFY.read(payload)
        headers: Mapping[str, Value] = cells.get(keys.HEADERS, NO_HEADERS)
        told = headers.get(DROPPED_HEADER)
        if type(told) is int and told > self.dropped:
            self.dropped = told
        return [cells.get(keys.DATA)], headers

    def _pay(self, size: int) -> None:
        self._unpaid += size
        self._account.charge(size)


LAST_NUMBER: Final = MAX_UINT


class NumberedInbox(NoteInbox):
    """The unread notes of a reader that already has the notes up to `after`.

    Attributes: number: the number of the last note that was read. gaps: how many notes before it
    are missing. replaced: how many notes before it were replaced by newer notes with the same key.
    repeated: how many notes arrived again that had already been read. recovered: whether no note is
    missing between `after` and the beginning.
    """

    __slots__ = ("_wire", "epoch", "gaps", "number", "recovered", "repeated", "replaced")

    def __init__(
        self,
        on_note: Callable[[], None],
        consume: Callable[[int, int], None],
        account: MemoryBudget,
        begins: Beginning,
        after: TopicPosition | None,
    ) -> None:
        super().__init__(on_note, consume, account)
        (self.epoch, number), recovered = begins
        same = after is not None and after.epoch == self.epoch
        before = after.number if after is not None and same else number
        # Check the publisher's claim against the numbers.
        self.recovered = recovered and same and number <= before
        self.gaps = max(0, number - before)
        self.repeated = self.replaced = 0
        # The last note that arrived, and the last that was taken.
        self._wire = number
        self.number = max(before, number)

    @property
    def position(self) -> TopicPosition:
        """The position of the last note that arrived, read or not. Decodes all unread events."""
        wire, number = self._wire, self.number
        for subcategory, payload, _ in self.waiting:
            try:
                notes, cells = _read_cells(subcategory, payload)
                wire = _last_of(notes, cells, wire)
            except LbmDecodeError:
                continue
            number = max(number, wire) if notes else number
        return TopicPosition(self.epoch, number)

    def _read(self, subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[str, Value]]:
        notes, cells = _read_cells(subcategory, payload)
        last = self._wire = _last_of(notes, cells, self._wire)
        headers: Mapping[str, Value] = cells.get(keys.HEADERS, NO_HEADERS)
        if not notes:
            return notes, headers
        first, taken = last + 1 - len(notes), self.number
        if first <= taken:
            repeated = min(len(notes), taken + 1 - first)
            self.repeated += repeated
            notes = notes[repeated:]
        else:
            missing = first - 1 - taken
            replaced = min(missing, cells.get(keys.REPLACED, 0))
            self.replaced += replaced
            self.gaps += missing - replaced
        self.number = max(taken, last)
        return notes, headers


def _read_cells(subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[int, Any]]:
    """Decode the notes of an event and its cells; raise LbmDecodeError if it is malformed."""
    if subcategory == NOTES:
        cells = event_types.NOTES.read(payload)
        return cells[keys.NOTES], cells
    cells = event_types.NOTIFY.read(payload)
    return [cells.get(keys.DATA)], cells


def _last_of(notes: list[Value], cells: Mapping[int, Any], wire: int) -> int:
    """Return the number of an event's last note; `wire` is the number of the note before the event.

    Raises:
        LbmDecodeError: the number exceeds the largest possible one.
    """
    number = cells.get(keys.NUMBER)
    before = wire if type(number) is not int else number - 1
    if before + len(notes) > LAST_NUMBER:
        raise LbmDecodeError(f"invalid note number {before + len(notes)}: the largest is 2^64 - 1")
    return before + len(notes)
