"""One topic's notes on their way to many subscribers.

One rule: a note is encoded once, and what is published in one turn goes out together.
Knows no handlers and no time.
"""

from collections.abc import Callable
from typing import Literal

from node.messaging.batch import Batch
from node.messaging.feed import Feed
from node.messaging.notes import BATCH_ROOM, Headers
from node.protocol.limits import EVENT_COST, NOTES_COUNT

Slow = Literal["unsubscribe", "drop-oldest"]


class Fanout:
    """The subscribers of one topic. `limit` is what may wait for each, in bytes of cost
    (a note costs its encoding and 64 bytes); `slow` is what happens beyond it.

    `crowded` are the subscribers for which the publisher should wait, `turn_size` is
    what was published since the last `flush`, in bytes.
    """

    __slots__ = (
        "_pending",
        "_pending_size",
        "crowded",
        "dropped",
        "feeds",
        "high_water",
        "limit",
        "low_water",
        "on_room",
        "slow",
        "topic",
        "turn_size",
    )

    def __init__(self, topic: str, limit: int, slow: Slow) -> None:
        self.topic = topic
        self.limit = limit
        self.high_water = limit // 2
        self.low_water = limit // 4
        self.slow: Slow = slow
        self.feeds: dict[Feed, None] = {}
        self.crowded: set[Feed] = set()
        self.dropped = 0
        self.turn_size = 0
        self.on_room: Callable[[], None] | None = None  # nobody is crowded any more
        self._pending: list[bytes] = []
        self._pending_size = 0

    def add(self, note: bytes, headers: Headers | None = None) -> None:
        """Publish an encoded note; it is sent with the next `flush`, or when many wait."""
        size = len(note)
        self.turn_size += size + EVENT_COST
        if not self.feeds:
            return
        if headers:
            self.turn_size += headers.size
            self._cut()
            self._emit(Batch([note], headers))
            return
        if self._pending_size + size > BATCH_ROOM or len(self._pending) >= NOTES_COUNT:
            self._cut()
        self._pending.append(note)
        self._pending_size += size

    def flush(self) -> None:
        """Send what was published."""
        self.turn_size = 0
        self._cut()

    def join(self, feed: Feed) -> None:
        """A subscriber more, for all that is published from now on."""
        self._cut()
        self.feeds[feed] = None

    def leave(self, feed: Feed) -> None:
        """A subscriber less."""
        self.feeds.pop(feed, None)
        self.uncrowd(feed)

    def uncrowd(self, feed: Feed) -> None:
        """A subscriber has room again, or is not waited for any more."""
        if self.crowded:
            self.crowded.discard(feed)
            if not self.crowded and self.on_room is not None:
                self.on_room()

    def give_up(self) -> None:
        """The publisher has waited long enough for those that are crowded."""
        for feed in list(self.crowded):
            feed.lagging = True
            self.uncrowd(feed)

    def _cut(self) -> None:
        if self._pending:
            notes, self._pending, self._pending_size = self._pending, [], 0
            self._emit(Batch(notes))

    def _emit(self, batch: Batch) -> None:
        for feed in list(self.feeds):
            feed.push(batch)
