"""The replies to one event of ours that came and were not read.

One rule: what waits is bounded; beyond it this one emission fails, and nothing else does.
Knows neither the connection nor who reads.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from node.dialects.named.codec import EventType, NamedEvent, decode_error

# What a reply counts on top of its data and names: many empty ones wait for memory too.
REPLY_COST: Final = 64


class RepliesEnd(Enum):
    """Why no more replies come."""

    FINISHED = "finished"  # their handler said so, with the typed flavour's End
    FAILED = "failed"  # their handler failed: `code` and `text`
    OVERFLOW = "overflow"  # more came than may wait unread
    LOST = "lost"  # the connection is over: `code` and `text`
    CLOSED = "closed"  # nobody wants more


class Replies:
    """What came in reply to `event_id`. `on_change` is called when there is something new.

    `end` is why nothing more comes, None while more may; what came before may still be
    taken, unless it is an overflow or nobody wants it.
    """

    __slots__ = ("_limit", "_queue", "_size", "code", "end", "event_id", "on_change", "text")

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self.event_id = 0
        self.on_change = on_change
        self.end: RepliesEnd | None = None
        self.code = 0
        self.text = ""
        self._limit = limit
        self._queue: deque[NamedEvent] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._queue)

    @property
    def size(self) -> int:
        """What waits, in bytes of data and names and 64 for each."""
        return self._size

    def put(self, event: NamedEvent) -> None:
        """A reply came. An End is taken only if it has data."""
        if event.type is EventType.END:
            self.end = RepliesEnd.FINISHED
            if not event.data:
                self.on_change()
                return
        self._size += _cost(event)
        if self._size > self._limit:
            self._forget()
            self.end = RepliesEnd.OVERFLOW
        else:
            self._queue.append(event)
        self.on_change()

    def fail(self, event: NamedEvent) -> None:
        """Their handler failed, as `event` says."""
        told = decode_error(event.data)
        self.finish(RepliesEnd.FAILED, *(told or (0, "")))

    def finish(self, end: RepliesEnd, code: int = 0, text: str = "") -> None:
        """No more replies come."""
        if self.end is None:
            self.end = end
            self.code = code
            self.text = text
            if end is RepliesEnd.CLOSED:
                self._forget()
            self.on_change()

    def take(self) -> NamedEvent:
        """The next reply.

        Raises:
            IndexError: none waits.
        """
        event = self._queue.popleft()
        self._size -= _cost(event)
        return event

    def _forget(self) -> None:
        self._queue.clear()
        self._size = 0


def _cost(event: NamedEvent) -> int:
    return len(event.data) + len(event.name) + len(event.namespace) + REPLY_COST
