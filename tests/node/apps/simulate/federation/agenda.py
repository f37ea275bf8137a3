"""The events of a simulated world: a heap of (time, number, event).

Events at the same time run in the order in which they were added, so that the same plan gives the
same world.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

Happening = Callable[[], None]


class Agenda:
    """Future events and the time; `now` is in seconds since the start of the world."""

    __slots__ = ("_due", "_number", "happened", "now")

    def __init__(self) -> None:
        self.now: float = 0.0
        self.happened = 0
        self._number = 0
        self._due: Final[list[tuple[float, int, Happening]]] = []

    def at(self, time: float, event: Happening) -> None:
        """Schedule `event` for a time, or immediately if that is in the past."""
        self._number += 1
        heappush(self._due, (max(time, self.now), self._number, event))

    def after(self, seconds: float, event: Happening) -> None:
        """Schedule `event` in so many seconds."""
        self.at(self.now + seconds, event)

    def run(self, until: float) -> None:
        """Run all events up to a time and set the time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, event = heappop(self._due)
            self.happened += 1
            event()
        self.now = until
