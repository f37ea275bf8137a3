"""Nodes that are connected in memory: no port, no file, one handshake of a millisecond.

What is started here ends with its `async with`; nodes that run already are joined and left alone.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from parley._crypto.identity import Identity
from parley._node.config import NodeConfig
from parley._node.errors import ParleyError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.testing.link import FaultyLink
from parley._node.transport.backend import Clock
from parley._node.transport.memory import memory_pair
from parley._node.trust.policies import AnyPeer, TrustPolicy


@dataclass(frozen=True, slots=True)
class ConnectedNodes:
    """`peer` is the server as the client sees it, `back` the client as the server does."""

    client: Node
    server: Node
    peer: Peer
    back: Peer


async def connect_nodes(
    client: Node,
    server: Node,
    *,
    link: FaultyLink | None = None,
    trust: TrustPolicy | None = None,
) -> tuple[Peer, Peer]:
    """Join two running nodes in memory, `client` being the initiator; over `link` if given.

    Any number of nodes may be joined in any way. `trust` is the client's policy, the
    default lets anyone do; the server's is its own.

    Returns:
        The server as the client sees it, and the client as the server does.

    Raises:
        HandshakeError: they could not agree. NotTrustedError: a side refused the other.
    """
    ours, theirs = memory_pair() if link is None else link.streams()
    peers: list[Peer] = []
    backs: list[Peer] = []
    errors: list[ParleyError] = []

    async def accept() -> None:
        try:
            backs.append(await server.accept_stream(theirs))
        except ParleyError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        try:
            peers.append(await client.connect_stream(ours, trust=trust or AnyPeer()))
        except ParleyError as error:
            # The dialler's error comes first; what the server says is in its log.
            errors.insert(0, error)
    if errors:
        raise errors[0]
    return peers[0], backs[0]


@asynccontextmanager
async def connected_nodes(
    client: Node | None = None,
    server: Node | None = None,
    *,
    link: FaultyLink | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[ConnectedNodes]:
    """Run two nodes that have met: yours, which must not run yet, or new ones.

    New ones have an identity of their own, the cheapest key exchange and `clock`; a node
    of yours is given its clock when it is made. `link`, which must not run yet either,
    carries what they say: its faults end before the nodes do, so that they can say Close.

    Raises:
        as `connect_nodes`.
    """
    client = client or _new_node(clock)
    server = server or _new_node(clock)
    async with AsyncExitStack() as stack:
        if link is not None:
            await stack.enter_async_context(link)
        await stack.enter_async_context(server)
        await stack.enter_async_context(client)
        if link is not None:
            stack.callback(link.heal)
        peer, back = await connect_nodes(client, server, link=link)
        yield ConnectedNodes(client, server, peer, back)


def _new_node(clock: Clock | None) -> Node:
    config = NodeConfig(algorithms={"kex": ("x25519",)})
    return Node(Identity.create(), config=config, clock=clock)
