"""`SharedSession`: a session that several use, opened by the first who needs it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from parley._crypto.identity import NodeId
from parley._crypto.randomness import random_bytes
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError
from parley._node.protocol.event_types import TRACE_SIZE
from parley._node.remote.resumer import DIAL_TIMEOUT, Dial
from parley._node.transport.address import Address
from parley._node.transport.backend import Backend
from parley._node.tunnels.dial import dial_tunnel, tunnel_dial
from parley._node.tunnels.tunnel_transport import TunnelOutlet


class SharedSession:
    """The session with one node, and how many `users` it has or is awaited by; who made it keeps
    the count, and closes it."""

    __slots__ = ("_opening", "peer", "users")

    def __init__(self) -> None:
        self._opening = anyio.Lock()
        self.peer: Peer | None = None
        self.users = 0

    async def opened(self, open_one: Callable[[], Awaitable[Peer]]) -> Peer:
        """The session; where none is open, `open_one` makes it, once for all who wait. Raises what
        that does."""
        async with self._opening:
            if self.peer is None or not self.peer.is_open:
                self.peer = await open_one()
            return self.peer


# Seconds of a Dial; whoever waits less cancels it.
TIMEOUT: Final = 2 * DIAL_TIMEOUT


class Outers:
    """The outer connections of one node. `connect` dials a server, `loop` gives the node's loop."""

    def __init__(
        self, connect: Callable[[str], Awaitable[Peer]], loop: Callable[[], Backend]
    ) -> None:
        self._connect = connect
        self._loop = loop
        self._outers: dict[Address, SharedSession] = {}

    def __len__(self) -> int:
        return len(self._outers)

    def dial(self, address: Address) -> Dial:
        """How a via address is dialled; TunnelRefusedError or UnreachableError if it cannot be."""
        return tunnel_dial(lambda: self.open(address))

    async def open(self, address: Address) -> TunnelOutlet:
        """Open a tunnel to the node of a via address.

        Raises:
            TunnelRefusedError: no tunnel leads there. UnreachableError, HandshakeError: nor does a
                connection to its server.
        """
        assert address.node_id is not None  # else there is no dial
        place = address.of_server
        outer = self._outers.setdefault(place, SharedSession())
        outer.users += 1
        try:
            peer = await outer.opened(lambda: self._connect(str(place)))
            homes = () if address.home is None else (address.home,)
            tunnel = await dial_tunnel(
                peer,
                to=(*homes, address.node_id),
                trace=random_bytes(TRACE_SIZE),
                timeout=TIMEOUT,
            )
        except BaseException:
            self._left(place, outer)
            raise
        tunnel.on_closed = lambda: self._left(place, outer)
        return tunnel

    def _left(self, place: Address, outer: SharedSession) -> None:
        """One uses it no more; the last one closes it."""
        outer.users -= 1
        if outer.users:
            return
        del self._outers[place]
        if outer.peer is not None and outer.peer.is_open:
            self._loop().spawn(outer.peer.close)


# Publishers of one home: half of the tunnels that an account may have.
MOST_PUBLISHERS: Final = 8

Way = tuple[NodeId, ...]


class Publishers:
    """The publishers that `reach` leads to; it takes a way and seconds, and raises as
    `Home.reach`."""

    def __init__(self, reach: Callable[[Way, float], Awaitable[Peer]]) -> None:
        self._reach = reach
        # Their users are notes that are on their way; the one that was used last is the last.
        self._publishers: dict[Way, SharedSession] = {}

    def __len__(self) -> int:
        return len(self._publishers)

    @asynccontextmanager
    async def at(self, way: Way, timeout: float) -> AsyncIterator[Peer]:
        """The session with a publisher, for a note.

        Raises:
            LimitReachedError: notes for 8 others are on their way. And what `reach` raises.
        """
        one = self._publishers.pop(way, None)
        if one is None:
            await self._make_room()
            one = self._publishers.pop(way, None) or SharedSession()
        self._publishers[way] = one
        one.users += 1
        try:
            yield await one.opened(lambda: self._reach(way, timeout))
        finally:
            one.users -= 1
            if one.peer is None and not one.users and self._publishers.get(way) is one:
                del self._publishers[way]

    async def _make_room(self) -> None:
        """Close those that nobody has used for longest, as long as there are 8."""
        while len(self._publishers) >= MOST_PUBLISHERS:
            way = next((way for way, one in self._publishers.items() if not one.users), None)
            if way is None:
                raise LimitReachedError(f"notes for {MOST_PUBLISHERS} publishers are on their way")
            peer = self._publishers.pop(way).peer
            if peer is not None:
                await peer.close()


# Opens a session, by one id, a server's, or by two, those of a home and of a node there.
Reach = Callable[[Sequence[NodeId]], Awaitable[Peer]]

# Seconds to open one.
OPEN_TIMEOUT: Final = 30.0


class SharedSessions:
    """The sessions that `reach` has opened, which are closed here."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._sessions: dict[tuple[NodeId, ...], SharedSession] = {}

    @asynccontextmanager
    async def to(self, ids: tuple[NodeId, ...]) -> AsyncIterator[Peer]:
        """The session with a node, opened by the first who needs it and closed after the last.

        Raises:
            TimeoutError: it took longer than 30 s. And what `reach` raises.
        """

        async def open_it() -> Peer:
            with anyio.fail_after(OPEN_TIMEOUT):
                return await self._reach(ids)

        shared = self._sessions.setdefault(ids, SharedSession())
        shared.users += 1
        try:
            yield await shared.opened(open_it)
        finally:
            shared.users -= 1
            if not shared.users:
                del self._sessions[ids]
                if shared.peer is not None:
                    shared.peer.live.drop(CloseCode.NORMAL)
