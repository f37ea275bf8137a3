"""A small application on a fuzzed connection, with the messaging layer under it.

It processes each report as a node does and checks that reports arrive in order; a script controls
its other actions. It doesn't handle keys or encoded events.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from parley._lbm.codec import encode
from parley._node.messaging.application_events import (
    IncomingRequest,
    OutgoingRequest,
    encode_payload,
)
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.fanout import Fanout, Slow
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.inbox import NoteInbox
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.named_events import IncomingEmit
from parley._node.messaging.notes import encode_note
from parley._node.messaging.outgoing_calls import ChunkInbox, OutgoingCall
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import LABEL, Topics
from parley._node.protocol.codes import (
    CALL,
    FIRST_APPLICATION_CATEGORY,
    MAIN_STREAM,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import (
    ConnectionEnded,
    KeysUpdated,
    PongReceived,
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    WindowReceived,
)
from tests.fuzz.allowed import ALLOWED, APPLICATION, MESSAGING
from tests.fuzz.emitting import Emitting, find_event
from tests.fuzz.script import Step
from tests.node.messaging.fake import Handlers

TOPIC: Final = "news"
TOPICS: Final = ("echo", "hold", "items")
# Application events: what asks is 64/1, what answers 64/2.
ASK: Final = 1
ANSWER: Final = 2
# Few, so that a short script reaches the bounds.
MOST_REQUESTS: Final = 4
MOST_BYTES: Final = 4096


class Reader:
    """Reads a subscription."""

    def __init__(self, consume: Callable[[int, int], None], account: MemoryBudget) -> None:
        self.inbox = NoteInbox(lambda: None, consume, account)

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes come."""
        self.inbox.close()

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""
        self.inbox.close()


