"""Simulated time: a clock that is moved on as soon as everything waits for it, and its time in UTC.

Time moves only when nothing can go on without it, neither a node nor the writer of a journal.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import anyio

from parley._node.testing import FakeClock

# One for each record: what happens at the same simulated moment happens one after another.
_STEP: Final = 1_000
# Seconds of real time between two looks at what is behind.
_LOOK: Final = 0.0005
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedTime:
    """Time that starts at `start`. `clock` is for nodes, `nanoseconds` for journals."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self.clock = FakeClock(0.0)
        self.sleep = self.clock.sleep
        self._start = int(start.timestamp()) * 10**9 + start.microsecond * 1_000
        self._last = 0

    def nanoseconds(self) -> int:
        """Nanoseconds since the epoch; later by a microsecond or more each time."""
        now = self._start + round(self.clock.now() * 1e9)
        self._last = max(self._last + _STEP, now)
        return self._last

    async def run(self, behind: Callable[[], bool], passed: Callable[[float], None]) -> None:
        """Move it on, for ever. `behind` says that somebody has work that takes real time;
        `passed` is told the seconds that went by so far."""
        clock = self.clock
        while True:
            await clock.settle()
            while behind():
                await anyio.sleep(_LOOK)
                await clock.settle()
            now = clock.now()
            due = clock.next_timer
            if due == float("inf"):
                await anyio.sleep(_LOOK)  # whatever goes on now is not for simulated time
                continue
            clock.advance(max(0.0, due - now))
            passed(clock.now())
