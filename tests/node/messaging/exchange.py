"""The node under test of rules.json: a core with calls and topics above it, and a remote pen."""

from functools import partial
from typing import Any

from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.fanout import Fanout
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.inbox import NoteInbox
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.outgoing_calls import ChunkInbox, OutgoingCall
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import LABEL, Topics
from parley._node.protocol.codes import (
    BATCH,
    CALL,
    CANCEL,
    DATA,
    FINISH,
    MAIN_STREAM,
    RECEIVED,
    RESET,
    SIM,
    STREAM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WINDOW,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.errors import LocalError, LocalProtocolError, RemoteProtocolError
from parley._node.protocol.event import Event, parse_batch, parse_raw
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import (
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    WindowReceived,
)
from tests.node.messaging.fake import Handlers
from tests.node.protocol.pair import ALIVE, Pair, events_of, open_pair, send_raw
from tests.reference.wire import CELLS, TYPES
from tests.vectors.load import Vector, codes, read, unhex

ECHO, WAITING, NEWS, REJECTED = "parley.echo", "a handler that waits", "news", "rejected"
# Flow control and resumption may send more.
UNTOLD = {(STREAM, WINDOW), (1, RECEIVED)}


class Unread:
    """The notes of a subscription, which are never consumed."""

    def __init__(self, account: MemoryBudget) -> None:
        self.inbox = NoteInbox(lambda: None, lambda cost, count: None, account)

    def ended(self, reset: StreamReset | None) -> None:
        """No more notes come."""

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""


class NodeUnderTest:
    """Return the calls and topics of the node, as rules.json defines them."""

    def __init__(self) -> None:
        limits: dict[str, Any] = {name: int(n) for name, n in read("rules")["limits"].items()}
        algorithms = {"kex": ("x25519",), "sealing": ("each",)}
        # Time passes in some exchanges, and keep-alive is not their subject.
        self.pair = open_pair(**limits, algorithms=algorithms, idle_before_ping=1e6)
        self.side, self.core = self.pair.a, self.pair.a.core
        self.undecided: list[IncomingCall] = []
        self.fanout = Fanout(NEWS, 1 << 20, "unsubscribe")
        self.calls = RequestMux(self.core, Handlers(self._find, self._run))
        self.topics = Topics(self.core, self.calls.incoming, {NEWS, REJECTED}.__contains__)
        self.dispatch = Dispatch(self.core, self.calls, self.topics, lambda event: True)
        self.asked: dict[int, OutgoingCall] = {}
        self._taken = 0  # how many of the reports

    @property
    def alive(self) -> bool:
        return self.side.code == ALIVE

    # What its application offers.

    def _find(self, subcategory: int, topic: str) -> ResultCode:
        if subcategory == CALL and topic in (ECHO, WAITING):
            return ResultCode.ACCEPTED
        if subcategory == SUBSCRIBE and topic in (NEWS, REJECTED):
            return ResultCode(ResultCode.ALREADY_SUBSCRIBED * self.topics.is_subscribed(topic))
        return ResultCode.TOPIC_NOT_FOUND

    def _run(self, call: IncomingCall) -> None:
        if call.subcategory == SUBSCRIBE:
            self.undecided.append(call)
        elif call.topic == ECHO:
            self.calls.incoming.answer(call, ResultCode.ACCEPTED, call.data)

    def decide(self) -> None:
        """Accept or reject the Subscribes that wait."""

        def make(stream: int, on_closed: Any) -> StreamFeed:
            feed = StreamFeed(self.fanout, self.core, stream, 1 << 20, None, on_closed)
            self.fanout.join(feed)
            return feed

        while self.undecided:
            call = self.undecided.pop(0)
            if call.topic == REJECTED:
                self.calls.incoming.answer(call, ResultCode.REJECTED)
            else:
                self.topics.open_feed(call, None, make)

    # What happens to it.

    def settle(self) -> None:
        """Act on what the core reports, as a peer does."""
        while True:
            self.side.collect(self.pair.now)
            new = self.side.reports[self._taken :]
            if not new:
                return
            self._taken += len(new)
            for report in new:
                try:
                    self._take(report)
                except RemoteProtocolError as error:
                    self.core.abort(self.pair.now, CloseCode(error.code), error.reason)

    def _take(self, report: Report) -> None:
        match report:
            case Event():
                self.dispatch.receive(report, self.pair.now)
            case StreamOpened(stream, label) if label.startswith(LABEL):
                if not self.topics.stream_opened(stream, label):
                    self.core.reset_stream(stream, CloseCode.REFUSED)
            case StreamFinished() | StreamReset() | StreamWritable():
                self.topics.changed(report)
                if isinstance(report, StreamReset):
                    self.calls.incoming.stream_reset(report.stream)
            case WindowReceived():
                self.calls.incoming.window_received(report)
            case _:
                pass  # of no interest to calls and topics

    # Local actions.

    def act(self, event: Event, *, streamed: bool) -> None:
        """Execute a local step. Raises LocalProtocolError if it isn't allowed."""
        cells: Any = decode(event.payload) if event.category == SIM else {}
        match event.category, event.subcategory:
            case category, subcategory if (category, subcategory) == (STREAM, FINISH):
                self.core.finish_stream(event.stream)
            case category, subcategory if (category, subcategory) == (STREAM, RESET):
                self.core.reset_stream(2, CloseCode.CANCELLED)
            case category, subcategory if (category, subcategory) == (STREAM, DATA):
                self.core.send_data(event.stream, event.payload)
            case category, subcategory if (category, subcategory) == (SIM, CANCEL):
                self.calls.outgoing.cancel(self.asked[cells[keys.REQUEST]])
            case _:
                self._ask(event, cells, streamed=streamed)

    def _ask(self, event: Event, cells: Any, *, streamed: bool) -> None:
        """Ask under the id of the step, which is the next one unless that is taken."""
        assert (event.category, event.stream) == (SIM, MAIN_STREAM)
        outgoing, topic, wanted = self.calls.outgoing, cells[keys.TOPIC], event.async_id
        outgoing.waiting.next_ids[MAIN_STREAM] = wanted
        how: Any = (self.pair.now, None, lambda: None)
        if event.subcategory == CALL:
            call = outgoing.call(topic, cells.get(keys.DATA), *how)
        elif event.subcategory == UNSUBSCRIBE:
            call = outgoing.unsubscribe(topic, *how)
        else:
            assert event.subcategory == SUBSCRIBE
            call = outgoing.subscribe(topic, None, *how)
            self.topics.expect(topic)
            call.on_final = partial(self._subscribed, topic)
        if call.async_id != wanted:
            raise LocalProtocolError(f"the id {wanted} is taken")
        self.asked[wanted] = call
        if streamed:
            size = self.core.limits.stream_window
            account = self.core.account
            call.chunks = ChunkInbox(size, lambda: None, lambda credit: None, account)

    def _subscribed(self, topic: str, code: int, stream: int) -> None:
        """Read, without using up, the notes of a Subscribe that was accepted."""
        if code == ResultCode.ACCEPTED:
            self.topics.read(topic, stream, Unread(self.core.account))
        self.topics.expect_no_more(topic, stream)


def follow(vector: Vector) -> None:
    """Execute an exchange's steps, and check the outcome that the vector defines."""
    node = NodeUnderTest()
    pair, before = node.pair, 0
    for step in vector["steps"]:
        assert node.alive, "refused before the last step"
        pair.advance(step.get("after", 0))
        for _ in range(step.get("times", 1)):
            pair.a.take(pair.now)
            before = len(pair.a.wire)
            event = parse_raw(unhex(step["raw_event"]))
            if pair.a.code != ALIVE:
                break
            try:
                if step["from"] == "local":
                    node.act(event, streamed=step.get("streamed", False))
                else:
                    send_raw(pair, event)
            except LocalError:
                assert vector.get("fails") == "local"
                assert step is vector["steps"][-1]
                return
            node.settle()
    if "fails" in vector:
        assert pair.a.code in codes(vector)
        return
    assert node.alive
    node.decide()
    node.settle()
    _compare(_sent(pair, before), vector["expected"]["sent"])


def _sent(pair: Pair, before: int) -> list[Event]:
    """What the node under test has sent since `before`, a place in its bytes."""
    pair.a.take(pair.now)
    reader = pair.b.channel.receiver
    reader.admit = lambda stream: None
    events = [reader.decrypt(event)[0] for event in events_of(pair.a.wire)]
    sent: list[Event] = []
    for event in events[len(events_of(pair.a.wire[:before])) :]:
        is_batch = (event.category, event.subcategory) == (STREAM, BATCH)
        sent += parse_batch(event) if is_batch else [event]
    return [event for event in sent if (event.category, event.subcategory) not in UNTOLD]


def _compare(sent: list[Event], expected: list[Vector]) -> None:
    """Compare events: those of one stream in order, those of different streams in any order."""
    assert len(sent) == len(expected)
    for stream in {event.stream for event in sent}:
        ours = [event for event in sent if event.stream == stream]
        theirs = [one for one in expected if one["stream"] == stream]
        assert len(ours) == len(theirs)
        for event, one in zip(ours, theirs, strict=True):
            assert (event.category, event.subcategory) == TYPES[one["event"]]
            assert event.async_id == one["async_id"]
            cells = decode(event.payload) if "cells" in one else {}
            assert (
                one.get("cells", {}).items()
                <= {name: cells[key] for name, key in CELLS.items() if key in cells}.items()
            )
