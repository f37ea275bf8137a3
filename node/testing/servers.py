"""Many nodes in one process that dial each other in memory, as servers of a federation do.

A way between two of them can be cut, and closed until it is opened again.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from anyio.abc import ByteStream, TaskGroup

from parley._crypto.identity import NodeId
from parley._node.errors import ParleyError, UnreachableError
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.testing.link import FaultyLink
from parley._node.transport.address import Address
from parley._node.transport.backend import Clock
from parley._node.transport.memory import memory_pair
from parley._node.transport.task_scope import own_task_group
from parley._node.trust.policies import Pinned


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
