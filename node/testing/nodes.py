"""Nodes connected in memory, without ports or files; the handshake takes a millisecond.

Nodes that are created here stop at the end of their `async with`; running nodes are not stopped.
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
    """Two connected nodes. `peer` is the client's connection to the server, `back` the reverse."""

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
    """Connect two running nodes in memory, and return the peers of both sides.

    `client` is the initiator. The connection goes over `link`, if given. `trust` is the client's
    policy, by default `AnyPeer`; the server uses its own. Nodes can be connected to any number of
    other nodes.

    Returns:
        The client's peer for the server, and the server's peer for the client.

    Example:

        from parley import Identity, Node
        from parley.testing import connect_nodes

        async with Node(Identity.create()) as server:
            to_server, to_client = await connect_nodes(node, server)
            assert to_server.node_id == server.node_id

    Raises:
        HandshakeError: the handshake failed.
        NotTrustedError: a side doesn't trust the other.
    """
    client_end, server_end = memory_pair() if link is None else link.streams()
    peers: list[Peer] = []
    backs: list[Peer] = []
    errors: list[ParleyError] = []

    async def accept() -> None:
        try:
            backs.append(await server.accept_stream(server_end))
        except ParleyError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accept)
        try:
            peers.append(await client.connect_stream(client_end, trust=trust or AnyPeer()))
        except ParleyError as error:
            # The client's error is raised first; the server's reason is in its log.
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
    """Run two connected nodes: the given ones, which must not be running yet, or new ones.

    New nodes have new identities, the fastest key exchange and `clock`; given nodes keep their
    clocks. The connection goes over `link`, if given, which must not be running yet. Its faults are
    removed before the nodes stop, so that they can send Close. Raises the errors of
    `connect_nodes`.

    Example:

        from parley.testing import connected_nodes

        async with connected_nodes() as nodes:
            @nodes.server.on_call("echo")
            async def echo(call):
                return call.data

            assert await nodes.peer.call("echo", "hello") == "hello"
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
    """An in-memory network of nodes, with a faulty link between each pair.

    `clock` times the delays, by default real time. `dials` counts the attempted connections.

    Example:

        from parley import Identity, Node
        from parley.testing import MemoryNetwork

        async with MemoryNetwork() as network, Node(Identity.create()) as other:
            network.add(node, other)
            peer = await network.dial_from(node)(network.address(other))
            assert peer.node_id == other.node_id
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
        """Add nodes, so that they can be dialled. A node replaces another with the same ID."""
        self._nodes.update({node.node_id: node for node in nodes})

    def kill(self, node: Node) -> None:
        """Cut all connections of a node and remove it from the network, as if its machine had
        died.
        """
        self._nodes.pop(node.node_id, None)
        for ends, way in self._ways.items():
            if node.node_id in ends:
                way.cut()

    @staticmethod
    def address(node: Node) -> str:
        """Return the address of a node in this network; no socket is opened for it."""
        return f"tcp://127.0.0.1:1#{node.node_id}"

    def way(self, one: Node, other: Node) -> FaultyLink:
        """Return the link that carries all connections between two nodes, to set faults on it."""
        return self._ways[frozenset((one.node_id, other.node_id))]

    def close(self, one: Node, other: Node) -> None:
        """Cut all connections between two nodes and refuse new ones until `open`."""
        self._closed.add(frozenset((one.node_id, other.node_id)))
        self.way(one, other).cut()

    def open(self, one: Node, other: Node) -> None:
        """Allow connections between two nodes again."""
        self._closed.discard(frozenset((one.node_id, other.node_id)))

    def dial_from(self, node: Node) -> Callable[[str], Awaitable[Peer]]:
        """Return the function with which `node` dials other nodes. Its sessions are not
        resumable.
        """

        async def dial(text: str) -> Peer:
            self.dials += 1
            node_id = Address.parse(text).node_id
            if node_id is None or self._nodes.get(node.node_id) is not node:
                raise UnreachableError(f"cannot connect to {text!r}: no such node in the network")
            stream = self.connect(node, node_id)
            return await node.connect_stream(stream, trust=Pinned(node_id))

        return dial

    def connect(self, node: Node, node_id: NodeId) -> ByteStream:
        """Open a new connection from `node` to another node, which accepts it.

        Raises:
            UnreachableError: no node has that ID, or connections between the two are closed.
        """
        other, ends = self._nodes.get(node_id), frozenset((node.node_id, node_id))
        if other is None or ends in self._closed or self._tasks is None:
            raise UnreachableError(
                f"cannot connect to {node_id}: the node is not in the network, or it is closed"
            )
        local, near = memory_pair()
        far, remote = memory_pair()
        self._tasks.start_soon(self._ways[ends].join, near, far)
        self._tasks.start_soon(_accept, other, remote)
        return local

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
    with suppress(ParleyError):  # the node logs the reason
        await node.accept_stream(stream)
