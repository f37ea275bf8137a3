"""The newest note of each key: bounds, numbers, and what subscribers get of it."""

import tracemalloc
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Value, decode
from parley._node.messaging import topic_history as kept_by_key
from parley._node.messaging.fanout import Fanout
from parley._node.messaging.feeds import WAITING_EVENTS, HistoryFeed
from parley._node.messaging.inbox import NumberedInbox
from parley._node.messaging.notes import NUMBER_OVERHEAD, encode_note, read_headers
from parley._node.messaging.topic_history import (
    KEY_COST,
    Beginning,
    CompactedHistory,
    TopicPosition,
)
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import MemoryBudget
from tests.node.messaging.line import Line, data_of
from tests.node.messaging.test_feeds_history import EPOCH, subscribed

NEVER = 1 << 30


def new_kept(most: int = NEVER, most_bytes: int = NEVER) -> CompactedHistory:
    """The history is empty."""
    return CompactedHistory(EPOCH, most, most_bytes)


def add(kept: CompactedHistory, names: str) -> None:
    """Publish a note for each character, which is its key; the note is the key and its number."""
    for name in names:
        kept.add(encode_note(f"{name}{kept.last + 1}"), None, name.encode())


def notes_of(kept: CompactedHistory) -> list[Value]:
    """All notes that are kept, as one subscriber after another event reads them."""
    notes: list[Value] = []
    number = kept.first
    while number <= kept.last:
        number += kept.replaced(number, kept.last)
        if number <= kept.last:
            batch = kept.read(number, kept.last, NEVER)
            notes += [decode(b"\xa1\x01" + note)[1] for note in batch.notes]
            number += len(batch.notes)
    return notes


def new_fanout(most: int = NEVER, limit: int = 1 << 20) -> Fanout:
    """The subscribers of a topic that keeps the newest note of each key."""
    return Fanout("prices", limit, "unsubscribe", new_kept(most))


def publish(fanout: Fanout, names: str, *, size: int = 0) -> None:
    """Publish a note for each key, in one turn: the key, its number, and `size` bytes."""
    for name in names:
        assert fanout.kept is not None
        note = [name, fanout.kept.last + 1, bytes(size)]
        fanout.add(encode_note(note), key=name.encode())
    fanout.flush()


def keys_of(notes: list[Any]) -> list[tuple[str, int]]:
    """The key and the number of each note."""
    return [(note[0], note[1]) for note in notes]


def test_a_note_replaces_the_note_of_its_key() -> None:
    kept = new_kept()
    add(kept, "aabcba")
    assert notes_of(kept) == ["c4", "b5", "a6"]
    assert (len(kept), kept.first, kept.last) == (3, 1, 6)
    assert kept.cost == 3 * (len(encode_note("c4")) + 1 + EVENT_COST + KEY_COST)


def test_the_key_whose_note_is_the_oldest_is_forgotten() -> None:
    kept = new_kept(most=2)
    add(kept, "abac")
    assert (notes_of(kept), kept.first) == (["a3", "c4"], 3)
    # Its next note has a new key.
    add(kept, "b")
    assert (notes_of(kept), kept.first) == (["c4", "b5"], 4)


def test_bytes_are_bounded_with_keys_and_headers() -> None:
    headers = read_headers({"a": bytes(100)})
    one = 100 + 50 + headers.size + EVENT_COST + KEY_COST
    kept = new_kept(most_bytes=2 * one)
    for name in "abac":
        kept.add(name.encode() * 100, headers, name.encode() * 50)
        assert kept.cost == one * len(kept)
    assert (len(kept), kept.first) == (2, 3)
    kept.add(bytes(3 * one), None, b"z")
    assert (len(kept), kept.first, kept.last, kept.cost) == (0, 6, 5, 0)
    assert kept.begin(None) == Beginning(TopicPosition(EPOCH, 5), False)


def test_recovered_means_that_no_key_is_missing() -> None:
    kept = new_kept(most=2)
    add(kept, "ababac")  # b4 is forgotten
    assert [kept.begin(TopicPosition(EPOCH, n)).recovered for n in (3, 4, 5, 6)] == [
        False,
        True,
        True,
        True,
    ]


def test_it_counts_no_less_than_it_takes() -> None:
    kept = new_kept(most=1_000)
    tracemalloc.start()
    for number in range(10_000):
        kept.add(encode_note([number, bytes(20)]), None, encode_note(number % 1_500))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 1_000
    assert taken < kept.cost


def test_replaced_notes_leave_a_bounded_number_of_places() -> None:
    kept = new_kept()
    add(kept, "xy")
    for _ in range(5 * kept_by_key.SLACK):
        add(kept, "a")
        assert len(kept.numbers) <= 2 * len(kept) + kept_by_key.SLACK
    assert notes_of(kept) == ["x1", "y2", f"a{kept.last}"]


