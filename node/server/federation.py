"""`Federation`: makes a node a server: links to others, their cards, and what goes through it to
them (docs/protocol.md section 19).

All that it starts ends with its `async with`, which stands inside of the node's.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self, cast

import anyio

from crypto.identity import NodeId
from crypto.randomness import random_bytes
from node.backoff import Pauses
from node.discovery.announcement import reachable
from node.errors import ConfigError, ParleyError
from node.federation.card import Card
from node.federation.directory import Directory
from node.federation.exports import Exports
from node.federation.tunnel_record import TunnelRecord
from node.handlers.registry import Entry
from node.meeting import CONNECT_TIMEOUT
from node.node import CLOSE_TIMEOUT, Node
from node.peer.peer import Peer
from node.protocol.codes import FEDERATION_LABEL, TUNNEL_LABEL, CloseCode
from node.protocol.federation_types import TRACE_SIZE
from node.remote.redialling import DIAL_TIMEOUT
from node.server.accounts import AccountsHere
from node.server.directory import DirectoryDriver
from node.server.link import DialServer, ServerLink
from node.server.links import ServerLinks
from node.server.opening import Opener
from node.server.switch import ServerSwitch
from node.settings.federation import FederationSettings
from node.streams.stream import Stream
from node.transport.address import Address
from node.transport.loop import Runner
from node.trust.accounts import HostedAccounts
from node.tunnels.dialling import tunnel_dial
from node.tunnels.outlet import TunnelOutlet
from node.tunnels.service import TunnelService

logger = logging.getLogger("parley.federation")


def wall_ms() -> int:
    """The time of day, in milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class FederatedServer:
    """Another server, by its card: what it says of itself. `links` are the servers that it has a
    link with, and whether it carries tunnels that come from there. `exports` and `addresses` are
    its word, and prove nothing. `made` and `expires` are by its clock. `path` is the way there from
    here, the ids from this server to that one; empty if there is none.
    """

    node_id: NodeId
    links: dict[NodeId, bool]
    exports: tuple[str, ...]
    addresses: tuple[str, ...]
    made: datetime
    expires: datetime
    path: tuple[NodeId, ...]


