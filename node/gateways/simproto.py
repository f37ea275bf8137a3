"""`SimProtoGateway`: a node's handlers and topics, for who speaks SimProto.

    async with Node(identity) as node, SimProtoGateway(node) as gateway:
        await gateway.listen("tcp://127.0.0.1:7101")

One rule: the handlers and topics are the node's own, whatever language asks for them.
What is said on a connection is `SimProtoPeer`'s.
"""

from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream

from node.dialects.limits import SimProtoLimits
from node.dialects.values import Rest
from node.errors import ParleyError
from node.gateways.simproto_peer import SimProtoPeer, require_form
from node.guest import Guest
from node.node import Node
from node.protocol.codes import CloseCode
from node.protocol.limits import CLOSE_DRAIN, CLOSE_LINGER
from node.serving.authorisation import Allow
from node.streams.stream import Stream
from node.transport.driver import Driver
from node.transport.gateway import Gateway
from node.transport.stream_outlet import StreamOutlet

# For what is queued to be written, and for the other side to hang up.
CLOSE_TIMEOUT = CLOSE_DRAIN + CLOSE_LINGER + 1.0
# The label of native streams that carry SimProto.
LABEL = "simproto"


class SimProtoGateway:
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
        self._peers: set[SimProtoPeer] = set()
        self._gateway: Gateway | None = None

    def __repr__(self) -> str:
        return f"<SimProtoGateway, {len(self._peers)} peers>"

    @property
    def peers(self) -> list[SimProtoPeer]:
        """Who is connected."""
        return [peer for peer in self._peers if peer.is_open]

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
        return self._gateway.addresses if self._gateway is not None else []

    @property
    def turned_away(self) -> int:
        """How many connections `limits.clients` kept out."""
        return self._gateway.turned_away if self._gateway is not None else 0

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`; returns the address
        to dial.

        Raises:
            InsecureAddressError: others than this machine could reach it, and
                `allow_insecure` is not given. AddressError: not an address.
            UnreachableError: it cannot be listened on. ParleyError: it is not running.
        """
        return await self._running().listen(address, allow_insecure=allow_insecure)

    async def serve_stream(self, stream: ByteStream) -> None:
        """Serve one client over any byte stream, such as an encrypted `Stream` of a native
        connection; returns when it is over."""
        self._running()
        await _serve(stream, self.node, self.limits, self.values, self._peers)

    async def __aenter__(self) -> Self:
        if self._gateway is not None:
            raise ParleyError("the gateway is running already")
        self._gateway = Gateway(self.node.backend, self._accept, self.limits.clients)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            if exc_type is None:
                await self.aclose()
            else:
                await self._running().stop_listening()
                for peer in list(self._peers):
                    peer.drop()

    async def aclose(self) -> None:
        """Take nobody in any more, let running handlers answer, and close all connections."""
        await self._running().stop_listening()
        for topic in self.node.topics.values():
            topic.flush()
        peers = list(self._peers)
        for peer in peers:
            peer.drain()
        with anyio.move_on_after(self.node.config.drain_timeout):
            for peer in peers:
                await peer.drained()
        with anyio.move_on_after(CLOSE_TIMEOUT):
            async with anyio.create_task_group() as closing:
                for peer in peers:
                    closing.start_soon(peer.close, CloseCode.GOING_AWAY)

    # Inside.

    def _running(self) -> Gateway:
        if self._gateway is None:
            raise ParleyError("the gateway is not running: use `async with gateway`")
        return self._gateway

    def _accept(self, name: str) -> Driver:
        peer = SimProtoPeer(
            self.node.backend, name, self.limits, self.node, self.values, on_gone=self._gone
        )
        self._peers.add(peer)
        return peer.driver

    def _gone(self, guest: Guest) -> None:
        self._running().left(guest.driver)
        if isinstance(guest, SimProtoPeer):
            self._peers.discard(guest)


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
    peer's node id.

    Raises:
        ParleyError: the label has a handler, or is reserved. ConfigError: an option is
            wrong.
    """
    bounds, rest = limits or SimProtoLimits(), require_form(values)

    @node.on_stream(label, allow=allow)
    async def serve_simproto(stream: Stream) -> None:
        await _serve(stream, node, bounds, rest, set())


async def _serve(
    stream: ByteStream, node: Node, limits: SimProtoLimits, values: Rest, peers: set[SimProtoPeer]
) -> None:
    """Serve one client over a stream, as one of `peers`, until it is over."""
    carrier = stream.peer if isinstance(stream, Stream) else None
    name = "a stream" if carrier is None else f"a stream of {carrier.name}"
    peer = SimProtoPeer(node.backend, name, limits, node, values, carrier=carrier)
    peers.add(peer)
    try:
        StreamOutlet(stream, peer.driver, node.backend)
        await peer.gone()
    finally:
        peers.discard(peer)
        peer.drop()
