"""A subscriber of a topic that remembers: behind, live, and how it goes from one to the other."""

from typing import Any, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from parley._lbm import keys
from parley._lbm.codec import Value, decode
from parley._node.messaging.fanout import Fanout
from parley._node.messaging.feeds import WAITING_EVENTS, HistoryFeed
from parley._node.messaging.inbox import NumberedInbox
from parley._node.messaging.notes import (
    NOTES_SIZE,
    NUMBER_OVERHEAD,
    Batch,
    encode_note,
    read_headers,
)
from parley._node.messaging.topic_history import TopicHistory, TopicPosition
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.memory_budget import MemoryBudget
from tests.node.messaging.line import Line, Written, cost_of, data_of, publish

EPOCH = b"epoch 01"


def remembering(
    keep: int = 1_000, *, keep_bytes: int = 1 << 30, limit: int = 1 << 20, epoch: bytes = EPOCH
) -> Fanout:
    """The subscribers of a topic that remembers."""
    return Fanout("prices", limit, "unsubscribe", TopicHistory(epoch, keep, keep_bytes))


def subscribed(
    fanout: Fanout,
    line: Line,
    after: TopicPosition | None = None,
    *,
    max_payload: int = 1 << 20,
) -> HistoryFeed:
    """A subscriber more; its stream is 2."""
    connection = cast(Connection, line)
    assert fanout.kept is not None
    feed = HistoryFeed(
        fanout, fanout.kept, after, connection, 2, max_payload, "owner", lambda feed: None
    )
    fanout.join(feed)
    feed.pump()
    return feed


def number_of(event: Written) -> Value:
    """Return the number of an event's first note."""
    return decode(event.payload).get(keys.NUMBER)


def clog(fanout: Fanout, line: Line) -> None:
    """As much waits on the stream as may."""
    while len(line.queue) < WAITING_EVENTS:
        publish(fanout, "clog")


def test_the_first_event_says_its_number_and_no_other_does() -> None:
    fanout, line = remembering(), Line()
    publish(fanout, 1, 2)
    feed = subscribed(fanout, line)
    publish(fanout, 3, headers=read_headers({"a": 1}))
    publish(fanout, 4, 5)
    events = line.write_all(feed)
    assert [event.notes for event in events] == [[1, 2], [3], [4, 5]]
    assert [number_of(event) for event in events] == [1, None, None]
    assert events[1].headers == {"a": 1}


def test_a_live_subscriber_is_told_the_number_too() -> None:
    fanout, line = remembering(), Line()
    publish(fanout, 1, 2)
    feed = subscribed(fanout, line, TopicPosition(EPOCH, 2))
    publish(fanout, 3, headers=read_headers({"a": 1}))
    (event,) = line.write_all(feed)
    assert (event.notes, event.headers, number_of(event)) == ([3], {"a": 1}, 3)


def test_what_was_published_in_this_turn_is_not_sent_twice() -> None:
    fanout, first, second = remembering(), Line(), Line()
    live = subscribed(fanout, first)
    fanout.add(encode_note(1))
    fanout.add(encode_note(2))
    behind = subscribed(fanout, second)
    fanout.add(encode_note(3))
    assert data_of(second.queue) == [1, 2]
    fanout.flush()
    assert data_of(first.write_all(live)) == [1, 2, 3]
    assert data_of(second.write_all(behind)) == [1, 2, 3]


def test_one_that_is_behind_goes_live_when_it_has_what_the_others_have() -> None:
    fanout, line, other = remembering(100_000), Line(), Line()
    for number in range(400):
        publish(fanout, [number, bytes(1_000)])
    live = subscribed(fanout, other, TopicPosition(EPOCH, 400))
    feed = subscribed(fanout, line)
    got: list[Any] = []
    for number in range(400, 800):
        fanout.add(encode_note([number, bytes(1_000)]))
        if number % 3 == 0:
            fanout.flush()
        got += data_of(line.write(feed, int(number % 100 == 0)))
    assert feed.behind > 0
    assert feed.cost == 0
    got += data_of(line.write_all(feed))
    fanout.flush()
    assert feed.behind == 0
    got += data_of(line.write_all(feed))
    assert [note[0] for note in got] == list(range(800))
    assert [note[0] for note in data_of(other.write_all(live))] == list(range(400, 800))  # type: ignore[index]  # each is an array


