"""A TCP proxy on this machine with faults on a test's command: for nodes over real sockets.

It listens on 127.0.0.1 and dials the one address it was given. It has no keys: a node that dials
through it still checks the node id of the address.
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


class FaultyProxy(FaultyLink):
    """A `FaultyLink` between whoever dials `address` and the node at `target`.

        async with FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy:
            peer = await client.connect(proxy.address)
            proxy.flip()

    `target` is tcp or unix. While the target does not answer, dialled connections end at
    once.

    Raises:
        AddressError: `target` is not an address.
    """

    def __init__(self, target: str, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._target = Address.parse(target)
        self._listener: Listener[SocketStream] | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        """Listen; `address` is then what to dial, with the node id of the target."""
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
