"""`SharedSessions`: one session with each node of which topics are followed, as long as one is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from crypto.identity import NodeId
from node.peer.peer import Peer
from node.protocol.codes import CloseCode

# Opens a session, by one id, a server's, or by two, those of a home and of a node there.
Reach = Callable[[Sequence[NodeId]], Awaitable[Peer]]

# Seconds to open one.
TIMEOUT: Final = 30.0


class _Shared:
    """A session, and how many use it or wait for it."""

    __slots__ = ("peer", "reaching", "users")

    def __init__(self) -> None:
        self.reaching = anyio.Lock()
        self.peer: Peer | None = None
        self.users = 0


class SharedSessions:
    """The sessions that `reach` has opened, which are closed here."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._sessions: dict[tuple[NodeId, ...], _Shared] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def to(self, ids: tuple[NodeId, ...]) -> AsyncIterator[Peer]:
        """The session with a node, opened by the first who needs it and closed after the last.

        Raises:
            TimeoutError: it took longer than 30 s. And what `reach` raises.
        """
        shared = self._sessions.setdefault(ids, _Shared())
        shared.users += 1
        try:
            async with shared.reaching:
                if shared.peer is None or not shared.peer.is_open:
                    with anyio.fail_after(TIMEOUT):
                        shared.peer = await self._reach(ids)
            yield shared.peer
        finally:
            shared.users -= 1
            if not shared.users:
                del self._sessions[ids]
                if shared.peer is not None:
                    shared.peer.live.drop(CloseCode.NORMAL)