def test_more_than_may_wait_is_read_out_of_what_is_kept() -> None:
    fanout, line = remembering(limit=1_024), Line()
    feed = subscribed(fanout, line)
    clog(fanout, line)
    publish(fanout, *range(100))
    assert (feed.cost, feed.behind, feed.dropped) == (0, 100, 0)
    assert line.resets == []
    events = line.write_all(feed)
    assert data_of(events)[WAITING_EVENTS:] == list(range(100))
    assert [number_of(event) for event in events][1:] == [None] * (len(events) - 1)


def test_what_is_not_kept_any_more_is_a_gap() -> None:
    fanout, line = remembering(5, limit=1_024), Line()
    feed = subscribed(fanout, line)
    clog(fanout, line)
    publish(fanout, *range(100))
    # It loses as few waiting notes as possible, and that is more than the history keeps.
    left = 1_024 // cost_of(0)
    assert feed.dropped == fanout.dropped == 100 - left
    events = line.write_all(feed)[WAITING_EVENTS:]
    assert data_of(events) == list(range(100 - left, 100))
    assert number_of(events[0]) == WAITING_EVENTS + 100 - left + 1


def test_all_that_one_wanted_may_be_gone() -> None:
    fanout, line = remembering(3, limit=1_024), Line()
    for _ in range(10):
        publish(fanout, bytes(60_000))
    feed = subscribed(fanout, line)
    assert line.queue[0].notes == [bytes(60_000)]
    clogged = len(line.queue)
    for _ in range(10):
        fanout.add(encode_note(bytes(60_000)))  # emitted or not, most of it is forgotten
    events = line.write_all(feed)
    fanout.flush()
    events += line.write_all(feed)
    assert clogged == 3
    assert number_of(events[0]) == 8
    assert len(events) + feed.dropped + 7 == 20


def test_a_note_too_long_for_this_subscriber_is_a_gap() -> None:
    fanout, line = remembering(), Line()
    longest = 1_024 - NUMBER_OVERHEAD - 2 - 3
    publish(fanout, bytes(longest))
    publish(fanout, bytes(longest + 1))
    feed = subscribed(fanout, line, max_payload=1_024)
    publish(fanout, bytes(longest + 1), bytes(longest), 5)
    events = line.write_all(feed)
    assert data_of(events) == [bytes(longest), bytes(longest), 5]
    assert [number_of(event) for event in events] == [1, 4, None]
    assert all(len(event.payload) <= 1_024 for event in events)
    assert feed.dropped == 2


