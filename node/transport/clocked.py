"""A backend on another clock: for tests, and for programs that simulate.

Only `now` and `at` are the clock's; sockets, tasks and wake-ups stay the event loop's.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from parley._node.transport.address import Address
from parley._node.transport.backend import Backend, Listener
from parley._node.transport.driver import Driver
from parley._node.transport.gate import Attached
from parley._node.transport.loop import Runner, Timer
from parley._node.transport.turns import Line


class Clock(Protocol):
    """Where a node's time comes from: the part of `Loop` that tells it."""

    def now(self) -> float:
        """Seconds since any moment; never goes back."""

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back, in the event loop's thread, once `now` is `when` or later."""


class ClockedBackend:
    """`Backend` of the running loop on the time of a clock."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self.now = clock.now
        self.line = Line(self.now, self.soon)  # no turn is too long while the clock stands
        self.waiter = backend.waiter
        self.begin = backend.begin

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn."""
        self._backend.soon(callback)

    def soon_from_thread(self, callback: Callable[[], None]) -> None:
        """Call back in the loop, asked by another thread."""
        self._backend.soon_from_thread(callback)

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back at `when` of the clock."""
        if when <= self.now():
            # A clock that stands still would never come to it.
            return self._backend.at(self._backend.now(), callback)
        return self._clock.at(when, callback)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Runner:
        """Run a coroutine function in a task of the loop's."""
        return self._backend.spawn(function, *arguments)

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        """Dial `address`."""
        await self._backend.connect(address, accept)

    async def listen(self, address: Address, accept: Callable[[str], Driver | None]) -> Listener:
        """Listen on `address`."""
        return await self._backend.listen(address, accept)

    async def aclose(self) -> None:
        """Cancel what was spawned and wait until it is gone."""
        await self._backend.aclose()
