"""Async ids: the unanswered requests of each stream, ours and the peer's (docs/protocol.md section
2).

An id is in use from its request to its final answer, also after a Cancel.
"""

from typing import Final, Generic, TypeVar

from parley._node.protocol.errors import LimitReachedError, violation
from parley._node.protocol.limits import UNANSWERED_REQUESTS

LAST_ASYNC_ID: Final = 65_535
# A request's key in the tables below is one integer, stream << 16 | async id, since that
# is made for every event of the hot path.

T = TypeVar("T")


class OutgoingRequests(Generic[T]):
    """Our requests that wait for their final answer."""

    __slots__ = ("by_id", "next_ids")

    def __init__(self) -> None:
        self.by_id: dict[int, T] = {}
        self.next_ids: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, stream: int, request: T) -> int:
        """Return the async id for `request`, 1..65535.

        Raises:
            LimitReachedError: all ids of the stream are busy.
        """
        waiting = self.by_id
        async_id = self.next_ids.get(stream, 1)
        base = stream << 16
        if base | async_id in waiting:
            async_id = self._free_id(base, async_id)
        waiting[base | async_id] = request
        self.next_ids[stream] = async_id + 1 if async_id < LAST_ASYNC_ID else 1
        return async_id

    def get(self, stream: int, async_id: int) -> T | None:
        return self.by_id.get(stream << 16 | async_id)

    def pop(self, stream: int, async_id: int) -> T | None:
        """Return the request under this id, which becomes free."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """Remove and return the requests of a stream that is gone."""
        self.next_ids.pop(stream, None)
        keys = [key for key in self.by_id if key >> 16 == stream]
        return [self.by_id.pop(key) for key in keys]

    def end_all(self) -> list[T]:
        """Remove and return all requests."""
        requests = list(self.by_id.values())
        self.by_id.clear()
        return requests

    def _free_id(self, base: int, start: int) -> int:
        for offset in range(1, LAST_ASYNC_ID):
            async_id = (start - 1 + offset) % LAST_ASYNC_ID + 1
            if base | async_id not in self.by_id:
                return async_id
        stream = base >> 16
        raise LimitReachedError(f"65,535 requests of stream {stream} wait for their answers")


class IncomingRequests(Generic[T]):
    """The peer's requests that we haven't answered."""

    __slots__ = ("by_id", "count_limit")

    def __init__(self, count_limit: int = UNANSWERED_REQUESTS) -> None:
        self.count_limit = count_limit
        self.by_id: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, stream: int, async_id: int, request: T) -> None:
        """Add a request.

        Raises:
            RemoteProtocolError: `protocol-error`, the id is busy.
        """
        key = stream << 16 | async_id
        if key in self.by_id:
            raise violation(f"async id {async_id} is used twice on stream {stream}")
        self.by_id[key] = request

    def get(self, stream: int, async_id: int) -> T | None:
        return self.by_id.get(stream << 16 | async_id)

    def values(self) -> list[T]:
        return list(self.by_id.values())

    def pop(self, stream: int, async_id: int) -> T | None:
        """Return the request under this id, which becomes free."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """Remove and return the requests of a stream that is gone."""
        keys = [key for key in self.by_id if key >> 16 == stream]
        return [self.by_id.pop(key) for key in keys]

    def end_all(self) -> list[T]:
        """Remove and return all requests."""
        requests = self.values()
        self.by_id.clear()
        return requests
