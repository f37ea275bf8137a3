"""The SimProto client, of our gateway or any SimProto peer.

    async with SimProtoClient("tcp://127.0.0.1:7101") as client:
        print(await client.call("echo", b"hi"))

It doesn't need a node: the other side may call the handlers of its `registrar`.
"""

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
    """A SimProto connection during its `async with` block.

    `registrar` has the handlers and topics that the other side can use: a node's, or by default the
    client's own, for `client.registrar.on_call(..)` and `.topic(..)`. `values` is the form of data
    that is neither bytes nor text: "cbor", "msgpack" or "json".
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
        """`target` is an address, or a byte stream as for `over`; `timeout` is in seconds, for
        connecting; with `pauses` it reconnects to an address.

        Raises:
            AddressError: not an address.
            ConfigError: there is no such form of `values`.
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
        """Return a client over any byte stream, which ends with the client. Over
        `peer.open_stream("simproto")` everything is encrypted, and each side knows the other's node
        id."""
        return cls(stream, limits=limits, registrar=registrar, values=values)

    # What to ask of the other side.

    @property
    def peer(self) -> SimProtoPeer:
        """The other side, over the last connection; raises ParleyError before the first."""
        return self._guest()

    async def call(
        self, topic: str, data: Encodable = None, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> bytes | None:
        """`SimProtoPeer.call`; with `pauses` it waits for the connection within `timeout`.

        Raises:
            CallTimeout: there was no connection in time; its cause is why.
            LimitReachedError: 4,096 wait for it already. And what `SimProtoPeer.call` raises.
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
        """`SimProtoPeer.subscribe`; with `pauses` the subscription waits for a connection, and
        continues over later ones."""
        if self._redials:
            return SimProtoSubscription(self, topic, data, timeout, window)
        return self.peer.subscribe(topic, data, timeout=timeout, window=window)

    async def ping(self) -> float:
        """`SimProtoPeer.ping`; with `pauses` it waits for the connection."""
        if self._must_wait:
            await self.connected(None)
        return await self.peer.ping()

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the last connection; returns how it ended."""
        return await self.peer.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then end the connection for good."""
        await self._close(code, text)

    # Inside.

    def _new_guest(self, backend: Backend, place: str) -> SimProtoPeer:
        target = self._target
        carrier = target.live if isinstance(target, Stream) else None
        return SimProtoPeer(backend, place, self._options, carrier=carrier)
