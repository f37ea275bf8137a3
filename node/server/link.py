"""The link with one other server: one session at a time, whichever side dialled it (section 19).

It dials where it has addresses, as long as there is no session. Of two sessions the one stays whose
initiator has the smaller node id, so that both sides drop the same one; of equal ones the younger,
since whoever dials again has lost the other.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.backoff import Pauses
from parley._node.errors import ConfigError, ParleyError, UnreachableError
from parley._node.federation.limits import LEAST_LINK_PAYLOAD
from parley._node.links.places import Places
from parley._node.links.redial import Redial, random_fraction
from parley._node.logs import one_line
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner
from parley._node.transport.waiting import Changes

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
        self._places = Places(addresses[0], addresses[1:]) if addresses else None
        self._dial: DialServer | None = None
        self._loop: Backend | None = None
        self._changes = Changes(lambda: self._running().waiter())
        self._redial = Redial(self._attempt, self._failed, pauses=pauses, draw=draw)
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
