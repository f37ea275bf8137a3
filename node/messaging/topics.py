"""Subscriptions over one connection, both ways: what we publish to, what we read (section 9).

A subscription is one stream, opened by the publisher's side with the label
`topic:NAME`; Open goes before the Result, and the Result before the first note. Knows
no handlers: who may subscribe was decided when `accept` is called.
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
# What a Call names whose data is to be published (section 19): this, and the topic.
PUBLISH: Final = "publish:"
# Makes the feed of a stream; the second argument is told when it is closed.
MakeFeed = Callable[[int, Callable[[StreamFeed], None]], StreamFeed]
# What a Result has besides its data, at most: code, stream and heads; and where it begins.
_RESULT_OVERHEAD: Final = 32
_BEGINNING: Final = 32


class NoteReceiver(Protocol):
    """Where the notes of a subscription go."""

    @property
    def closed(self) -> bool:
        """Whether they are not read any longer."""

    def put(self, subcategory: int, payload: bytes, cost: int) -> bool:
        """A Notify or Notes came; False if there is no room for one that cost nothing."""


class Reader(Protocol):
    """The reader of a subscription."""

    @property
    def inbox(self) -> NoteReceiver:
        """What takes the notes that come."""

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes will come: the publisher finished, or reset."""

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""


class Topics:
    """The subscriptions of one connection. `knows` tells whether we publish a topic; `asked` are
    the topics for which a subscription here waits to be accepted."""

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
        self._finished: dict[int, StreamFeed] = {}  # until the subscriber answers Finish
        self._expected: dict[str, int] = {}  # how many of our Subscribes wait for an answer
        self._given_up: dict[str, int] = {}  # how many of these nobody waits for
        self._offered: dict[int, str] = {}  # streams that were opened in answer to them
        self._readers: dict[int, tuple[str, Reader]] = {}
        self._readers_by_topic: dict[str, Reader] = {}
        self.asked: set[str] = set()

    # Publishing.

    def is_subscribed(self, topic: str) -> bool:
        """Whether the other side gets this topic's notes from us."""
        return topic in self._feeds_by_topic

    def open_feed(
        self, call: IncomingCall, data: Encodable, make: MakeFeed, *, remembers: bool = False
    ) -> StreamFeed | None:
        """Accept a Subscribe: open its stream, answer with `data`, and with where it begins if
        the topic `remembers`; None if that failed, which the answer says then.

        Raises:
            LbmEncodeError: `data` has no encoding; the request is still unanswered.
        """
        answer = self._incoming.answer
        limit = self._connection.limits.max_payload
        overhead = _RESULT_OVERHEAD + _BEGINNING * remembers
        if data is not None and len(encode_value(data)) + overhead > limit:
            return answer(call, ResultCode.PAYLOAD_TOO_LARGE)
        if call.answered:  # cancelled meanwhile
            return None
        try:
            stream = self._connection.open_stream(LABEL + call.topic, credit=call.window)
            self._connection.streams.hold(stream)
        except LocalError:  # no stream is free, or the connection is closing
            return answer(call, ResultCode.OVERLOADED)
        feed = make(stream, self._forget)
        self._feeds[stream] = self._feeds_by_topic[call.topic] = feed
        if feed.begins is None:
            answer(call, ResultCode.ACCEPTED, data, stream)
        else:
            call.prepare(encode_accepted(data, stream, feed.begins.cells()))
            answer(call, ResultCode.ACCEPTED, None, stream)
            feed.pump()  # what is kept
        return feed

    def unsubscribe_received(self, event: Event, now: float) -> bool:
        """Take an Unsubscribe, whose turn may come later; returns whether its cost is kept.

        Raises:
            RemoteProtocolError: as `IncomingCalls.require_free`.
        """
        stream, async_id, _, subcategory, payload, cost = event
        incoming = self._incoming
        try:
            cells, weight = event_types.UNSUBSCRIBE.read_weighed(payload)
        except LbmDecodeError:
            return incoming.refuse(stream, async_id, ResultCode.MALFORMED)
        topic, weight = cells[keys.TOPIC], weight + EVENT_WEIGHT
        call = IncomingCall(subcategory, topic, cells, stream, async_id, weight, cost)
        if not incoming.admit(call, always=incoming.turns.is_free(topic)):
            return incoming.refuse(stream, async_id, ResultCode.OVERLOADED)
        incoming.turns.take(call, self._unsubscribe)
        return True

    def flush(self) -> None:
        """Hand on all that waits for the other side: the connection is to be closed."""
        for feed in list(self._feeds.values()):
            feed.flush()

    # Subscribing.

    def expect(self, topic: str, window: int | None = None) -> None:
        """A Subscribe of ours is on its way; `window` is what it names, in bytes of cost."""
        self._expected[topic] = self._expected.get(topic, 0) + 1
        # Notes may come before its answer is looked at. Of several the largest counts
        # until it is known which one was accepted.
        connection, label = self._connection, LABEL + topic
        with suppress(LocalError):  # the connection is closing
            windows = connection.streams.windows
            windows[label] = max(windows.get(label, 0), window or connection.limits.stream_window)

    def abandon_subscribe(self, topic: str) -> bool:
        """Nobody waits any more for the answer to a Subscribe of ours; returns whether nobody here
        wants the topic then. It may be accepted all the same before its Cancel comes, and would be
        in the way of the next one, unless an Unsubscribe goes before that."""
        given_up = self._given_up[topic] = self._given_up.get(topic, 0) + 1
        return given_up == self._expected.get(topic) and topic not in self._readers_by_topic

    def expect_no_more(self, topic: str, named: int, *, given_up: bool = False) -> None:
        """A Subscribe of ours got its final answer: streams opened for it that nobody
        reads are ended, first of all the one that the answer `named`."""
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
        """Take a stream that carries notes; False if we asked for none of that topic."""
        topic = label.removeprefix(LABEL)
        if self._expected.get(topic, 0) <= len(self._offers(topic)):
            return False
        self._offered[stream] = topic
        return True

    def read(self, topic: str, stream: int, reader: Reader, window: int | None = None) -> bool:
        """Our Subscribe, which named `window`, was accepted; False if its stream was not
        opened for that topic."""
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
        """The reader of a topic that was not left."""
        return self._readers_by_topic.get(topic)

    def replace(self, topic: str, stream: int, reader: Reader) -> None:
        """Have another reader read the stream of a topic."""
        self._readers[stream] = topic, reader
        self._readers_by_topic[topic] = reader

    def reads(self, stream: int) -> bool:
        """Whether notes may still come on a stream that is read."""
        return stream in self._readers

    def leave(self, stream: int) -> None:
        """Our Unsubscribe is on its way: another subscription of the topic may follow."""
        entry = self._readers.get(stream)
        if entry is not None and self._readers_by_topic.get(entry[0]) is entry[1]:
            del self._readers_by_topic[entry[0]]

    def abandon(self, stream: int) -> None:
        """Nobody reads the stream of a subscription any more: end it at once."""
        self._offered.pop(stream, None)
        self._end_reading(stream)
        with suppress(LocalError):  # the connection is closing
            self._connection.reset_stream(stream, CloseCode.CANCELLED)

    def notes_received(self, event: Event, now: float) -> bool:
        """Take a Notify or Notes.

        Raises:
            RemoteProtocolError: as `IncomingCalls.require_free`.
        """
        stream, async_id, _, subcategory, payload, cost = event
        entry = self._readers.get(stream)
        if entry is not None and (not async_id or subcategory == NOTES):
            return entry[1].inbox.put(subcategory, payload, cost)
        code, reader = self._checked(event, entry[1] if entry else None)
        kept = False
        if code == ResultCode.ACCEPTED and reader is not None:
            # Off the subscription's own stream it has no credit to wait for.
            kept = reader.inbox.put(subcategory, payload, cost if entry else 0)
            code = ResultCode.ACCEPTED if kept else ResultCode.OVERLOADED
        if async_id and subcategory != NOTES:
            self._incoming.answer_at_once(stream, async_id, encode_result(code))
        if not kept:
            mistaken = not async_id and code != ResultCode.OVERLOADED
            self._connection.count_dropped(charged=mistaken)
        return kept and entry is not None

    # From the connection.

    def changed(self, report: StreamFinished | StreamReset | StreamWritable) -> bool:
        """Take what happened to a stream; False if it is none of ours."""
        stream = report.stream
        feed = self._feeds.get(stream)
        if feed is not None:
            if isinstance(report, StreamWritable):
                feed.writable()
            elif isinstance(report, StreamReset):
                feed.close()
            else:
                feed.awaits_finish = False  # earlier than it need be
            return True
        if stream in self._finished:
            if not isinstance(report, StreamWritable):
                self._finished.pop(stream).over()
            return True
        if stream in self._offered:
            if isinstance(report, StreamReset):
                del self._offered[stream]
            elif isinstance(report, StreamFinished):
                self.abandon(stream)  # over before it began: nobody will read it
            return True
        return self._reader_changed(report)

    def connection_ended(self, code: int, text: str) -> None:
        """Nothing comes or goes any more."""
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

    # Inside.

    def _unsubscribe(self, call: IncomingCall) -> None:
        """Answer an Unsubscribe whose turn has come: Result, then Finish."""
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
        # It may be gone already: what came with this may have reset it.
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
        """Read a note that has to be answered, or that names its topic itself."""
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
        """Whether a stream has the label of a topic: notes on it are of no other."""
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
