"""What came over connections and waits for its turn, so that no peer delays others.

The bytes of one connection stay in their order, no turn is longer than a moment or one step of a
core, and the connection that had the least of the loop's time is next.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from parley._node.metrics.catalogue import Histogram

WHOLE: Final = 1 << 62  # whatever came, at once
# Seconds of one connection's turn before others have theirs. What its reports set off is
# counted, with the first steps of handlers; what these do when they have waited is not.
TURN_TIME: Final = 0.00025
# Seconds of all turns of those who wait, before the loop looks at its sockets and timers; and of
# one turn where nobody waits, so that all that one read brings of bulk data is taken at once.
ROUND_TIME: Final = 8 * TURN_TIME


class ReadBuffer:
    """The bytes of one connection. `waiting` says that some are kept, `due` that it stands in
    the line, `size` how many of its bytes are given at a time; `had` is the line's own
    measure of what it took. `came` and `went` count its bytes in and out."""

    __slots__ = ("_at", "_kept", "came", "due", "had", "size", "waiting", "went")

    def __init__(self) -> None:
        self.size = WHOLE
        self.due = False
        self.had = 0.0
        self.waiting = False
        self.came = 0
        self.went = 0
        self._kept = b""
        self._at = 0

    def put(self, data: bytes) -> None:
        """Keep bytes, behind what is kept."""
        self._kept = self._kept[self._at :] + data if self.waiting else data
        self._at = 0
        self.waiting = bool(self._kept)

    def take(self) -> bytes:
        """The next bytes, at most `size`; empty for none."""
        kept, at = self._kept, self._at
        self._at = at + self.size
        if self._at < len(kept):
            return kept[at : self._at]
        self._kept, self._at, self.waiting = b"", 0, False
        return kept[at:] if at else kept

    def clear(self) -> None:
        """Forget what is kept."""
        self._kept, self._at, self.waiting = b"", 0, False


class ScheduledReader(Protocol):
    """A connection that may stand in a line."""

    @property
    def turns(self) -> ReadBuffer:
        """What it has had."""

    def take_turn(self, end: float) -> None:
        """Go on until `end` of the clock, and one step at least; `charge` it for that, and
        join again if there is more."""


class FairScheduler:
    """The connections of one loop of which more came than one turn takes. In each turn of
    the loop they share `ROUND_TIME`, however many they are. While it is not `crowded`, one that
    comes may take all of that at once.

    This is start-time fair queueing: `_time` is how much of the loop's time the waiting connection
    with the least of it has had. One that was silent for long has no more to claim.

    `seconds` are those of all turns. What reports set off stands in `to_begin` until nobody is
    `handing_on` any: what comes through a tunnel is handed on while the reports of the connection
    that it runs in are.
    """

    __slots__ = (
        "_due",
        "_full",
        "_now",
        "_numbers",
        "_soon",
        "_time",
        "_waiting",
        "crowded",
        "handing_on",
        "seconds",
        "to_begin",
    )

    def __init__(self, now: Callable[[], float], soon: Callable[[Callable[[], None]], object]):
        self._now = now
        self._soon = soon
        self._waiting: list[tuple[float, int, ScheduledReader]] = []
        self._numbers = count()  # of two that had as much, the one that came first
        self._time = 0.0
        self._due = False
        self._full = False  # somebody took long in this turn of the loop, out of the line
        self.crowded = False
        self.seconds = Histogram()
        self.handing_on = 0  # how many connections are, one in the other
        self.to_begin: list[Any] = []

    def lets_pass(self, turns: ReadBuffer) -> float:
        """For how many seconds one that does not stand here may take a turn at once; 0 if it
        has to join."""
        if self._full:
            return 0.0
        if not self._waiting:
            return ROUND_TIME
        return TURN_TIME if turns.had <= self._time else 0.0

    def charge(self, turns: ReadBuffer, took: float) -> None:
        """One took a turn of so many seconds."""
        self._time = max(turns.had, self._time)
        turns.had = self._time + took
        self.seconds.observe(took)
        if took > TURN_TIME:
            self._full = self.crowded = True
            self._call_soon()

    def join(self, one: ScheduledReader) -> None:
        """Have `one` take a turn, once."""
        turns = one.turns
        turns.due = self.crowded = True
        heappush(self._waiting, (max(turns.had, self._time), next(self._numbers), one))
        self._call_soon()

    def take(self) -> list[Any]:
        """What is to begin, which is then here no more."""
        begun = self.to_begin[:]
        self.to_begin.clear()
        return begun

    def _round(self) -> None:
        waiting, now = self._waiting, self._now
        start = time = now()
        try:
            while waiting and time < start + ROUND_TIME:
                one = heappop(waiting)[-1]
                one.turns.due = False
                # Who waits alone need not stop for others.
                one.take_turn(time + TURN_TIME if waiting else start + ROUND_TIME)
                time = now()
        finally:
            self._due = self._full = False
            self.crowded = bool(waiting)
            if waiting:
                self._call_soon()

    def _call_soon(self) -> None:
        if not self._due:
            self._due = True
            self._soon(self._round)
