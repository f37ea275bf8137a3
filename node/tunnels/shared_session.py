"""`SharedSession`: a session that several use, opened by the first who needs it."""

from collections.abc import Awaitable, Callable

import anyio

from parley._node.peer.peer import Peer


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
