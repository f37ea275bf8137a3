"""Waiting for a state to change, as peers and nodes do.

One rule: whoever waits looks again after each change, and a change wakes all. Knows
neither what changes nor why.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node.transport.loop import Waiter


class Changes:
    """The changes of one thing. `waiter` makes a wait (`Backend.waiter`)."""

    __slots__ = ("_waiter", "_waiters")

    def __init__(self, waiter: "Callable[[], Waiter]") -> None:
        self._waiter = waiter
        self._waiters: set[Waiter] = set()

    def notify(self) -> None:
        """Something changed."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            waiter.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which may be true already."""
        while not condition():
            waiter = self._waiter()
            self._waiters.add(waiter)
            try:
                await waiter.wait()
            finally:
                self._waiters.discard(waiter)
