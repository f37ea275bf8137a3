"""Notes of local topics that are sent to SimProto subscribers, and the scheduler of dialogs.

Unacknowledged notes are limited per subscription and per connection, so that calls find free
dialogs. A response other than 0 ends the subscription.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from parley._node.dialects.simproto.codec import NOTIFY, parse_response
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.messaging.fanout import Fanout, Feed
from parley._node.messaging.notes import Batch
from parley._node.protocol.errors import ConnectionClosedError, PayloadTooLargeError
from parley._node.protocol.limits import EVENT_COST

# Limit of the unacknowledged notes of one subscription, in bytes of cost (a note's data and 64). A
# single larger note is allowed. Parley's own subscribers can buffer this much.
ON_THE_WAY: Final = 64 * 1024


# A quarter of all dialogs is reserved for calls.
KEPT_PART: Final = 4


class DialogUser(Protocol):
    """A feed that waits for a dialog."""

    def pump(self) -> None:
        """Send as many notes as the limits permit."""


class DialogScheduler:
    """Shares the dialogs of one connection between calls and feeds.

    Calls come first, then feeds in turn. A part of all dialogs is reserved for calls.
    """

    __slots__ = ("_callers", "_core", "_feeds", "_most_notes", "_notes")

    def __init__(self, core: SimProtoCore) -> None:
        self._core = core
        self._callers: dict[Callable[[], None], None] = {}
        self._feeds: dict[DialogUser, None] = {}
        dialogs = core.limits.requests
        self._most_notes = max(1, dialogs - dialogs // KEPT_PART)
        self._notes = 0  # unacknowledged

    # Callers.

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when a dialog is free; another caller may use the dialog first."""
        self._callers[wake] = None
        self._core.on_free = self._freed

    def leave(self, wake: Callable[[], None]) -> None:
        """Stop waiting, or return an unused dialog."""
        if self._callers.pop(wake, wake) is wake:
            self._freed()  # wake the next waiter

    def end(self) -> None:
        callers, self._callers = self._callers, {}
        for wake in callers:
            wake()

    # Feeds.

    def take(self, feed: DialogUser) -> bool:
        """Reserve a dialog for a note; if none is free, return False and queue `feed`."""
        if self._notes < self._most_notes and self._core.free_dialogs > 0:
            self._notes += 1
            return True
        self.queue(feed)
        return False

    def give_back(self) -> None:
        self._notes -= 1

    @property
    def others_wait(self) -> bool:
        """Whether a feed should let others go first."""
        return bool(self._feeds or self._callers)

    def queue(self, feed: DialogUser) -> None:
        self._feeds[feed] = None
        self._core.on_free = self._freed

    def forget(self, feed: DialogUser) -> None:
        self._feeds.pop(feed, None)

    # Internals.

    def _freed(self) -> None:
        if self._callers:
            wake = next(iter(self._callers))
            del self._callers[wake]
            wake()
        elif self._feeds:
            feed = next(iter(self._feeds))
            del self._feeds[feed]
            feed.pump()  # it queues itself again if it has more
        if not self._callers and not self._feeds:
            self._core.on_free = None


class NoteDialog:
    """A note that waits for its response."""

    __slots__ = ("_cost", "_feed")

    def __init__(self, feed: "SimProtoFeed", cost: int) -> None:
        self._feed = feed
        self._cost = cost

    def responded(self, payload: memoryview) -> None:
        self._feed.acknowledged(self._cost, parse_response(payload).code)

    def lost(self, code: int, text: str) -> None:
        self._feed.lost()


class NotePublisher(Protocol):
    """The publisher of a feed."""

    core: SimProtoCore
    room: DialogScheduler

    def now(self) -> float: ...

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        """Encode the notes of a batch; None for each note that SimProto cannot represent."""

    def cut_off(self, feed: "SimProtoFeed") -> None:
        """Handle a subscriber that is too slow.

        SimProto has no message for this; the subscriber finds out when it unsubscribes (code 2).
        """


class SimProtoFeed(Feed):
    """The unsent notes of one subscriber."""

    __slots__ = ("_on_the_way", "_publisher", "_ready")

    def __init__(
        self,
        fanout: Fanout,
        publisher: NotePublisher,
        owner: object,
        on_closed: Callable[[Any], None],
    ) -> None:
        super().__init__(fanout, owner, on_closed, publisher.core.account)
        self._publisher = publisher
        self._ready: deque[bytes | None] = deque()  # notes of the batch that is being sent
        self._on_the_way = 0

    def pump(self) -> None:
        while self.open and (self._ready or self.waiting):
            if not self._may_send() or not self._publisher.room.take(self):
                break
            try:
                self._send_next()
            except ConnectionClosedError:
                self._publisher.room.give_back()
                self.close()
        if self._finishing and not self._ready and not self.waiting:
            self.close()
        self._drained()

    def acknowledged(self, cost: int, code: int) -> None:
        self._on_the_way = max(0, self._on_the_way - cost)
        self._publisher.room.give_back()
        if code:
            self.lost()  # the subscriber doesn't want more notes
        elif not self.open:
            if self._finishing and not self._on_the_way:
                self.over()
        elif self._publisher.room.others_wait and (self._ready or self.waiting):
            self._publisher.room.queue(self)
        else:
            self.pump()

    def close(self) -> None:
        self._ready.clear()
        self._publisher.room.forget(self)
        super().close()

    def lost(self) -> None:
        """Handle the end of the connection or subscription."""
        self._on_the_way = 0
        if self.open:
            self.close()
        elif self._finishing:
            self.over()

    def flush(self) -> None:
        self._fanout.flush()
        self.pump()

    @property
    def left(self) -> tuple[int, int]:
        """The bytes of cost, and the number of notes, that were not sent or acknowledged."""
        return self.cost + self._on_the_way, len(self._ready)

    @property
    def is_finishing(self) -> bool:
        """Whether all notes were sent and some are unacknowledged."""
        return self._finishing and self._on_the_way > 0

    # Internals.

    def _may_send(self) -> bool:
        if not self._ready:
            self._ready.extend(self._publisher.convert(self._take()))
        if not self._on_the_way:
            return True
        return self._on_the_way + len(self._ready[0] or b"") + EVENT_COST <= ON_THE_WAY

    def _send_next(self) -> None:
        """Send a note in the reserved dialog.

        A note that cannot be encoded, or is too long, is counted as lost.
        """
        data = self._ready.popleft()
        if data is not None:
            cost = len(data) + EVENT_COST
            with suppress(PayloadTooLargeError):
                publisher = self._publisher
                dialog = NoteDialog(self, cost)
                publisher.core.ask(NOTIFY, self.topic, data, publisher.now(), dialog)
                self._on_the_way += cost
                return
        self._publisher.room.give_back()
        self._lost(1)

    def _unwritten(self) -> int:
        return len(self._ready)

    def _cut_off(self) -> None:
        self._publisher.cut_off(self)
