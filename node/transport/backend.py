"""What a node asks of an event loop and its sockets: one seam, two implementations.

Nothing above it knows which of the two runs. Asyncio's side is in asyncio_backend.py, trio's in
trio_backend.py; each is imported only where its loop runs.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.transport.fair_reads import FairScheduler
from parley._node.transport.loop import Loop, Runner, Timer
from parley._node.transport.transport import Attached

# Makes a driver for a connection, of which it is told where it comes from; with None the
# connection is closed at once and in silence.
Accept = Callable[[str], Driver | None]


class Listener(Protocol):
    """A listening address."""

    address: Address

    async def aclose(self) -> None:
        """Listen no more; connections that were accepted go on."""


class Backend(Loop, Protocol):
    """An event loop and its sockets. Made inside of the loop it is for."""

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        """Dial `address` and serve what `accept` makes; with None the connection is closed at
        once.

        Raises:
            UnreachableError: nobody answers, or there is no driver.
        """

    async def listen(self, address: Address, accept: Accept) -> Listener:
        """Listen on `address` and serve what `accept` makes.

        Raises:
            UnreachableError: the address cannot be listened on.
        """

    def soon_from_thread(self, callback: Callable[[], None]) -> None:
        """Call back in the loop, asked by another thread; nothing once the loop has ended."""

    async def aclose(self) -> None:
        """Cancel what was spawned and wait until it is gone."""


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
        self.scheduler = FairScheduler(
            self.now, self.soon
        )  # no turn is too long while the clock stands
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


def keep_freed_memory() -> None:
    """Let glibc keep up to 8 MiB of freed memory for later allocations.

    glibc first returns freed memory above 128 KiB to the system, and each flush of long events
    would need new pages. When a mapped block is freed, glibc raises its thresholds to the size of
    that block and twice that size (mallopt(3), M_MMAP_THRESHOLD).
    """
    bytes(4 * 2**20)
