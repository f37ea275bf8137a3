"""Delivery of one topic's notes to its subscribers, in any dialect.

A note is encoded once, and all notes published in one iteration of the event loop are sent
together. A slow subscriber uses a bounded amount of memory; then it loses its oldest notes or its
subscription, but never its connection. It does not delay other subscribers. Subclasses of `Feed`
(natively `StreamFeed`) define how notes are sent. This module knows neither handlers nor the time.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

from parley._node.messaging.notes import BATCH_ROOM, Batch, Headers
from parley._node.messaging.topic_history import TopicHistory
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT
from parley._node.protocol.memory_budget import MemoryBudget

Slow = Literal["unsubscribe", "drop-oldest"]

# Bytes of cost to publish in one iteration of the event loop before `publish` yields.
TURN_SIZE: Final = 256 * 1024
# The largest share of one iteration in a subscriber's buffer and in its memory budget. A note with
# headers uses up to 10 times its cost in memory.
_TURN_PART: Final = 4
_TURN_MEMORY_PART: Final = 64
# A subscriber is crowded when less than 1/4 of its memory budget is free, until 1/2 is free.
_CROWDED_PART: Final = 4
_UNCROWDED_PART: Final = 2


class Feed(ABC):
    """The queue of notes for one subscriber, at most the fanout's `limit` bytes of cost.

    Queued notes are charged to the subscriber's `account`; if it is exhausted, the queue counts as
    over its limit. `owner` is chosen by the caller. `on_closed` is called when the feed accepts no
    more notes, `on_over` when the subscriber has received all that it will receive. `dropped`
    counts the notes that it lost.
    """

    __slots__ = (
        "_account",
        "_fanout",
        "_finishing",
        "_on_closed",
        "_untold",
        "cost",
        "dropped",
        "lagging",
        "on_over",
        "open",
        "owner",
        "waiting",
    )

    def __init__(
        self,
        fanout: "Fanout",
        owner: object,
        on_closed: Callable[[Any], None],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self._fanout = fanout
        self._on_closed = on_closed
        self._finishing = False
        self.waiting: deque[Batch] = deque()
        self._untold = False  # Whether the subscriber has not been informed of its last losses.
        self.owner = owner
        self.cost = 0
        self.dropped = 0
        self.lagging = False  # Whether the publisher waited for it without success.
        self.open = True
        self.on_over: Callable[[], None] | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._fanout.topic

    def push(self, batch: Batch) -> None:
        """Send a batch, or queue it until the subscriber accepts more."""
        if not self.open:
            return
        self._put(batch)
        self.pump()
        if not self.waiting:
            return
        fanout = self._fanout
        if self._is_over:
            self._overflow()
        if self._is_crowded and not self.lagging and self.open:
            fanout.crowded.add(self)
        elif self._is_uncrowded:
            fanout.uncrowd(self)  # It lost the notes that the publisher waited for.

    @abstractmethod
    def pump(self) -> None:
        """Send what can be sent now, then call `_drained`; call `close` after the end of a
        finishing feed.
        """

    def finish(self) -> None:
        """Accept no more notes and send the end after the queued notes."""
        self._finishing = True
        self._fanout.leave(self)
        self.pump()

    def close(self) -> None:
        """Send no more notes to this subscriber and discard the queued ones."""
        if self.open:
            self.open = False
            while self.waiting:
                self._take()
            self._fanout.leave(self)
            self._on_closed(self)
            if not self.is_finishing:
                self.over()

    def drop_slow_subscriber(self) -> None:
        """End the subscription because it is too slow; all queued notes are lost."""
        self._lost(sum(len(batch.notes) for batch in self.waiting) + self._unwritten())
        self._cut_off()
        self.close()
        self.over()

    @property
    def left(self) -> tuple[int, int]:
        """The unsent notes: bytes of cost in this queue, events in the connection's queue."""
        return self.cost, 0

    @property
    def behind(self) -> int:
        """How many notes of the topic's history it still has to read."""
        return 0

    @property
    def is_finishing(self) -> bool:
        """Whether the end was sent after all notes, and the subscriber has not confirmed it yet."""
        return False

    def over(self) -> None:
        """Record that the subscriber has received everything that it will receive."""
        if self.on_over is not None:
            self.on_over()

    # Implemented by dialects.

    @abstractmethod
    def _cut_off(self) -> None:
        """Inform a slow subscriber that it was dropped, if the dialect has a message for it."""

    def _unwritten(self) -> int:
        """Return how many notes in the connection's queue would be lost with the subscription."""
        return 0

    def _put(self, batch: Batch) -> None:
        self.waiting.append(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _put_back(self, batch: Batch) -> None:
        """Return the rest of the last batch to the queue."""
        self.waiting.appendleft(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _take(self) -> Batch:
        """Remove and return the next batch."""
        batch = self.waiting.popleft()
        self.cost -= batch.cost
        self._account.charge_shared(-batch.weight)
        return batch

    @property
    def _is_over(self) -> bool:
        """Whether the queue exceeds its limit."""
        if self.cost > self._fanout.limit:
            return True
        return bool(self.waiting) and not self._account.has_room()

    @property
    def _is_crowded(self) -> bool:
        """Whether a publisher should wait for this subscriber."""
        return self.cost > self._fanout.high_water or not self._has_memory(_CROWDED_PART)

    @property
    def _is_uncrowded(self) -> bool:
        """Whether a publisher that waits for this subscriber may continue."""
        return self.cost <= self._fanout.low_water and self._has_memory(_UNCROWDED_PART)

    def _has_memory(self, part: int) -> bool:
        """Whether this part of the subscriber's memory budget is free, or the queue is empty."""
        account = self._account
        return not self.waiting or account.has_room(account.limit // part)

    def _drained(self) -> None:
        """Let the publisher continue if the queue has become short."""
        if not self.waiting or self._is_uncrowded:
            self.lagging = False
            self._fanout.uncrowd(self)

    def _overflow(self) -> None:
        if self._fanout.slow == "drop-oldest":
            while self._is_over:
                self._drop_oldest()
            return
        self.drop_slow_subscriber()

    def _drop_oldest(self) -> None:
        excess, count = self.cost - self._fanout.limit, 0
        batch = self._take()
        for note in batch.notes:
            if count and excess <= 0:
                break
            excess -= len(note) + EVENT_COST
            count += 1
        self._lost(count)
        if count < len(batch.notes):
            self._put_back(batch.split(count)[1])

    def _lost(self, count: int) -> None:
        self.dropped += count
        self._fanout.dropped += count
        self._untold = True


class Fanout:
    """The subscribers of one topic.

    Each subscriber's queue is limited to `limit` bytes of cost (a note costs its encoded size plus
    64 bytes); `slow` selects what happens beyond it.

    Attributes: crowded: the subscribers for which the publisher should wait. turn_size: bytes of
    cost published since the last `flush`. turn_limit: the most bytes of cost before the publisher
    must flush. published: how many notes were published. delivered: how many notes were delivered,
    counting each subscriber. kept: the history of the topic, if it keeps one. emitted: the number
    of the last note that was pushed to all subscribers.
    """

    __slots__ = (
        "_missing",
        "_on_uncrowded",
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
        "published",
        "slow",
        "topic",
        "turn_limit",
        "turn_size",
    )

    def __init__(
        self,
        topic: str,
        limit: int,
        slow: Slow,
        kept: TopicHistory | None = None,
        on_uncrowded: Callable[[], None] | None = None,
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
        self._on_uncrowded = on_uncrowded  # called when a subscriber is no longer crowded
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._missing = 0  # Notes missing before the first pending one.
        self._replaced = 0  # How many of the missing notes, the last ones, were replaced.

    def add(
        self,
        note: bytes,
        headers: Headers | None = None,
        missing: int = 0,
        replaced: int = 0,
        key: bytes = b"",
    ) -> None:
        """Publish an encoded note; it is sent with the next `flush`, or earlier if many are
        pending.

        `missing` notes before it never arrived here; the last `replaced` of these were replaced by
        newer notes. `key` is the note's key if the topic keeps the newest note of each key.
        """
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
        """Send the pending notes."""
        self.turn_size = 0
        self._cut()

    def join(self, feed: Feed) -> None:
        """Add a subscriber, which receives all notes published from now on."""
        self._cut()
        if self.kept is not None:
            self.emitted = self.kept.last
        memory = feed._account.limit // _TURN_MEMORY_PART
        self.turn_limit = min(self.turn_limit, memory)
        self.feeds[feed] = None

    def leave(self, feed: Feed) -> None:
        """Remove a subscriber."""
        self.feeds.pop(feed, None)
        self.uncrowd(feed)

    def uncrowd(self, feed: Feed) -> None:
        """Stop waiting for a subscriber, because it has capacity again or was skipped."""
        if self.crowded:
            self.crowded.discard(feed)
            if self._on_uncrowded is not None:
                self._on_uncrowded()

    def skip_crowded(self) -> None:
        """Stop waiting for the crowded subscribers, because the publisher has waited long
        enough.
        """
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
            # Later subscribers begin after the missing notes.
            self._missing, self._replaced = (count, replaced) if self.feeds else (0, 0)
            return
        for feed in self.feeds:
            feed._lost(count)

    def _emit(self, notes: list[bytes], headers: Headers | None) -> None:
        """Push these notes, with the number of missing notes before them."""
        batch = Batch(notes, headers, self._missing, self._replaced)
        self._missing = self._replaced = 0
        if self.kept is not None:
            self.emitted += batch.missing + len(batch.notes)
        self.delivered += len(batch.notes) * len(self.feeds)
        for feed in list(self.feeds):
            feed.push(batch)
