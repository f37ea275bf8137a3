"""What is to happen in a simulated world, in order: a heap of (time, number, event).

Events of one moment happen in the order in which they were put down, so that the same plan gives
the same world.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

Happening = Callable[[], None]


class Agenda:
    """Events to come, and the time: `now` is in seconds since the world began."""

    __slots__ = ("_due", "_number", "happened", "now")

    def __init__(self) -> None:
        self.now: float = 0.0
        self.happened = 0
        self._number = 0
        self._due: Final[list[tuple[float, int, Happening]]] = []

    def at(self, time: float, event: Happening) -> None:
        """Have `event` happen at a time; at once if that is over."""
        self._number += 1
        heappush(self._due, (max(time, self.now), self._number, event))

    def after(self, seconds: float, event: Happening) -> None:
        """Have `event` happen in so many seconds."""
        self.at(self.now + seconds, event)

    def run(self, until: float) -> None:
        """Let happen all that is due up to a time, which is then the time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, event = heappop(self._due)
            self.happened += 1
            event()
        self.now = until
