"""A clock that moves only when a test moves it, so that an hour passes in a millisecond.

Callbacks run in the order of their times; callbacks for the same time run in the order in which
they were scheduled.
"""

from collections.abc import Callable
from heapq import heappop, heappush

import anyio
from anyio.lowlevel import checkpoint

# After this many turns of the loop without a reading of the clock, all tasks are idle.
QUIET_TURNS = 12
# Nodes that exchange messages continuously never become idle; then the clock moves anyway.
MOST_TURNS = 2_000


class FakeTimer:
    """A callback scheduled on a `FakeClock`."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the callback."""
        self.callback = None


class FakeClock:
    """A clock for tests, which moves only on command: `Node(identity, clock=clock)`.

    It controls all deadlines of connections: timeouts of calls and handshakes, keep-alive, seals,
    key updates, rekeys and closing. Real time still applies to `connect(timeout=)`, the five
    seconds of an accept hook, `drain_timeout` and the limits on closing, a caller that waits for a
    full transport, and waits of the application itself. Use `clock.sleep` in place of
    `anyio.sleep`.

    Use it in one event loop's thread only. `start` is the initial time in seconds.

    Example:

        from parley.testing import FakeClock, connected_nodes

        clock = FakeClock()
        async with connected_nodes(clock=clock) as nodes:
            before = clock.now()
            await clock.tick(3600)
            assert clock.now() == before + 3600
    """

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._asked = 0  # number of timers created
        self._looks = 0  # number of times the clock was read

    def now(self) -> float:
        """Return the time in seconds; only `advance` and `tick` change it."""
        self._looks += 1
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Schedule a callback for the time `when`; a past time waits for the next move of the
        clock.
        """
        timer = FakeTimer(callback)
        heappush(self._timers, (when, self._asked, timer))
        self._asked += 1
        return timer

    @property
    def next_timer(self) -> float:
        """The time of the next callback, or infinity if there is none."""
        while self._timers and self._timers[0][2].callback is None:
            heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def advance(self, seconds: float) -> None:
        """Move the time forward immediately and run all due callbacks, as if the machine had slept.

        Nodes react in the next turns of the loop, when the time is already the new one. An
        exception of a callback propagates, with the clock stopped at the time of that callback.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"cannot advance the clock by {seconds} seconds; give 0 or more")
        end = self._now + seconds
        while self.next_timer <= end:
            self._ring()
        self._now = max(self._now, end)

    async def tick(self, seconds: float = 0.0) -> None:
        """Let time pass step by step: at each scheduled time, run the callbacks and let nodes
        react.

        Raises:
            ValueError: `seconds` is negative or not finite.
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
        """Wait until the clock has moved forward by `seconds`; this is a cancellation point."""
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
        """Let all tasks run that can run without time passing.

        It returns when the clock has not been read for some turns of the loop, because nodes read
        it whenever they act. It cannot detect tasks that wait for a thread or another process.
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
