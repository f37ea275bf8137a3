"""Many deadlines under one timer: adding and removing one takes well below 1 us.

Deadlines are grouped in slots of 1/64 s. A deadline expires at the end of its slot, never early.
"""

from heapq import heappop, heappush
from typing import Any, Final, Generic, TypeVar

from parley._node.protocol.config_types import require_number

T = TypeVar("T")

# 31 years, a limit that all clocks and timers can represent.
LONGEST_DEADLINE_MS: Final = 10**12
LONGEST_TIMEOUT: Final = LONGEST_DEADLINE_MS / 1000
INFINITY: Final = float("inf")
# Returned by `DeadlineQueue.add` for an item without a deadline; it always stays empty.
NO_SLOT: Final[set[Any]] = set()

_PER_SECOND: Final = 64
# How many empty slots are allowed in addition to twice the slots in use.
SPARE = 256


class DeadlineQueue(Generic[T]):
    """Items with deadlines, in seconds of `now`. Items must be hashable.

    To remove an item, discard it from the set that `add` returned. No item expires before
    `earliest` (infinity if there are no items), which can also belong to an item that was removed.
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
        """Add an item; return the set from which to discard the item to remove it."""
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
        """Remove and return the items whose deadline has passed at `now`."""
        result: list[T] = []
        order = self.order
        while order and (order[0] / _PER_SECOND <= now or not self.slots[order[0]]):
            result.extend(self.slots.pop(heappop(order)))
        self.earliest = order[0] / _PER_SECOND if order else INFINITY
        return result

    def _sweep(self) -> None:
        """Remove empty slots, so that the distant deadlines of answered calls don't accumulate."""
        self.slots = {slot: items for slot, items in self.slots.items() if items}
        self.order = sorted(self.slots)
        self._sweep_at = 2 * len(self.slots) + SPARE


def clamp_timeout(timeout: float | None) -> float | None:
    """Clamp a timeout in seconds to the range of timers; return None for None and infinity.

    Raises:
        ValueError: `timeout` isn't a number.
    """
    if type(timeout) is float and 0.0 <= timeout <= LONGEST_TIMEOUT:
        return timeout
    if timeout is None or timeout == INFINITY:
        return None
    require_number("timeout", timeout, -INFINITY)
    return min(max(0.0, timeout), LONGEST_TIMEOUT)
