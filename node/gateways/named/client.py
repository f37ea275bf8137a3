"""`NamedClient`: a client of named events, for a gateway of ours or a server of the crate.

It is a complete peer: events that the server emits go to the handlers of its offering.
"""

from parley._lbm.codec import Encodable
from parley._node.backoff import Pauses
from parley._node.config import NodeConfig
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import Flavour
from parley._node.gateways.client import CONNECT_TIMEOUT, DialectClient
from parley._node.gateways.named.peer import FlavourName, NamedPeer, NamedTerms
from parley._node.links.emitter import WaitingEmitter
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem, make_payload
from parley._node.offering import Offering
from parley._node.remote.emission import Emission
from parley._node.transport.backend import Backend


class NamedClient(DialectClient[NamedPeer]):
    """A connection for as long as its `async with`, or one after another; works with and without
    a node.

    `flavour` is the server's: `plain` (bromine 0.14 to 0.17) or `typed` (0.18 and later).
    `format` is the format of events unless told. `offering` has the handlers for what the
    server emits; by default it is the client's own.
    """

    def __init__(
        self,
        address: str,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: DialectLimits | None = None,
        offering: Offering | None = None,
        timeout: float = CONNECT_TIMEOUT,
        pauses: Pauses | None = None,
    ) -> None:
        """`timeout` is in seconds, for connecting; with `pauses` it is dialled again.

        Raises:
            AddressError: not an address. ConfigError: there is no such flavour or format.
        """
        super().__init__(address, timeout, pauses)
        self.offering = offering or Offering(NodeConfig(), lambda: self._ground.backend)
        self._terms = NamedTerms.of(self.offering.handlers, flavour, format, limits)

    @property
    def peer(self) -> NamedPeer:
        """The server, as handlers see it, over the last connection; ParleyError before the
        first."""
        return self._guest()

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event, as `NamedPeer.emit`.

        With `pauses` it waits for the connection: `reply()` and `replies()` within their time-outs
        (then CallTimeout; its cause says what is wrong), `await` for as long as it takes. At
        most 4,096 wait: LocalProtocolError.
        """
        if not self._redials:
            return self.peer.emit(name, data, namespace=namespace, format=format)
        marks_end = self._terms.flavour is Flavour.TYPED
        emitter = WaitingEmitter(self, lambda peer: peer.emitter, marks_end=marks_end)
        return Emission(emitter, name, namespace, make_payload(data, format or self._terms.format))

    # Inside.

    def _new_guest(self, backend: Backend, place: str) -> NamedPeer:
        return NamedPeer(backend, place, self._terms)
