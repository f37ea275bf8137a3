"""Nodes in a row, joined in memory, the ones between being servers that pass tunnels on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio

from crypto.identity import NodeId
from crypto.randomness import random_bytes
from node.errors import TunnelRefusedError
from node.federation.tunnel_record import TunnelRecord
from node.node import Node
from node.peer.peer import Peer
from node.protocol.codes import ResultCode
from node.tunnels.dialling import dial_tunnel, tunnel_dial
from node.tunnels.outlet import TunnelOutlet
from node.tunnels.switch import IncomingDial
from tests.node.network import PATIENCE, introduce, new_node


class Passing:
    """The switch of a server that passes on whatever its path says, to whoever is joined to it; and
    what others dial `to` it, by `ways`."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ways: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}
        self.dials: list[IncomingDial] = []
        self.open = 0

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelOutlet | None]:
        self.dials.append(dial)
        path = dial.path
        if path is None:
            assert dial.to is not None
            path = self.ways.get(dial.to)
            if path is None:
                raise TunnelRefusedError(ResultCode.TOPIC_NOT_FOUND)
        place = path.index(self.node.node_id)
        self.open += 1
        try:
            if place == len(path) - 1:
                yield None
            else:
                yield await dial_tunnel(
                    self.next(path[place + 1]),
                    path=path,
                    trace=dial.trace,
                    timeout=dial.deadline - self.node.backend.now() - 0.1,
                )
        finally:
            self.open -= 1

    def next(self, node_id: NodeId) -> Peer:
        for peer in self.node.peers:
            if peer.node_id == node_id and not peer.path:
                return peer
        raise TunnelRefusedError(ResultCode.UNREACHABLE)


@dataclass
class Row:
    """`nodes` from the origin to the target; `links` are the peers of each pair of neighbours, as
    the one and as the other sees it. The path is that of the nodes behind the origin."""

    nodes: Sequence[Node]
    links: list[tuple[Peer, Peer]] = field(default_factory=list)
    switches: list[Passing] = field(default_factory=list)
    records: list[TunnelRecord] = field(default_factory=list)

    @property
    def path(self) -> tuple[NodeId, ...]:
        return tuple(node.node_id for node in self.nodes[1:])

    @property
    def origin(self) -> Node:
        return self.nodes[0]

    @property
    def target(self) -> Node:
        return self.nodes[-1]

    async def open(self) -> TunnelOutlet:
        """A tunnel from the origin to the target."""
        return await dial_tunnel(
            self.links[0][0], to=[self.target.node_id], trace=random_bytes(16), timeout=PATIENCE
        )

    async def reach(self) -> Peer:
        """A session with the target, through a tunnel."""
        return await self.origin.connect_by(
            [tunnel_dial(self.open)], self.target.node_id, name="the row"
        )


@asynccontextmanager
async def row(count: int = 3, **settings: Any) -> AsyncIterator[Row]:
    """So many nodes in a row; the first is an account of the second."""
    nodes = [new_node(**settings) for _ in range(count)]
    made = Row(nodes)
    with anyio.fail_after(PATIENCE):
        async with AsyncExitStack() as stack:
            for node in reversed(nodes):
                await stack.enter_async_context(node)
            for one, other in pairwise(nodes):
                made.links.append(await introduce(one, other))
            for node in nodes[1:]:
                switch = Passing(node)
                switch.ways[(made.target.node_id,)] = made.path
                made.switches.append(switch)
                node.serve_tunnels(switch, made.records.append)
            yield made
