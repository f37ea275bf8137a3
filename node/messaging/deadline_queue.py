"""Many deadlines under one timer: adding and dropping one costs well below 1 us.

A deadline is kept in the 1/64 s in which it falls and comes due at the end of it, never
early.
"""

from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from parley._node.protocol.config_types import require_number

T = TypeVar("T")

# 31 years, which the numbers of every clock and timer can hold.
LONGEST_DEADLINE_MS: Final = 10**12
LONGEST_TIMEOUT: Final = LONGEST_DEADLINE_MS / 1000
INFINITY: Final = float("inf")
# What `DeadlineQueue.add` returns for an item without a deadline; nothing is ever added to it.
NO_SLOT: Final[set[Any]] = set()

_PER_SECOND = 64
# Emptied slots that are kept on top of as many as were in use.
SPARE = 256


class DeadlineQueue(Generic[T]):
    """Things with a deadline in seconds of `now`. `T` is hashed by identity or value; it is
    watched until it is discarded from what `add` returned.

    Nothing is due before `earliest` (infinity for never), which may be that of something
    that is watched no more.
    """

    __slots__ = ("_sweep_at", "earliest", "order", "slots")

    def __init__(self) -> None:
        self.slots: dict[int, set[T]] = {}
        self.order: list[int] = []
        self._sweep_at = SPARE
        self.earliest = INFINITY

    def __len__(self) -> int:
        return sum(len(slot) for slot in self.slots.values())

    def add(self, item: T, deadline: float) -> set[T]:
        """Watch `item`; returns the set that it is to be discarded from to watch it no more."""
        slot = int(deadline * _PER_SECOND) + 1
        items = self.slots.get(slot)
        if items is None:
            if len(self.slots) >= self._sweep_at:
                self._sweep()
            items = self.slots[slot] = set()
            heappush(self.order, slot)
            self.earliest = self.order[0] / _PER_SECOND
        items.add(item)
        return items

    def pop_due(self, now: float) -> list[T]:
        """What is due at `now`, which is watched no more."""
        result: list[T] = []
        order = self.order
        while order and (order[0] / _PER_SECOND <= now or not self.slots[order[0]]):
            result.extend(self.slots.pop(heappop(order)))
        self.earliest = order[0] / _PER_SECOND if order else INFINITY
        return result

    def _sweep(self) -> None:
        """Far deadlines of calls that were answered long ago must not pile up."""
        self.slots = {slot: items for slot, items in self.slots.items() if items}
        self.order = sorted(self.slots)
        self._sweep_at = 2 * len(self.slots) + SPARE


def clamp_timeout(timeout: float | None) -> float | None:
    """A time-out in seconds that timers can hold; None, as infinity, for none.

    Raises:
        ValueError: it isn't a number.
    """
    if type(timeout) is float and 0.0 <= timeout <= LONGEST_TIMEOUT:
        return timeout
    if timeout is None or timeout == INFINITY:
        return None
    require_number("timeout", timeout, -INFINITY)
    return min(max(0.0, timeout), LONGEST_TIMEOUT)
