"""`NamedClient`: a client of named events, to a gateway of ours or to a server of the crate.

One rule: it is a whole other side: what the server emits meets the handlers of its
offering.
"""

from lbm.codec import Encodable
from node.config import NodeConfig
from node.dialects.limits import NamedLimits
from node.gateways.client import CONNECT_TIMEOUT, DialectClient
from node.gateways.named.gateway import FlavourName, parse_flavour, require_format
from node.gateways.named.peer import NamedPeer
from node.messaging.formats import FormatName
from node.messaging.payloads import Payload, Tandem
from node.offering import Offering
from node.remote.emission import Emission
from node.transport.backend import Backend


class NamedClient(DialectClient[NamedPeer]):
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
        super().__init__(address, timeout)
        self._flavour = parse_flavour(flavour)
        self._format = require_format(format)
        self._limits = limits or NamedLimits()
        self.offering = offering or Offering(NodeConfig(), lambda: self._ground.backend)

    @property
    def peer(self) -> NamedPeer:
        """The server, as its handlers meet it; ParleyError if there is no connection yet."""
        return self._connected()

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

    # Inside.

    def _new_guest(self, backend: Backend, place: str) -> NamedPeer:
        return NamedPeer(
            backend,
            place,
            self.offering.handlers,
            flavour=self._flavour,
            format=self._format,
            limits=self._limits,
            on_over=_nothing,
        )


def _nothing(peer: NamedPeer) -> None:
    return
