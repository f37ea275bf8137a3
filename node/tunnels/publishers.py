"""`Publishers`: the sessions with nodes in whose topics a node writes, through its home. They are
kept from one note to the next, a few of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.peer.peer import Peer
from parley._node.protocol.errors import LocalProtocolError
from parley._node.tunnels.shared_session import SharedSession

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
            LocalProtocolError: notes for 8 others are on their way. And what `reach` raises.
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
                raise LocalProtocolError(f"notes for {MOST_PUBLISHERS} publishers are on their way")
            peer = self._publishers.pop(way).peer
            if peer is not None:
                await peer.close()
