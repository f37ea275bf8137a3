"""The event loop and sockets of a node, with one implementation for asyncio and one for trio."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.transport.fair_reads import FairScheduler
from parley._node.transport.loop import Loop, Runner, Timer
from parley._node.transport.transport import Attached

# Creates a driver for a connection from the given origin. If it returns None, the connection is
# closed immediately without an error.
Accept = Callable[[str], Driver | None]


class Listener(Protocol):
    address: Address

    async def aclose(self) -> None:
        """Stop listening; accepted connections continue."""


class Backend(Loop, Protocol):
    """The event loop and sockets that a node uses."""

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        """Dial `address` for the driver that `accept` returns; None closes the connection.

        Raises:
            UnreachableError: the dial failed, or there is no driver.
        """

    async def listen(self, address: Address, accept: Accept) -> Listener:
        """Listen on `address` and serve each connection with the driver that `accept` returns.

        Raises:
            UnreachableError: the address cannot be listened on.
        """

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the loop, from another thread; ignored once the loop has ended."""

    async def aclose(self) -> None:
        """Cancel spawned tasks and wait for them."""


class Clock(Protocol):
    """A source of time that replaces the event loop's."""

    def now(self) -> float:
        """Seconds since an arbitrary moment; never decreases."""

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in the event loop's thread at `when` or later."""


class ClockedBackend:
    """The running loop's backend with another clock, for tests and simulations.

    Only `now` and `call_at` use the clock.
    """

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self.now = clock.now
        self.scheduler = FairScheduler(
            self.now, self.call_soon
        )  # with a clock that stands still, no turn takes too long
        self.waiter = backend.waiter
        self.start_tasks = backend.start_tasks

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._backend.call_soon(callback)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self._backend.call_soon_threadsafe(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        if when <= self.now():
            # A clock that stands still would never reach it.
            return self._backend.call_at(self._backend.now(), callback)
        return self._clock.call_at(when, callback)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Runner:
        return self._backend.spawn(function, *arguments)

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        await self._backend.connect(address, accept)

    async def listen(self, address: Address, accept: Callable[[str], Driver | None]) -> Listener:
        return await self._backend.listen(address, accept)

    async def aclose(self) -> None:
        await self._backend.aclose()


def keep_freed_memory() -> None:
    """Let glibc keep up to 8 MiB of freed memory, so that flushes of long events needn't map new
    pages.

    By default, glibc returns freed memory above 128 KiB to the system. When a mapped block is
    freed, glibc raises its thresholds to the size of the block and twice that (mallopt(3),
    M_MMAP_THRESHOLD).
    """
    bytes(4 * 2**20)
