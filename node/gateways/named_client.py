"""`NamedClient`: a client of named events, to a gateway of ours or to a server of the crate.

One rule: it is a whole other side: what the server emits meets the handlers of its
offering.
"""

from types import TracebackType
from typing import Self

import anyio

from lbm.codec import Encodable
from node.config import NodeConfig
from node.dialects.limits import NamedLimits
from node.emission import Emission
from node.errors import ParleyError, UnreachableError
from node.gateways.named import FlavourName, parse_flavour, require_format
from node.gateways.named_peer import NamedPeer
from node.messaging.formats import FormatName
from node.messaging.payloads import Payload, Tandem
from node.offering import Offering
from node.protocol.limits import CLOSE_LINGER
from node.transport.address import Address
from node.transport.ground import Ground

CONNECT_TIMEOUT = 10.0
# Seconds that leaving waits for what is queued to be written, and the server to hang up.
CLOSE_TIMEOUT = CLOSE_LINGER + 1.0


class NamedClient:
    """One connection, for as long as its `async with`; works with and without a node.

    `flavour` is the server's: `plain` (bromine 0.14 to 0.17) or `typed` (0.18 on).
    `format` is what events are in unless told. `offering` has the handlers for what the
    server emits; without one it is the client's own.
    """

    def __init__(
        self,
        address: str,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: NamedLimits | None = None,
        offering: Offering | None = None,
        timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`timeout` is seconds for connecting.

        Raises:
            AddressError: not an address. ConfigError: there is no such flavour or format.
        """
        self._address = Address.parse(address).without_node_id()
        self._flavour = parse_flavour(flavour)
        self._format = require_format(format)
        self._limits = limits or NamedLimits()
        self._timeout = timeout
        self._ground = Ground("the client")
        self.offering = offering or Offering(NodeConfig(), lambda: self._ground.backend)
        self._peer: NamedPeer | None = None

    def __repr__(self) -> str:
        return f"<NamedClient of {self._address.place}>"

    @property
    def peer(self) -> NamedPeer:
        """The server, as its handlers meet it; ParleyError if there is no connection yet."""
        if self._peer is None:
            raise ParleyError("the client is not connected: use `async with`")
        return self._peer

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._peer is not None and self._peer.is_open

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event, as `NamedPeer.emit`."""
        return self.peer.emit(name, data, namespace=namespace, format=format)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            UnreachableError: nobody answers, or not in time. ParleyError: it runs already.
        """
        backend = await self._ground.enter()
        peer = NamedPeer(
            backend,
            self._address.place,
            self.offering.handlers,
            flavour=self._flavour,
            format=self._format,
            limits=self._limits,
            on_over=_nothing,
        )
        try:
            with anyio.fail_after(self._timeout):
                await backend.connect(self._address, lambda: peer.driver)
        except BaseException as error:
            peer.drop()
            await self._ground.leave()
            if isinstance(error, TimeoutError):
                text = f"{self._address.place} did not answer in {self._timeout:g} s"
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
        try:
            if exc_type is None:
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await self.peer.close()
            else:
                self.peer.drop()
        finally:
            self._peer = None
            await self._ground.leave()


def _nothing(peer: NamedPeer) -> None:
    return
