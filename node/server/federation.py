"""`Federation`: makes a node a server: links to others, their cards, and what goes through it to
them (docs/protocol.md section 19).

All that it starts ends with its `async with`, which stands inside of the node's.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self, cast

import anyio

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._node.backoff import Pauses
from parley._node.connections import CLOSE_TIMEOUT
from parley._node.discovery.announcement import reachable
from parley._node.errors import ConfigError, ParleyError, UnreachableError
from parley._node.federation.accounts import Accounts
from parley._node.federation.cards import Card
from parley._node.federation.dials import TunnelRecord
from parley._node.federation.directory import Directory
from parley._node.federation.exports import Exports
from parley._node.federation.limits import FIRST_CARD
from parley._node.handlers.registry import Entry
from parley._node.metrics import catalogue
from parley._node.metrics.catalogue import MetricFamily, family, labelled
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import FEDERATION_LABEL, TUNNEL_LABEL, CloseCode
from parley._node.protocol.event_types import TRACE_SIZE
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.resumer import DIAL_TIMEOUT
from parley._node.server.directory_driver import DirectoryDriver
from parley._node.server.findings import FederationFinding, findings
from parley._node.server.followed_topics import Follows
from parley._node.server.links import DialServer, Neighbours, ServerLink, require_others
from parley._node.server.tunnel_dialer import Opener, ServerSwitch
from parley._node.settings.tables import FederationSettings
from parley._node.transport.address import Address
from parley._node.trust.accounts import HostedAccounts
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.tunnel_sessions import REACH_TIMEOUT, Reaching, Way
from parley._node.tunnels.tunnel_transport import TunnelOutlet


class AccountsHere:
    """Who may dial here, and who can be reached: whoever is logged in and has a transport."""

    def __init__(self, accounts: Accounts[LiveConnection]) -> None:
        self._accounts = accounts

    def has_account(self, node_id: NodeId) -> bool:
        """Whether a node may have an account here."""
        return self._accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Whether a node is logged in here, and its connection not parted."""
        return self.peer(node_id) is not None

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session over which a node is reached, if it is."""
        live = self._accounts.session(node_id)
        if live is None or not live.is_open or live.is_suspended:
            return None
        return cast(Peer, live.remote)


def wall_ms() -> int:
    """The time of day, in milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class FederatedServer:
    """Another server, by its card: what it says of itself. `links` are the servers that it has a
    link with, and whether it carries tunnels that come from there. `exports` and `addresses` are
    its word, and prove nothing. `made` and `expires` are by its clock. `path` is the way there from
    here, the ids from this server to that one; empty if the cards tell of none.
    """

    node_id: NodeId
    links: dict[NodeId, bool]
    exports: tuple[str, ...]
    addresses: tuple[str, ...]
    made: datetime
    expires: datetime
    path: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link with another server, as it is now. `peer` is its session, None while it is down;
    `error` why it is down, or was the last time; `kept` whether this side dials when it is, and
    `dialled` whether this side dialled the session that there is.
    """

    node_id: NodeId
    peer: Peer | None
    kept: bool
    dialled: bool
    error: Exception | None


class Federation:
    """The part that `node` takes in a federation as `settings` have it, while its `async with`
    lasts, inside of the node's. `dial` makes the sessions of links, by default over the network;
    `pauses` are those between dials; `wall` is the time of day in milliseconds since 1970.

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
        self._node = node
        self._settings = settings
        self._dial = dial or partial(node.connect, resumable=False)
        # A server that may be linked has no account, so that nobody has two kinds of rights.
        self._members = set(settings.all_members)
        self._hosted = HostedAccounts(
            node.handlers,
            settings.accounts,
            servers=self._members,
            on_change=self._accounts_changed,
        )
        self._accounts = AccountsHere(self._hosted.accounts)
        self._directory = Directory(
            node.identity,
            self._members,
            carry=settings.carried,
            exports=settings.exports,
            accounts=self._accounts,
            settle=FIRST_CARD,
        )
        self._cards = DirectoryDriver(self._directory, wall, self._addresses)
        self._neighbours = Neighbours(node.node_id, settings, self._cards, pauses)
        self._exports = Exports(settings.exports)
        self._opener = Opener(self._directory, self._neighbour, self._now)
        self._switch = ServerSwitch(self._directory, self._opener, self._now)
        self._service: TunnelService | None = None
        self._entered = AsyncExitStack()
        self._reaching = Reaching(node.connections, self._open, leads_around=self._leads_around)
        self._follows = Follows(
            node,
            self._publisher,
            Exports(settings.follow),
            self._accounts.has_account,
            lambda account: self._directory.dials.allows(account, self._now()),
        )

    def __repr__(self) -> str:
        return f"<Federation of {self._node.node_id.short}: {len(self.servers)} servers>"

    # What is known of it.

    @property
    def servers(self) -> list[FederatedServer]:
        """The other servers whose cards are here, in the order of their ids."""
        cards = self._directory.cards
        return [self._server(cards[one]) for one in sorted(cards) if one != self._node.node_id]

    @property
    def links(self) -> list[LinkState]:
        """The links that the settings name, and those that members have made, by their ids."""
        return sorted(map(_state, self._neighbours.links), key=lambda link: link.node_id)

    @property
    def tunnels(self) -> int:
        """How many tunnels of others end here or lead through here now."""
        return 0 if self._service is None else self._service.count

    @property
    def carried(self) -> list[tuple[NodeId, ...]]:
        """The paths of the tunnels that lead through here now, from origin to target."""
        return [] if self._service is None else list(self._service.joints.values())

    def path(self, *to: NodeId) -> tuple[NodeId, ...] | None:
        """The way to a server, or to a home and a node that has its account there: at most 8 ids,
        the first this server's; None if the cards tell of none."""
        return self._directory.path(to)

    def check(self) -> list[FederationFinding]:
        """What is wrong in the federation, as far as it can be seen from here."""
        return findings(self._directory, self._neighbours.links)

    def knows(self, node_id: NodeId) -> bool:
        """Whether a node is a member here, or may have an account."""
        return node_id in self._directory.members or self._accounts.has_account(node_id)

    # What to do with it.

    async def reach(
        self,
        *ids: NodeId | str,
        also: Sequence[str] = (),
        discover: bool = False,
        timeout: float = REACH_TIMEOUT,
    ) -> Peer:
        """Open a session with a server, `reach(id)`, or with a node at its home, `reach(home_id,
        id)`, end to end through a tunnel. It may ask there for what is exported. Where no handshake
        comes about by the best path, since a server there lies, others are tried: three in all.

        The session goes on by another path if its own is lost. With direct addresses of the node in
        `also`, or with `discover` if it is announced on the local network (extra `discovery`), it
        moves there as soon as it can. It ends with the federation. `timeout` is seconds for all.

        Raises:
            ConfigError: not one or two node ids, this node's is the last, or `also` has addresses
                of another node. AddressError: not a direct address.
            TunnelRefusedError: no tunnel leads there; its `code` says why.
            HandshakeError, NotTrustedError: as `Node.connect`.
        """
        way = Way(ids, also, discover=discover)
        if way.target == self._node.node_id or len(set(way.ids)) < len(way.ids):
            names = ", ".join(map(str, way.ids))
            raise ConfigError(
                f"to be reached are another server, or a home and another node, not {names}"
            )
        return await self._reaching.reach(way, f"{way.target.short} by a tunnel", timeout)

    async def ready(self, *servers: NodeId, timeout: float | None = None) -> None:
        """Wait until there is a way to each of these servers, or without any until all links are up
        that this side dials. `timeout` is seconds, None: as long as it takes.

        Raises:
            UnreachableError: it is not so by then. ParleyError: it does not run.
        """

        def missing() -> list[NodeId]:
            if servers:
                return [one for one in servers if self.path(one) is None]
            links = self._neighbours.links
            return [link.node_id for link in links if link.is_kept and not link.is_up]

        with anyio.move_on_after(timeout):
            await self._cards.changes.until(lambda: not missing())
        if left := missing():
            names = ", ".join(one.short for one in left)
            raise UnreachableError(f"no way to {names} in {timeout:g} s")

    def redial(self) -> None:
        """The network has changed: dial the links that are down now."""
        self._neighbours.links.redial()

    def change_members(self, members: Sequence[str], carry: Sequence[str]) -> None:
        """Have other `members`, and `carry` for others, than the settings said: links and tunnels
        of those who are none any more end, and cards are exchanged anew within some ten seconds.

        Raises:
            ConfigError: as `FederationSettings` and `Federation`; nothing has changed.
        """
        settings = replace(self._settings, members=tuple(members), carry=tuple(carry))
        require_others(self._node.node_id, settings)
        self._cards.change_members(settings.all_members, settings.carried)
        self._settings = settings
        self._members.clear()
        self._members.update(settings.all_members)
        self._neighbours.links.change_members(settings.all_members)
        self._accounts_changed()

    # Life.

    async def __aenter__(self) -> Self:
        """Begin to dial; returns at once.

        Raises:
            ParleyError: the node does not run, is a server already, or has a home elsewhere.
            KnownPeersError: the file of accounts cannot be read.
        """
        loop, handlers = self._node.backend, self._node.handlers
        if {FEDERATION_LABEL, TUNNEL_LABEL} & handlers.reserved.keys():
            raise ParleyError("the node is a server already, or takes tunnels from a home")
        async with AsyncExitStack() as stack:
            stack.callback(self._node.metrics.add(self._families))
            stack.push_async_callback(self._neighbours.end)
            await self._hosted.begin(loop)
            stack.callback(self._hosted.end)
            stack.push_async_exit(self._close_sessions)
            await stack.enter_async_context(self._follows)
            stack.callback(self._withdraw)
            self._service = self._node.connections.serve_tunnels(self._switch, self._joined)
            handlers.exports.add(self._exports)
            handlers.reserved[FEDERATION_LABEL] = Entry(FEDERATION_LABEL, self._neighbours.opened)
            self._neighbours.begin(loop, self._dial)
            self._entered = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End the links and all that goes through them."""
        await self._entered.__aexit__(exc_type, exc_val, exc_tb)

    def _withdraw(self) -> None:
        """Nobody opens a tunnel or makes a link any more."""
        handlers = self._node.handlers
        for label in (FEDERATION_LABEL, TUNNEL_LABEL):
            handlers.reserved.pop(label, None)
        handlers.exports.discard(self._exports)

    async def _close_sessions(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Say Close in the sessions that go through tunnels, as long as there are any."""
        graceful = exc_type is None
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await self._reaching.close(graceful=graceful)
            if not graceful:
                return
            async with anyio.create_task_group() as closing:
                for peer in self._node.peers:
                    if peer.path and not peer.is_suspended:
                        closing.start_soon(peer.close, CloseCode.GOING_AWAY)

    # Inside.

    async def _open(self, to: Sequence[NodeId]) -> TunnelOutlet:
        trace = random_bytes(TRACE_SIZE)
        return await self._opener.to(to, trace=trace, timeout=DIAL_TIMEOUT)

    def _leads_around(self, to: Sequence[NodeId]) -> bool:
        return self._directory.leads_around(to, self._now())

    async def _publisher(self, ids: Sequence[NodeId]) -> Peer:
        return await self.reach(*ids)

    def _neighbour(self, node_id: NodeId) -> Peer | None:
        """The link with a server, or the session over which an account is logged in."""
        return self._neighbours.links.peer(node_id) or self._accounts.peer(node_id)

    def _accounts_changed(self) -> None:
        """Who has no account any more reaches nobody, and reads nothing from elsewhere."""
        self._follows.end_unless(self._accounts.has_account)
        if self._service is not None:
            self._service.end_unless(self.knows)

    def _joined(self, record: TunnelRecord) -> None:
        """A tunnel that led through here is over."""
        if self._node.journal is not None:
            self._node.journal.tunnel(record)

    def _server(self, card: Card) -> FederatedServer:
        return FederatedServer(
            card.origin,
            dict(card.links),
            card.exports,
            card.addresses,
            _time(card.made_ms),
            _time(card.expires_ms),
            self._directory.path((card.origin,)) or (),
        )

    def _families(self) -> Iterable[MetricFamily]:
        links = list(self._neighbours.links)
        up = sum(link.is_up for link in links)
        yield labelled(catalogue.SERVER_LINKS, ((("up",), up), (("down",), len(links) - up)))
        yield family(catalogue.SERVERS, len(self.servers))

    def _addresses(self) -> list[str]:
        """What the node listens on, as far as others could dial it."""
        places = reachable(map(Address.parse, self._node.addresses), ())
        return [f"{place}#{self._node.node_id}" for place in places]

    def _now(self) -> float:
        return self._node.backend.now()


def _state(link: ServerLink) -> LinkState:
    return LinkState(link.node_id, link.peer, link.is_kept, link.dialled, link.error)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
