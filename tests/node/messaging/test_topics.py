"""Subscriptions over two real cores, in whatever order events and decisions come.

What each request is answered with is in tests/node/peer/test_subscribers.py and its neighbours;
here is that no order of events loses a note, or leaves anything behind.
"""

from collections import deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, decode, encode
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.fanout import Fanout, Slow
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.inbox import NoteInbox
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.notes import encode_note
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import LABEL, Topics
from parley._node.protocol.codes import (
    CANCEL,
    NOTIFY,
    RESULT,
    SIM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import EVENT_WEIGHT
from parley._node.protocol.reports import (
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
)
from tests.inspection import topic_tables
from tests.node.messaging.fake import Handlers, event
from tests.node.protocol.pair import ALIVE, Pair, Side, open_pair

TOPIC = "x"


class End:
    """One side: its core and its messaging layer. It publishes one topic."""

    def __init__(self, side: Side, now: float, limit: int = 1 << 20, slow: Slow = "unsubscribe"):
        self.side = side
        self.core = side.core
        self.now = now
        self.undecided: list[IncomingCall] = []
        self.received: list[Event] = []
        self.fanout = Fanout(TOPIC, limit, slow)
        calls = RequestMux(self.core, Handlers(self.find, self.undecided.append))
        self.outgoing, self.incoming = calls.outgoing, calls.incoming
        self.topics = Topics(self.core, self.incoming, TOPIC.__eq__)
        self.dispatch = Dispatch(self.core, calls, self.topics, lambda event: False)

    def find(self, subcategory: int, topic: str) -> ResultCode:
        if topic != TOPIC:
            return ResultCode.TOPIC_NOT_FOUND
        if self.topics.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.ACCEPTED

    def accept(self, call: IncomingCall, data: Value = None) -> StreamFeed | None:
        """Accept a Subscribe."""

        def make(stream: int, on_closed: Any) -> StreamFeed:
            feed = StreamFeed(self.fanout, self.core, stream, 1 << 20, None, on_closed)
            self.fanout.join(feed)
            return feed

        return self.topics.open_feed(call, data, make)

    def settle(self) -> None:
        """Take what the core reports, as a peer does."""
        while self.side.collect(self.now):
            reports, self.side.reports = self.side.reports, []
            for report in reports:
                self.take(report)

    def take(self, report: Report) -> None:
        if isinstance(report, Event):
            self.received.append(report)
            self.dispatch.receive(report, self.now)
        elif isinstance(report, StreamOpened):
            assert report.label.startswith(LABEL)
            if not self.topics.stream_opened(report.stream, report.label):
                self.core.reset_stream(report.stream, CloseCode.REFUSED)
        elif isinstance(report, StreamFinished | StreamReset | StreamWritable):
            self.topics.changed(report)
            if isinstance(report, StreamReset):
                self.incoming.stream_reset(report.stream)
        else:
            raise AssertionError(report)

    @property
    def streams(self) -> int:
        """How many streams are not gone."""
        return len(self.core.streams.stream_table.open)

    def tables(self) -> dict[str, int]:
        """How much there is of everything that must be gone at the end."""
        mux = self.core.streams
        return {
            **topic_tables(self.topics),
            "streams": self.streams,
            "held": len(mux.outbox.held),
            "queued": len(mux.outbox.queues),
            "watched": len(mux.watched),
            "windows": len(mux.windows),
            "unconsumed": mux.unconsumed,
            "committed": mux.stream_table.committed,
            "asking": len(self.outgoing),
            "answering": len(self.incoming),
        }


class Sub:
    """A subscription, read by hand."""

    def __init__(self, end: End, window: int | None = None) -> None:
        self.end = end
        self.window = window
        self.stream = 0
        self.refused = 0
        self.got: list[Any] = []
        self.over: list[StreamReset | None] = []
        self.lost_with: list[int] = []
        self.inbox = NoteInbox(lambda: None, self.consume, end.core.account)
        self.left = False
        self.call = end.outgoing.subscribe(TOPIC, None, end.now, None, lambda: None, window)
        end.topics.expect(TOPIC, window)
        call = self.call
        call.on_final = lambda code, stream: self.answered(call, code, stream)

    def consume(self, cost: int, count: int) -> None:
        self.end.core.consume(self.stream, cost, count)

    def answered(self, call: OutgoingCall, code: int, stream: int) -> None:
        wanted = not call.done and code == ResultCode.ACCEPTED
        if wanted and self.end.topics.read(TOPIC, stream, self, self.window):
            self.stream = stream
        elif not call.done:
            self.refused = code
        self.end.topics.expect_no_more(TOPIC, stream)

    def ended(self, reset: StreamReset | None) -> None:
        self.over.append(reset)

    def lost(self, code: int, text: str) -> None:
        self.lost_with.append(code)

    def read(self, events: int = 1_000) -> None:
        for _ in range(min(events, len(self.inbox))):
            self.got += self.inbox.take()[0]
        self.inbox.used()

    def leave(self) -> None:
        """As `Subscription` does."""
        if self.left:
            return
        self.left = True
        if not self.call.done:
            self.end.outgoing.cancel(self.call)
            return
        self.inbox.close()
        if self.end.topics.reads(self.stream):
            self.end.outgoing.unsubscribe(TOPIC, self.end.now, None, lambda: None)
            self.end.topics.leave(self.stream)


class Two:
    """A subscriber `a`, a publisher `b`, and the events in transit."""

    def __init__(self, **options: Any) -> None:
        self.pair: Pair = open_pair(stream_window=4_096, max_streams=3)
        self.a = End(self.pair.a, self.pair.now)
        self.b = End(self.pair.b, self.pair.now, **options)
        self.ways: dict[End, deque[bytes]] = {self.a: deque(), self.b: deque()}

    def other(self, end: End) -> End:
        return self.b if end is self.a else self.a

    def send(self, end: End) -> None:
        """Put a side's output in transit."""
        end.settle()
        sent = end.side.take(end.now)
        if sent:
            self.ways[end].append(sent)
        end.settle()

    def deliver(self, end: End) -> bool:
        """One piece of what a side sent arrives."""
        way, receiver = self.ways[end], self.other(end)
        if not way:
            return False
        receiver.core.receive_data(way.popleft(), receiver.now)
        receiver.settle()
        return True

    def run(self) -> None:
        """Until both are quiet."""
        for _ in range(1_000):
            self.send(self.a)
            self.send(self.b)
            if not self.deliver(self.a) | self.deliver(self.b):
                return
        raise AssertionError("the two never fall quiet")

    def alive(self) -> bool:
        return self.pair.a.code == self.pair.b.code == ALIVE


def publish(end: End, *notes: Value) -> None:
    for note in notes:
        end.fanout.add(encode_note(note))
    end.fanout.flush()


def subscribed(two: Two, window: int | None = None) -> Sub:
    """A subscription that was accepted."""
    sub = Sub(two.a, window)
    two.run()
    assert two.b.accept(two.b.undecided.pop()) is not None
    two.run()
    assert sub.stream
    return sub


def test_a_subscription_from_beginning_to_end() -> None:
    two = Two()
    sub = subscribed(two)
    publish(two.b, 1, 2, 3)
    two.run()
    sub.read()
    assert sub.got == [1, 2, 3]
    sub.leave()
    two.run()
    assert sub.over == [None]
    assert not any(two.a.tables().values())
    assert not any(two.b.tables().values())


def test_notes_wait_for_the_result() -> None:
    two = Two()
    sub = Sub(two.a)
    two.run()
    feed = two.b.accept(two.b.undecided.pop())
    assert feed is not None
    publish(two.b, 1)
    assert two.b.core.streams.outbox.held == {feed.stream: None}
    (first,) = two.b.core.streams.outbox.take(1)
    (second,) = two.b.core.streams.outbox.take(1)
    assert first is not None
    assert second is not None
    assert (first.stream, first.subcategory, first.releases) == (1, RESULT, feed.stream)
    assert (second.stream, second.subcategory) == (feed.stream, NOTIFY)
    assert sub.stream == 0


def test_the_end_of_a_connection_ends_all_of_it() -> None:
    two = Two()
    sub, undecided = subscribed(two), Sub(two.a)
    undecided.call.done = True
    publish(two.b, 1)
    two.run()
    two.a.topics.connection_ended(12, "over")
    two.b.topics.connection_ended(12, "over")
    assert sub.lost_with == [12]
    for end in (two.a, two.b):
        assert not any(topic_tables(end.topics).values())
    assert not two.b.fanout.feeds
    sub.read()
    assert sub.got == [1]  # Received notes remain readable.


def test_a_note_for_who_left_is_not_accepted() -> None:
    two = Two()
    sub = subscribed(two)
    sub.leave()
    for stream in (sub.stream, 1):
        asked = event(NOTIFY, {keys.TOPIC: TOPIC}, async_id=9, stream=stream, cost=100)
        assert not two.a.topics.notes_received(asked, two.a.now)
    assert two.a.core.dropped == 2


def test_a_note_on_a_topics_own_stream_is_of_no_other_topic() -> None:
    """A peer that also sends notes before the Subscribe of that stream is answered."""
    two = Two()
    sub = subscribed(two)
    two.a.topics.expect("y")
    assert two.a.topics.stream_opened(6, LABEL + "y")
    note: dict[int, Encodable] = {keys.DATA: 1, keys.TOPIC: TOPIC}
    for stream, kept in ((6, 0), (1, 1), (3, 2)):
        two.a.topics.notes_received(event(NOTIFY, note, stream=stream), two.a.now)
        assert len(sub.inbox) == kept
    assert two.a.core.dropped == 1


@pytest.mark.parametrize("accepted", [0, 1])
def test_two_subscribes_of_which_the_later_named_a_smaller_window(accepted: int) -> None:
    two = Two()
    subs = [Sub(two.a, 9_000), Sub(two.a, 1_000)]
    two.run()
    assert two.a.core.streams.windows == {"topic:x": 9_000}
    if accepted:
        two.b.incoming.answer(two.b.undecided.pop(), ResultCode.REJECTED)
    two.b.accept(two.b.undecided.pop())
    two.run()
    sub, other = subs[accepted], subs[1 - accepted]
    refusal = ResultCode.REJECTED if accepted else ResultCode.ALREADY_SUBSCRIBED
    assert (sub.refused, other.refused) == (0, refusal)
    stream = two.a.core.streams.stream_table.open[sub.stream]
    assert stream.window.size == stream.window.left == sub.window
    assert two.b.core.streams.stream_table.open[sub.stream].credit.left == sub.window
    assert two.a.core.streams.windows == {}


def test_a_subscribe_that_named_a_small_window_is_none_of_the_next_ones_concern() -> None:
    """Both streams are opened before the first Result arrives."""
    two = Two()
    small = Sub(two.a, 1)
    two.run()
    feed = two.b.accept(two.b.undecided.pop())
    assert feed is not None
    feed.finish()
    agreed = Sub(two.a)
    two.send(two.a)
    two.deliver(two.a)
    two.b.accept(two.b.undecided.pop())
    for note in range(3):
        publish(two.b, note)
    two.run()
    agreed.read()
    assert small.over == [None]
    assert agreed.got == [0, 1, 2]
    assert two.alive()


def results(two: Two) -> list[tuple[int, Value]]:
    """Async id and code of each Result that `a` got."""
    return [
        (event.async_id, decode(event.payload)[keys.CODE])
        for event in two.a.received
        if event.head[2:] == (SIM, RESULT)
    ]


def ask(two: Two, kind: int) -> int:
    """A Subscribe or Unsubscribe of `a`, sent without a thought of what went before."""
    if kind == SUBSCRIBE:
        call = Sub(two.a).call
    else:
        call = two.a.outgoing.unsubscribe(TOPIC, two.a.now, None, lambda: None)
    return call.async_id


def test_requests_about_a_topic_take_effect_in_their_order() -> None:
    two = Two()
    asked = [ask(two, kind) for kind in (SUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE, UNSUBSCRIBE)]
    two.run()
    assert results(two) == []
    assert len(two.b.incoming) == 4
    two.b.accept(two.b.undecided.pop())
    two.run()
    assert results(two) == list(zip(asked, (0, 2, 0, 2), strict=True))
    assert not two.b.undecided
    assert not two.b.fanout.feeds
    assert not two.b.incoming.turns.requests


def test_what_waits_for_its_turn_may_be_cancelled_and_is_bounded() -> None:
    two = Two()
    asked = [ask(two, kind) for kind in (SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE)]
    two.run()
    for request in asked[1:]:
        two.a.core.send(1, 0, SIM, CANCEL, encode({keys.REQUEST: request}))
    two.run()
    assert results(two) == [(request, ResultCode.CANCELLED) for request in asked[1:]]
    more = [ask(two, UNSUBSCRIBE) for _ in range(UNANSWERED_REQUESTS)]
    two.run()
    assert results(two)[2:] == [(more[-1], ResultCode.OVERLOADED)]
    assert two.b.core.account.held > UNANSWERED_REQUESTS * EVENT_WEIGHT
    two.b.accept(two.b.undecided.pop())
    two.run()
    codes = [ResultCode.ACCEPTED, ResultCode.ACCEPTED] + [2] * (UNANSWERED_REQUESTS - 2)
    assert results(two)[3:] == list(zip([asked[0], *more[:-1]], codes, strict=True))
    assert not any(two.b.tables()[name] for name in ("feeds", "answering", "held"))
    assert two.b.core.account.held == 0


def test_a_subscribe_that_is_cancelled_lets_the_next_one_begin() -> None:
    two = Two()
    first, second = ask(two, SUBSCRIBE), ask(two, SUBSCRIBE)
    two.run()
    two.a.core.send(1, 0, SIM, CANCEL, encode({keys.REQUEST: first}))
    two.run()
    assert results(two) == [(first, ResultCode.CANCELLED)]
    two.b.accept(two.b.undecided[1])
    two.run()
    assert results(two)[1:] == [(second, 0)]


def test_a_stream_that_is_reset_takes_with_it_what_waits_for_its_turn() -> None:
    two = Two()
    stream = two.a.core.open_stream("app")
    for async_id, kind in ((1, SUBSCRIBE), (2, UNSUBSCRIBE), (3, SUBSCRIBE), (0, UNSUBSCRIBE)):
        asked = event(kind, {keys.TOPIC: TOPIC}, async_id=async_id, stream=stream)
        two.b.dispatch.receive(asked, two.b.now)
    assert len(two.b.incoming) == 4
    two.b.incoming.stream_reset(stream)
    assert [call.async_id for call in two.b.undecided] == [1]
    assert not two.b.incoming.turns.requests
    assert not len(two.b.incoming)


class Orders(RuleBasedStateMachine):
    """Requests, decisions, notes, reads and bytes in any order."""

    @initialize(slow=st.sampled_from(["unsubscribe", "drop-oldest"]))
    def begin(self, slow: Slow) -> None:
        self.two = Two(limit=4_096, slow=slow)
        self.subs: list[Sub] = []
        self.published = 0

    @property
    def b(self) -> End:
        return self.two.b

    @precondition(lambda self: len(self.subs) < 8)
    @rule(window=st.none() | st.integers(1, 9_000))
    def subscribe(self, window: int | None) -> None:
        self.subs.append(Sub(self.two.a, window))

    @precondition(lambda self: self.subs)
    @rule(which=st.integers(0, 7))
    def leave(self, which: int) -> None:
        self.subs[which % len(self.subs)].leave()

    @precondition(lambda self: self.subs)
    @rule(which=st.integers(0, 7), events=st.integers(1, 3))
    def read(self, which: int, events: int) -> None:
        self.subs[which % len(self.subs)].read(events)

    @precondition(lambda self: self.b.undecided)
    @rule(which=st.integers(0, 7), yes=st.sampled_from([True, True, True, False]))
    def decide(self, which: int, yes: bool) -> None:
        undecided = self.b.undecided
        call = undecided.pop(which % len(undecided))
        if yes:
            self.b.accept(call, "first")
        else:
            self.b.incoming.answer(call, ResultCode.REJECTED)

    @rule(count=st.integers(1, 8), size=st.sampled_from([0, 10, 700]), flush=st.booleans())
    def publish(self, count: int, size: int, flush: bool) -> None:
        for _ in range(count):
            self.b.fanout.add(encode_note([self.published, bytes(size)]))
            self.published += 1
        if flush:
            self.b.fanout.flush()

    @rule()
    def close_topic(self) -> None:
        self.b.fanout.flush()
        for feed in list(self.b.fanout.feeds):
            feed.finish()

    @rule(ours=st.booleans())
    def send(self, ours: bool) -> None:
        self.two.send(self.two.a if ours else self.b)

    @rule(ours=st.booleans())
    def deliver(self, ours: bool) -> None:
        self.two.deliver(self.two.a if ours else self.b)

    @rule()
    def run(self) -> None:
        self.two.run()

    @invariant()
    def nobody_gets_what_is_not_next(self) -> None:
        for sub in getattr(self, "subs", []):
            numbers = [note[0] for note in sub.got]
            assert numbers == sorted(set(numbers))
            if numbers and not sub.inbox.dropped:
                assert numbers == list(range(numbers[0], numbers[-1] + 1))
            elif numbers:
                assert numbers[-1] - numbers[0] + 1 - len(numbers) <= sub.inbox.dropped

    def teardown(self) -> None:
        if not hasattr(self, "two"):
            return
        self.b.fanout.flush()
        self.two.run()
        while self.b.undecided:
            self.b.accept(self.b.undecided.pop(), "late")
            self.two.run()
        for _ in range(200):
            for sub in self.subs:
                sub.read()
            self.two.run()
        for sub in self.subs:
            sub.read()
            # Who reads to the end has all, up to the last note.
            if self.two.a.topics.reads(sub.stream) and not sub.left and sub.got:
                assert sub.got[-1][0] == self.published - 1
            sub.leave()
        self.two.run()
        assert self.two.alive()
        assert {**self.two.a.tables(), **self.b.tables()} == dict.fromkeys(self.b.tables(), 0)
        assert not any(self.two.a.tables().values())
        assert not self.b.fanout.feeds
        assert not self.b.fanout.crowded


TestOrders = Orders.TestCase
