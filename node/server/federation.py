"""`Federation`: makes a node a server, with links to others and tunnels through it
(docs/protocol.md section 19).
"""

import logging
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
from parley._node.backoff import Backoff
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
from parley._node.remote.stream import Stream
from parley._node.server.directory_driver import DirectoryDriver
from parley._node.server.findings import FederationFinding, findings
from parley._node.server.followed_topics import FollowedTopics
from parley._node.server.links import DialServer, ServerLink, ServerLinks, require_others
from parley._node.server.tunnel_dialer import ServerDialPolicy, TunnelDialer
from parley._node.settings.tables import MOST_PLACES, FederationSettings
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.trust.accounts import HostedAccounts
from parley._node.trust.statement_table import StatementTable
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.tunnel_sessions import REACH_TIMEOUT, Target, TunnelSessions
from parley._node.tunnels.tunnel_transport import TunnelTransport

logger = logging.getLogger("parley.federation")


class LocalAccounts:
    """The accounts of this server, as the directory looks them up."""

    def __init__(self, accounts: Accounts[LiveConnection]) -> None:
        self._accounts = accounts

    def has_account(self, node_id: NodeId) -> bool:
        """Whether a node may have an account here, and dial."""
        return self._accounts.may(node_id)

    def is_reachable_account(self, node_id: NodeId) -> bool:
        """Whether a node is logged in here and connected."""
        return self.peer(node_id) is not None

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session over which a node can be reached, if it can."""
        live = self._accounts.session(node_id)
        if live is None or not live.is_open or live.is_suspended:
            return None
        return cast(Peer, live.remote)


def wall_ms() -> int:
    """The time of day, in milliseconds since 1970."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class FederatedServer:
    """Another server, as its card describes it.

    Attributes:
        links: the servers that it has links with, and whether it carries tunnels from each.
        exports, addresses: its own claims, not proven.
        made, expires: by its clock.
        path: the ids from this server to that one; empty if the cards contain no path.
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
    """The state of a link with another server.

    Attributes:
        peer: its session, None while it is down.
        kept: whether this side dials when it is down.
        dialled: whether this side dialled the current session.
        error: why it is, or was last, down.
    """

    node_id: NodeId
    peer: Peer | None
    kept: bool
    dialled: bool
    error: Exception | None


class Federation:
    """Makes `node` a server of a federation while its `async with` block is active, which must be
    inside the node's. `dial` opens the sessions of links, by default over the network; `pauses` are
    between dials; `wall` is the time of day in milliseconds since 1970.

    Example:

        from parley import Identity
        from parley.federation import Federation
        from parley.settings import FederationSettings

        account, member = Identity.create(), Identity.create()
        settings = FederationSettings(
            members=(str(member.node_id),), accounts=(str(account.node_id),)
        )
        async with Federation(node, settings):
            await node.listen("tcp://127.0.0.1:0")

    Raises:
        ConfigError: the node is a member of its own federation, there are too many members, or its
            card would be too large.
    """

    def __init__(
        self,
        node: Node,
        settings: FederationSettings,
        *,
        dial: DialServer | None = None,
        pauses: Backoff | None = None,
        wall: Callable[[], int] = wall_ms,
    ) -> None:
        self._node = node
        self._settings = settings
        self._named = settings.named_ids
        # The settings with the accepted successors of ended members in their place.
        self._current = settings
        self._loop: Backend | None = None
        self._dial = dial or partial(node.connect, resumable=False)
        # A member has no account, so that no node has two kinds of rights.
        self._members = set(settings.all_members)
        self._hosted = HostedAccounts(
            node.handlers,
            settings.accounts,
            servers=self._members,
            statements=node.statements,
            on_change=self._accounts_changed,
        )
        self._accounts = LocalAccounts(self._hosted.accounts)
        self._directory = Directory(
            node.identity,
            self._members,
            carry=settings.carried,
            exports=settings.exports,
            accounts=self._accounts,
            has_ended=lambda node_id: node.statements.table.has_ended(node_id),
            settle=FIRST_CARD,
        )
        self._cards = DirectoryDriver(
            self._directory,
            wall,
            self._addresses,
            node.statements,
            lambda: self._settings.all_members | {node.node_id},
            node.connections.offer_statements,
        )
        self._links = ServerLinks(node.node_id, settings, self._cards, pauses=pauses)
        self._exports = Exports(settings.exports)
        self._dialer = TunnelDialer(self._directory, self._neighbour, self._now)
        self._policy = ServerDialPolicy(self._directory, self._dialer, self._now)
        self._service: TunnelService | None = None
        self._entered = AsyncExitStack()
        self._sessions = TunnelSessions(
            node.connections, self._open_tunnel, leads_around=self._leads_around
        )
        self._followed = FollowedTopics(
            node,
            lambda ids: self.reach(*ids),
            Exports(settings.follow),
            self._accounts.has_account,
            lambda account: self._directory.dials.allows(account, self._now()),
        )

    def __repr__(self) -> str:
        return f"<Federation of {self._node.node_id.short}: {len(self.servers)} servers>"

    @property
    def servers(self) -> list[FederatedServer]:
        """The other servers whose cards are known, sorted by id."""
        cards = self._directory.cards
        return [self._server(cards[one]) for one in sorted(cards) if one != self._node.node_id]

    @property
    def links(self) -> list[LinkState]:
        """The links that the settings name and those that members opened, sorted by id."""
        return sorted(map(_state, self._links), key=lambda link: link.node_id)

    @property
    def tunnels(self) -> int:
        """Number of tunnels of others that end here or lead through here now."""
        return 0 if self._service is None else self._service.count

    @property
    def carried(self) -> list[tuple[NodeId, ...]]:
        """The paths of the tunnels that lead through here now, from origin to target."""
        return [] if self._service is None else self._service.paths

    def path(self, *to: NodeId) -> tuple[NodeId, ...] | None:
        """The path to a server, or to a home and a node with an account there: at most 8 ids, of
        which the first is this server's; None if the cards contain none."""
        return self._directory.path(to)

    def check(self) -> list[FederationFinding]:
        """Return the problems of the federation that this server can see."""
        return findings(self._directory, self._links)

    def knows(self, node_id: NodeId) -> bool:
        """Whether a node is a member here, or may have an account."""
        return node_id in self._directory.members or self._accounts.has_account(node_id)

    async def reach(
        self,
        *ids: NodeId | str,
        also: Sequence[str] = (),
        discover: bool = False,
        timeout: float = REACH_TIMEOUT,
    ) -> Peer:
        """Open an end-to-end session with a server, `reach(id)`, or with a node at its home,
        `reach(home_id, id)`, through a tunnel. It can use what the node exports. If the handshake
        fails on the best path, because a server there lies, others are tried: three in all.

        If its path is lost, the session continues over another. With direct addresses in `also`, or
        with `discover` if the node is announced on the local network (extra `discovery`), it moves
        there as soon as it can. It ends with the federation. `timeout` is seconds for all of it.

        Raises:
            ConfigError: not one or two node ids, the target is this node, or `also` has addresses
                of another node.
            AddressError: not a direct address.
            TunnelRefusedError: no tunnel leads there; its `code` is the reason.
            HandshakeError, NotTrustedError: as `Node.connect`.
        """
        target = Target(ids, also, discover=discover)
        if target.node_id == self._node.node_id or len(set(target.ids)) < len(target.ids):
            names = ", ".join(map(str, target.ids))
            raise ConfigError(f"cannot reach {names}: give another server, or a home and a node")
        return await self._sessions.reach(target, f"{target.node_id.short} by a tunnel", timeout)

    async def ready(self, *servers: NodeId, timeout: float | None = None) -> None:
        """Wait until each of these servers can be reached or, without any, until all links that
        this side dials are up. `timeout` is seconds; None waits forever.

        Raises:
            UnreachableError: not within `timeout`.
            ParleyError: the federation is not running.
        """

        def missing() -> list[NodeId]:
            if servers:
                return [one for one in servers if self.path(one) is None]
            links = self._links
            return [link.node_id for link in links if link.is_kept and not link.is_up]

        with anyio.move_on_after(timeout):
            await self._cards.changes.until(lambda: not missing())
        if left := missing():
            names = ", ".join(one.short for one in left)
            raise UnreachableError(f"cannot reach {names}: no path within {timeout:g} s")

    def redial(self) -> None:
        """Dial the links that are down now, because the network has changed."""
        self._links.redial()

    def change_members(self, members: Sequence[str], carry: Sequence[str]) -> None:
        """Replace the settings `members` and `carry`. Links and tunnels of former members end, and
        cards are exchanged again within about ten seconds.

        Raises:
            ConfigError: as `FederationSettings` and `Federation`; nothing has changed.
        """
        settings = replace(self._settings, members=tuple(members), carry=tuple(carry))
        require_others(self._node.node_id, settings)
        self._use(with_successors(settings, self._node.statements.table, self._node.node_id))
        self._settings = settings
        self._named = settings.named_ids
        self._cards.share_statements()

    async def __aenter__(self) -> Self:
        """Start to dial, without waiting.

        Raises:
            ParleyError: the node is not running, is a server already, or has a home.
            KnownPeersError: the file of accounts cannot be read.
        """
        loop, handlers = self._node.backend, self._node.handlers
        if {FEDERATION_LABEL, TUNNEL_LABEL} & handlers.reserved.keys():
            raise ParleyError(
                "cannot start a federation: this node already runs one, or serves tunnels of a home"
            )
        async with AsyncExitStack() as stack:
            stack.callback(self._node.metrics.add(self._families))
            stack.push_async_callback(self._links.stop)
            stack.callback(self._cards.stop)
            self._follow_statements(stack, loop)
            await self._hosted.start(loop)
            stack.callback(self._hosted.stop)
            stack.push_async_exit(self._close_sessions)
            await stack.enter_async_context(self._followed)
            stack.callback(self._withdraw)
            self._service = self._node.connections.serve_tunnels(self._policy, self._tunnel_closed)
            handlers.exports.add(self._exports)
            handlers.reserved[FEDERATION_LABEL] = Entry(FEDERATION_LABEL, self._serve_link)
            self._cards.start(loop)
            self._apply_statements()
            self._links.start(loop, self._dial)
            self._entered = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End the links and all tunnels over them."""
        await self._entered.__aexit__(exc_type, exc_val, exc_tb)

    def _use(self, settings: FederationSettings) -> None:
        """Replace the members; ConfigError if there are too many, and nothing has changed."""
        self._cards.change_members(settings.all_members, settings.carried)
        self._current = settings
        self._members.clear()
        self._members.update(settings.all_members)
        self._links.change(settings)
        self._accounts_changed()

    def _follow_statements(self, stack: AsyncExitStack, loop: Backend) -> None:
        """Apply the key statements that are stored from now on, until `stack` is left."""
        named, listeners = self._node.connections.named_ids, self._node.statements.listeners

        def names(node_id: NodeId) -> bool:
            return node_id in self._named or self._hosted.names(node_id)

        def changed() -> None:  # called in any thread
            loop.call_soon_threadsafe(self._apply_statements)

        def stop() -> None:
            self._loop = None
            listeners.remove(changed)
            named.remove(names)

        self._loop = loop
        listeners.append(changed)
        named.append(names)
        stack.callback(stop)

    def _apply_statements(self) -> None:
        """Replace ended members by their accepted successors, and log ended accounts out."""
        if self._loop is None:
            return
        settings = with_successors(self._settings, self._node.statements.table, self._node.node_id)
        if settings != self._current:
            self._use(settings)
        self._hosted.apply_statements()

    def _withdraw(self) -> None:
        """Accept no more tunnels and links."""
        handlers = self._node.handlers
        for label in (FEDERATION_LABEL, TUNNEL_LABEL):
            handlers.reserved.pop(label, None)
        handlers.exports.discard(self._exports)

    async def _close_sessions(self, exc_type: type[BaseException] | None, *_: object) -> None:
        """Close the sessions over tunnels while these still work."""
        graceful = exc_type is None
        with anyio.move_on_after(CLOSE_TIMEOUT):
            await self._sessions.close(graceful=graceful)
            if not graceful:
                return
            async with anyio.create_task_group() as closing:
                for peer in self._node.peers:
                    if peer.path and not peer.is_suspended:
                        closing.start_soon(peer.close, CloseCode.GOING_AWAY)

    async def _serve_link(self, stream: Stream) -> None:
        """Serve a `federation` stream, whose session the other side makes a link with it."""
        peer = stream.peer
        assert isinstance(peer, Peer)
        refused = self._links.accept(peer)
        if refused is not None:
            logger.debug(
                "no link with %s: %s",
                peer.node_id,
                refused.name,
                extra={"event": "federation.link-refused", "peer": peer.node_id},
            )
            stream.reset(refused)
            return
        assert peer.node_id is not None
        await self._cards.exchange(peer.node_id, stream)

    async def _open_tunnel(self, to: Sequence[NodeId]) -> TunnelTransport:
        trace = random_bytes(TRACE_SIZE)
        return await self._dialer.dial(to, trace=trace, timeout=DIAL_TIMEOUT)

    def _leads_around(self, to: Sequence[NodeId]) -> bool:
        return self._directory.leads_around(to, self._now())

    def _neighbour(self, node_id: NodeId) -> Peer | None:
        """The session of the link with a server, or of an account."""
        return self._links.peer(node_id) or self._accounts.peer(node_id)

    def _accounts_changed(self) -> None:
        """End the tunnels and subscriptions of nodes that no longer have an account."""
        self._followed.end_unless(self._accounts.has_account)
        if self._service is not None:
            self._service.end_unless(self.knows)

    def _tunnel_closed(self, record: TunnelRecord) -> None:
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
        links = list(self._links)
        up = sum(link.is_up for link in links)
        yield labelled(catalogue.SERVER_LINKS, ((("up",), up), (("down",), len(links) - up)))
        yield family(catalogue.SERVERS, len(self.servers))

    def _addresses(self) -> list[str]:
        """The addresses of this node that others could dial."""
        places = reachable(map(Address.parse, self._node.addresses), ())
        return [f"{place}#{self._node.node_id}" for place in places]

    def _now(self) -> float:
        return self._node.backend.now()


def with_successors(
    settings: FederationSettings, table: StatementTable, own_id: NodeId
) -> FederationSettings:
    """Return the settings with the accepted successors of ended members in their place, and
    without those that have none or are this server (section 22).
    """
    if not any(map(table.has_ended, settings.all_members | settings.carried)):
        return settings

    def granted(node_ids: Iterable[NodeId]) -> tuple[str, ...]:
        found = {table.granted(one) for one in node_ids} - {None, own_id}
        return tuple(sorted(str(one) for one in found))

    links: dict[NodeId, list[str]] = {}
    for node_id, places in settings.places.items():
        successor = table.granted(node_id)
        if successor is not None and successor != own_id:
            found = (str(Address.parse(text).with_node_id(successor)) for text in places)
            links.setdefault(successor, []).extend(found)
    return replace(
        settings,
        links=tuple(text for texts in links.values() for text in texts[:MOST_PLACES]),
        members=granted(settings.all_members),
        carry=granted(settings.carried),
    )


def _state(link: ServerLink) -> LinkState:
    return LinkState(link.node_id, link.peer, link.is_kept, link.dialled, link.error)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
