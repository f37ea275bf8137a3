"""Listening and dialling at `memory://NAME`: nodes of one event loop, joined without a socket.

A name is one listener's, in the loop that it runs in: another thread's loop has names of its own.
"""

from collections.abc import Callable
from typing import Final

from anyio.lowlevel import RunVar, checkpoint

from parley._node.errors import UnreachableError
from parley._node.transport.address import Address
from parley._node.transport.backend import Accept
from parley._node.transport.gate import Attached
from parley._node.transport.loop import Loop
from parley._node.transport.memory import MemoryStream, memory_pair
from parley._node.transport.stream_outlet import StreamOutlet

# Where such a connection comes from, as limits and the log name it.
REMOTE_NAME: Final = "memory"

listeners: RunVar["dict[str, MemoryListener]"] = RunVar("parley_memory_listeners")


class MemoryListener:
    """A name that is listened on; `loop` runs what is accepted.

    Raises:
        UnreachableError: somebody listens there already.
    """

    def __init__(self, address: Address, accept: Accept, loop: Loop) -> None:
        names = listeners.get({})
        if address.path in names:
            raise UnreachableError(
                f"cannot listen on {address.without_node_id()}: the address is in use"
            )
        names[address.path] = self
        listeners.set(names)
        self.address = address
        self._accept = accept
        self._loop = loop

    async def aclose(self) -> None:
        """Listen no more; connections that were accepted go on."""
        names = listeners.get({})
        if names.get(self.address.path) is self:
            del names[self.address.path]

    def connected(self, stream: MemoryStream) -> bool:
        """Serve the end of a connection; False if it is not wanted."""
        driver = self._accept(REMOTE_NAME)
        if driver is not None:
            StreamOutlet(stream, driver, self._loop)
        return driver is not None


async def connect_memory(
    address: Address, accept: Callable[[], Attached | None], loop: Loop
) -> None:
    """Dial a name; as `Backend.connect`."""
    place = address.without_node_id()
    await checkpoint()  # as every dial lets others run, and may be cancelled
    listener = listeners.get({}).get(address.path)
    if listener is None:
        raise UnreachableError(f"cannot reach {place}: nobody listens there in this event loop")
    driver = accept()
    if driver is None:
        raise UnreachableError(f"{place} is not needed any more")
    ours, theirs = memory_pair()
    StreamOutlet(ours, driver, loop)
    if not listener.connected(theirs):
        await theirs.aclose()