def test_thousands_that_are_too_long_are_not_put_together_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subscriber that takes little shall not cost a turn of the loop with each Subscribe."""
    fanout, line = remembering(10_000), Line()
    publish(fanout, 1, *[bytes(1_100)] * 5_000, 2)
    made: list[Batch] = []
    payload = Batch.payload

    def counted(batch: Batch) -> tuple[int, bytes]:
        made.append(batch)
        return payload(batch)

    monkeypatch.setattr(Batch, "payload", counted)
    feed = subscribed(fanout, line, max_payload=1_024)
    events = line.write_all(feed)
    assert data_of(events) == [1, 2]
    assert [number_of(event) for event in events] == [1, 5_002]
    assert feed.dropped == 5_000
    assert len(made) < 20


def test_events_have_at_most_64_kib_with_their_number() -> None:
    fanout, line = remembering(), Line()
    publish(fanout, *[bytes(1_000)] * 200)
    feed = subscribed(fanout, line)
    events = line.write_all(feed)
    assert data_of(events) == [bytes(1_000)] * 200
    assert all(len(event.payload) <= NOTES_SIZE for event in events)


def test_finish_goes_after_what_was_published_before_it() -> None:
    fanout, line = remembering(), Line()
    for number in range(10):
        publish(fanout, [number, bytes(60_000)])
    feed = subscribed(fanout, line)
    assert feed.left == (10 - WAITING_EVENTS, WAITING_EVENTS)
    feed.finish()
    publish(fanout, "too late")
    got: list[Any] = data_of(line.write_all(feed))
    assert [note[0] for note in got] == list(range(10))
    assert line.finishes == 1
    assert not feed.open


def test_the_end_of_one_that_reads_nothing_tells_what_it_lost() -> None:
    fanout, line = remembering(), Line()
    for number in range(10):
        publish(fanout, [number, bytes(60_000)])
    feed = subscribed(fanout, line)
    line.write(feed, 1)
    feed.drop_slow_subscriber()
    assert line.resets == [(CloseCode.SLOW_CONSUMER, "9 notes were not read in time")]
    assert not feed.open


def test_before_the_connection_is_closed_as_much_goes_as_might_wait() -> None:
    fanout, line = remembering(limit=128 * 1024), Line()
    for number in range(100):
        publish(fanout, [number, bytes(60_000)])
    feed = subscribed(fanout, line)
    feed.flush()
    assert WAITING_EVENTS < len(line.queue) <= WAITING_EVENTS + 3
    live = subscribed(fanout, other := Line(), TopicPosition(EPOCH, 100))
    for number in range(10):
        publish(fanout, [number, bytes(60_000)], headers=read_headers({"a": 1}))
        live.flush()
    assert len(other.queue) == 10


def test_a_connection_that_is_closing_ends_one_that_is_behind() -> None:
    fanout, line = remembering(), Line()
    for _ in range(10):
        publish(fanout, bytes(60_000))
    feed = subscribed(fanout, line)
    line.closed = True
    line.queue.clear()
    feed.writable()
    assert not feed.open
    assert not fanout.feeds
    publish(fanout, 1)
    feed.pump()


class Reader:
    """A subscriber over all of its subscriptions: the numbers of read and missed notes.

    `line` and `feed` are the publisher's side of the current subscription. Its unread notes are
    read before it subscribes again.
    """

    def __init__(self, fanout: Fanout, limit: int, max_payload: int) -> None:
        self.limit, self.max_payload = limit, max_payload
        self.read: list[tuple[bytes, int, Value]] = []
        self.missed = 0
        self.base = 0
        self.position: TopicPosition | None = None
        self.subscribe(fanout)

    def subscribe(self, fanout: Fanout) -> None:
        assert fanout.kept is not None
        self.line = Line()
        self.line.account = MemoryBudget(self.limit)
        self.feed = subscribed(fanout, self.line, self.position, max_payload=self.max_payload)
        assert self.feed.begins is not None
        self.inbox = NumberedInbox(
            lambda: None, lambda *_: None, self.line.account, self.feed.begins, self.position
        )
        goes_on = self.position is not None and self.position.epoch == fanout.kept.epoch
        if self.inbox.recovered:
            assert goes_on
            assert self.inbox.gaps == 0
        if not goes_on:
            self.read.clear()
            self.missed, self.base = 0, self.inbox.number

    def take(self, most: int) -> None:
        while most and self.inbox:
            notes, _ = self.inbox.take()
            first = self.inbox.number + 1 - len(notes)
            self.read += [(self.inbox.epoch, first + i, note) for i, note in enumerate(notes)]
            most -= 1

    def receive(self, most: int) -> None:
        for event in self.line.write(self.feed, most):
            assert len(event.payload) <= self.max_payload
            self.inbox.put(event.subcategory, event.payload, 1)

    def cut(self, fanout: Fanout) -> None:
        self.position = self.inbox.position
        self.line.closed = True
        self.feed.close()
        self.take(1_000_000)
        assert self.inbox.number == self.position.number
        self.missed += self.inbox.gaps
        self.subscribe(fanout)

    @property
    def all_missed(self) -> int:
        return self.missed + self.inbox.gaps


class Remembering(RuleBasedStateMachine):
    """A topic and its subscribers, who are cut off and come back: each note once and in order, or
    its gap is counted."""

    @initialize(
        keep=st.sampled_from([1, 3, 20, 1_000]),
        keep_bytes=st.sampled_from([1_024, 20_000, 1 << 30]),
        limit=st.sampled_from([1_024, 8_192, 1 << 20]),
        readers=st.lists(
            st.tuples(st.sampled_from([4_096, 1 << 30]), st.sampled_from([1_024, 1 << 20])),
            min_size=1,
            max_size=3,
        ),
    )
    def begin(self, keep: int, keep_bytes: int, limit: int, readers: list[tuple[int, int]]) -> None:
        self.options = keep, keep_bytes, limit
        self.epochs = 0
        self.start()
        self.readers = [Reader(self.fanout, *options) for options in readers]

    def start(self) -> None:
        keep, keep_bytes, limit = self.options
        self.epochs += 1
        epoch = self.epochs.to_bytes(8, "big")
        self.fanout = remembering(keep, keep_bytes=keep_bytes, limit=limit, epoch=epoch)
        self.published: list[Value] = []

    @rule(
        sizes=st.lists(st.integers(0, 1_500), min_size=1, max_size=12),
        headers=st.sampled_from([0, 0, 0, 10, 900]),
        missing=st.sampled_from([0, 0, 0, 1, 30]),
        flush=st.booleans(),
    )
    def publish(self, sizes: list[int], headers: int, missing: int, flush: bool) -> None:
        fixed = read_headers({"h": "x" * headers}) if headers else None
        for size in sizes:
            self.published += ["never came"] * missing
            note: Value = [len(self.published), bytes(size)]
            self.published.append(note)
            self.fanout.add(encode_note(note), fixed, missing)
            missing = 0
        if flush:
            self.fanout.flush()

    @rule(which=st.integers(0, 2), most=st.integers(1, 5))
    def write(self, which: int, most: int) -> None:
        self.readers[which % len(self.readers)].receive(most)

    @rule(which=st.integers(0, 2), most=st.integers(1, 5))
    def read(self, which: int, most: int) -> None:
        self.readers[which % len(self.readers)].take(most)

    @rule(which=st.integers(0, 2))
    def cut(self, which: int) -> None:
        self.readers[which % len(self.readers)].cut(self.fanout)

    @rule()
    def give_up(self) -> None:
        self.fanout.skip_crowded()

    @rule(often=st.sampled_from([False, False, False, True]))
    def restart(self, often: bool) -> None:
        if often:
            self.start()
            for reader in self.readers:
                reader.cut(self.fanout)
                assert not reader.inbox.recovered

    @rule(which=st.integers(0, 2))
    def settle(self, which: int) -> None:
        """All that was published has arrived or is missed."""
        reader = self.readers[which % len(self.readers)]
        self.fanout.flush()
        while reader.line.queue or reader.feed.behind:
            reader.receive(1_000)
        reader.take(1_000_000)
        assert reader.feed.open
        assert not reader.feed.behind
        assert reader.feed.cost == 0
        # One that was lost last is seen to be missing only when the next one comes.
        unseen = len(self.published) - reader.inbox.number
        assert unseen == 0 or (unseen > 0 and reader.feed.dropped)
        assert len(reader.read) + reader.all_missed + unseen == len(self.published) - reader.base

    @invariant()
    def in_order_and_once(self) -> None:
        for reader in getattr(self, "readers", []):
            numbers = [number for _, number, _ in reader.read]
            assert numbers == sorted(set(numbers))
            for epoch, number, note in reader.read:
                assert epoch == reader.inbox.epoch
                assert note == self.published[number - 1]
            if numbers:
                assert len(numbers) + reader.all_missed == reader.inbox.number - reader.base

    @invariant()
    def bounds(self) -> None:
        if not hasattr(self, "fanout"):
            return
        kept = self.fanout.kept
        assert kept is not None
        assert len(kept) <= kept.most
        assert kept.cost <= kept.most_bytes
        for feed in [reader.feed for reader in self.readers]:
            assert feed.cost == sum(batch.cost for batch in feed.waiting) <= self.fanout.limit
            assert not (feed.behind and feed.waiting)
            assert feed not in self.fanout.crowded or not feed.behind


TestRemembering = Remembering.TestCase
