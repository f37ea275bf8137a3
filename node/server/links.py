"""`ServerLinks`: the links of a server with others: those that its settings name, and those that
other members open.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.backoff import Backoff
from parley._node.errors import ConfigError, ParleyError, UnreachableError
from parley._node.federation.limits import LEAST_LINK_PAYLOAD, MOST_LINKS
from parley._node.logs import one_line
from parley._node.peer.addresses import AddressList
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import RetryLoop, random_fraction
from parley._node.protocol.codes import CloseCode
from parley._node.settings.tables import FederationSettings
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.federation")

# Dials a server at an address with its node id; the session must be stated not to resume. Raises as
# `Node.connect`.
DialServer = Callable[[str], Awaitable[Peer]]

# Between dials; servers are few, and other paths are used in the meantime.
PAUSES: Final = Backoff(first=0.5, longest=15.0)


class LinkObserver(Protocol):
    """Is notified of the sessions of links. Its methods must not wait or raise."""

    def link_up(self, link: "ServerLink", peer: Peer) -> None:
        """Called with the new session of a link."""

    def link_down(self, link: "ServerLink", peer: Peer) -> None:
        """Called when that session is over or another one replaces it."""


class ServerLink:
    """The link with the server `node_id`. `error` is why it is, or was last, down."""

    def __init__(
        self,
        own_id: NodeId,
        node_id: NodeId,
        addresses: Sequence[str],
        observer: LinkObserver,
        *,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self.node_id = node_id
        self.error: Exception | None = None
        self.peer: Peer | None = None
        self._own_id = own_id
        self._observer = observer
        self._addresses = tuple(addresses)
        self._places = AddressList(addresses[0], addresses[1:]) if addresses else None
        self._dial_server: DialServer | None = None
        self._loop: Backend | None = None
        self._changes = Condition(lambda: self._running().waiter())
        self._redial = RetryLoop(self._attempt, self._failed, pauses=pauses, draw=draw)
        self._watcher: Runner | None = None

    def __repr__(self) -> str:
        return f"<ServerLink to {self.node_id.short}, {'up' if self.is_up else 'down'}>"

    @property
    def is_up(self) -> bool:
        """Whether there is a session."""
        return self.peer is not None

    @property
    def is_kept(self) -> bool:
        """Whether this side dials; otherwise only the other one can."""
        return self._places is not None

    @property
    def dialled(self) -> bool:
        """Whether this side dialled the current session."""
        return self.peer is not None and self.peer.core.initiator

    def start(self, loop: Backend, dial: DialServer | None = None) -> None:
        """Start to dial, if there are addresses."""
        self._loop, self._dial_server = loop, dial
        if self.is_kept:
            self._redial.begin(loop)

    def keep(self, addresses: Sequence[str], dial: DialServer) -> None:
        """Dial these addresses from now on, also if only the other side did before."""
        if tuple(addresses) == self._addresses:
            return  # the address that answered last stays the first one
        was_kept = self.is_kept
        self._addresses = tuple(addresses)
        self._places = AddressList(addresses[0], addresses[1:])
        if not was_kept:
            self.start(self._running(), dial)

    def drop(self) -> None:
        """Stop dialling and end the session."""
        self._redial.cancel()
        peer = self.peer
        if peer is not None:
            peer.live.drop(CloseCode.GOING_AWAY)
            self._session_lost(peer)

    async def stop(self) -> None:
        """Wait until its tasks have ended, after `drop`; cancellation doesn't shorten that."""
        await self._redial.stop()

    def redial(self) -> None:
        """Skip the pause before the next dial, because the network has changed."""
        self._redial.hurry()

    def take(self, peer: Peer) -> bool:
        """Use a new session with the server. Of two sessions one is kept and the other dropped;
        returns whether that is the new one."""
        old = self.peer
        if old is not None:
            if not self._replaces(peer, old):
                peer.live.drop(CloseCode.NORMAL)
                return False
            self._session_lost(old)
            old.live.drop(CloseCode.NORMAL)
        self.peer = peer
        self._watcher = self._running().spawn(self._watch, peer)
        self._observer.link_up(self, peer)
        self._changes.notify()
        return True

    def _replaces(self, new: Peer, old: Peer) -> bool:
        first, second = self._initiator(new), self._initiator(old)
        return first == second or bytes(first) < bytes(second)

    def _initiator(self, peer: Peer) -> NodeId:
        return self._own_id if peer.core.initiator else self.node_id

    async def _watch(self, peer: Peer) -> None:
        await peer.live.closed()
        if self.peer is peer:
            self.error = peer.live.closed_error()
            logger.info(
                "the link to %s is down: %s",
                self.node_id,
                one_line(str(self.error)),
                extra={"event": "federation.link-down", "peer": self.node_id},
            )
            self._watcher = None
            self._session_lost(peer)

    def _session_lost(self, peer: Peer) -> None:
        self.peer = None
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
        self._observer.link_down(self, peer)
        self._changes.notify()

    async def _attempt(self) -> Exception:
        """Dial a session and wait for its end; wait first while there is another."""
        while True:
            await self._changes.until(lambda: self.peer is None)
            peer = await self._dial()
            if self.take(peer):
                self._redial.established()
                await self._until_replaced(peer)
                if self.peer is None:
                    return self.error or UnreachableError("the link was lost")

    async def _until_replaced(self, peer: Peer) -> None:
        await self._changes.until(lambda: self.peer is not peer)

    async def _dial(self) -> Peer:
        assert self._places is not None
        assert self._dial_server is not None
        failed: Exception | None = None
        for address in await self._places.found():
            try:
                peer = await self._dial_server(address)
            except ParleyError as error:
                failed = error
                continue
            self._places.answered(address, peer.node_id)
            try:
                require_link(peer)
            except ConfigError:
                peer.live.drop(CloseCode.NORMAL)
                raise
            return peer
        raise failed or UnreachableError(f"cannot connect to {self._places}: no address was found")

    def _failed(self, why: Exception, seconds: float) -> None:
        is_repeated = str(why) == str(self.error)
        self.error = why
        logger.log(
            logging.DEBUG if is_repeated else logging.WARNING,
            "link to %s: %s; retrying in %.1f s",
            self.node_id,
            one_line(str(why)),
            seconds,
            extra={"event": "federation.link-failed", "peer": self.node_id, "again_in": seconds},
        )

    def _running(self) -> Backend:
        if self._loop is None:
            raise ParleyError("the federation is not running: use `async with`")
        return self._loop


