"""`SimProtoGateway`: a node's handlers and topics, for who speaks SimProto.

    async with Node(identity) as node, SimProtoGateway(node) as gateway:
        await gateway.listen("tcp://127.0.0.1:7101")

One rule: the handlers and topics are the node's own, whatever language asks for them.
What is said on a connection is `SimProtoPeer`'s.
"""

from collections import Counter
from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from node.dialects.limits import SimProtoLimits
from node.dialects.values import Rest
from node.gateways.server import DialectServer
from node.gateways.simproto.peer import SimProtoPeer, require_form
from node.handlers.rules import Allow
from node.node import Node
from node.peer.peer import Peer
from node.protocol.account import Account
from node.protocol.codes import CloseCode
from node.streams.stream import Stream
from node.transport.backend import Backend
from node.transport.stream_outlet import StreamOutlet

# The label of native streams that carry SimProto.
LABEL = "simproto"
# Of those that one peer may have at once: each may hold what a client may.
STREAMS_A_PEER = 16


class SimProtoGateway(DialectServer[SimProtoPeer]):
    """Serves a node's handlers and topics to SimProto clients; lives as long as its `async
    with`, inside of the node's.

    `values` is the form of answers and notes that are neither bytes nor text: "cbor",
    "msgpack" or "json".

    Raises:
        ConfigError: `values` is none of them.
    """

    def __init__(
        self, node: Node, *, limits: SimProtoLimits | None = None, values: Rest = "cbor"
    ) -> None:
        self.node = node
        self.limits = limits or SimProtoLimits()
        self.values: Rest = require_form(values)
        super().__init__("the gateway", self.limits.clients, self.limits.memory)

    def __repr__(self) -> str:
        return f"<SimProtoGateway, {len(self.peers)} peers>"

    @property
    def peers(self) -> list[SimProtoPeer]:
        """Who is connected."""
        return [peer for peer in self._guests.values() if peer.is_open]

    @property
    def backend(self) -> Backend:
        """The node's."""
        return self.node.backend

    async def serve_stream(self, stream: ByteStream) -> None:
        """Serve one client over any byte stream, such as an encrypted `Stream` of a native
        connection; returns when it is over."""
        self._running()
        await _serve(
            stream, self.node, self.limits, self.values, self._welcome, self._gone, self.account
        )

    # Inside.

    def _new_guest(self, name: str) -> SimProtoPeer:
        return SimProtoPeer(
            self.backend,
            name,
            self.limits,
            self.node,
            self.values,
            on_gone=self._gone,
            total=self.account,
        )

    async def _drain(self) -> None:
        for topic in self.node.topics.values():
            topic.flush()
        peers = self.peers
        for peer in peers:
            peer.drain()
        with anyio.move_on_after(self.node.config.drain_timeout):
            for peer in peers:
                await peer.drained()
            for peer in peers:
                peer.sim.finish()
            for peer in peers:
                await peer.finished()


def offer_simproto(
    node: Node,
    label: str = LABEL,
    *,
    limits: SimProtoLimits | None = None,
    values: Rest = "cbor",
    allow: Allow | None = None,
) -> None:
    """Serve a node's handlers and topics in SimProto over streams that peers open under
    `label`, encrypted as all of their connection. There `allow=` of handlers holds for the
    peer's node id. A peer has 16 of them at once; one more is reset as `overloaded`.

    Raises:
        ParleyError: the label has a handler, or is reserved. ConfigError: an option is
            wrong.
    """
    bounds, rest = limits or SimProtoLimits(), require_form(values)
    there: Counter[Peer | None] = Counter()

    def came(guest: SimProtoPeer) -> None:
        there[guest.carrier] += 1

    def went(guest: SimProtoPeer) -> None:
        there[guest.carrier] -= 1
        if not there[guest.carrier]:
            del there[guest.carrier]

    @node.on_stream(label, allow=allow)
    async def serve_simproto(stream: Stream) -> None:
        if there[stream.peer] >= STREAMS_A_PEER:
            stream.reset(CloseCode.OVERLOADED)
        else:
            await _serve(stream, node, bounds, rest, came, went)


async def _serve(
    stream: ByteStream,
    node: Node,
    limits: SimProtoLimits,
    values: Rest,
    came: Callable[[SimProtoPeer], None],
    went: Callable[[SimProtoPeer], None],
    total: Account | None = None,
) -> None:
    """Serve one client over a stream until it is over; `came` and `went` are told of it. It
    counts in the account of the peer that carries it, without one in `total`."""
    carrier = stream.peer if isinstance(stream, Stream) else None
    if carrier is not None:
        total = carrier.core.account
    name = "a stream" if carrier is None else f"a stream of {carrier.name}"
    peer = SimProtoPeer(node.backend, name, limits, node, values, carrier=carrier, total=total)
    came(peer)
    try:
        StreamOutlet(stream, peer.driver, node.backend)
        await peer.gone()
    finally:
        went(peer)
        peer.drop()
