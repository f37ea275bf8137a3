"""Fair scheduling of the bytes that the connections of one event loop have received.

The bytes of one connection stay in order. Each time it runs, a connection processes its bytes for a
limited time, or one step of its core. The connection that has used the least time runs next.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from parley._node.metrics.catalogue import Histogram

UNLIMITED: Final = 1 << 62
# Seconds for which one connection may run while others wait. This includes its event callbacks and
# the first steps of handlers, but not what handlers do after they have waited.
TURN_TIME: Final = 0.00025
# Seconds for which all waiting connections may run before the loop serves sockets and timers. Also
# the time for which one connection may run if no other waits, so that it processes a long read in
# one go.
ROUND_TIME: Final = 8 * TURN_TIME


class ReadBuffer:
    """The unprocessed bytes of one connection.

    `size` is the most that `take` returns, `used` the scheduler's measure of the time that the
    connection has used, and `queued` whether it waits for its turn.
    """

    __slots__ = ("_data", "_offset", "queued", "size", "used", "waiting")

    def __init__(self) -> None:
        self.size = UNLIMITED
        self.queued = False
        self.used = 0.0
        self.waiting = False  # whether it has bytes
        self._data = b""
        self._offset = 0

    def put(self, data: bytes) -> None:
        """Append bytes."""
        self._data = self._data[self._offset :] + data if self.waiting else data
        self._offset = 0
        self.waiting = bool(self._data)

    def take(self) -> bytes:
        """Remove and return the next bytes, at most `size`."""
        data, start = self._data, self._offset
        self._offset = start + self.size
        if self._offset < len(data):
            return data[start : self._offset]
        self.clear()
        return data[start:] if start else data

    def clear(self) -> None:
        """Discard all bytes."""
        self._data, self._offset, self.waiting = b"", 0, False


class ScheduledReader(Protocol):
    """A connection that a `FairScheduler` runs."""

    @property
    def reads(self) -> ReadBuffer:
        """The bytes to process."""

    def read(self, data: bytes, now: float, end: float) -> bool:
        """Process `data` and the buffered bytes until `end`, at least one step; returns whether
        there are more."""

    def step(self, more: bool) -> None:
        """Continue after `read`; queue again if there are more bytes."""


class FairScheduler:
    """Start-time fair queueing of the connections of one event loop.

    `_time` is the least time used by any waiting connection: a connection that was idle doesn't
    accumulate a claim. `seconds` is the distribution of the times that connections ran.

    Handlers in `pending_tasks` start once no connection is `delivering` events: a connection
    through a tunnel delivers while the connection that carries it does.
    """

    __slots__ = (
        "_call_soon",
        "_crowded",
        "_due",
        "_full",
        "_now",
        "_numbers",
        "_time",
        "_waiting",
        "delivering",
        "pending_tasks",
        "seconds",
    )

    def __init__(
        self, now: Callable[[], float], call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._now = now
        self._call_soon = call_soon
        self._waiting: list[tuple[float, int, ScheduledReader]] = []
        self._numbers = count()  # breaks ties by arrival
        self._time = 0.0
        self._due = False  # a round is scheduled
        self._full = False  # a connection outside of the queue ran long in this turn of the loop
        self._crowded = False
        self.seconds = Histogram()
        self.delivering = 0
        self.pending_tasks: list[Any] = []

    def run(self, reader: ScheduledReader, data: bytes = b"", end: float = 0.0) -> bool:
        """Let `reader` process `data` now; returns False if it has to wait for its turn. `end` is
        given when it is its turn."""
        reads, now = reader.reads, self._now()
        if not end:
            end = now + ROUND_TIME
            if self._crowded:
                if self._full or (self._waiting and reads.used > self._time):
                    return False
                if self._waiting:
                    end = now + TURN_TIME
        more = reader.read(data, now, end)
        seconds = self._now() - now
        self._time = max(reads.used, self._time)
        reads.used = self._time + seconds
        self.seconds.observe(seconds)
        if seconds > TURN_TIME:
            self._full = self._crowded = True
            self._schedule()
        reader.step(more)
        return True

    def queue(self, reader: ScheduledReader) -> None:
        """Run `reader` once, when its turn comes."""
        reads = reader.reads
        reads.queued = self._crowded = True
        heappush(self._waiting, (max(reads.used, self._time), next(self._numbers), reader))
        self._schedule()

    def _run_round(self) -> None:
        waiting, now = self._waiting, self._now
        start = time = now()
        try:
            while waiting and time < start + ROUND_TIME:
                reader = heappop(waiting)[-1]
                reader.reads.queued = False
                self.run(reader, end=time + TURN_TIME if waiting else start + ROUND_TIME)
                time = now()
        finally:
            self._due = self._full = False
            self._crowded = bool(waiting)
            if waiting:
                self._schedule()

    def _schedule(self) -> None:
        if not self._due:
            self._due = True
            self._call_soon(self._run_round)