def require_link(peer: Peer) -> None:
    """Raise ConfigError unless a session can be a link: direct, without resumption, with payloads
    of at least 128 KiB."""
    if peer.path:
        raise ConfigError(f"cannot link with {peer.node_id}: the session goes through a tunnel")
    if peer.core.resumption is not None:
        raise ConfigError(f"cannot link with {peer.node_id}: the session is resumable")
    if peer.limits.max_payload < LEAST_LINK_PAYLOAD:
        least, agreed = LEAST_LINK_PAYLOAD, peer.limits.max_payload
        raise ConfigError(
            f"cannot link with {peer.node_id}: links need a max_payload of {least:,} bytes, but "
            f"{agreed:,} were agreed; raise limits.max_payload on both servers"
        )


class ServerLinks:
    """The links of a server. A link that only the other side dials is included while it is up."""

    def __init__(
        self,
        own_id: NodeId,
        settings: FederationSettings,
        observer: LinkObserver,
        *,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        require_others(own_id, settings)
        self._own_id = own_id
        self._members: Collection[NodeId] = settings.all_members
        self._observer = observer
        self._pauses = pauses or PAUSES
        self._draw = draw
        self._loop: Backend | None = None
        self._dial: DialServer | None = None
        self._former: list[ServerLink] = []  # with servers that are no longer members
        self._links = {
            node_id: self._new(node_id, places) for node_id, places in settings.places.items()
        }

    def __iter__(self) -> Iterator[ServerLink]:
        return iter(self._links.values())

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session of the link with a server, if it is up."""
        link = self._links.get(node_id)
        return None if link is None else link.peer

    def start(self, loop: Backend, dial: DialServer) -> None:
        """Start to dial."""
        self._loop, self._dial = loop, dial
        for link in self:
            link.start(loop, dial)

    async def stop(self) -> None:
        """Stop dialling and end all links."""
        self._loop = None
        links = [*self, *self._former]
        for link in links:
            link.drop()
        for link in links:
            await link.stop()

    def change(self, settings: FederationSettings) -> None:
        """Let only the members have links here, end the links with others, and dial the servers
        that the settings name.
        """
        self._members = settings.all_members
        for link in list(self):
            if link.node_id not in self._members:
                link.drop()
                if link.is_kept:
                    self._former.append(self._links.pop(link.node_id))
        for node_id, places in settings.places.items():
            known = self._links.get(node_id)
            if known is None:
                known = self._links[node_id] = self._new(node_id, places)
                if self._loop is not None:
                    known.start(self._loop, self._dial)
            elif self._dial is not None:
                known.keep(places, self._dial)

    def redial(self) -> None:
        """Dial the links that are down now, because the network has changed."""
        for link in self:
            link.redial()

    def accept(self, peer: Peer) -> CloseCode | None:
        """Use a session, which the other side wants to be a link, as one. Returns None or why it
        can't be; a session whose payloads are too small for a link is closed."""
        node_id, loop = peer.node_id, self._loop
        if node_id not in self._members or peer.core.initiator or loop is None:
            return CloseCode.NOT_AUTHORISED
        assert node_id is not None
        if peer.limits.max_payload < LEAST_LINK_PAYLOAD:
            peer.live.drop(CloseCode.NORMAL)
            return CloseCode.REFUSED
        try:
            require_link(peer)
        except ConfigError:
            return CloseCode.REFUSED
        link = self._links.get(node_id)
        if link is None:
            if len(self._links) >= MOST_LINKS:
                return CloseCode.OVERLOADED
            link = self._links[node_id] = self._new(node_id, ())
            link.start(loop)
        if link.peer is peer or link.take(peer):
            return None
        return CloseCode.REFUSED

    # The observer of its links.

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """Notify the observer."""
        logger.info(
            "the link with %s is up",
            link.node_id,
            extra={"event": "federation.link-up", "peer": link.node_id},
        )
        self._observer.link_up(link, peer)

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """Notify the observer, and forget a link that only the other side dials."""
        self._observer.link_down(link, peer)
        if not link.is_kept and not link.is_up:
            self._links.pop(link.node_id, None)

    def _new(self, node_id: NodeId, places: tuple[str, ...]) -> ServerLink:
        return ServerLink(self._own_id, node_id, places, self, pauses=self._pauses, draw=self._draw)


def require_others(own_id: NodeId, settings: FederationSettings) -> None:
    """Raise ConfigError if the node itself is among the members."""
    if own_id in settings.all_members:
        raise ConfigError(
            f"cannot use {own_id} as a member: it is this server's own node ID; remove it from "
            "links and members"
        )
