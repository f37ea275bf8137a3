"""The client of a SimProto gateway, or of any program that implements SimProto."""

from typing import Self

from anyio.abc import ByteStream

from parley._lbm.codec import Encodable
from parley._node.backoff import Backoff
from parley._node.config import NodeConfig
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.values import Rest
from parley._node.gateways.client import CONNECT_TIMEOUT, DialectClient
from parley._node.gateways.simproto.connection import SimProtoOptions
from parley._node.gateways.simproto.peer import DEFAULT_TIMEOUT, SimProtoPeer
from parley._node.gateways.simproto.subscription import WINDOW, SimProtoSubscription
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded
from parley._node.registrar import Registrar
from parley._node.remote.stream import Stream
from parley._node.transport.backend import Backend


class SimProtoClient(DialectClient[SimProtoPeer]):
    """A SimProto connection during its `async with` block, with or without a node.

    `registrar` provides the handlers and topics that the other side can use. It can be a node's; by
    default the client has its own, for `client.registrar.on_call(..)` and `.topic(..)`. `values` is
    the format of data that is neither bytes nor text: "cbor", "msgpack" or "json".

    Example:

        from parley import Call
        from parley.dialects import SimProtoClient, SimProtoGateway

        @node.on_call("upper")
        async def upper(call: Call) -> bytes:
            return call.data.upper()

        async with SimProtoGateway(node) as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
            async with SimProtoClient(address) as client:
                assert await client.call("upper", b"hello") == b"HELLO"
    """

    def __init__(
        self,
        target: str | ByteStream,
        *,
        limits: DialectLimits | None = None,
        registrar: Registrar | None = None,
        values: Rest = "cbor",
        timeout: float = CONNECT_TIMEOUT,
        pauses: Backoff | None = None,
    ) -> None:
        """Create a client of `target`, which is an address, or a byte stream as in `over`.

        `timeout` is in seconds, for connecting. With `pauses` the client reconnects to its address.

        Raises:
            AddressError: `target` is not a valid address.
            ConfigError: `values` is not a valid format.
        """
        super().__init__(target, timeout, pauses)
        self.registrar = registrar or Registrar(NodeConfig(), self._scope)
        self._options = SimProtoOptions(limits or DialectLimits(), self.registrar, values)

    @classmethod
    def over(
        cls,
        stream: ByteStream,
        *,
        limits: DialectLimits | None = None,
        registrar: Registrar | None = None,
        values: Rest = "cbor",
    ) -> Self:
        """Return a client over any byte stream, which is closed with the client.

        Over `peer.open_stream("simproto")`, all data is encrypted, and each side knows the other's
        node ID.
        """
        return cls(stream, limits=limits, registrar=registrar, values=values)

    # Requests to the other side.

    @property
    def peer(self) -> SimProtoPeer:
        """The other side, over the last connection; raises ParleyError before the first one."""
        return self._guest()

    async def call(
        self, topic: str, data: Encodable = None, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> bytes | None:
        """Call a topic, like `SimProtoPeer.call`; with `pauses`, wait for a connection within
        `timeout`.

        Raises:
            CallTimeout: no connection was established in time; its cause is the reason.
            LimitReachedError: 4,096 requests already wait for the connection.
            Exception: as raised by `SimProtoPeer.call`.
        """
        if self._must_wait:
            _, timeout = await self.connected(timeout)
        return await self.peer.call(topic, data, timeout=timeout)

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int = WINDOW,
    ) -> SimProtoSubscription:
        """Subscribe to a topic, like `SimProtoPeer.subscribe`.

        With `pauses`, the subscription waits for a connection and continues over later ones.
        """
        if self._redials:
            return SimProtoSubscription(self, topic, data, timeout, window)
        return self.peer.subscribe(topic, data, timeout=timeout, window=window)

    async def ping(self) -> float:
        """Return the round-trip time in seconds; with `pauses`, wait for a connection first."""
        if self._must_wait:
            await self.connected(None)
        return await self.peer.ping()

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the last connection and return how it ended."""
        return await self.peer.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then end the connection permanently."""
        await self._close(code, text)

    # Internals.

    def _new_guest(self, backend: Backend, place: str) -> SimProtoPeer:
        target = self._target
        carrier = target.live if isinstance(target, Stream) else None
        return SimProtoPeer(backend, place, self._options, carrier=carrier)
