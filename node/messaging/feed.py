"""The notes of a topic that wait for one subscriber, whatever dialect it speaks.

One rule: a subscriber that does not keep up costs a bounded amount of memory, and then
its oldest notes or its subscription, never its connection and never anybody else.
Knows no handlers and no time; how notes travel is the dialect's (`StreamFeed` natively).
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from node.messaging.batch import Batch
from node.protocol.account import Account
from node.protocol.limits import EVENT_COST

if TYPE_CHECKING:
    from node.messaging.fanout import Fanout


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
        "_waiting",
        "cost",
        "dropped",
        "lagging",
        "on_over",
        "open",
        "owner",
    )

    def __init__(
        self,
        fanout: "Fanout",
        owner: object,
        on_closed: Callable[[Any], None],
        account: Account,
    ) -> None:
        self._account = account
        self._fanout = fanout
        self._on_closed = on_closed
        self._finishing = False
        self._waiting: deque[Batch] = deque()
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
        fanout = self._fanout
        if self._is_over:
            self._overflow()
        if self.cost > fanout.high_water and not self.lagging and self.open:
            fanout.crowded.add(self)
        elif self.cost <= fanout.low_water:
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
            while self._waiting:
                self._take()
            self._fanout.leave(self)
            self._on_closed(self)
            if not self.is_finishing:
                self.over()

    def end_slow(self) -> None:
        """End the subscription because its notes are not read; all that waits is lost."""
        self._lost(sum(len(batch.notes) for batch in self._waiting) + self._unwritten())
        self._cut_off()
        self.close()
        self.over()

    @property
    def left(self) -> tuple[int, int]:
        """What it has not been sent: bytes of cost here, events on the connection."""
        return self.cost, 0

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
        self._waiting.append(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _put_back(self, batch: Batch) -> None:
        """What is left of the batch that was taken last."""
        self._waiting.appendleft(batch)
        self.cost += batch.cost
        self._account.charge_shared(batch.weight)

    def _take(self) -> Batch:
        """The next batch."""
        batch = self._waiting.popleft()
        self.cost -= batch.cost
        self._account.charge_shared(-batch.weight)
        return batch

    @property
    def _is_over(self) -> bool:
        """Whether more waits than may."""
        if self.cost > self._fanout.limit:
            return True
        return bool(self._waiting) and not self._account.has_room()

    def _drained(self) -> None:
        """Something was handed on: whoever publishes may go on if little is left."""
        if self.cost <= self._fanout.low_water:
            self.lagging = False
            self._fanout.uncrowd(self)

    def _overflow(self) -> None:
        if self._fanout.slow == "drop-oldest":
            while self._is_over:
                self._drop_oldest()
            return
        self.end_slow()

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