def test_a_new_subscriber_gets_the_newest_of_each_key_and_no_gap() -> None:
    fanout, line = new_fanout(), Line()
    publish(fanout, "aabacba")
    feed = subscribed(fanout, line)
    publish(fanout, "b")
    events = line.write_all(feed)
    assert keys_of(data_of(events)) == [("c", 5), ("b", 6), ("a", 7), ("b", 8)]
    cells = [decode(event.payload) for event in events]
    assert [one.get(keys.NUMBER) for one in cells] == [5, None]
    assert [one.get(keys.REPLACED) for one in cells] == [4, None]


def test_a_slow_subscriber_gets_only_the_newest_of_each_key() -> None:
    fanout, line = new_fanout(limit=1_024), Line()
    feed = subscribed(fanout, line)
    publish(fanout, "x" * WAITING_EVENTS, size=60_000)
    assert len(line.queue) == WAITING_EVENTS
    publish(fanout, "ab" * 500)
    assert (feed.cost, feed.behind, feed.dropped) == (0, 2, 0)
    assert keys_of(data_of(line.write_all(feed))[WAITING_EVENTS:]) == [("a", 1_003), ("b", 1_004)]
    assert feed.dropped == 0


def test_what_was_published_in_this_turn_can_replace_what_is_read() -> None:
    fanout, line = new_fanout(), Line()
    publish(fanout, "a" + "b" * (WAITING_EVENTS + 1), size=60_000)
    feed = subscribed(fanout, line)
    fanout.add(encode_note(["b", 7, b""]), key=b"b")
    fanout.flush()
    assert keys_of(data_of(line.write_all(feed))) == [("a", 1), ("b", 6), ("b", 7)]


def test_a_note_that_cannot_be_carried_is_a_gap_and_a_replaced_one_is_not() -> None:
    fanout, line = new_fanout(), Line()
    publish(fanout, "aa")
    publish(fanout, "b", size=2_000)
    publish(fanout, "cc")
    feed = subscribed(fanout, line, max_payload=1_024)
    events = line.write_all(feed)
    assert keys_of(data_of(events)) == [("a", 2), ("c", 5)]
    assert [decode(event.payload).get(keys.REPLACED) for event in events] == [1, 1]
    assert feed.dropped == 1


def test_the_count_is_left_out_where_it_does_not_fit() -> None:
    fanout, line, most = new_fanout(), Line(), 1_024
    room = most - NUMBER_OVERHEAD - 2  # the head of Notify
    fanout.kept = kept = CompactedHistory(EPOCH, 10, NEVER, 2**60)
    for _ in range(2):
        kept.add(encode_note(bytes(room - 3)), None, b"a")
    feed = subscribed(fanout, line, max_payload=most)
    (event,) = line.write_all(feed)
    assert len(event.payload) == most
    cells = decode(event.payload)
    assert (cells[keys.NUMBER], keys.REPLACED in cells) == (2**60 + 2, False)


@given(
    st.integers(1, 5),
    st.sampled_from([1_024, 1 << 20]),
    st.lists(
        st.tuples(
            st.sampled_from(["publish", "write", "read", "cut"]), st.text("abcde", max_size=6)
        ),
        max_size=60,
    ),
)
def test_each_key_arrives_or_a_gap_is_counted(
    most: int, limit: int, steps: list[tuple[str, str]]
) -> None:
    fanout, line = new_fanout(most, limit), Line()
    newest: dict[str, int] = {}
    got: list[tuple[str, int]] = []
    gaps = 0

    def subscribe(after: TopicPosition | None) -> tuple[HistoryFeed, NumberedInbox]:
        feed = subscribed(fanout, line, after)
        assert feed.begins is not None
        account = MemoryBudget(NEVER)
        return feed, NumberedInbox(lambda: None, lambda *_: None, account, feed.begins, after)

    def write(count: int) -> None:
        for event in line.write(feed, count):
            inbox.put(event.subcategory, event.payload, 1)

    def read() -> None:
        while inbox:
            got.extend(keys_of(inbox.take()[0]))

    feed, inbox = subscribe(None)
    for step, names in steps:
        if step == "publish":
            for name in names:
                assert fanout.kept is not None
                newest[name] = fanout.kept.last + 1
                fanout.add(encode_note([name, newest[name], bytes(300)]), key=name.encode())
            if len(names) % 2:
                fanout.flush()
        elif step == "write":
            write(len(names))
        elif step == "read":
            read()
        else:
            position = inbox.position
            read()
            gaps += inbox.gaps
            feed.close()
            line = Line()
            feed, inbox = subscribe(position)
    fanout.flush()
    while line.queue or feed.behind:
        write(NEVER)
    read()
    gaps += inbox.gaps
    assert all(one[1] < other[1] for one, other in pairwise(got))
    last = dict(got)
    if most >= 5:
        assert gaps == 0
    if not gaps and not feed.dropped:
        assert last == newest
    kept = fanout.kept
    assert kept is not None
    for name, number in newest.items():
        if number >= kept.first:  # it is kept still, and so must have come
            assert last[name] == number
