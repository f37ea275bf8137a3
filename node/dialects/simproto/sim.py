"""The sim layer of one SimProto connection, either side.

It joins our requests, the requests of the other side, our subscriptions and theirs, and gives
each packet to the one that it is for.
"""

from collections.abc import Callable

from parley._node.dialects.simproto.codec import (
    ACCEPTED,
    NOT_FOUND,
    NOT_SUBSCRIBED,
    NOTIFY,
)
from parley._node.dialects.simproto.core import RequestReceived, SimProtoCore
from parley._node.dialects.simproto.dialog_room import DialogRoom
from parley._node.dialects.simproto.feeds import SimProtoFeed
from parley._node.dialects.simproto.requests import SimProtoIncoming, SimProtoOutgoing
from parley._node.dialects.simproto.subscriptions import Subscriptions, UnsubscribeAnswered
from parley._node.messaging.pending import IncomingCall
from parley._node.protocol.codes import ResultCode


class Sim:
    """All requests of one connection. `find`, `run` and `stop` are those of
    `SimProtoIncoming`; `knows` tells whether we publish a topic."""

    __slots__ = ("_core", "_feeds", "_knows", "incoming", "outgoing", "room", "subscriptions")

    def __init__(
        self,
        core: SimProtoCore,
        find: Callable[[int, str], ResultCode],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        knows: Callable[[str], bool],
    ) -> None:
        self._core = core
        self._knows = knows
        self._feeds: dict[str, SimProtoFeed] = {}
        self.outgoing = SimProtoOutgoing(core)
        self.incoming = SimProtoIncoming(core, find, run, stop, self._unsubscribe)
        self.subscriptions = Subscriptions(core, self.outgoing)
        self.room = DialogRoom(core)

    def take(self, report: RequestReceived | UnsubscribeAnswered, now: float) -> None:
        """Take a report of the core."""
        if isinstance(report, UnsubscribeAnswered):
            self.subscriptions.left(report)
        elif report.kind == NOTIFY:
            self.subscriptions.note_received(report, now)
        else:
            self.incoming.request_received(report, now)

    # Topics of ours.

    def is_subscribed(self, topic: str) -> bool:
        """Whether the other side gets a topic's notes from us."""
        return topic in self._feeds

    def add_feed(self, feed: SimProtoFeed) -> None:
        """The other side gets a topic's notes from now on."""
        self._feeds[feed.topic] = feed

    def remove_feed(self, feed: SimProtoFeed) -> None:
        """The other side gets no more of a topic's notes."""
        if self._feeds.get(feed.topic) is feed:
            del self._feeds[feed.topic]

    @property
    def has_feeds(self) -> bool:
        """Whether the other side gets notes from us, or some have yet to be sent."""
        return bool(self._feeds)

    def finish(self) -> None:
        """End all feeds once what was published until now is sent."""
        for feed in list(self._feeds.values()):
            feed.flush()
            if feed.open:
                feed.finish()

    def flush(self) -> None:
        """Send what may be sent: the connection is about to be closed."""
        for feed in list(self._feeds.values()):
            feed.flush()

    # Time, and the end.

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return min(self.outgoing.deadlines.earliest, self.subscriptions.next_deadline())

    def handle_deadline(self, now: float) -> None:
        """Do what is due."""
        self.outgoing.handle_deadline(now)
        self.subscriptions.handle_deadline(now)

    def connection_ended(self, code: int, text: str) -> None:
        """Callers get `LOST`, handlers are stopped, subscriptions are over."""
        self._core.lose_all(code, text)
        self.incoming.connection_ended()
        self.subscriptions.connection_ended(code, text)
        for feed in list(self._feeds.values()):
            feed.lost()
        self.room.end()

    # Inside.

    def _unsubscribe(self, topic: str) -> int:
        feed = self._feeds.get(topic)
        if feed is None:
            return NOT_SUBSCRIBED if self._knows(topic) else NOT_FOUND
        feed.close()
        return ACCEPTED
