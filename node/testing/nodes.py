"""Nodes that are connected in memory: no port, no file, one handshake of a millisecond.

What is started here ends with its `async with`; nodes that run already are joined and left alone.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream, TaskGroup

from parley._crypto.identity import Identity, NodeId
from parley._node.config import NodeConfig
from parley._node.errors import ParleyError, UnreachableError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.testing.faults import FaultyLink
from parley._node.transport.address import Address
from parley._node.transport.backend import Clock
from parley._node.transport.memory import memory_pair
from parley._node.transport.task_scope import own_task_group
from parley._node.trust.policies import AnyPeer, Pinned, TrustPolicy


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


class MemoryNetwork:
    """The nodes that were added, and a way with faults between any two of them:

        async with MemoryNetwork() as network, one, other:
            network.add(one, other)
            peer = await network.dial_from(one)(network.address(other))

    `clock` is that of delays, real time if None. `dials` counts those that were tried.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.dials = 0
        self._nodes: dict[NodeId, Node] = {}
        self._ways: defaultdict[frozenset[NodeId], FaultyLink] = defaultdict(
            lambda: FaultyLink(clock=clock)
        )
        self._closed: set[frozenset[NodeId]] = set()
        self._tasks: TaskGroup | None = None
        self._entered = AsyncExitStack()

    def add(self, *nodes: Node) -> None:
        """Have them dialled; one takes the place of another of the same id."""
        self._nodes.update({node.node_id: node for node in nodes})

    def kill(self, node: Node) -> None:
        """What it has is cut, and nobody dials or is dialled by it: as if its machine had died."""
        self._nodes.pop(node.node_id, None)
        for ends, way in self._ways.items():
            if node.node_id in ends:
                way.cut()

    @staticmethod
    def address(node: Node) -> str:
        """What it is dialled at; no such socket is opened."""
        return f"tcp://127.0.0.1:1#{node.node_id}"

    def way(self, one: Node, other: Node) -> FaultyLink:
        """What carries every connection between the two, for faults."""
        return self._ways[frozenset((one.node_id, other.node_id))]

    def close(self, one: Node, other: Node) -> None:
        """Cut all connections between the two, and let no new one be until `open`."""
        self._closed.add(frozenset((one.node_id, other.node_id)))
        self.way(one, other).cut()

    def open(self, one: Node, other: Node) -> None:
        """Let there be connections again."""
        self._closed.discard(frozenset((one.node_id, other.node_id)))

    def dial_from(self, node: Node) -> Callable[[str], Awaitable[Peer]]:
        """How `node` dials the others; what it dials does not resume."""

        async def dial(text: str) -> Peer:
            self.dials += 1
            node_id = Address.parse(text).node_id
            if node_id is None or self._nodes.get(node.node_id) is not node:
                raise UnreachableError(f"{text}: nobody is there")
            stream = self.connect(node, node_id)
            return await node.connect_stream(stream, trust=Pinned(node_id))

        return dial

    def connect(self, node: Node, node_id: NodeId) -> ByteStream:
        """A new connection of `node` to another one, which accepts it.

        Raises:
            UnreachableError: nobody has that id, or the way is closed.
        """
        other, ends = self._nodes.get(node_id), frozenset((node.node_id, node_id))
        if other is None or ends in self._closed or self._tasks is None:
            raise UnreachableError(f"{node_id}: nobody is there")
        ours, near = memory_pair()
        far, theirs = memory_pair()
        self._tasks.start_soon(self._ways[ends].join, near, far)
        self._tasks.start_soon(_accept, other, theirs)
        return ours

    async def __aenter__(self) -> Self:
        self._tasks = await self._entered.enter_async_context(own_task_group("the network"))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._tasks = None
        await self._entered.aclose()


async def _accept(node: Node, stream: ByteStream) -> None:
    with suppress(ParleyError):  # the log of the node says why
        await node.accept_stream(stream)
