"""Async IDs: the unanswered requests of each stream, local and remote (docs/protocol.md section 2).

An ID is in use from its request to the final response, even after a Cancel.
"""

from typing import Final, Generic, TypeVar

from parley._node.protocol.errors import LimitReachedError, violation
from parley._node.protocol.limits import UNANSWERED_REQUESTS

LAST_ASYNC_ID: Final = 65_535
# Requests are stored under a single integer, stream << 16 | async ID, because it is computed for
# every event.

T = TypeVar("T")


class OutgoingRequests(Generic[T]):
    """Local requests that wait for their final response."""

    __slots__ = ("by_id", "next_ids")

    def __init__(self) -> None:
        self.by_id: dict[int, T] = {}
        self.next_ids: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, stream: int, request: T) -> int:
        """Add a request and return its async ID, 1..65535.

        Raises:
            LimitReachedError: all IDs of the stream are in use.
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
        """Remove and return the request with this ID."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """Remove and return the requests of a closed stream."""
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
        raise LimitReachedError(f"65,535 requests are pending on stream {stream}")


class IncomingRequests(Generic[T]):
    """The peer's requests that have no response yet."""

    __slots__ = ("by_id", "count_limit")

    def __init__(self, count_limit: int = UNANSWERED_REQUESTS) -> None:
        self.count_limit = count_limit
        self.by_id: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, stream: int, async_id: int, request: T) -> None:
        """Add a request.

        Raises:
            RemoteProtocolError: `protocol-error`: the ID is in use.
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
        """Remove and return the request with this ID."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """Remove and return the requests of a closed stream."""
        keys = [key for key in self.by_id if key >> 16 == stream]
        return [self.by_id.pop(key) for key in keys]

    def end_all(self) -> list[T]:
        """Remove and return all requests."""
        requests = self.values()
        self.by_id.clear()
        return requests
