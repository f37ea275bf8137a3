"""`SimProtoClient`: the side that connects, to a gateway of ours or to any SimProto peer.

    async with SimProtoClient("tcp://127.0.0.1:7101") as client:
        print(await client.call("echo", b"hi"))

One rule: it needs no node; what the other side may ask of it is its `offering`. What is
said on the connection is `SimProtoPeer`'s.
"""

from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream

from lbm.codec import Encodable
from node.config import NodeConfig
from node.dialects.limits import SimProtoLimits
from node.dialects.values import Rest
from node.errors import ParleyError, UnreachableError
from node.gateways.simproto_peer import DEFAULT_TIMEOUT, SimProtoPeer, require_form
from node.gateways.simproto_subscription import WINDOW, SimProtoSubscription
from node.offering import Offering
from node.protocol.codes import CloseCode
from node.protocol.limits import CLOSE_DRAIN, CLOSE_LINGER
from node.protocol.reports import ConnectionEnded
from node.streams.stream import Stream
from node.transport.address import Address
from node.transport.ground import Ground
from node.transport.stream_outlet import StreamOutlet

CONNECT_TIMEOUT = 10.0
# For what is queued to be written, and for the other side to hang up.
CLOSE_TIMEOUT = CLOSE_DRAIN + CLOSE_LINGER


class SimProtoClient:
    """A connection in SimProto, for as long as its `async with`.

    `offering` is what the other side may call and subscribe to here: a node's, or by
    default one of its own, for `client.offering.on_call(..)` and `.topic(..)`. `values` is
    the form of data that is neither bytes nor text: "cbor", "msgpack" or "json".
    """

    def __init__(
        self,
        target: str | ByteStream,
        *,
        limits: SimProtoLimits | None = None,
        offering: Offering | None = None,
        values: Rest = "cbor",
        timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`target` is an address, or a byte stream as for `over`; `timeout` is seconds for
        connecting.

        Raises:
            AddressError: not an address. ConfigError: `values` is none of them.
        """
        self._target = target
        self._address: Address | None = None
        self._name = "a stream"
        if isinstance(target, str):
            self._address = Address.parse(target).without_node_id()
            self._name = self._address.place
        self._limits = limits or SimProtoLimits()
        self._values: Rest = require_form(values)
        self._timeout = timeout
        self._ground = Ground("the client")
        self._peer: SimProtoPeer | None = None
        self.offering = offering or Offering(NodeConfig(), lambda: self._ground.backend)

    @classmethod
    def over(
        cls,
        stream: ByteStream,
        *,
        limits: SimProtoLimits | None = None,
        offering: Offering | None = None,
        values: Rest = "cbor",
    ) -> Self:
        """A client over any byte stream, such as `peer.open_stream("simproto")`: then all of
        it is encrypted, and each side knows the other's node id. The stream ends with it."""
        return cls(stream, limits=limits, offering=offering, values=values)

    def __repr__(self) -> str:
        return f"<SimProtoClient of {self._name}>"

    # What to ask of the other side.

    @property
    def peer(self) -> SimProtoPeer:
        """The other side; ParleyError before it is connected."""
        if self._peer is None:
            raise ParleyError("the client is not connected: use `async with client`")
        return self._peer

    @property
    def is_open(self) -> bool:
        """Whether it is connected, as far as is known."""
        return self._peer is not None and self._peer.is_open

    async def call(
        self, topic: str, data: Encodable = None, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> bytes | None:
        """`SimProtoPeer.call`."""
        return await self.peer.call(topic, data, timeout=timeout)

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int = WINDOW,
    ) -> SimProtoSubscription:
        """`SimProtoPeer.subscribe`."""
        return self.peer.subscribe(topic, data, timeout=timeout, window=window)

    async def ping(self) -> float:
        """`SimProtoPeer.ping`."""
        return await self.peer.ping()

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        return await self.peer.closed()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End the connection: what is queued goes first."""
        await self.peer.close(code, text)

    # Life.

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            UnreachableError: nobody answers, or not in time. ParleyError: it was connected
                already.
        """
        if self._peer is not None:
            raise ParleyError("a client connects once")
        backend = await self._ground.enter()
        target = self._target
        carrier = target.peer if isinstance(target, Stream) else None
        peer = SimProtoPeer(
            backend, self._name, self._limits, self.offering, self._values, carrier=carrier
        )
        try:
            if self._address is not None:
                with anyio.fail_after(self._timeout):
                    await backend.connect(self._address, lambda: peer.driver)
            elif not isinstance(target, str):
                StreamOutlet(target, peer.driver, backend)
        except BaseException as error:
            peer.drop()
            await self._ground.leave()
            if isinstance(error, TimeoutError):
                text = f"{self._name} did not answer in {self._timeout:g} s"
                raise UnreachableError(text) from error
            raise
        self._peer = peer
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        peer = self.peer
        try:
            if exc_type is None:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await peer.close()
            peer.drop()
        finally:
            await self._ground.leave()
