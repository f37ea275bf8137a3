"""What a node asks of an event loop and its sockets: one seam, two implementations.

Nothing above it knows which of the two runs. Asyncio's side is in asyncio_backend.py, trio's in
trio_backend.py; each is imported only where its loop runs.
"""

from collections.abc import Callable
from typing import Protocol

from parley._node.transport.address import Address
from parley._node.transport.driver import Driver
from parley._node.transport.gate import Attached
from parley._node.transport.loop import Loop

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
