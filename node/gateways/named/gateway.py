"""`NamedGateway`: a node served to the crate bromine's clients, byte for byte.

One rule: what is registered on the node is what is served; the gateway has no handlers of
its own. In the clear, so on loopback and Unix sockets unless told.
"""

from typing import Final, Literal

import anyio

from node.dialects.limits import NamedLimits
from node.dialects.named.codec import Flavour
from node.errors import ConfigError
from node.gateways.named.peer import NamedPeer
from node.gateways.server import DialectServer
from node.messaging.formats import FormatName
from node.node import Node
from node.transport.backend import Backend

FlavourName = Flavour | Literal["plain", "typed"]
FORMATS: Final[tuple[FormatName, ...]] = ("msgpack", "json", "raw")


class NamedGateway(DialectServer[NamedPeer]):
    """Serves the named events of a running node, for as long as its `async with`.

    `flavour` is which header clients speak: `plain` that of the document (bromine 0.14 to
    0.17), `typed` that of 0.18 on; nothing on the wire tells them apart. `format` is what
    replies are in unless their handler says otherwise.

    Raises:
        ConfigError: there is no such flavour or format.
    """

    def __init__(
        self,
        node: Node,
        *,
        flavour: FlavourName = "plain",
        format: FormatName = "msgpack",
        limits: NamedLimits | None = None,
    ) -> None:
        self.node = node
        self.flavour = parse_flavour(flavour)
        self.format = require_format(format)
        self.limits = limits or NamedLimits()
        super().__init__("the gateway", self.limits.clients, self.limits.memory)
        self._ignored = 0  # of those that are gone

    def __repr__(self) -> str:
        return f"<NamedGateway, {self.flavour}, {len(self.peers)} clients>"

    @property
    def peers(self) -> list[NamedPeer]:
        """Who is connected."""
        return [peer for peer in self._guests.values() if peer.is_open]

    @property
    def clients(self) -> int:
        """How many places are taken: by who is connected, or left a handler that runs."""
        return len(self._guests)

    @property
    def backend(self) -> Backend:
        """The node's."""
        return self.node.backend

    @property
    def ignored(self) -> int:
        """How many events came for which there is no handler."""
        return self._ignored + sum(peer.ignored for peer in self._guests.values())

    # Inside.

    def _new_guest(self, name: str) -> NamedPeer:
        return NamedPeer(
            self.backend,
            name,
            self.node.handlers,
            flavour=self.flavour,
            format=self.format,
            limits=self.limits,
            on_over=self._over,
            total=self.account,
        )

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


def parse_flavour(name: str) -> Flavour:
    """A flavour by its name; raises ConfigError."""
    try:
        return Flavour(name)
    except ValueError:
        raise ConfigError(f"the flavours are plain and typed, not {name!r}") from None


def require_format(name: FormatName) -> FormatName:
    """A format's name; raises ConfigError if the crate has none such."""
    if name not in FORMATS:
        raise ConfigError(f"the formats are {', '.join(FORMATS)}, not {name!r}")
    return name
