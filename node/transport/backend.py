"""What the shell asks of an event loop, and nothing else: one seam, two implementations.

One rule: what is done for every event (waking, waiting, flushing) costs a microsecond
or two here, where anyio's general forms cost three to thirteen; all else is anyio's.
Asyncio's side is in asyncio_backend.py, trio's in trio_backend.py.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from node.errors import ParleyError
from node.transport.address import Address
from node.transport.driver import Driver


class Waiter(Protocol):
    """One wait for one wake-up."""

    def wake(self) -> None:
        """End the wait; a second time, or before it began, is fine."""

    async def wait(self) -> None:
        """Until `wake`; a cancellation point."""


class Timer(Protocol):
    """A callback that is due at a time."""

    def cancel(self) -> None:
        """Never mind."""


class Runner(Protocol):
    """A task of its own."""

    def cancel(self) -> object:
        """Cancel it; it goes on until it has cleaned up."""


class Listener(Protocol):
    """A listening address."""

    address: Address

    async def aclose(self) -> None:
        """Listen no more; connections that were accepted go on."""


class Backend(Protocol):
    """An event loop as the shell uses it. Made inside of the loop it is for."""

    def now(self) -> float:
        """Seconds of the loop's clock, which never goes back."""

    def waiter(self) -> Waiter:
        """A new wait."""

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn."""

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back at `when` of `now`."""

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Runner:
        """Run a coroutine function in a task; it must not raise."""

    async def connect(self, address: Address, accept: Callable[[], Driver]) -> Driver:
        """Dial `address` and serve the core of the driver that `accept` makes.

        Raises:
            UnreachableError: nobody answers.
        """

    async def listen(self, address: Address, accept: Callable[[str], Driver]) -> Listener:
        """Listen on `address`; `accept` makes a driver for each connection, of which it is
        told where it comes from.

        Raises:
            UnreachableError: the address cannot be listened on.
        """

    async def aclose(self) -> None:
        """Cancel what was spawned and wait until it is gone."""


def current_backend(task_group: TaskGroup) -> Backend:
    """The backend of the running loop; `task_group` is where its tasks may live.

    Raises:
        ParleyError: neither asyncio nor trio runs.
    """
    # Each is imported only where its loop runs already, so trio stays optional.
    name = current_token().backend_class.__module__.rsplit(".", 1)[-1].lstrip("_")
    if name == "asyncio":
        from node.transport.asyncio_backend import AsyncioBackend

        return AsyncioBackend()
    if name == "trio":
        from node.transport.trio_backend import TrioBackend

        return TrioBackend(task_group)
    raise ParleyError(f"neither asyncio nor trio but {name} is running")
