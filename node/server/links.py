"""All links of one server: those that its settings name, and those that members make with it."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.errors import ConfigError, ParleyError, UnreachableError
from parley._node.federation.limits import LEAST_LINK_PAYLOAD, MOST_LINKS
from parley._node.logs import one_line
from parley._node.peer.addresses import AddressList
from parley._node.peer.peer import Peer
from parley._node.peer.reconnecting import RetryLoop, random_fraction
from parley._node.protocol.codes import CloseCode
from parley._node.remote.stream import Stream
from parley._node.server.directory_driver import DirectoryDriver
from parley._node.settings.tables import FederationSettings
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.federation")

# Dials a server at an address, which has its node id, and does the handshake there; the session
# must state that it does not resume. Raises as `Node.connect`.
DialServer = Callable[[str], Awaitable[Peer]]

_NORMAL: Final = CloseCode.NORMAL


class LinkHooks(Protocol):
    """Who hears of a link's sessions. Nothing here may wait or raise."""

    def link_up(self, link: "ServerLink", peer: Peer) -> None:
        """A session was made, and is kept."""

    def link_down(self, link: "ServerLink", peer: Peer) -> None:
        """That session is over, or another one took its place."""


class ServerLink:
    """The link with the server `node_id`. `error` is why it is down, or was the last time."""

    def __init__(
        self,
        own_id: NodeId,
        node_id: NodeId,
        addresses: Sequence[str],
        hooks: LinkHooks,
        *,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self.node_id = node_id
        self.error: Exception | None = None
        self.peer: Peer | None = None
        self._own_id = own_id
        self._hooks = hooks
        self._places = AddressList(addresses[0], addresses[1:]) if addresses else None
        self._dial: DialServer | None = None
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
        """Whether this side dialled the session that there is."""
        return self.peer is not None and self.peer.core.initiator

    # Life.

    def begin(self, loop: Backend, dial: DialServer | None = None) -> None:
        """Start to dial, if there are addresses."""
        self._loop, self._dial = loop, dial
        if self.is_kept:
            self._redial.begin(loop)

    def drop(self) -> None:
        """Dial no more, and end the session."""
        self._redial.cancel()
        peer = self.peer
        if peer is not None:
            peer.live.drop(CloseCode.GOING_AWAY)
            self._lost(peer)

    async def stop(self) -> None:
        """Wait until nothing of it runs, after `drop`; a cancellation does not shorten that."""
        await self._redial.stop()

    def redial(self) -> None:
        """Somebody knows that the network has changed: end the pause before the next dial."""
        self._redial.hurry()

    # Sessions.

    def take(self, peer: Peer) -> bool:
        """A session with the server was made. Returns whether it is kept: if not, it is dropped; if
        so, the one before it."""
        old = self.peer
        if old is not None:
            if not self._replaces(peer, old):
                peer.live.drop(_NORMAL)
                return False
            self._lost(old)
            old.live.drop(_NORMAL)
        self.peer = peer
        self._watcher = self._running().spawn(self._watch, peer)
        self._hooks.link_up(self, peer)
        self._changes.notify()
        return True

    # Inside.

    def _replaces(self, young: Peer, old: Peer) -> bool:
        first, second = self._initiator(young), self._initiator(old)
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
            self._lost(peer)

    def _lost(self, peer: Peer) -> None:
        self.peer = None
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
        self._hooks.link_down(self, peer)
        self._changes.notify()

    async def _attempt(self) -> Exception:
        """Have a session that was dialled here, to its end; wait while there is another."""
        while True:
            await self._changes.until(lambda: self.peer is None)
            peer = await self._dialled()
            if self.take(peer):
                self._redial.established()
                await self._gone(peer)
                if self.peer is None:
                    return self.error or UnreachableError("the link was lost")

    async def _gone(self, peer: Peer) -> None:
        await self._changes.until(lambda: self.peer is not peer)

    async def _dialled(self) -> Peer:
        assert self._places is not None
        assert self._dial is not None
        failed: Exception | None = None
        for address in await self._places.found():
            try:
                peer = await self._dial(address)
            except ParleyError as error:
                failed = error
                continue
            self._places.answered(address, peer.node_id)
            try:
                require_link(peer)
            except ConfigError:
                peer.live.drop(_NORMAL)
                raise
            return peer
        raise failed or UnreachableError(f"{self._places}: no address was found")

    def _failed(self, why: Exception, seconds: float) -> None:
        told = str(why) == str(self.error)
        self.error = why
        text = one_line(str(why))
        level = logging.DEBUG if told else logging.WARNING
        logger.log(
            level,
            "link to %s: %s; dialled again in %.1f s",
            self.node_id,
            text,
            seconds,
            extra={"event": "federation.link-failed", "peer": self.node_id, "again_in": seconds},
        )

    def _running(self) -> Backend:
        if self._loop is None:
            raise ParleyError("the federation is not running: use `async with`")
        return self._loop


def require_link(peer: Peer) -> None:
    """Raise ConfigError unless a session can be a link: direct, without Resume, with payloads of
    128 KiB at least."""
    if peer.path:
        raise ConfigError(f"a link does not go through a tunnel, as that with {peer.node_id} does")
    if peer.core.resumption is not None:
        raise ConfigError(
            f"the session of a link states that it does not resume; {peer.node_id} does"
        )
    if peer.limits.max_payload < LEAST_LINK_PAYLOAD:
        least, agreed = LEAST_LINK_PAYLOAD, peer.limits.max_payload
        raise ConfigError(f"links need a max_payload of {least:,}; {agreed:,} were agreed")


# In a row, of links that are dialled: other ways are used meanwhile, and servers are few.
PAUSES: Final = Pauses(first=0.5, longest=15.0)


class ServerLinks:
    """The links, by the node id of the other server. A link that only the other side dials is
    there while it is up."""

    def __init__(
        self,
        own_id: NodeId,
        settings: FederationSettings,
        hooks: LinkHooks,
        *,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        require_others(own_id, settings)
        self._own_id = own_id
        self._members: Collection[NodeId] = settings.all_members
        self._hooks = hooks
        self._pauses = pauses or PAUSES
        self._draw = draw
        self._loop: Backend | None = None
        self._links = {
            node_id: self._new(node_id, places) for node_id, places in settings.places.items()
        }

    def __iter__(self) -> Iterator[ServerLink]:
        return iter(self._links.values())

    def peer(self, node_id: NodeId) -> Peer | None:
        """The session of the link with that server, if it is up."""
        link = self._links.get(node_id)
        return None if link is None else link.peer

    def begin(self, loop: Backend, dial: DialServer) -> None:
        """Start to dial."""
        self._loop = loop
        for link in self:
            link.begin(loop, dial)

    async def end(self) -> None:
        """End them all, and dial no more."""
        self._loop = None
        links = list(self)
        for link in links:
            link.drop()
        for link in links:
            await link.stop()

    def change_members(self, members: Collection[NodeId]) -> None:
        """Let these link here from now on, and end the links with others."""
        self._members = members
        for link in list(self):
            if link.node_id not in members:
                link.drop()

    def redial(self) -> None:
        """The network has changed: dial what is down now."""
        for link in self:
            link.redial()

    def accept(self, peer: Peer) -> CloseCode | None:
        """A session on which the other side made itself the link's: take it. Returns why not; a
        session with payloads that are too small for a link is closed."""
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
            link.begin(loop)
        if link.peer is peer or link.take(peer):
            return None
        return CloseCode.REFUSED

    def forget(self, link: ServerLink) -> None:
        """It is down; one that only the other side dials is over."""
        if not link.is_kept and not link.is_up:
            self._links.pop(link.node_id, None)

    def _new(self, node_id: NodeId, places: tuple[str, ...]) -> ServerLink:
        return ServerLink(
            self._own_id, node_id, places, self._hooks, pauses=self._pauses, draw=self._draw
        )


def require_others(own_id: NodeId, settings: FederationSettings) -> None:
    """Raise ConfigError if the node itself is among the members."""
    if own_id in settings.all_members:
        raise ConfigError(
            "a server is not a member of its own federation: that node id is this one's: "
            f"{own_id}; remove it from links and members"
        )


class Neighbours:
    """Keeps the links of `settings`, and tells `cards` of those that come and go. ConfigError: the
    node itself is among them."""

    def __init__(
        self,
        own_id: NodeId,
        settings: FederationSettings,
        cards: DirectoryDriver,
        pauses: Pauses | None = None,
    ) -> None:
        self.links = ServerLinks(own_id, settings, self, pauses=pauses)
        self._cards = cards
        self._exchanging: dict[ServerLink, Runner] = {}
        self._loop: Backend | None = None

    def begin(self, loop: Backend, dial: DialServer) -> None:
        """Start to dial."""
        self._loop = loop
        self._cards.begin(loop)
        self.links.begin(loop, dial)

    async def end(self) -> None:
        """End the links, and dial no more."""
        self._cards.end()
        await self.links.end()

    async def opened(self, stream: Stream) -> None:
        """Serve a stream `federation`: whoever opens it makes its session a link."""
        peer = stream.peer
        assert isinstance(peer, Peer)
        refused = self.links.accept(peer)
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

    # Of the links.

    def link_up(self, link: ServerLink, peer: Peer) -> None:
        """A session was made, and is kept."""
        logger.info(
            "the link with %s is up",
            link.node_id,
            extra={"event": "federation.link-up", "peer": link.node_id},
        )
        peer.live.measure_round_trip()
        self._cards.link_up(link.node_id)
        if peer.core.initiator and self._loop is not None:
            exchange = self._cards.keep_exchanging
            self._exchanging[link] = self._loop.spawn(exchange, link.node_id, peer)

    def link_down(self, link: ServerLink, peer: Peer) -> None:
        """That session is over, or another one took its place."""
        runner = self._exchanging.pop(link, None)
        if runner is not None:
            runner.cancel()
        self._cards.link_down(link.node_id)
        self.links.forget(link)
