"""`SharedSessions`: one session with each node of which topics are followed, as long as one is."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from parley._crypto.identity import NodeId
from parley._node.peer.peer import Peer
from parley._node.protocol.codes import CloseCode
from parley._node.tunnels.shared_session import SharedSession

# Opens a session, by one id, a server's, or by two, those of a home and of a node there.
Reach = Callable[[Sequence[NodeId]], Awaitable[Peer]]

# Seconds to open one.
TIMEOUT: Final = 30.0


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
            with anyio.fail_after(TIMEOUT):
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
