"""Async ids: who asked what, on which stream, and which answer is still to come.

An id is busy from its request to its final answer, also when the request was cancelled
(docs/protocol.md section 2).
"""

from typing import Final, Generic, TypeVar

from parley._node.protocol.errors import LimitReachedError, violation
from parley._node.protocol.limits import UNANSWERED_REQUESTS

LAST_ASYNC_ID: Final = 65_535
# A request's key in the tables below is one integer, stream << 16 | async id, since that
# is made for every event of the hot path.

T = TypeVar("T")


class OutgoingRequests(Generic[T]):
    """Our requests that wait for their final answer; in `by_id` under one integer each."""

    __slots__ = ("by_id", "next_ids")

    def __init__(self) -> None:
        self.by_id: dict[int, T] = {}
        self.next_ids: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, stream: int, request: T) -> int:
        """The async id for `request`, 1..65535.

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
        """The request that waits under this id."""
        return self.by_id.get(stream << 16 | async_id)

    def pop(self, stream: int, async_id: int) -> T | None:
        """The request that waits under this id, which is free from now on."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """All that wait on a stream that is gone."""
        self.next_ids.pop(stream, None)
        keys = [key for key in self.by_id if key >> 16 == stream]
        return [self.by_id.pop(key) for key in keys]

    def end_all(self) -> list[T]:
        """All that wait: the connection is over."""
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
    """The other side's requests that we have not answered; in `by_id` under one integer each."""

    __slots__ = ("by_id", "count_limit")

    def __init__(self, count_limit: int = UNANSWERED_REQUESTS) -> None:
        self.count_limit = count_limit
        self.by_id: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def has_room(self) -> bool:
        """Whether one more request may wait for its answer."""
        return len(self.by_id) < self.count_limit

    def add(self, stream: int, async_id: int, request: T) -> None:
        """Remember a request, to be answered.

        Raises:
            RemoteProtocolError: `protocol-error`, the id is busy.
        """
        key = stream << 16 | async_id
        if key in self.by_id:
            raise violation(f"async id {async_id} is used twice on stream {stream}")
        self.by_id[key] = request

    def get(self, stream: int, async_id: int) -> T | None:
        """The unanswered request under this id."""
        return self.by_id.get(stream << 16 | async_id)

    def values(self) -> list[T]:
        """All unanswered requests."""
        return list(self.by_id.values())

    def pop(self, stream: int, async_id: int) -> T | None:
        """The request under this id, which counts as answered from now on."""
        return self.by_id.pop(stream << 16 | async_id, None)

    def end_stream(self, stream: int) -> list[T]:
        """All unanswered requests of a stream that is gone."""
        keys = [key for key in self.by_id if key >> 16 == stream]
        return [self.by_id.pop(key) for key in keys]

    def end_all(self) -> list[T]:
        """All unanswered requests: the connection is over."""
        requests = self.values()
        self.by_id.clear()
        return requests
