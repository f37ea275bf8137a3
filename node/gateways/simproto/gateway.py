"""The SimProto gateway of a node, on listening addresses or over streams of native peers."""

from collections import Counter
from collections.abc import Callable

import anyio
from anyio.abc import ByteStream

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.values import Rest
from parley._node.gateways.server import DialectServer
from parley._node.gateways.simproto.connection import SimProtoOptions
from parley._node.gateways.simproto.peer import SimProtoPeer
from parley._node.handlers.permissions import Allow
from parley._node.node import Node
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.remote.remote import Remote
from parley._node.remote.stream import Stream
from parley._node.transport.backend import Backend
from parley._node.transport.transport import StreamTransport

# The label of native streams that carry SimProto.
LABEL = "simproto"
# Streams that one peer may use at the same time, because each may use as much memory as a client.
STREAMS_A_PEER = 16


class SimProtoGateway(DialectServer[SimProtoPeer]):
    """Serves a node's handlers and topics to SimProto clients during its `async with` block.

    The node must be running. `values` is the format of responses and notes that are neither bytes
    nor text: "cbor", "msgpack" or "json".

    Raises:
        ConfigError: `values` is not a valid format.

    Example:

        from parley.dialects import SimProtoGateway

        async with SimProtoGateway(node, values="json") as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
    """

    def __init__(
        self, node: Node, *, limits: DialectLimits | None = None, values: Rest = "cbor"
    ) -> None:
        self.node = node
        self.limits = limits or DialectLimits()
        self._terms = SimProtoOptions(self.limits, node.registrar, values)
        super().__init__("the gateway", self.limits.clients, self.limits.memory)

    def __repr__(self) -> str:
        return f"<SimProtoGateway, {len(self.peers)} peers>"

    @property
    def peers(self) -> list[SimProtoPeer]:
        """The connected clients."""
        return [peer for peer in self._guests.values() if peer.is_open]

    @property
    def backend(self) -> Backend:
        """The node's event loop."""
        return self.node.backend

    async def serve_stream(self, stream: ByteStream) -> None:
        """Serve one client over any byte stream until its connection ends."""
        self._running()
        await _serve(stream, self.backend, self._terms, self._welcome, self._gone, self.account)

    # Internals.

    def _new_guest(self, name: str) -> SimProtoPeer:
        return SimProtoPeer(self.backend, name, self._terms, on_gone=self._gone, total=self.account)

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
    limits: DialectLimits | None = None,
    values: Rest = "cbor",
    allow: Allow | None = None,
) -> None:
    """Serve a node's handlers and topics in SimProto over encrypted streams that peers open under
    `label`.

    The `allow=` of a handler applies to the node ID of the peer that opened the stream. A peer can
    have 16 of these streams; further ones are reset as `overloaded`.

    Raises:
        ParleyError: the label is reserved or already has a handler.
        ConfigError: `values` is not a valid format.

    Example:

        from parley.dialects import offer_simproto

        offer_simproto(node, allow=[peer.node_id])
    """
    terms = SimProtoOptions(limits or DialectLimits(), node.registrar, values)
    there: Counter[Remote | None] = Counter()

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
            await _serve(stream, node.backend, terms, came, went)


async def _serve(
    stream: ByteStream,
    backend: Backend,
    terms: SimProtoOptions,
    came: Callable[[SimProtoPeer], None],
    went: Callable[[SimProtoPeer], None],
    total: MemoryBudget | None = None,
) -> None:
    """Serve one client over a stream until its connection ends.

    Its memory is charged to the carrying peer's account, or without one to `total`.
    """
    carrier = stream.live if isinstance(stream, Stream) else None
    if carrier is not None:
        total = carrier.core.account
    name = "a stream" if carrier is None else f"a stream of {carrier.name}"
    peer = SimProtoPeer(backend, name, terms, carrier=carrier, total=total)
    came(peer)
    try:
        StreamTransport(stream, peer.driver, backend)
        await peer.gone()
    finally:
        went(peer)
        peer.drop()
