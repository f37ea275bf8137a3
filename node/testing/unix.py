"""A Unix socket as a byte stream whose readers and writers may be cancelled at any moment.

Those of anyio raise InvalidStateError in the loop, under asyncio, if bytes come just as the one who
waits for them is cancelled: which is what a cut is.
"""

import socket
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, UNIXSocketStream
from anyio.lowlevel import checkpoint

PIECE: Final = 65_536


class UnixStream(ByteStream):
    """The socket of `stream`, which nobody else uses any more."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, no query

    async def receive(self, max_bytes: int = PIECE) -> bytes:
        """As of every byte stream; raises OSError where it broke."""
        await checkpoint()
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        """As of every byte stream; raises OSError where it broke."""
        await checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def send_eof(self) -> None:
        """Send no more; raises OSError where it broke."""
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close it; whoever waits for it meets ClosedResourceError."""
        anyio.notify_closing(self._socket)
        await self._stream.aclose()
