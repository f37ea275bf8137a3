"""`SessionPool`: sessions shared by several users."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio

from parley._node.peer.peer import Peer
from parley._node.protocol.errors import LimitReachedError

Key = TypeVar("Key", bound=Hashable)


class _Shared:
    __slots__ = ("opening", "peer", "users")

    def __init__(self) -> None:
        self.opening = anyio.Lock()
        self.peer: Peer | None = None
        self.users = 0  # including users that wait for it to be opened


class SessionPool(Generic[Key]):
    """Sessions shared by several users, one for each key.

    A session is opened for its first user and passed to `close` after its last. With a `limit`,
    unused sessions stay open until another key needs the capacity; then the session that was unused
    for longest is closed.
    """

    def __init__(self, close: Callable[[Peer], object], *, limit: int | None = None) -> None:
        self._close = close
        self._limit = limit
        self._sessions: dict[Key, _Shared] = {}  # the most recently requested is the last

    def __len__(self) -> int:
        return len(self._sessions)

    async def acquire(self, key: Key, open_session: Callable[[], Awaitable[Peer]]) -> Peer:
        """Return the session of `key`, opening it if none is open; `release` it after use.

        Raises:
            LimitReachedError: `limit` sessions are in use. Also whatever `open_session` raises.
        """
        shared = self._sessions.pop(key, None)
        if shared is None:
            self._evict()
            shared = _Shared()
        self._sessions[key] = shared
        shared.users += 1
        try:
            async with shared.opening:
                if shared.peer is None or not shared.peer.is_open:
                    shared.peer = await open_session()
                return shared.peer
        except BaseException:
            self.release(key)
            raise

    def release(self, key: Key) -> None:
        """End one use of a session."""
        shared = self._sessions[key]
        shared.users -= 1
        if not shared.users and (self._limit is None or shared.peer is None):
            self._remove(key)

    @asynccontextmanager
    async def use(
        self, key: Key, open_session: Callable[[], Awaitable[Peer]]
    ) -> AsyncIterator[Peer]:
        """Acquire a session and release it afterwards; raises as `acquire`."""
        peer = await self.acquire(key, open_session)
        try:
            yield peer
        finally:
            self.release(key)

    def _evict(self) -> None:
        if self._limit is None or len(self._sessions) < self._limit:
            return
        unused = next((key for key, shared in self._sessions.items() if not shared.users), None)
        if unused is None:
            raise LimitReachedError(f"all {self._limit} sessions are in use")
        self._remove(unused)

    def _remove(self, key: Key) -> None:
        peer = self._sessions.pop(key).peer
        if peer is not None and peer.is_open:
            self._close(peer)
