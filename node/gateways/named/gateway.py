"""`NamedGateway`: a node's named events for clients of the crate bromine, byte for byte.

It serves what is registered on the node and has no handlers of its own. The dialect is not
encrypted, so the gateway listens on loopback and Unix sockets unless told otherwise.
"""

import anyio

from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.named.peer import FlavourName, NamedPeer, NamedTerms
from parley._node.gateways.server import DialectServer
from parley._node.messaging.formats import FormatName
from parley._node.node import Node
from parley._node.transport.backend import Backend


class NamedGateway(DialectServer[NamedPeer]):
    """Serves the named events of a running node, for as long as its `async with`.

    `flavour` is the header that clients use: `plain` that of the document (bromine 0.14 to
    0.17), `typed` that of 0.18 and later; nothing on the wire tells them apart. `format` is
    the format of replies unless their handler says otherwise.

    Raises:
        ConfigError: there is no such flavour or format.
    """

    def __init__(
        self,
        node: Node,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: DialectLimits | None = None,
    ) -> None:
        self.node = node
        self._terms = terms = NamedTerms.of(node.handlers, flavour, format, limits)
        self.flavour = terms.flavour
        self.format = terms.format
        self.limits = terms.limits
        super().__init__("the gateway", self.limits.clients, self.limits.memory)
        self._ignored = 0  # events of clients that are gone

    def __repr__(self) -> str:
        return f"<NamedGateway, {self.flavour}, {len(self.peers)} clients>"

    @property
    def peers(self) -> list[NamedPeer]:
        """The clients that are connected."""
        return [peer for peer in self._guests.values() if peer.is_open]

    @property
    def clients(self) -> int:
        """How many places are taken: by clients that are connected, or left a handler running."""
        return len(self._guests)

    @property
    def backend(self) -> Backend:
        """The node's."""
        return self.node.backend

    @property
    def ignored(self) -> int:
        """How many events came without a handler for them."""
        return self._ignored + sum(peer.ignored for peer in self._guests.values())

    # Inside.

    def _new_guest(self, name: str) -> NamedPeer:
        return NamedPeer(self.backend, name, self._terms, on_over=self._over, total=self.account)

    def _over(self, peer: NamedPeer) -> None:
        self._ignored += peer.ignored
        self._gone(peer)

    async def _drain(self) -> None:
        peers = list(self._guests.values())
        for peer in peers:
            peer.draining = True
        with anyio.move_on_after(self.node.config.drain_timeout):
            for peer in peers:
                await peer.drained()

    def _dismiss(self, guest: NamedPeer, *, hasty: bool) -> None:
        guest.stop_handlers()
        super()._dismiss(guest, hasty=hasty)