class Federation:
    """The part that `node` takes in a federation as `settings` have it, while its `async with`
    lasts. `dial` makes the sessions of links, by default over the network; `pauses` are those
    between dials; `wall` is the time of day in milliseconds since 1970.

    Raises:
        ConfigError: the node is a member of its own, there are too many members, or too much
            stands in its card.
    """

    def __init__(
        self,
        node: Node,
        settings: FederationSettings,
        *,
        dial: DialServer | None = None,
        pauses: Pauses | None = None,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self.node = node
        self.settings = settings
        self._dial = dial or partial(node.connect, resumable=False)
        self._links = ServerLinks(node.node_id, settings, self, pauses=pauses)
        # A server that may be linked has no account, so that nobody has two kinds of rights.
        self._accounts = HostedAccounts(
            node.handlers, settings.accounts, servers=settings.all_members
        )
        self.directory = Directory(
            node.identity,
            settings.all_members,
            carry=settings.carried,
            exports=settings.exports,
            accounts=AccountsHere(self._accounts.accounts),
        )
        self._cards = DirectoryDriver(self.directory, wall, self._addresses)
        self._exchanging: dict[ServerLink, Runner] = {}
        self._exports = Exports(settings.exports)
        now = self._now
        self._opener = Opener(self.directory, self._neighbour, now)
        self._switch = ServerSwitch(self.directory, self._opener, now)
        self._service: TunnelService | None = None

    def __repr__(self) -> str:
        return f"<Federation of {self.node.node_id.short}: {len(self.servers)} servers>"

    # What is known of it.

    async def reach(
        self, *to: NodeId, also: Iterable[str] = (), timeout: float = CONNECT_TIMEOUT
    ) -> Peer:
        """A session with a server, `reach(id)`, or with a node at its home, `reach(home_id, id)`,
        through a tunnel: what is said in it is end to end. It goes on by another path when one is
        lost, and over the addresses `also` of the node itself. `timeout` is seconds for all.

        Raises:
            ConfigError: that is not one or two ids, the last of which is not ours. AddressError:
                one of `also` is no address. TunnelRefusedError: no tunnel leads there.
                UnreachableError, HandshakeError, NotTrustedError: as `Node.connect`.
        """
        if not 1 <= len(to) <= 2 or len(set(to)) < len(to) or to[-1] == self.node.node_id:
            raise ConfigError("reach another server, or a home and another node there")
        target = to[-1]
        dial = tunnel_dial(partial(self._open, to))
        return await self.node.connect_by(
            [dial], target, name=f"tunnel to {target.short}", also=also, timeout=timeout
        )

    @property
    def links(self) -> list[ServerLink]:
        """The links that the settings name, and those that members have made."""
        return list(self._links)

    @property
    def servers(self) -> list[FederatedServer]:
        """The other servers whose cards are here, in the order of their ids."""
        cards = self.directory.cards
        return [self._server(cards[one]) for one in sorted(cards) if one != self.node.node_id]

    @property
    def tunnels(self) -> int:
        """How many tunnels of others end here or lead through here now."""
        return 0 if self._service is None else self._service.count

    def path(self, *to: NodeId) -> tuple[NodeId, ...] | None:
        """The way to a server, or to a home and a node that has its account there: at most 8 ids,
        the first this server's; None if the cards tell of none."""
        return self.directory.path(to)

    def knows(self, node_id: NodeId) -> bool:
        """Whether a node is a member here, or has an account."""
        return node_id in self.directory.members or self._accounts.accounts.may(node_id)

    def redial(self) -> None:
        """The network has changed: dial the links that are down now."""
        self._links.redial()

    # Life.

    async def __aenter__(self) -> Self:
        """Begin to dial; returns at once.

        Raises:
            ParleyError: the node does not run, is a server already, or has a home elsewhere.
            KnownPeersError: the file of accounts cannot be read.
        """
        loop, handlers = self.node.backend, self.node.handlers
        if {FEDERATION_LABEL, TUNNEL_LABEL} & handlers.reserved.keys():
            raise ParleyError("the node is a server already, or takes tunnels from a home")
        await self._accounts.begin(loop)
        self._service = self.node.serve_tunnels(self._switch, self._joined)
        self._cards.begin(loop)
        handlers.exports.add(self._exports)
        handlers.reserved[FEDERATION_LABEL] = Entry(FEDERATION_LABEL, self._opened)
        self._links.begin(loop, self._dial)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End the links and all that goes through them."""
        handlers = self.node.handlers
        for label in (FEDERATION_LABEL, TUNNEL_LABEL):
            handlers.reserved.pop(label, None)
        handlers.exports.discard(self._exports)
        if exc_type is None:  # what is in tunnels is told by Close, as long as they are there
            await self._close_inner()
        self._accounts.end()
        self._cards.end()
        await self._links.end()

    async def _close_inner(self) -> None:
        inner = [peer for peer in self.node.peers if peer.path and not peer.is_parted]
        with anyio.move_on_after(CLOSE_TIMEOUT):
            async with anyio.create_task_group() as closing:
                for peer in inner:
                    closing.start_soon(peer.close, CloseCode.GOING_AWAY)

    # Of the links.

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """A session was made, and is kept."""
        logger.info("the link with %s is up", link.node_id)
        self._cards.link_up(link.node_id)
        if peer.core.initiator:
            self._exchanging[link] = self.node.backend.spawn(
                self._cards.keep_exchanging, link.node_id, peer
            )

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """That session is over, or another one took its place."""
        runner = self._exchanging.pop(link, None)
        if runner is not None:
            runner.cancel()
        self._cards.link_down(link.node_id)
        self._links.forget(link)

    async def _opened(self, stream: Stream) -> None:
        """Another server has opened a stream `federation`: so this session is a link."""
        peer = stream.peer
        assert isinstance(peer, Peer)
        refused = self._links.accept(peer)
        if refused is not None:
            logger.info("no link with %s: %s", peer.node_id, refused.name)
            stream.reset(refused)
            return
        assert peer.node_id is not None
        await self._cards.exchange(peer.node_id, stream)

    # Of the tunnels.

    async def _open(self, to: tuple[NodeId, ...]) -> TunnelOutlet:
        trace = random_bytes(TRACE_SIZE)
        return await self._opener.to(to, trace=trace, timeout=DIAL_TIMEOUT)

    def _neighbour(self, node_id: NodeId) -> Peer | None:
        """The link with a server, or the session over which an account is logged in."""
        peer = self._links.peer(node_id)
        if peer is not None:
            return peer
        live = self._accounts.accounts.session(node_id)
        return cast(Peer, live.remote) if live is not None and live.is_open else None

    def _joined(self, record: TunnelRecord) -> None:
        """A tunnel that led through here is over."""
        if self.node.journal is not None:
            self.node.journal.tunnel(record)

    # Inside.

    def _now(self) -> float:
        return self.node.backend.now()

    def _server(self, card: Card) -> FederatedServer:
        made, expires = card.envelope.made_ms, card.envelope.expires_ms
        return FederatedServer(
            card.origin,
            dict(card.links),
            card.exports,
            card.addresses,
            datetime.fromtimestamp(made / 1000, UTC),
            datetime.fromtimestamp(expires / 1000, UTC),
            self.directory.path((card.origin,)) or (),
        )

    def _addresses(self) -> list[str]:
        """What the node listens on, as far as others could dial it."""
        places = reachable(map(Address.parse, self.node.addresses), ())
        return [f"{place}#{self.node.node_id}" for place in places]
