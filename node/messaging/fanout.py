"""One topic's notes on their way to its subscribers, whatever dialects they speak.

A note is encoded once, and what is published in one turn goes out together. A subscriber that does
not keep up costs a bounded amount of memory, then its oldest notes or its subscription, but never
its connection, and it costs no other subscriber anything. How notes travel is the dialect's
(`StreamFeed` natively); nothing here knows handlers or the time.
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

# Bytes of cost published in one turn of the loop before `publish` lets others run.
TURN_SIZE: Final = 256 * 1024
# What a turn may be, at most, of a subscriber's buffer and of its memory account. A note with
# headers takes up to 10 times its cost in memory.
_TURN_PART: Final = 4
_TURN_MEMORY_PART: Final = 64
# A subscriber is crowded when less than 1/4 of its account is free, and until 1/2 of it is.
_CROWDED_PART: Final = 4
_UNCROWDED_PART: Final = 2


class Feed(ABC):
    """The notes that wait for one subscriber, at most the fanout's `limit` bytes of cost.

    What waits is charged to the subscriber's `account`: where there is no room it is as if
    there were more than the limit. `owner` is whoever the caller says; `on_closed` is called
    when no more notes go to it, `on_over` when it has all that it ever gets. `dropped` counts
    the notes that it lost.
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
        self._untold = False  # the subscriber does not know yet of its last losses
        self.owner = owner
        self.cost = 0
        self.dropped = 0
        self.lagging = False  # the publisher waited for it in vain
        self.open = True
        self.on_over: Callable[[], None] | None = None

    @property
    def topic(self) -> str:
        """What is subscribed to."""
        return self._fanout.topic

    def push(self, batch: Batch) -> None:
        """Send a batch, or keep it until the subscriber takes more."""
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
            fanout.uncrowd(self)  # it lost what was waited for

    @abstractmethod
    def pump(self) -> None:
        """Hand on what may go now; call `_drained` after it, and `close` when all of a feed
        that is `finishing` went."""

    def finish(self) -> None:
        """Nothing more is published: the end goes after what waits."""
        self._finishing = True
        self._fanout.leave(self)
        self.pump()

    def close(self) -> None:
        """No more notes go to this subscriber; what waits is forgotten."""
        if self.open:
            self.open = False
            while self.waiting:
                self._take()
            self._fanout.leave(self)
            self._on_closed(self)
            if not self.is_finishing:
                self.over()

    def drop_slow_subscriber(self) -> None:
        """End the subscription because its notes are not read; all that waits is lost."""
        self._lost(sum(len(batch.notes) for batch in self.waiting) + self._unwritten())
        self._cut_off()
        self.close()
        self.over()

    @property
    def left(self) -> tuple[int, int]:
        """What it has not been sent: bytes of cost here, events on the connection."""
        return self.cost, 0

    @property
    def behind(self) -> int:
        """How many notes it has yet to read out of what a topic remembers."""
        return 0

    @property
    def is_finishing(self) -> bool:
        """Whether the end went after all notes, and the subscriber has not answered it yet."""
        return False

    def over(self) -> None:
        """Nothing of it is on its way any more: the subscriber has all, or gets no more."""
        if self.on_over is not None:
            self.on_over()

    # For the dialects.

    @abstractmethod
    def _cut_off(self) -> None:
        """The subscriber was too slow: tell it, if there is a word for that."""

    def _unwritten(self) -> int:
        """How many notes that were handed on will be lost with the subscription."""
        return 0

    def _put(self, batch: Batch) -> None:
        self.waiting.append(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _put_back(self, batch: Batch) -> None:
        """What is left of the batch that was taken last."""
        self.waiting.appendleft(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _take(self) -> Batch:
        """The next batch."""
        batch = self.waiting.popleft()
        self.cost -= batch.cost
        self._account.charge_shared(-batch.weight)
        return batch

    @property
    def _is_over(self) -> bool:
        """Whether more waits than may."""
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
        """Whether this part of the subscriber's account is free, or no note waits."""
        account = self._account
        return not self.waiting or account.has_room(account.limit // part)

    def _drained(self) -> None:
        """Something was handed on: whoever publishes may go on if little is left."""
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

    def join(self, feed: Feed) -> None:
        """A subscriber more, for all that is published from now on."""
        self._cut()
        if self.kept is not None:
            self.emitted = self.kept.last
        memory = feed._account.limit // _TURN_MEMORY_PART
        self.turn_limit = min(self.turn_limit, memory)
        self.feeds[feed] = None

    def leave(self, feed: Feed) -> None:
        """A subscriber less."""
        self.feeds.pop(feed, None)
        self.uncrowd(feed)

    def uncrowd(self, feed: Feed) -> None:
        """A subscriber has room again, or is not waited for any more."""
        if self.crowded:
            self.crowded.discard(feed)
            if self._on_uncrowded is not None:
                self._on_uncrowded()

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
