"""The notes of one subscription that came and were not read.

They stay as they came until they are read, so that what waits takes the
memory that its credit allows; and credit is given back only for what was read. Knows
neither its topic nor its reader.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from parley._lbm import keys
from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.notes import DROPPED_HEADER, NO_HEADERS
from parley._node.protocol import event_types
from parley._node.protocol.codes import NOTES
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget

# Notes that come on stream 1, where no credit bounds them: bytes of memory that may wait.
UNPAID_LIMIT: Final = 256 * 1024


class NoteInbox:
    """What waits for one reader. `on_note` is called when something came, `consume` with
    what was read, and in how many events. What no credit bounds is charged to `account`.
    `dropped` is how many notes the publisher says were lost, `malformed`
    how many events could not be read."""

    __slots__ = (
        "_account",
        "_consume",
        "_in_use",
        "_in_use_events",
        "_on_note",
        "_unpaid",
        "_waiting",
        "closed",
        "dropped",
        "malformed",
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
        self._waiting: deque[tuple[int, bytes, int]] = deque()
        self._unpaid = 0
        self._in_use = 0
        self._in_use_events = 0
        self.closed = False
        self.dropped = 0
        self.malformed = 0

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._waiting)

    @property
    def unread_costs(self) -> list[int]:
        """The costs of the events that hold credit that was not given back."""
        in_use = [self._in_use] if self._in_use else []
        return in_use + [cost for _, _, cost in self._waiting if cost]

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """A Notify or Notes came; False if there is no room for one that cost nothing."""
        if self.closed:
            self._consume(cost, 1)
            return True
        if not cost:
            size = len(payload) + EVENT_WEIGHT
            if self._unpaid + size > UNPAID_LIMIT or not self._account.has_room(size):
                return False
            self._pay(size)
        self._waiting.append((subcategory, payload, cost))
        self._on_note()
        return True

    def take(self) -> tuple[list[Value], Mapping[str, Value]]:
        """The notes of the next event, and their headers; no notes if it was malformed.
        Call `used` when they were.

        Raises:
            IndexError: nothing waits.
        """
        subcategory, payload, cost = self._waiting.popleft()
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
        """Give back the credit of what was taken."""
        if self._in_use:
            cost, count = self._in_use, self._in_use_events
            self._in_use = self._in_use_events = 0
            self._consume(cost, count)

    def close(self) -> None:
        """Nobody reads any more: forget what waits, and what may still come."""
        self.closed = True
        self.used()
        while self._waiting:
            _, _, cost = self._waiting.popleft()
            if cost:
                self._consume(cost, 1)
        self._pay(-self._unpaid)

    def _read(self, subcategory: int, payload: bytes) -> tuple[list[Value], Mapping[str, Value]]:
        """The notes of an event, and their headers; raises LbmDecodeError."""
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
