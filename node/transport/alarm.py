"""The one timer of a driver: deadlines come and go with every event, and the loop is asked only for
one that is earlier than what it was asked for.

A timer that is too early only looks again; one that is too late is replaced.
"""

from collections.abc import Callable
from typing import Final

from parley._node.transport.loop import Loop, Timer

NEVER: Final = float("inf")
# Seconds between two looks at the deadlines.
LEAST_PAUSE: Final = 0.001


class Alarm:
    """Calls `rung` at the time of its `set`. `at` is what it is set to, `earliest` what it may be
    set to: a deadline that stays where it was although it was handled must not spin."""

    __slots__ = ("_loop", "_rung", "_timer", "at", "earliest")

    def __init__(self, loop: Loop, rung: Callable[[float], None]) -> None:
        self._loop = loop
        self._rung = rung
        self._timer: Timer | None = None
        self.at = NEVER
        self.earliest = -NEVER

    def set(self, due: float) -> None:
        """Ring at `due`, which is earlier than `at`."""
        if self._timer is not None:
            self._timer.cancel()
        self.at = due
        self._timer = self._loop.at(due, self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        # What a stopped process finds in its sockets on waking counts before the time.
        self._timer = None
        self._loop.soon(self._look)

    def _look(self) -> None:
        now = self._loop.now()
        self.at = NEVER
        self.earliest = now + LEAST_PAUSE
        self._rung(now)
