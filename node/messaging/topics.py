"""Published and received subscriptions of one connection (section 9).

A subscription is one stream, opened by the publisher with the label `topic:NAME`. The stream is
opened before the Result, and the Result is sent before the first note. Authorisation is decided
before `open_feed` is called.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode_value
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.call_codec import encode_accepted, encode_result
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.incoming_calls import IncomingCall, IncomingCalls
from parley._node.messaging.notes import decode_notes, decode_notify
from parley._node.protocol import event_types
from parley._node.protocol.codes import NOTES, CloseCode, ResultCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import LocalError
from parley._node.protocol.event import Event
from parley._node.protocol.memory_budget import EVENT_WEIGHT
from parley._node.protocol.reports import StreamFinished, StreamReset, StreamWritable

LABEL: Final = "topic:"
# A Call to this prefix and a topic publishes its data (section 19).
PUBLISH: Final = "publish:"
# Makes the feed of a stream; its second argument is called when the feed is closed.
MakeFeed = Callable[[int, Callable[[StreamFeed], None]], StreamFeed]
# The most bytes of a Result besides its data (code, stream, heads), and those of its beginning.
_RESULT_OVERHEAD: Final = 32
_BEGINNING: Final = 32


class NoteReceiver(Protocol):
    """The receiver of a subscription's notes."""

    @property
    def closed(self) -> bool:
        """Whether the notes are no longer read."""

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """Store a Notify or Notes; False if it has no credit and there is no capacity."""


class Reader(Protocol):
    """The reader of a subscription."""

    @property
    def inbox(self) -> NoteReceiver:
        """The receiver of the notes."""

    def ended(self, reset: StreamReset | None) -> None:
        """Called when the publisher has finished or reset the stream."""

    def lost(self, code: int, text: str) -> None:
        """Called when the connection has ended."""


