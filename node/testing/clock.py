"""A clock that stands still until a test moves it: an hour passes in a millisecond.

Callbacks are called in the order of their times, and at equal times in the order in which they were
asked for.
"""

from collections.abc import Callable
from heapq import heappop, heappush

import anyio
from anyio.lowlevel import checkpoint

# Turns of the loop in which the clock was not read, after which all is quiet.
QUIET_TURNS = 12
# Nodes that talk without end never fall quiet; time goes on all the same.
MOST_TURNS = 2_000


class FakeTimer:
    """A callback that is due at a time of a `FakeClock`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Do not call back."""
        self.callback = None


class FakeClock:
    """The time of the nodes made with it: `Node(identity, clock=clock)`.

    On it are all deadlines of a connection: time-outs of calls, handshake, keep-alive,
    seals, key updates, rekeys, the end of a close. In real time stay `connect(timeout=)`,
    the five seconds of an accept hook, a closing node's `drain_timeout` and its bounds on
    closing, a caller that waits for a full transport, and whatever the application awaits
    by itself (`clock.sleep` stands in for `anyio.sleep`).

    One event loop's thread only. `start` is seconds.
    """

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._asked = 0  # timers so far
        self._looks = 0  # how often the time was read

    def now(self) -> float:
        """Seconds; only `advance` and `tick` move them."""
        self._looks += 1
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Call back when the clock is moved to `when`; what is past waits for the next move."""
        timer = FakeTimer(callback)
        heappush(self._timers, (when, self._asked, timer))
        self._asked += 1
        return timer

    @property
    def next_timer(self) -> float:
        """When the next callback is due; infinity for never."""
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def advance(self, seconds: float) -> None:
        """Move the time at once, as if the machine had slept, and call what is due.

        Nodes act on it in the loop's next turns, all at the new time. A callback that
        raises is the caller's to see; the time stands then where it was due.

        Raises:
            ValueError: time does not go back.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"cannot advance the clock by {seconds} seconds; give 0 or more")
        end = self._now + seconds
        while self.next_timer <= end:
            self._ring()
        self._now = max(self._now, end)

    async def tick(self, seconds: float = 0.0) -> None:
        """Let time pass: at each time at which something is due, call it and let the nodes
        act before going on; return when they have.

        Raises:
            ValueError: time does not go back.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"cannot advance the clock by {seconds} seconds; give 0 or more")
        await self.settle()
        end = self._now + seconds
        while self.next_timer <= end:
            self._ring()
            await self.settle()
        self._now = max(self._now, end)
        await self.settle()

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved on by `seconds`; a cancellation point."""
        if seconds <= 0:
            await checkpoint()
            return
        rung = anyio.Event()
        timer = self.call_at(self._now + seconds, rung.set)
        try:
            await rung.wait()
        finally:
            timer.cancel()

    async def settle(self) -> None:
        """Let everything go on that can go on without time passing.

        It has, once the clock was not read for some turns of the loop: nodes read it
        with all they do. What waits for a thread or for another process is not seen.
        """
        quiet = 0
        for _ in range(MOST_TURNS):
            looks = self._looks
            await checkpoint()
            quiet = quiet + 1 if looks == self._looks else 0
            if quiet == QUIET_TURNS:
                return

    def _ring(self) -> None:
        when, _, timer = heappop(self._timers)
        self._now = max(self._now, when)
        callback = timer.callback
        if callback is not None:
            timer.callback = None
            callback()
