"""Pairs of byte streams in memory, and listeners at `memory://NAME` within one event loop."""

from collections.abc import Callable
from typing import Final

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    Event,
    ResourceGuard,
)
from anyio.abc import ByteStream
from anyio.lowlevel import RunVar, checkpoint

from parley._node.errors import UnreachableError
from parley._node.transport.address import Address
from parley._node.transport.backend import Accept
from parley._node.transport.loop import Loop
from parley._node.transport.transport import Attached, StreamTransport

DEFAULT_BUFFER_SIZE: Final = 65_536


def memory_pair(buffer_size: int = DEFAULT_BUFFER_SIZE) -> tuple["MemoryStream", "MemoryStream"]:
    """Return two connected streams with at most `buffer_size` unread bytes in each direction.

    Raises:
        ValueError: that is less than 1.
    """
    if buffer_size < 1:
        raise ValueError(f"buffer_size is {buffer_size}; it must be at least 1")
    there, back = _Pipe(buffer_size), _Pipe(buffer_size)
    return MemoryStream(there, back), MemoryStream(back, there)


class MemoryStream(ByteStream):
    """One end of a pair. One task at a time may send, and one may receive."""

    def __init__(self, outgoing: "_Pipe", incoming: "_Pipe") -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._sending = ResourceGuard("sending to")
        self._receiving = ResourceGuard("receiving from")
        self._closed = False

    async def send(self, item: bytes) -> None:
        """Send bytes, waiting while the buffer is full.

        If the call is cancelled, an item that fits into the buffer wasn't sent, but the beginning
        of a longer one may have been sent.

        Raises:
            ClosedResourceError: after `aclose` or `send_eof`.
            BrokenResourceError: the other end is closed.
        """
        with self._sending:
            await checkpoint()
            pipe = self._outgoing
            rest = memoryview(item)
            while True:
                if self._closed or pipe.finished:
                    raise ClosedResourceError
                if pipe.abandoned:
                    raise BrokenResourceError
                # A piece of a long item may be short; an item that fits is sent as one piece.
                least = len(rest) if len(item) <= pipe.capacity else min(len(rest), 1)
                if pipe.room >= least:
                    size = min(len(rest), pipe.room)
                    pipe.put(rest[:size])
                    rest = rest[size:]
                    if not rest:
                        return
                else:
                    await pipe.wait_for_room(least)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Return 1 to `max_bytes` bytes.

        Raises:
            EndOfStream: the other end has finished.
            ClosedResourceError: after `aclose`.
            ValueError: `max_bytes` is less than 1.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it must be at least 1")
        with self._receiving:
            await checkpoint()
            pipe = self._incoming
            while True:
                if self._closed:
                    raise ClosedResourceError
                if pipe.unread:
                    return pipe.take(max_bytes)
                if pipe.finished:
                    raise EndOfStream
                await pipe.wait_for_bytes()

    async def send_eof(self) -> None:
        """Finish this direction; the other end can still read what was sent."""
        with self._sending:
            await checkpoint()
            if self._closed:
                raise ClosedResourceError
            self._outgoing.finish()

    async def aclose(self) -> None:
        """Close both directions; the other end can still read what was sent."""
        self._closed = True
        self._outgoing.finish()
        self._incoming.abandon()
        await checkpoint()


class _Pipe:
    __slots__ = ("_least", "_reader", "_writer", "abandoned", "capacity", "finished", "unread")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.unread = bytearray()
        self.finished = False  # the writer sends no more
        self.abandoned = False  # the reader reads no more
        self._reader: Event | None = None
        self._writer: Event | None = None
        self._least = 0  # free space that the waiting writer needs

    @property
    def room(self) -> int:
        return self.capacity - len(self.unread)

    def put(self, data: memoryview) -> None:
        self.unread += data
        if self._reader is not None:
            self._reader.set()

    def take(self, max_bytes: int) -> bytes:
        data = bytes(self.unread[:max_bytes])
        del self.unread[:max_bytes]
        # Don't wake a writer whose item still doesn't fit.
        if self._writer is not None and self.room >= self._least:
            self._writer.set()
        return data

    def finish(self) -> None:
        self.finished = True
        self._wake()

    def abandon(self) -> None:
        self.abandoned = True
        self.unread.clear()
        self._wake()

    def _wake(self) -> None:
        # Wake both ends, because a task may close a stream on which another task waits.
        for waiter in (self._reader, self._writer):
            if waiter is not None:
                waiter.set()

    async def wait_for_bytes(self) -> None:
        self._reader = Event()
        try:
            await self._reader.wait()
        finally:
            self._reader = None

    async def wait_for_room(self, least: int) -> None:
        self._writer = Event()
        self._least = least
        try:
            await self._writer.wait()
        finally:
            self._writer = None


# The origin of such a connection, for limits and the log.
REMOTE_NAME: Final = "memory"

listeners: RunVar["dict[str, MemoryListener]"] = RunVar("parley_memory_listeners")


class MemoryListener:
    """A listener at a name.

    Raises:
        UnreachableError: the name is in use.
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
        names = listeners.get({})
        if names.get(self.address.path) is self:
            del names[self.address.path]

    def connected(self, stream: MemoryStream) -> bool:
        driver = self._accept(REMOTE_NAME)
        if driver is not None:
            StreamTransport(stream, driver, self._loop)
        return driver is not None


async def connect_memory(
    address: Address, accept: Callable[[], Attached | None], loop: Loop
) -> None:
    """Dial a name, as `Backend.connect`."""
    place = address.without_node_id()
    await checkpoint()  # like every dial, it is a cancellation point
    listener = listeners.get({}).get(address.path)
    if listener is None:
        raise UnreachableError(
            f"cannot connect to {place}: no node listens there in this event loop"
        )
    driver = accept()
    if driver is None:
        raise UnreachableError(f"cannot connect to {place}: the connection is no longer needed")
    ours, theirs = memory_pair()
    StreamTransport(ours, driver, loop)
    if not listener.connected(theirs):
        await theirs.aclose()
