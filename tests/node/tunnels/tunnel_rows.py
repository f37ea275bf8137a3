"""Nodes in a row, connected in memory; those in between are servers that forward tunnels."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity, NodeId
from parley._crypto.randomness import random_bytes
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import TunnelRefusedError
from parley._node.federation.dials import TunnelRecord
from parley._node.federation.exports import Exports
from parley._node.handlers.registry import Entry
from parley._node.journal.journal import Journal
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import TUNNEL, TUNNEL_ANSWER, TUNNEL_LABEL, ResultCode
from parley._node.remote.stream import Stream
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.testing import FakeClock, FaultyLink, connect_nodes
from parley._node.tunnels.dial import dial_tunnel, tunnel_dial
from parley._node.tunnels.policy import IncomingDial
from parley._node.tunnels.tunnel_transport import TunnelTransport, TunnelWriter
from tests.node.network import PATIENCE, config

AUDITOR = AuditorPrivateKey.create().public


class Passing:
    """The policy of a server that forwards along the path of a Dial, or by `ways` for a Dial `to` a
    node.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ways: dict[tuple[NodeId, ...], tuple[NodeId, ...]] = {}
        self.dials: list[IncomingDial] = []
        self.open = 0

    @asynccontextmanager
    async def decide(self, dial: IncomingDial) -> AsyncIterator[TunnelTransport | None]:
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
                    timeout=dial.deadline - self.node.backend.now(),
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
    """A row of `nodes` from the origin to the target; `links` are the peers of each pair of
    neighbours, as each of the two sees it. The path consists of the nodes after the origin.
    """

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

    async def open(self, timeout: float = PATIENCE) -> TunnelTransport:
        """Open a tunnel from the origin to the target."""
        return await dial_tunnel(
            self.links[0][0], to=[self.target.node_id], trace=random_bytes(16), timeout=timeout
        )

    async def reach(self) -> Peer:
        """Open a session with the target through a tunnel."""
        return await self.origin.connections.connect_by(
            [tunnel_dial(self.open)], self.target.node_id, name="the row"
        )


@asynccontextmanager
async def row(
    count: int = 3,
    *,
    clock: FakeClock | None = None,
    journals: Path | None = None,
    patience: float = PATIENCE,
    last: FaultyLink | None = None,
    **settings: Any,
) -> AsyncIterator[Row]:
    """Run nodes in a row; the first has an account at the second. Those in between write journals
    in subdirectories of `journals`, if given. `last` is an existing node to use as the target.
    """
    nodes = []
    for place in range(count):
        journal = None
        if journals is not None and 0 < place < count - 1:
            journal = Journal.open(journals / str(place), AUDITOR)
        settled = config(**settings)
        nodes.append(Node(Identity.create(), config=settled, clock=clock, journal=journal))
    nodes[-1].handlers.exports.add(Exports(["*"]))
    made = Row(nodes)
    with anyio.fail_after(patience):
        async with AsyncExitStack() as stack:
            for node in reversed(nodes):
                await stack.enter_async_context(node)
            for one, other in pairwise(nodes):
                link = last if other is nodes[-1] else None
                made.links.append(await connect_nodes(one, other, link=link))
            for node in nodes[1:]:
                switch = Passing(node)
                switch.ways[(made.target.node_id,)] = made.path
                made.switches.append(switch)
                node.connections.serve_tunnels(switch, made.records.append)
            yield made


class RawEnd:
    """An end of a tunnel without an inner connection: it keeps incoming data, and returns its
    credit while it is `reading`.
    """

    def __init__(self, stream: TunnelStream) -> None:
        self.stream = stream
        self.writer = TunnelWriter(stream, lambda cost: None)
        self.data = bytearray()
        self.events = 0
        self.longest = 0
        self.reading = True
        self.owed = 0
        self.eof = False
        self.code: int | None = None
        stream.pass_to(self)

    def read(self) -> None:
        """Read the kept data, and all further data."""
        self.reading = True
        self.stream.give_back(self.owed)
        self.owed = 0

    def data_received(self, data: bytes, cost: int) -> None:
        self.data += data
        self.events += 1
        self.longest = max(self.longest, len(data))
        if self.reading:
            self.stream.give_back(cost)
        else:
            self.owed += cost

    def finished(self) -> None:
        self.eof = True

    def failed(self, code: int) -> None:
        self.code = code

    def writable(self) -> None:
        self.writer.writable()


def end_raw(node: Node, *, reading: bool = True) -> list[RawEnd]:
    """Let all tunnels that arrive at `node` end in a raw end of the list."""
    ends: list[RawEnd] = []

    async def serve(stream: Stream) -> None:
        assert isinstance(stream, TunnelStream)
        event = await stream.receive_event()
        end = RawEnd(stream)
        end.reading = reading
        ends.append(end)
        answer = encode({keys.CODE: 0})
        await event.answer(TUNNEL_ANSWER, category=TUNNEL, payload=answer)
        await stream.live.closed()

    node.handlers.reserved[TUNNEL_LABEL] = Entry(TUNNEL_LABEL, serve)
    return ends
