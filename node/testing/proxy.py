"""A TCP proxy with faults, for tests with nodes on real sockets.

It listens on 127.0.0.1 and forwards to one address. It has no keys, so clients still verify the
node ID of the target.
"""

import socket
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream, UNIXSocketStream
from anyio.lowlevel import checkpoint

from parley._node.testing.faults import FaultyLink
from parley._node.transport.address import Address
from parley._node.transport.backend import Clock

PIECE: Final = 65_536


class UnixStream(ByteStream):
    """The socket of `stream`, as a stream that is no longer used elsewhere."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's, no query

    async def receive(self, max_bytes: int = PIECE) -> bytes:
        """Receive bytes; raise OSError if the connection is broken."""
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
        """Send bytes; raise OSError if the connection is broken."""
        await checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def send_eof(self) -> None:
        """End the sending direction; raise OSError if the connection is broken."""
        self._socket.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        """Close the stream; tasks that wait for it get ClosedResourceError."""
        anyio.notify_closing(self._socket)
        await self._stream.aclose()


class FaultyProxy(FaultyLink):
    """A `FaultyLink` between clients that dial `address` and the node at `target`.

    `target` is a tcp or unix address. While the target does not answer, connections to the proxy
    are closed immediately.

    Example:

        from parley.testing import FaultyProxy

        target = await node.listen("tcp://127.0.0.1:0")
        async with FaultyProxy(target) as proxy:
            print(proxy.address)  # dial this address in place of the target's

    Raises:
        AddressError: `target` is not a valid address.
    """

    def __init__(self, target: str, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._target = Address.parse(target)
        self._listener: Listener[SocketStream] | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        """Start to listen. `address` is then the address to dial, with the node ID of the
        target.
        """
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's attributes, no query
        try:
            await super().__aenter__()
        except BaseException:
            await anyio.aclose_forcefully(listener)
            raise
        self._listener = listener
        self.address = str(Address("tcp", "127.0.0.1", port, node_id=self._target.node_id))
        self._running().start_soon(listener.serve, self._accepted)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        listener, self._listener = self._listener, None
        try:
            await super().__aexit__(exc_type, exc_val, exc_tb)
        finally:
            if listener is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.aclose_forcefully(listener)

    async def _accepted(self, client: ByteStream) -> None:
        server: ByteStream
        try:
            if self._target.scheme == "unix":
                server = UnixStream(await anyio.connect_unix(self._target.path))
            else:
                server = await anyio.connect_tcp(self._target.host, self._target.port)
        except OSError:
            await anyio.aclose_forcefully(client)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(client)
            raise
        else:
            await self.join(client, server)
