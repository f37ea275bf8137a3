"""Two nodes over a proxy whose connections a test cuts, and over streams that can be recreated."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

from parley import Call, Node, Peer
from parley._crypto.identity import Identity
from parley._node.testing.proxy import FaultyProxy
from parley._node.transport.backend import Clock
from tests.node.network import PATIENCE, config, eventually

RESUME = 20.0


@dataclass(frozen=True, slots=True)
class Road:
    """`peer` is the server as the client sees it, `back` the client as the server does."""

    proxy: FaultyProxy
    client: Node
    server: Node
    peer: Peer
    back: Peer

    async def cut(self) -> None:
        """Cut the transport, and return when both sides have resumed."""
        resumes = self.peer.resumes
        self.proxy.cut()
        await eventually(lambda: self.peer.resumes > resumes)
        await eventually(lambda: self.back.resumes == self.peer.resumes)


@asynccontextmanager
async def road(
    clock: Clock | None = None, patience: float = PATIENCE * 2, **settings: Any
) -> AsyncIterator[Road]:
    """Two nodes that resume; the server answers calls of `echo` with their data. `patience` is the
    timeout in seconds for all operations.
    """
    ours = config(**{"resume": RESUME, **settings})
    server = Node(Identity.create(), config=ours, clock=clock)
    client = Node(Identity.create(), config=ours, clock=clock)

    @server.on_call("echo")
    async def echo(call: Call) -> Any:
        return call.data

    async with (
        server,
        client,
        FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy,
    ):
        peer = await client.connect(proxy.address)
        await peer.ping()  # something has come, so that it can part
        with anyio.fail_after(patience):
            yield Road(proxy, client, server, peer, server.peers[0])
        proxy.heal()
        await peer.close()
