"""Many subscribers of one topic: each note is encoded once and goes to all."""

import pytest

from parley._node.messaging import notes as batch_module
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.notes import encode_note, notes_payload, read_headers
from tests.node.messaging.line import Line, data_of, new_fanout, new_feed, publish


def test_everybody_gets_the_same_payload_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def count(notes: list[bytes]) -> tuple[int, bytes]:
        made.append(len(notes))
        return notes_payload(notes)

    monkeypatch.setattr(batch_module, "notes_payload", count)
    fanout, lines = new_fanout(), [Line() for _ in range(3)]
    for line in lines:
        new_feed(fanout, line)
    publish(fanout, 1, 2, 3)
    assert made == [3]
    first, second, third = (line.queue[0].payload for line in lines)
    assert first is second is third


def test_nothing_goes_out_before_the_flush_unless_it_is_much() -> None:
    fanout, line = new_fanout(), Line()
    new_feed(fanout, line)
    fanout.add(encode_note(1))
    assert line.queue == []
    for _ in range(200):
        fanout.add(bytes(1_000))  # not read here
    assert len(line.queue) == 3
    fanout.flush()
    assert len(line.queue) == 4


def test_who_joins_gets_what_is_published_from_then_on() -> None:
    fanout, early, late = new_fanout(), Line(), Line()
    new_feed(fanout, early)
    fanout.add(encode_note(1))
    new_feed(fanout, late)
    fanout.add(encode_note(2))
    fanout.flush()
    assert data_of(early.queue) == [1, 2]
    assert data_of(late.queue) == [2]


def test_a_note_with_headers_goes_after_those_before_it() -> None:
    fanout, line = new_fanout(), Line()
    new_feed(fanout, line)
    fanout.add(encode_note(1))
    fanout.add(encode_note(2), read_headers({"a": 1}))
    fanout.add(encode_note(3))
    fanout.flush()
    assert [(event.notes, event.headers) for event in line.queue] == [
        ([1], {}),
        ([2], {"a": 1}),
        ([3], {}),
    ]


def test_without_subscribers_nothing_is_kept() -> None:
    fanout, line = new_fanout(), Line()
    publish(fanout, 1, 2)
    fanout.add(encode_note(3))
    new_feed(fanout, line)
    fanout.flush()
    assert line.queue == []


def test_the_size_of_a_turn() -> None:
    fanout = new_fanout()
    headers = read_headers({"a": 1})
    fanout.add(encode_note("abc"))
    fanout.add(encode_note("abc"), headers)
    assert fanout.turn_size == 4 + 64 + 4 + 64  # The headers are not sent to any subscriber.
    fanout.flush()
    assert fanout.turn_size == 0
    new_feed(fanout, Line())
    fanout.add(encode_note("abc"), headers)
    assert fanout.turn_size == 4 + 64 + headers.size


def test_a_subscriber_that_leaves_while_notes_are_handed_out() -> None:
    fanout, lines = new_fanout(), [Line(), Line()]
    feeds: list[StreamFeed] = []

    def leave_all() -> None:
        for feed in feeds:
            feed.close()

    feeds += [new_feed(fanout, line) for line in lines]
    lines[0].on_sent = leave_all
    publish(fanout, 1)
    assert [data_of(line.queue) for line in lines] == [[1], []]
    assert not fanout.feeds
    assert [feed.cost for feed in feeds] == [0, 0]


def test_a_slow_subscriber_is_no_concern_of_a_fast_one() -> None:
    fanout, slow_line, fast_line = new_fanout(limit=2_048), Line(), Line()
    slow, fast = new_feed(fanout, slow_line), new_feed(fanout, fast_line)
    got = []
    for note in range(100):
        publish(fanout, [note, bytes(50)])
        got += data_of(fast_line.write_all(fast))
    assert [note[0] for note in got if isinstance(note, list)] == list(range(100))
    assert (slow.open, fast.open) == (False, True)
    assert len(slow_line.resets) == 1
    assert fanout.dropped == slow.dropped