class Topics:
    """The subscriptions of one connection.

    `knows` returns whether this node publishes a topic. `asked` contains the topics with a pending
    outgoing Subscribe.
    """

    __slots__ = (
        "_connection",
        "_expected",
        "_feeds",
        "_feeds_by_topic",
        "_finished",
        "_given_up",
        "_incoming",
        "_knows",
        "_offered",
        "_readers",
        "_readers_by_topic",
        "asked",
    )

    def __init__(
        self, connection: Connection, incoming: IncomingCalls, knows: Callable[[str], bool]
    ) -> None:
        self._connection = connection
        self._incoming = incoming
        self._knows = knows
        self._feeds: dict[int, StreamFeed] = {}
        self._feeds_by_topic: dict[str, StreamFeed] = {}
        # Feeds whose Finish the subscriber has not answered.
        self._finished: dict[int, StreamFeed] = {}
        # How many outgoing Subscribes of a topic are unanswered.
        self._expected: dict[str, int] = {}
        self._given_up: dict[str, int] = {}  # How many of these are no longer wanted.
        self._offered: dict[int, str] = {}  # Streams that were opened in response to them.
        self._readers: dict[int, tuple[str, Reader]] = {}
        self._readers_by_topic: dict[str, Reader] = {}
        self.asked: dict[str, None] = {}

    # Publishing.

    def is_subscribed(self, topic: str) -> bool:
        """Whether the peer has subscribed to this topic."""
        return topic in self._feeds_by_topic

    def open_feed(
        self, call: IncomingCall, data: Encodable, make: MakeFeed, *, remembers: bool = False
    ) -> StreamFeed | None:
        """Accept a Subscribe: open its stream and send the answer with `data`.

        If the topic `remembers`, the answer includes where the notes begin. Returns None if it
        failed, after answering with the reason.

        Raises:
            LbmEncodeError: `data` cannot be encoded; the request is still unanswered.
        """
        answer = self._incoming.answer
        limit = self._connection.limits.max_payload
        overhead = _RESULT_OVERHEAD + _BEGINNING * remembers
        if data is not None and len(encode_value(data)) + overhead > limit:
            return answer(call, ResultCode.PAYLOAD_TOO_LARGE)
        if call.answered:  # It was cancelled while it was being decided.
            return None
        try:
            stream = self._connection.open_stream(LABEL + call.topic, credit=call.window)
            self._connection.streams.hold(stream)
        except LocalError:  # No stream is available, or the connection is closing.
            return answer(call, ResultCode.OVERLOADED)
        feed = make(stream, self._forget)
        self._feeds[stream] = self._feeds_by_topic[call.topic] = feed
        if feed.begins is None:
            answer(call, ResultCode.ACCEPTED, data, stream)
        else:
            call.prepare(encode_accepted(data, stream, feed.begins.cells()))
            answer(call, ResultCode.ACCEPTED, None, stream)
            feed.pump()  # Send the history.
        return feed

    def unsubscribe_received(self, event: Event, now: float) -> bool:
        """Process an Unsubscribe, perhaps after earlier requests; return whether its cost stays
        charged.

        Raises:
            RemoteProtocolError: for the reasons that `IncomingCalls.require_free` documents.
        """
        stream, async_id = event.stream, event.async_id
        incoming = self._incoming
        try:
            cells, weight = event_types.UNSUBSCRIBE.read_weighed(event.payload)
        except LbmDecodeError:
            return incoming.refuse(stream, async_id, ResultCode.MALFORMED)
        topic, weight = cells[keys.TOPIC], weight + EVENT_WEIGHT
        call = IncomingCall(event.subcategory, topic, cells, stream, async_id, weight, event.cost)
        if not incoming.admit(call, always=incoming.turns.is_free(topic)):
            return incoming.refuse(stream, async_id, ResultCode.OVERLOADED)
        incoming.turns.take(call, self._unsubscribe)
        return True

    def flush(self) -> None:
        """Move all queued notes to the connection's queue, before the connection is closed."""
        for feed in list(self._feeds.values()):
            feed.flush()

    # Subscribing.

    def expect(self, topic: str, window: int | None = None) -> None:
        """Expect the stream of an outgoing Subscribe; `window` is its window, in bytes of cost."""
        self._expected[topic] = self._expected.get(topic, 0) + 1
        # Notes can arrive before the answer is processed. With several Subscribes, use the largest
        # window until it is known which one was accepted.
        connection, label = self._connection, LABEL + topic
        with suppress(LocalError):  # the connection is closing
            windows = connection.streams.windows
            windows[label] = max(windows.get(label, 0), window or connection.limits.stream_window)

    def abandon_subscribe(self, topic: str) -> bool:
        """Stop waiting for the answer to an outgoing Subscribe; return whether to send an
        Unsubscribe.

        The peer may accept it before its Cancel arrives. That would block the next Subscribe unless
        an Unsubscribe precedes it. It isn't sent while another subscription here needs the topic.
        """
        given_up = self._given_up[topic] = self._given_up.get(topic, 0) + 1
        return given_up == self._expected.get(topic) and topic not in self._readers_by_topic

    def expect_no_more(self, topic: str, named: int, *, given_up: bool = False) -> None:
        """Handle the final answer to an outgoing Subscribe.

        Ends streams opened for it that are not read, first of all the one that the answer `named`.
        """
        if given_up and self._given_up.get(topic, 0) > 1:
            self._given_up[topic] -= 1
        elif given_up:
            self._given_up.pop(topic, None)
        left = self._expected.pop(topic) - 1
        if left:
            self._expected[topic] = left
        else:
            with suppress(LocalError):  # the connection is closing
                self._connection.streams.windows.pop(LABEL + topic, None)
        if self._offered.get(named) == topic:
            self.abandon(named)
        for stream in self._offers(topic)[left:]:
            self.abandon(stream)

    def stream_opened(self, stream: int, label: str) -> bool:
        """Accept a stream that carries notes; False if no Subscribe for its topic is pending."""
        topic = label.removeprefix(LABEL)
        if self._expected.get(topic, 0) <= len(self._offers(topic)):
            return False
        self._offered[stream] = topic
        return True

    def read(self, topic: str, stream: int, reader: Reader, window: int | None = None) -> bool:
        """Start reading an accepted Subscribe; False if its stream was not opened for that topic.

        `window` is the window of the Subscribe.
        """
        if self._offered.get(stream) != topic:
            return False
        connection = self._connection
        with suppress(LocalError):  # the connection is closing
            connection.streams.resize(stream, window or connection.limits.stream_window)
        del self._offered[stream]
        self._readers[stream] = topic, reader
        self._readers_by_topic[topic] = reader
        return True

    def reader_of(self, topic: str) -> Reader | None:
        """Return the active reader of a topic."""
        return self._readers_by_topic.get(topic)

    def replace(self, topic: str, stream: int, reader: Reader) -> None:
        """Replace the reader of a topic's stream."""
        self._readers[stream] = topic, reader
        self._readers_by_topic[topic] = reader

    def reads(self, stream: int) -> bool:
        """Whether a stream is being read and notes can still arrive."""
        return stream in self._readers

    def leave(self, stream: int) -> None:
        """Allow another subscription of the topic, because an Unsubscribe was sent."""
        entry = self._readers.get(stream)
        if entry is not None and self._readers_by_topic.get(entry[0]) is entry[1]:
            del self._readers_by_topic[entry[0]]

    def abandon(self, stream: int) -> None:
        """Reset the stream of a subscription that is no longer read."""
        self._offered.pop(stream, None)
        self._end_reading(stream)
        with suppress(LocalError):  # the connection is closing
            self._connection.reset_stream(stream, CloseCode.CANCELLED)

    def notes_received(self, event: Event, now: float) -> bool:
        """Process a Notify or Notes.

        Raises:
            RemoteProtocolError: for the reasons that `IncomingCalls.require_free` documents.
        """
        stream, async_id, subcategory = event.stream, event.async_id, event.subcategory
        payload, cost = event.payload, event.cost
        entry = self._readers.get(stream)
        if entry is not None and (not async_id or subcategory == NOTES):
            return entry[1].inbox.put(subcategory, payload, cost)
        code, reader = self._checked(event, entry[1] if entry else None)
        kept = False
        if code == ResultCode.ACCEPTED and reader is not None:
            # On another stream than the subscription's own, it has no credit.
            kept = reader.inbox.put(subcategory, payload, cost if entry else 0)
            code = ResultCode.ACCEPTED if kept else ResultCode.OVERLOADED
        if async_id and subcategory != NOTES:
            self._incoming.answer_at_once(stream, async_id, encode_result(code))
        if not kept:
            mistaken = not async_id and code != ResultCode.OVERLOADED
            self._connection.count_dropped(charged=mistaken)
        return kept and entry is not None

    # Called by the connection.

    def changed(self, report: StreamFinished | StreamReset | StreamWritable) -> bool:
        """Process the report of a stream; False if the stream belongs to no subscription."""
        stream = report.stream
        feed = self._feeds.get(stream)
        if feed is not None:
            if isinstance(report, StreamWritable):
                feed.writable()
            elif isinstance(report, StreamReset):
                feed.close()
            else:
                feed.awaits_finish = False  # The subscriber finished earlier than required.
            return True
        if stream in self._finished:
            if not isinstance(report, StreamWritable):
                self._finished.pop(stream).over()
            return True
        if stream in self._offered:
            if isinstance(report, StreamReset):
                del self._offered[stream]
            elif isinstance(report, StreamFinished):
                self.abandon(stream)  # It ended before it was accepted, so it will not be read.
            return True
        return self._reader_changed(report)

    def connection_ended(self, code: int, text: str) -> None:
        """Close all feeds and readers."""
        for feed in list(self._feeds.values()):
            feed.close()
        while self._finished:
            self._finished.popitem()[1].over()
        readers, self._readers = self._readers, {}
        for _, reader in readers.values():
            reader.lost(code, text)
        self._readers_by_topic.clear()
        self._expected.clear()
        self._given_up.clear()
        self._offered.clear()

    def _unsubscribe(self, call: IncomingCall) -> None:
        """Answer an Unsubscribe with a Result, then Finish."""
        answer = self._incoming.answer
        feed = self._feeds_by_topic.get(call.topic)
        if feed is None:
            knows = self._knows(call.topic)
            answer(call, ResultCode.NOT_SUBSCRIBED if knows else ResultCode.TOPIC_NOT_FOUND)
            if not call.async_id:
                self._connection.count_dropped()
            return
        feed.close()
        held = 0
        # The stream may have ended, if events that arrived together with this one reset it.
        with suppress(LocalError):
            self._connection.streams.drop_waiting(feed.stream)
            self._connection.finish_stream(feed.stream)
            if call.async_id:
                self._connection.streams.hold(feed.stream)
                held = feed.stream
        answer(call, ResultCode.ACCEPTED, None, held)

    def _reader_changed(self, report: StreamFinished | StreamReset | StreamWritable) -> bool:
        stream = report.stream
        entry = self._readers.get(stream)
        if entry is None:
            return False
        if not isinstance(report, StreamWritable):
            self._end_reading(stream)
            entry[1].ended(report if isinstance(report, StreamReset) else None)
        if isinstance(report, StreamFinished):
            with suppress(LocalError):  # the connection is closing
                self._connection.finish_stream(stream)
        return True

    def _checked(self, event: Event, reader: Reader | None) -> tuple[ResultCode, Reader | None]:
        """Check a note that must be answered, or that includes its topic."""
        topic = None
        try:
            if event.subcategory == NOTES:
                decode_notes(event.payload)
            else:
                topic = decode_notify(event.payload).topic
        except LbmDecodeError:
            return ResultCode.MALFORMED, None
        if reader is None and topic is not None and not self._carries_notes(event.stream):
            reader = self._readers_by_topic.get(topic)
        if reader is None or reader.inbox.closed:
            return ResultCode.NOT_SUBSCRIBED, None
        return ResultCode.ACCEPTED, reader

    def _carries_notes(self, stream: int) -> bool:
        """Whether a stream is labelled with a topic; it then carries no notes of other topics."""
        return stream in self._offered or stream in self._feeds or stream in self._finished

    def _end_reading(self, stream: int) -> None:
        self.leave(stream)
        self._readers.pop(stream, None)

    def _offers(self, topic: str) -> list[int]:
        return [stream for stream, offered in self._offered.items() if offered == topic]

    def _forget(self, feed: StreamFeed) -> None:
        self._feeds.pop(feed.stream, None)
        if self._feeds_by_topic.get(feed.topic) is feed:
            del self._feeds_by_topic[feed.topic]
        if feed.is_finishing:
            self._finished[feed.stream] = feed
