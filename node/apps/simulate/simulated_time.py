"""Simulated time: a clock that advances whenever all nodes and journal writers are idle."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import anyio

from parley._node.testing import FakeClock

# Nanoseconds per record, so that records of the same simulated time have an order.
_STEP: Final = 1_000
# Seconds of real time between checks for unfinished work.
_LOOK: Final = 0.0005
EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedTime:
    """Simulated time from `start` on. Nodes use `clock`, and journals `nanoseconds`."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self.clock = FakeClock(0.0)
        self.sleep = self.clock.sleep
        self._start = int(start.timestamp()) * 10**9 + start.microsecond * 1_000
        self._last = 0

    def nanoseconds(self) -> int:
        """Return nanoseconds since 1970, at least a microsecond later than the last time."""
        now = self._start + round(self.clock.now() * 1e9)
        self._last = max(self._last + _STEP, now)
        return self._last

    async def run(self, behind: Callable[[], bool], passed: Callable[[float], None]) -> None:
        """Advance the time until cancelled.

        `behind` returns whether work that takes real time is unfinished. `passed` is called with
        the simulated seconds so far.
        """
        clock = self.clock
        while True:
            await clock.settle()
            while behind():
                await anyio.sleep(_LOOK)
                await clock.settle()
            now = clock.now()
            due = clock.next_timer
            if due == float("inf"):
                await anyio.sleep(
                    _LOOK
                )  # other work is running, which doesn't depend on simulated time
                continue
            clock.advance(max(0.0, due - now))
            passed(clock.now())
