"""Many deadlines under one timer: adding and dropping one costs well below 1 us.

One rule: a deadline is kept in the 1/64 s in which it falls and comes due at the end of
it, never early. Knows nothing of what is due.
"""

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# 31 years, which the numbers of every clock and timer can hold.
LONGEST_DEADLINE_MS: Final = 10**12
INFINITY: Final = float("inf")

_PER_SECOND = 64
# Emptied slots that the heap may hold on top of as many as are in use.
_SPARE = 256


class Deadlines(Generic[T]):
    """Things with a deadline in seconds of `now`. `T` is hashed by identity or value.

    Nothing is due before `earliest` (infinity for never), which may be that of something
    that is watched no more.
    """

    __slots__ = ("_order", "_slots", "earliest")

    def __init__(self) -> None:
        self._slots: dict[int, set[T]] = {}
        self._order: list[int] = []
        self.earliest = INFINITY

    def __len__(self) -> int:
        return sum(len(slot) for slot in self._slots.values())

    def add(self, item: T, deadline: float) -> int:
        """Watch `item`; returns what `discard` needs to find it."""
        slot = int(deadline * _PER_SECOND) + 1
        items = self._slots.get(slot)
        if items is None:
            self._slots[slot] = {item}
            heappush(self._order, slot)
            self.earliest = self._order[0] / _PER_SECOND
        else:
            items.add(item)
        return slot

    def discard(self, item: T, slot: int) -> None:
        """Watch `item` no more."""
        items = self._slots.get(slot)
        if items is None:
            return
        items.discard(item)
        if not items:
            # Far deadlines of calls that were answered long ago must not pile up.
            del self._slots[slot]
            if len(self._order) > 2 * len(self._slots) + _SPARE:
                self._order = list(self._slots)
                heapify(self._order)

    def due(self, now: float) -> list[T]:
        """What is due at `now`, which is watched no more."""
        result: list[T] = []
        order = self._order
        while order and (order[0] / _PER_SECOND <= now or order[0] not in self._slots):
            result.extend(self._slots.pop(heappop(order), ()))
        self.earliest = order[0] / _PER_SECOND if order else INFINITY
        return result


def within_reason(timeout: float | None) -> float | None:
    """A time-out in seconds that timers can hold; None, as infinity, for none."""
    if timeout is None or timeout == INFINITY:
        return None
    return min(max(0.0, timeout), LONGEST_DEADLINE_MS / 1000)
