"""`Publishers`: the sessions with nodes in whose topics a node writes, through its home. They are
kept from one note to the next, a few of them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from crypto.identity import NodeId
from node.peer.peer import Peer
from node.protocol.errors import LocalProtocolError

# Publishers of one home: half of the tunnels that an account may have.
MOST_PUBLISHERS: Final = 8

Way = tuple[NodeId, ...]


class _Publisher:
    """The session with one of them, and how many notes are on their way to it."""

    __slots__ = ("notes", "peer", "reaching")

    def __init__(self) -> None:
        self.reaching = anyio.Lock()
        self.peer: Peer | None = None
        self.notes = 0


class Publishers:
    """The publishers that `reach` leads to; it takes a way and seconds, and raises as
    `Home.reach`."""

    def __init__(self, reach: Callable[[Way, float], Awaitable[Peer]]) -> None:
        self._reach = reach
        self._publishers: dict[Way, _Publisher] = {}  # the one that was used last is the last

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
            one = self._publishers.pop(way, None) or _Publisher()
        self._publishers[way] = one
        one.notes += 1
        try:
            async with one.reaching:
                if one.peer is None or not one.peer.is_open:
                    one.peer = await self._reach(way, timeout)
            yield one.peer
        finally:
            one.notes -= 1
            if one.peer is None and not one.notes and self._publishers.get(way) is one:
                del self._publishers[way]

    async def _make_room(self) -> None:
        """Close those that nobody has used for longest, as long as there are 8."""
        while len(self._publishers) >= MOST_PUBLISHERS:
            way = next((way for way, one in self._publishers.items() if not one.notes), None)
            if way is None:
                raise LocalProtocolError(f"notes for {MOST_PUBLISHERS} publishers are on their way")
            peer = self._publishers.pop(way).peer
            if peer is not None:
                await peer.close()