class Application:
    """Publishes `news`, answers calls of `TOPICS`, and takes any stream but topics'."""

    def __init__(self, core: Connection, now: float) -> None:
        self.core = core
        self.now = now
        self.ended: ConnectionEnded | None = None
        self.calls = calls = RequestMux(
            core,
            Handlers(self._find, self._run, find_event=find_event),
            count_limit=MOST_REQUESTS,
        )
        self.topics = Topics(core, calls.incoming, TOPIC.__eq__)
        self.dispatch = Dispatch(core, calls, self.topics, self._stream_event)
        slow: Slow = "unsubscribe" if core.initiator else "drop-oldest"
        self._fanout = Fanout(TOPIC, MOST_BYTES, slow)
        self._running: deque[IncomingCall] = deque()
        self._asked: deque[OutgoingCall] = deque()
        self._stream_asked: deque[OutgoingRequest] = deque()
        self._stream_requests: deque[IncomingRequest] = deque()
        self._emitting = Emitting(calls, deque())
        self._readers: dict[int, Reader] = {}
        self._unread: deque[tuple[int, int]] = deque()
        self._streams: set[int] = set()
        self._acts: Final = (
            self._call,
            self._call_stream,
            self._subscribe,
            self._unsubscribe,
            self._give_up,
            self._publish,
            self._open_stream,
            self._send_data,
            self._finish_stream,
            self._reset_stream,
            self._read,
            self._answer,
            self._ping,
            self._update_keys,
            self._rekey,
            self._close,
            self._abort,
            self._ask_on_stream,
            self._answer_on_stream,
            self._watch,
            self._send_event,
            self._emitting.emit,
            lambda step: self._emitting.ask(step, self.now),
            lambda step: self._emitting.reply(step, self._running),
            lambda step: self._emitting.leave(),
        )

    # Reports.

    def take(self, reports: list[Report]) -> None:
        """Take what the core reports, as a node does."""
        aborted = False
        for report in reports:
            assert self.ended is None, "a report after the last"
            try:
                if not isinstance(report, Event):
                    self._take_other(report)
                elif not aborted:
                    assert 0 < report.category < 256
                    assert len(report.payload) <= self.core.config.limits.max_payload
                    self.dispatch.receive(report, self.now)
            except MESSAGING as error:
                self.core.abort(self.now, CloseCode(error.code), error.reason)
                aborted = True
        assert len(self.calls.incoming) <= 2 * MOST_REQUESTS
        self._emitting.check()

    def _take_other(self, report: Report) -> None:
        match report:
            case StreamOpened(stream, label):
                subscribed = label.startswith(LABEL) and self.topics.stream_opened(stream, label)
                if not subscribed and label.startswith(LABEL):
                    with suppress(*APPLICATION):  # the connection is closing
                        self.core.reset_stream(stream, CloseCode.REFUSED)
                elif not subscribed:
                    self._streams.add(stream)
            case StreamFinished() | StreamReset() | StreamWritable():
                self._stream_changed(report)
            case WindowReceived():
                self.calls.incoming.window_received(report)
            case KeysUpdated() | PongReceived():
                pass
            case ConnectionEnded(code, text):
                self.ended = report
                self.calls.connection_ended(code, text)
                self.topics.connection_ended(code, text)
            case _:
                raise AssertionError(f"not after the handshake: {report}")

    def _stream_changed(self, report: StreamFinished | StreamReset | StreamWritable) -> None:
        self.topics.changed(report)
        if isinstance(report, StreamWritable):
            self.calls.incoming.stream_writable(report.stream)
            return
        self.calls.stream_requests.remote_ended(report.stream)
        if isinstance(report, StreamReset):
            self._streams.discard(report.stream)
            self.calls.stream_requests.local_ended(report.stream)
            self.calls.incoming.stream_reset(report.stream)

    def _stream_event(self, event: Event) -> bool:
        requests = self.calls.stream_requests
        if event.stream not in self._streams:
            return False
        if event.category >= FIRST_APPLICATION_CATEGORY and event.async_id:
            if event.subcategory == ANSWER:
                requests.answer_received(event)
            elif event.subcategory == ASK:
                request = requests.request_received(
                    event.stream, event.async_id, len(event.payload)
                )
                if request is not None:
                    self._stream_requests.append(request)
        self._unread.append((event.stream, event.cost))
        return True

    # Requests of the other side.

    def _find(self, subcategory: int, topic: str) -> ResultCode:
        if topic not in (TOPICS if subcategory == CALL else (TOPIC,)):
            return ResultCode.TOPIC_NOT_FOUND
        if subcategory != CALL and self.topics.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.ACCEPTED

    def _run(self, call: IncomingCall) -> None:
        if isinstance(call, IncomingEmit):
            self._emitting.run(call, self._running)
        elif call.subcategory != CALL:
            self.topics.open_feed(call, None, self._make_feed)
        elif call.topic == "echo":
            self.calls.incoming.answer(call, ResultCode.ACCEPTED, call.data)
        else:
            self._running.append(call)

    def _make_feed(self, stream: int, on_closed: Callable[[StreamFeed], None]) -> StreamFeed:
        size = self.core.limits.max_payload
        feed = StreamFeed(self._fanout, self.core, stream, size, None, on_closed)
        self._fanout.join(feed)
        return feed

    # What a script makes it do.

    def act(self, step: Step) -> None:
        """Do one thing, if it may be done now."""
        try:
            self._acts[step.subcategory % len(self._acts)](step)
        except APPLICATION:
            return

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return self.calls.deadlines.earliest

    def handle_deadline(self) -> None:
        """End the requests that are late."""
        self.calls.expire_calls(self.now)

    def _call(self, step: Step) -> None:
        self._asked.append(
            self.calls.outgoing.call("echo", step.payload, self.now, 5.0, lambda: None)
        )

    def _call_stream(self, step: Step) -> None:
        call = self.calls.outgoing.call("items", None, self.now, None, lambda: None, window=1024)

        def grant(credit: int) -> None:
            if not call.done:
                self.core.streams.grant(MAIN_STREAM, call.async_id, credit)

        call.chunks = ChunkInbox(1024, lambda: None, grant, self.core.account)
        self._asked.append(call)

    def _subscribe(self, step: Step) -> None:
        asking, topics = self.calls.outgoing, self.topics
        call = asking.subscribe(TOPIC, None, self.now, 5.0, lambda: None)
        topics.expect(TOPIC)

        def answered(code: int, stream: int) -> None:
            if code == ResultCode.ACCEPTED and not call.done:
                reader = Reader(partial(self.core.consume, stream), self.core.account)
                if topics.read(TOPIC, stream, reader):
                    self._readers[stream] = reader
            topics.expect_no_more(TOPIC, stream)

        call.on_final = answered
        self._asked.append(call)

    def _unsubscribe(self, step: Step) -> None:
        for stream in self._readers:
            self.topics.leave(stream)
        self._asked.append(self.calls.outgoing.unsubscribe(TOPIC, self.now, 5.0, lambda: None))

    def _give_up(self, step: Step) -> None:
        if self._asked:
            self.calls.outgoing.cancel(self._asked.popleft())
        elif self._stream_asked:
            self.calls.stream_requests.cancel(self._stream_asked.popleft())

    def _publish(self, step: Step) -> None:
        for _ in range(1 + step.stream % 8):
            self._fanout.add(encode_note(step.payload))
        self._fanout.flush()

    def _open_stream(self, step: Step) -> None:
        self._streams.add(self.core.open_stream("app/stream", 1 + step.async_id))

    def _send_data(self, step: Step) -> None:
        self.core.send_data(step.stream, step.payload)

    def _finish_stream(self, step: Step) -> None:
        self.core.finish_stream(step.stream)
        self.calls.stream_requests.local_ended(step.stream)

    def _reset_stream(self, step: Step) -> None:
        if step.stream > MAIN_STREAM:
            self.core.reset_stream(step.stream, CloseCode.CANCELLED)
            self._streams.discard(step.stream)
            self.calls.stream_requests.abandon(step.stream)

    def _read(self, step: Step) -> None:
        while self._unread:
            self.core.consume(*self._unread.popleft())
        for reader in self._readers.values():
            while len(reader.inbox):
                reader.inbox.take()
                reader.inbox.used()
        self._emitting.read()
        for call in self._asked:
            while call.chunks:
                try:
                    call.chunks.take()
                except ALLOWED["decoder"]:
                    self.calls.outgoing.cancel(call)

    def _answer(self, step: Step) -> None:
        if not self._running:
            return
        call = self._running.popleft()
        if call.topic == "items" and step.stream:
            self._running.append(call)
            self.calls.incoming.chunk(call, encode({22: step.payload}))
        else:
            self.calls.incoming.answer(call, ResultCode.ACCEPTED, step.payload)

    def _ping(self, step: Step) -> None:
        self.core.ping(self.now)

    def _update_keys(self, step: Step) -> None:
        self.core.update_keys(self.now)

    def _rekey(self, step: Step) -> None:
        self.core.rekey(self.now)

    def _close(self, step: Step) -> None:
        self.core.close(self.now, step.stream % 14, "text")

    def _abort(self, step: Step) -> None:
        self.core.abort(self.now, CloseCode.GOING_AWAY, "a script said so")

    def _ask_on_stream(self, step: Step) -> None:
        if step.stream in self._streams:
            requests, category = self.calls.stream_requests, FIRST_APPLICATION_CATEGORY
            self._stream_asked.append(
                requests.ask(
                    step.stream, category, ASK, step.payload, False, self.now, 5.0, lambda: None
                )
            )

    def _answer_on_stream(self, step: Step) -> None:
        if self._stream_requests:
            request = self._stream_requests.popleft()
            if not request.over:
                self.core.send(
                    request.stream, request.async_id, FIRST_APPLICATION_CATEGORY, ANSWER, b""
                )
                self.calls.stream_requests.answer_sent(request)

    def _watch(self, step: Step) -> None:
        self.core.notify_writable(step.stream, credit=bool(step.async_id))

    def _send_event(self, step: Step) -> None:
        size = self.core.limits.max_payload
        payload, lbm = encode_payload(None, step.payload, size)
        self.core.send(step.stream, 0, 100, 1, payload, lbm=lbm, seal=bool(step.async_id))
