"""One topic's notes on their way to its subscribers, whatever dialects they speak.

A note is encoded once, and what is published in one turn goes out together. A subscriber that does
not keep up costs a bounded amount of memory, then its oldest notes or its subscription, but never
its connection, and it costs no other subscriber anything. What waits for one subscriber is a `Feed`
(`feeds.py`); how notes travel is the dialect's. Nothing here knows handlers or the time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from parley._node.messaging.notes import BATCH_ROOM, Batch, Headers
from parley._node.messaging.topic_history import TopicHistory
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT

if TYPE_CHECKING:
    from parley._node.messaging.feeds import Feed

Slow = Literal["unsubscribe", "drop-oldest"]

# Bytes of cost published in one turn of the loop before `publish` lets others run.
TURN_SIZE: Final = 256 * 1024
# What a turn may be, at most, of a subscriber's buffer and of its memory account. A note with
# headers takes up to 10 times its cost in memory.
_TURN_PART: Final = 4
_TURN_MEMORY_PART: Final = 64


class Fanout:
    """The subscribers of one topic. `limit` is what may wait for each, in bytes of cost
    (a note costs its encoding and 64 bytes); `slow` is what happens beyond it.

    `crowded` are the subscribers for which the publisher should wait, `turn_size` is
    what was published since the last `flush`, in bytes of cost, and `turn_limit` what may be before
    the publisher has to flush; `published` counts notes, `delivered` each
    once for each subscriber. `kept` is what a topic remembers that does, and `emitted` the number
    of the last note of it that was pushed to all subscribers.
    """

    __slots__ = (
        "_missing",
        "_pending",
        "_pending_size",
        "_replaced",
        "crowded",
        "delivered",
        "dropped",
        "emitted",
        "feeds",
        "high_water",
        "kept",
        "limit",
        "low_water",
        "on_room",
        "published",
        "slow",
        "topic",
        "turn_limit",
        "turn_size",
    )

    def __init__(
        self, topic: str, limit: int, slow: Slow, kept: TopicHistory | None = None
    ) -> None:
        self.topic = topic
        self.kept = kept
        self.emitted = 0
        self.limit = limit
        self.high_water = limit // 2
        self.low_water = limit // 4
        self.slow: Slow = slow
        self.feeds: dict[Feed, None] = {}
        self.crowded: set[Feed] = set()
        self.dropped = 0
        self.published = 0
        self.delivered = 0
        self.turn_size = 0
        self.turn_limit = min(TURN_SIZE, limit // _TURN_PART)
        self.on_room: Callable[[], None] | None = None  # one is crowded no more
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._missing = 0  # before the first that is pending
        self._replaced = 0  # of these, the last ones

    def add(
        self,
        note: bytes,
        headers: Headers | None = None,
        missing: int = 0,
        replaced: int = 0,
        key: bytes = b"",
    ) -> None:
        """Publish an encoded note; it is sent with the next `flush`, or when many wait. `missing`
        notes before it never came here; the last `replaced` of these were replaced by later notes.
        `key` is that of a topic that keeps the newest note of each key."""
        size = len(note)
        self.published += 1
        self.turn_size += size + EVENT_COST
        if missing:
            self._skip(missing, replaced)
        if self.kept is not None:
            self.kept.add(note, headers, key)
        if not self.feeds:
            return
        if headers:
            self.turn_size += headers.size
            self._cut()
            self._emit([note], headers)
            return
        if self._pending_size + size > BATCH_ROOM or len(self._pending) >= NOTES_COUNT:
            self._cut()
        self._pending.append(note)
        self._pending_size += size

    def flush(self) -> None:
        """Send what was published."""
        self.turn_size = 0
        self._cut()

    def join(self, feed: "Feed") -> None:
        """A subscriber more, for all that is published from now on."""
        self._cut()
        if self.kept is not None:
            self.emitted = self.kept.last
        memory = feed._account.limit // _TURN_MEMORY_PART
        self.turn_limit = min(self.turn_limit, memory)
        self.feeds[feed] = None

    def leave(self, feed: "Feed") -> None:
        """A subscriber less."""
        self.feeds.pop(feed, None)
        self.uncrowd(feed)

    def uncrowd(self, feed: "Feed") -> None:
        """A subscriber has room again, or is not waited for any more."""
        if self.crowded:
            self.crowded.discard(feed)
            if self.on_room is not None:
                self.on_room()

    def skip_crowded(self) -> None:
        """The publisher has waited long enough for those that are crowded."""
        for feed in list(self.crowded):
            feed.lagging = True
            self.uncrowd(feed)

    def _cut(self) -> None:
        if self._pending:
            notes, self._pending, self._pending_size = self._pending, [], 0
            self._emit(notes, None)

    def _skip(self, count: int, replaced: int) -> None:
        self._cut()
        if self.kept is not None:
            self.kept.skip(count)
            # Whoever subscribes later begins after them.
            self._missing, self._replaced = (count, replaced) if self.feeds else (0, 0)
            return
        for feed in self.feeds:
            feed._lost(count)

    def _emit(self, notes: list[bytes], headers: Headers | None) -> None:
        """Push these notes, with the number of notes that are missing before them."""
        batch = Batch(notes, headers, self._missing, self._replaced)
        self._missing = self._replaced = 0
        if self.kept is not None:
            self.emitted += batch.missing + len(batch.notes)
        self.delivered += len(batch.notes) * len(self.feeds)
        for feed in list(self.feeds):
            feed.push(batch)
