"""`NamedGateway`: a node served to the crate bromine's clients, byte for byte.

One rule: what is registered on the node is what is served; the gateway has no handlers of
its own. In the clear, so on loopback and Unix sockets unless told.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, Self

import anyio

from node.dialects.limits import NamedLimits
from node.dialects.named.codec import Flavour
from node.errors import ConfigError, ParleyError
from node.gateways.named_peer import NamedPeer
from node.messaging.formats import FormatName
from node.node import CLOSE_TIMEOUT, Node
from node.transport.driver import Driver
from node.transport.gateway import Gateway
from node.waiting import Changes

FlavourName = Flavour | Literal["plain", "typed"]
FORMATS: Final[tuple[FormatName, ...]] = ("msgpack", "json", "raw")


class NamedGateway:
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
        self._gateway: Gateway | None = None
        self._peers: set[NamedPeer] = set()
        self._changes = Changes(lambda: self.node.backend.waiter())
        self._ignored = 0  # of those that are gone

    def __repr__(self) -> str:
        return f"<NamedGateway, {self.flavour}, {len(self.peers)} clients>"

    @property
    def peers(self) -> list[NamedPeer]:
        """Who is connected."""
        return [peer for peer in self._peers if peer.is_open]

    @property
    def clients(self) -> int:
        """How many places are taken: by who is connected, or left a handler that runs."""
        return len(self._peers)

    @property
    def addresses(self) -> list[str]:
        """What it listens on."""
        return self._gateway.addresses if self._gateway is not None else []

    @property
    def turned_away(self) -> int:
        """How many connections `limits.clients` kept out."""
        return self._gateway.turned_away if self._gateway is not None else 0

    @property
    def ignored(self) -> int:
        """How many events came for which there is no handler."""
        return self._ignored + sum(peer.ignored for peer in self._peers)

    async def listen(self, address: str, *, allow_insecure: bool = False) -> str:
        """Listen on `tcp://host:port` (port 0: any) or `unix:///path`.

        Returns:
            The address to dial.

        Raises:
            InsecureAddressError: others than this machine could reach it, where all is in
                the clear, and `allow_insecure` is not given. AddressError: not an address.
            UnreachableError: it cannot be listened on. ParleyError: it is not running.
        """
        if self._gateway is None:
            raise ParleyError("the gateway is not running: use `async with`")
        return await self._gateway.listen(address, allow_insecure=allow_insecure)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition on the clients; it is looked at whenever one came or went."""
        await self._changes.until(condition)

    # Life.

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
        """Take nobody in any more, let handlers finish (as long as the node's own), close."""
        gateway = self._gateway
        if gateway is None:
            return
        try:
            with anyio.CancelScope(shield=True):
                await gateway.stop_listening()
                if exc_type is None:
                    await self._drain()
                for peer in list(self._peers):
                    peer.stop_handlers()
                    if exc_type is None:
                        peer.begin_close()
                    else:
                        peer.drop()
                with anyio.move_on_after(CLOSE_TIMEOUT):
                    await self._changes.until(lambda: not self._peers)
        finally:
            self._gateway = None

    async def _drain(self) -> None:
        for peer in self._peers:
            peer.draining = True
        with anyio.move_on_after(self.node.config.drain_timeout):
            for peer in list(self._peers):
                await peer.drained()

    # Inside.

    def _accept(self, name: str) -> Driver:
        peer = NamedPeer(
            self.node.backend,
            name,
            self.node.handlers,
            flavour=self.flavour,
            format=self.format,
            limits=self.limits,
            on_over=self._over,
        )
        self._peers.add(peer)
        self._changes.notify()
        return peer.driver

    def _over(self, peer: NamedPeer) -> None:
        self._peers.discard(peer)
        self._ignored += peer.ignored
        if self._gateway is not None:
            self._gateway.left(peer.driver)
        self._changes.notify()


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
