"""Waiting notes of one subscriber: encoding, cost and losses."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from parley._lbm.codec import Value
from parley._node.messaging.fanout import Fanout, Slow
from parley._node.messaging.feeds import WAITING_EVENTS, StreamFeed
from parley._node.messaging.notes import (
    DROPPED_HEADER,
    NOTES_SIZE,
    encode_note,
    read_headers,
)
from parley._node.protocol.codes import NOTES, NOTIFY, CloseCode
from parley._node.protocol.limits import NOTES_COUNT
from tests.node.messaging.line import (
    Line,
    Written,
    cost_of,
    data_of,
    new_fanout,
    new_feed,
    publish,
)


def clogged(fanout: Fanout) -> tuple[Line, StreamFeed]:
    """A subscriber on whose stream four events wait, so that all else waits for it."""
    line = Line()
    feed = new_feed(fanout, line)
    for _ in range(WAITING_EVENTS):
        publish(fanout, "clog")
    assert len(line.queue) == WAITING_EVENTS
    assert feed.cost == 0
    return line, feed


def losses(events: list[Written]) -> list[int]:
    """Return the reported losses."""
    told = [e.headers[DROPPED_HEADER] for e in events if DROPPED_HEADER in e.headers]
    return [count for count in told if isinstance(count, int)]


# How notes travel.


def test_notes_of_one_turn_are_one_event() -> None:
    fanout, line = new_fanout(), Line()
    new_feed(fanout, line)
    publish(fanout, 1, 2, 3)
    publish(fanout, 4)
    assert [(event.subcategory, event.notes) for event in line.queue] == [
        (NOTES, [1, 2, 3]),
        (NOTIFY, [4]),
    ]


def test_notes_of_several_turns_are_one_event_once_they_had_to_wait() -> None:
    fanout = new_fanout()
    line, feed = clogged(fanout)
    for turn in range(10):
        publish(fanout, turn, -turn)
    assert feed.cost == sum(cost_of(turn) + cost_of(-turn) for turn in range(10))
    line.write(feed)
    (event,) = line.queue
    assert event.notes == [note for turn in range(10) for note in (turn, -turn)]
    assert feed.cost == 0


def test_a_note_with_headers_travels_alone_and_in_its_place() -> None:
    fanout = new_fanout()
    line, feed = clogged(fanout)
    publish(fanout, 1, 2)
    publish(fanout, 3, headers=read_headers({"a": 1}))
    publish(fanout, 4, 5)
    line.write(feed)
    assert [(event.notes, event.headers) for event in line.queue] == [
        ([1, 2], {}),
        ([3], {"a": 1}),
        ([4, 5], {}),
    ]


def test_an_event_has_at_most_4096_notes() -> None:
    fanout, line = new_fanout(), Line()
    feed = new_feed(fanout, line)
    publish(fanout, *range(NOTES_COUNT + 1))
    assert [len(event.notes) for event in line.write_all(feed)] == [4_096, 1]
    line, feed = clogged(fanout)
    for _ in range(3):
        publish(fanout, *([0] * 2_000))
    line.write(feed)
    assert [len(event.notes) for event in line.write_all(feed)] == [4_000, 2_000]


def test_an_event_has_at_most_64_kib() -> None:
    fanout, line = new_fanout(), Line()
    feed = new_feed(fanout, line)
    publish(fanout, *[bytes(1_000)] * 200)
    events = line.write_all(feed)
    assert data_of(events) == [bytes(1_000)] * 200
    assert all(len(event.payload) <= NOTES_SIZE for event in events)
    assert len(events) == 4
    publish(fanout, bytes(100_000))
    (event,) = line.write_all(feed)
    assert (event.subcategory, event.notes) == (NOTIFY, [bytes(100_000)])


def test_an_event_has_at_most_what_was_agreed() -> None:
    fanout, line = new_fanout(), Line()
    feed = new_feed(fanout, line, max_payload=1_024)
    publish(fanout, *[bytes(100)] * 30)
    events = line.write_all(feed)
    assert data_of(events) == [bytes(100)] * 30
    assert [len(event.notes) for event in events] == [9, 9, 9, 3]
    assert all(len(event.payload) <= 1_024 for event in events)


def test_only_four_events_wait_on_the_connection() -> None:
    fanout = new_fanout()
    line, feed = clogged(fanout)
    publish(fanout, 1)
    assert len(line.queue) == WAITING_EVENTS
    assert line.asked
    assert line.write(feed, 3) != []
    assert data_of(line.queue) == ["clog"]  # It is notified when it is empty.
    line.write(feed)
    assert data_of(line.queue) == [1]


# Lost notes.


def test_a_note_too_large_for_one_subscriber_is_lost_by_that_one_only() -> None:
    fanout, small, large = new_fanout(), Line(), Line()
    narrow = new_feed(fanout, small, max_payload=1_024)
    wide = new_feed(fanout, large)
    publish(fanout, 1)
    publish(fanout, bytes(2_000))
    publish(fanout, bytes(3_000), 2, 3)
    assert data_of(large.write_all(wide)) == [1, bytes(2_000), bytes(3_000), 2, 3]
    events = small.write_all(narrow)
    assert data_of(events) == [1, 2, 3]
    assert [event.headers for event in events] == [{}, {DROPPED_HEADER: 2}, {}]
    assert (narrow.dropped, wide.dropped, fanout.dropped) == (2, 0, 2)
    assert narrow.cost == wide.cost == 0


def test_a_note_that_only_just_fits_is_not_lost_to_the_count() -> None:
    fanout, line = new_fanout(), Line()
    feed = new_feed(fanout, line, max_payload=1_024)
    largest = bytes(1_024 - 2 - 3)
    publish(fanout, bytes(1_024))
    publish(fanout, largest)
    publish(fanout, 1)
    events = line.write_all(feed)
    assert data_of(events) == [largest, 1]
    assert len(events[0].payload) == 1_024
    assert events[1].headers == {DROPPED_HEADER: 1}
    assert feed.dropped == 1


def test_the_oldest_are_dropped_and_no_more_than_must_be() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    for note in range(30):
        publish(fanout, note)
    kept = 1_024 // cost_of(0)
    assert feed.dropped == fanout.dropped == 30 - kept
    assert feed.cost == sum(cost_of(note) for note in range(30 - kept, 30))
    events = line.write_all(feed)
    assert data_of(events[4:]) == list(range(30 - kept, 30))
    assert events[4].headers == {DROPPED_HEADER: 30 - kept}
    assert all(event.headers == {} for event in events[5:])


def test_the_oldest_of_a_batch_are_dropped() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    publish(fanout, *range(10))
    publish(fanout, *range(10, 20))
    kept = 1_024 // cost_of(0)
    line.write(feed)
    assert data_of(line.write_all(feed)) == list(range(20 - kept, 20))
    assert feed.dropped == 20 - kept


def test_the_count_is_told_once_for_each_loss_and_is_the_total() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    told: list[int] = []
    for _ in range(3):
        publish(fanout, *range(20))
        told += losses(line.write_all(feed))
        for _ in range(WAITING_EVENTS):
            publish(fanout, "clog")
    lost = 20 - 1_024 // cost_of(0)
    assert told == [lost, 2 * lost, 3 * lost]


def test_the_count_joins_the_headers_of_a_note() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    publish(fanout, bytes(900))
    publish(fanout, bytes(600), headers=read_headers({"a": 1}))
    assert feed.dropped == 1
    line.write(feed)
    (event,) = line.queue
    assert event.headers == {"a": 1, DROPPED_HEADER: 1}


def test_headers_count_in_what_may_wait() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    for note in range(5):
        publish(fanout, note, headers=read_headers({"a": "x" * 500}))
    assert feed.dropped == 4
    line.write(feed)
    assert data_of(line.queue) == [4]


def test_a_note_larger_than_the_buffer_is_dropped() -> None:
    fanout = new_fanout(limit=1_024, slow="drop-oldest")
    line, feed = clogged(fanout)
    publish(fanout, 1)
    publish(fanout, bytes(2_000))
    assert (feed.dropped, feed.cost) == (2, 0)
    publish(fanout, 2)
    line.write(feed)
    assert data_of(line.queue) == [2]


def test_who_does_not_keep_up_loses_the_subscription() -> None:
    fanout = new_fanout(limit=1_024)
    closed: list[StreamFeed] = []
    line = Line()
    feed = new_feed(fanout, line, on_closed=closed.append)
    publish(fanout, 1, 2)
    for note in range(3):
        publish(fanout, note)
    publish(fanout, *range(10))
    assert line.resets == []
    publish(fanout, *range(10))
    # Reset discards the notes that wait on the connection: 5, and the 20 after them.
    assert line.resets == [(CloseCode.SLOW_CONSUMER, "25 notes were not read in time")]
    assert (feed.dropped, fanout.dropped) == (25, 25)
    assert closed == [feed]
    assert not fanout.feeds
    assert not fanout.crowded
    assert (feed.open, feed.cost) == (False, 0)
    publish(fanout, 1)
    assert line.queue == []


def test_what_was_written_is_not_counted_as_lost() -> None:
    fanout = new_fanout(limit=1_024)
    line, feed = clogged(fanout)
    publish(fanout, 1)
    line.write(feed)  # Four events are written, the fifth is queued.
    publish(fanout, *[bytes(100)] * 5)
    line.write(feed, 1)
    for _ in range(WAITING_EVENTS - 1):
        publish(fanout, "clog")
    line.write(feed, 1)
    before = len(data_of(line.queue))
    publish(fanout, "clog")
    publish(fanout, *[bytes(100)] * 10)
    assert len(line.resets) == 1
    assert feed.dropped == before + 1 + 10


# The end.


def test_finish_goes_after_what_waits() -> None:
    fanout = new_fanout()
    closed: list[StreamFeed] = []
    line = Line()
    feed = new_feed(fanout, line, on_closed=closed.append)
    for note in range(10):
        publish(fanout, note)
    feed.finish()
    assert not fanout.feeds
    assert line.finishes == 0
    publish(fanout, "too late")
    assert data_of(line.write_all(feed)) == list(range(10))
    assert line.finishes == 1
    assert closed == [feed]


def test_finish_at_once_if_nothing_waits() -> None:
    fanout, line = new_fanout(), Line()
    feed = new_feed(fanout, line)
    feed.finish()
    assert line.finishes == 1
    assert not feed.open


@pytest.mark.parametrize("slow", ["unsubscribe", "drop-oldest"])
def test_a_connection_that_is_closing_ends_the_subscription(slow: Slow) -> None:
    fanout = new_fanout(limit=1_024, slow=slow)
    closed: list[StreamFeed] = []
    line = Line()
    feed = new_feed(fanout, line, on_closed=closed.append)
    line.closed = True
    publish(fanout, 1)
    assert closed == [feed]
    feed.close()
    feed.writable()
    assert closed == [feed]


def test_an_overflow_on_a_closing_connection() -> None:
    fanout = new_fanout(limit=1_024)
    line, feed = clogged(fanout)
    line.closed = True
    publish(fanout, bytes(2_000))
    assert not feed.open
    assert line.resets == []


# Room for publishers.


def test_crowded_from_half_and_no_more_from_a_quarter() -> None:
    rooms: list[int] = []
    fanout = new_fanout(8_192, "drop-oldest", lambda: rooms.append(1))
    line, feed = clogged(fanout)
    publish(fanout, *[bytes(400)] * 9)
    assert feed.cost > 4_096
    assert fanout.crowded == {feed}
    line.write(feed)
    assert fanout.crowded == set()
    assert rooms == [1]


def test_nobody_waits_again_for_who_was_waited_for_in_vain() -> None:
    fanout = new_fanout(limit=8_192, slow="drop-oldest")
    line, feed = clogged(fanout)
    publish(fanout, *[bytes(400)] * 9)
    fanout.skip_crowded()
    assert fanout.crowded == set()
    publish(fanout, *[bytes(400)] * 9)
    assert fanout.crowded == set()
    line.write_all(feed)  # it caught up
    for _ in range(WAITING_EVENTS):
        publish(fanout, "clog")
    publish(fanout, *[bytes(400)] * 9)
    assert fanout.crowded == {feed}


def test_who_leaves_is_not_waited_for() -> None:
    rooms: list[int] = []
    fanout = new_fanout(8_192, on_uncrowded=lambda: rooms.append(1))
    _, feed = clogged(fanout)
    publish(fanout, *[bytes(400)] * 9)
    assert fanout.crowded == {feed}
    feed.close()
    assert fanout.crowded == set()
    assert rooms == [1]


class Feeds(RuleBasedStateMachine):
    """Whatever is published and however it is read: order, counts and costs are right."""

    @initialize(
        slow=st.sampled_from(["unsubscribe", "drop-oldest"]),
        limit=st.integers(1_024, 20_000),
        max_payloads=st.lists(st.sampled_from([1_024, 4_096, 1 << 20]), min_size=1, max_size=3),
    )
    def begin(self, slow: Slow, limit: int, max_payloads: list[int]) -> None:
        self.fanout = new_fanout(limit, slow)
        self.published: list[Value] = []
        self.lines = [Line() for _ in max_payloads]
        self.feeds = [
            new_feed(self.fanout, line, max_payload=most)
            for line, most in zip(self.lines, max_payloads, strict=True)
        ]
        self.written: list[list[Written]] = [[] for _ in self.lines]

    @rule(
        sizes=st.lists(st.integers(0, 1_500), min_size=1, max_size=12),
        headers=st.sampled_from([0, 0, 0, 10, 900]),
        flush=st.booleans(),
    )
    def publish(self, sizes: list[int], headers: int, flush: bool) -> None:
        fixed = read_headers({"h": "x" * headers}) if headers else None
        for size in sizes:
            note: Value = [len(self.published), bytes(size)]
            self.published.append(note)
            self.fanout.add(encode_note(note), fixed)
        if flush:
            self.fanout.flush()

    @rule(which=st.integers(0, 2), most=st.integers(1, 5))
    def write(self, which: int, most: int) -> None:
        which %= len(self.feeds)
        self.written[which] += self.lines[which].write(self.feeds[which], most)

    @rule()
    def give_up(self) -> None:
        self.fanout.skip_crowded()

    @precondition(lambda self: self.feeds)
    @rule(which=st.integers(0, 2))
    def settle(self, which: int) -> None:
        """All published notes that were not lost have arrived, in order."""
        which %= len(self.feeds)
        self.fanout.flush()
        feed = self.feeds[which]
        self.written[which] += self.lines[which].write_all(feed)
        got = data_of(self.written[which])
        assert all(len(event.payload) <= feed.max_payload for event in self.written[which])
        numbers = [note[0] for note in got if isinstance(note, list)]
        assert numbers == sorted(set(numbers))
        assert got == [self.published[number] for number in numbers]
        if feed.open:
            assert len(got) + feed.dropped == len(self.published)
            assert feed.cost == 0
        told = losses(self.written[which])
        assert told == sorted(told)
        assert not told or told[-1] <= feed.dropped

    @invariant()
    def costs_do_not_drift(self) -> None:
        for feed in getattr(self, "feeds", []):
            assert feed.cost == sum(batch.cost for batch in feed.waiting)
            assert feed.cost <= self.fanout.limit
            assert feed.open or not feed.waiting

    @invariant()
    def who_is_crowded_is_behind(self) -> None:
        if not hasattr(self, "fanout"):
            return
        for feed in self.feeds:
            behind = feed.open and feed.cost > self.fanout.low_water
            assert feed not in self.fanout.crowded or (behind and not feed.lagging)
            if feed.open and feed.cost > self.fanout.high_water:
                assert feed.lagging or feed in self.fanout.crowded
        assert self.fanout.dropped == sum(feed.dropped for feed in self.feeds)


TestFeeds = Feeds.TestCase
