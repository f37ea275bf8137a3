"""A TCP proxy on this machine with faults on a test's command: for nodes over real sockets.

It listens on 127.0.0.1 and dials the one address it was given. It has no keys: a node that dials
through it still checks the node id of the address.
"""

from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream, Listener, SocketAttribute, SocketStream

from parley._node.testing.link import FaultyLink
from parley._node.testing.unix import UnixStream
from parley._node.transport.address import Address
from parley._node.transport.backend import Clock


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
