"""What a topic remembers: its bounds, and where a subscriber begins."""

import tracemalloc

import pytest

from parley._lbm import keys
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging import topic_history as kept_module
from parley._node.messaging.notes import encode_note, read_headers
from parley._node.messaging.topic_history import (
    Beginning,
    TopicHistory,
    TopicPosition,
    read_beginning,
    read_position,
)
from parley._node.protocol.limits import EVENT_COST, NOTES_COUNT

EPOCH = b"epoch 01"
NEVER = 1 << 30


def filled(notes: int, most: int = NEVER, most_bytes: int = NEVER) -> TopicHistory:
    """Return the kept notes among 1, 2, 3, .."""
    kept = TopicHistory(EPOCH, most, most_bytes)
    for number in range(1, notes + 1):
        kept.add(encode_note(number), None)
    return kept


def test_numbers_begin_at_1() -> None:
    kept = filled(0)
    assert (len(kept), kept.first, kept.last, kept.cost) == (0, 1, 0, 0)
    kept.add(encode_note("a"), None)
    assert (len(kept), kept.first, kept.last) == (1, 1, 1)
    assert kept.cost == len(encode_note("a")) + EVENT_COST


def test_the_oldest_go_when_there_are_too_many() -> None:
    kept = filled(10, most=3)
    assert (len(kept), kept.first, kept.last) == (3, 8, 10)
    assert kept.cost == 3 * (1 + EVENT_COST)


def test_the_oldest_go_when_they_are_too_long() -> None:
    headers = read_headers({"a": bytes(100)})
    kept = TopicHistory(EPOCH, NEVER, 300)
    kept.add(bytes(100), headers)
    assert kept.cost == 100 + headers.size + EVENT_COST
    kept.add(bytes(100), None)
    assert (kept.first, kept.last, kept.cost) == (2, 2, 100 + EVENT_COST)
    kept.add(bytes(300), None)
    assert (len(kept), kept.first, kept.last, kept.cost) == (0, 4, 3, 0)


def test_what_it_counts_is_no_less_than_what_it_takes() -> None:
    kept = filled(0, most=1_000)
    tracemalloc.start()
    for number in range(4_000):
        kept.add(encode_note([number, bytes(20)]), None)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < kept.cost


def test_a_note_is_found_however_many_have_gone() -> None:
    kept = filled(0, most=10)
    for number in range(1, 5 * kept_module.SLACK):
        kept.add(encode_note(number), None)
        (note,) = kept.read(kept.first, kept.first, NEVER).notes
        assert note == encode_note(kept.first)
    assert len(kept.notes) <= 2 * kept_module.SLACK


def test_an_event_has_what_fits() -> None:
    kept = filled(NOTES_COUNT + 10)
    assert len(kept.read(1, kept.last, NEVER).notes) == NOTES_COUNT
    assert kept.read(4, 6, NEVER).notes == [encode_note(number) for number in (4, 5, 6)]
    assert kept.read(1, kept.last, 10).notes == [encode_note(number) for number in range(1, 11)]
    assert len(kept.read(1, kept.last, 0).notes) == 1


def test_a_note_with_headers_is_read_alone() -> None:
    kept, headers = filled(2), read_headers({"a": 1})
    kept.add(encode_note(3), headers)
    kept.add(encode_note(4), None)
    read = [kept.read(number, kept.last, NEVER) for number in (1, 3, 4)]
    assert [len(batch.notes) for batch in read] == [2, 1, 1]
    assert [batch.headers for batch in read] == [None, headers, None]


def test_what_is_too_long_is_counted_to_the_first_that_is_not() -> None:
    kept, headers = filled(2, most=8), read_headers({"a": bytes(50)})
    for size in (60, 60, 20, 60):
        kept.add(bytes(size), None)
    kept.add(bytes(20), headers)
    counts = [kept.too_long(number, kept.last, 50) for number in range(1, 8)]
    assert counts == [0, 0, 2, 1, 0, 2, 1]
    assert kept.too_long(3, 3, 50) == 1
    assert kept.too_long(7, 7, 20 + headers.size) == 0
    kept.add(bytes(60), None)
    kept.add(bytes(60), None)
    assert (kept.first, kept.too_long(kept.first + 1, kept.last, 50)) == (2, 2)


@pytest.mark.parametrize(
    ("after", "begins", "recovered"),
    [
        (None, 7, False),
        (TopicPosition(EPOCH, 10), 10, True),
        (TopicPosition(EPOCH, 7), 7, True),
        (TopicPosition(EPOCH, 6), 7, False),
        (TopicPosition(EPOCH, 11), 7, False),
        (TopicPosition(b"epoch 02", 10), 7, False),
    ],
)
def test_where_a_subscriber_begins(
    after: TopicPosition | None, begins: int, recovered: bool
) -> None:
    kept = filled(10, most=3)
    assert kept.begin(after) == Beginning(TopicPosition(EPOCH, begins), recovered)


def test_before_the_first_note() -> None:
    kept = filled(0)
    assert kept.begin(None) == Beginning(TopicPosition(EPOCH, 0), False)
    assert kept.begin(TopicPosition(EPOCH, 0)) == Beginning(TopicPosition(EPOCH, 0), True)


def test_positions_and_beginnings_are_whole_or_malformed() -> None:
    epoch, number, recovered = keys.TOPIC_EPOCH, keys.NUMBER, keys.RECOVERED
    assert read_position({}) is None
    assert read_beginning({}) is None
    begins = Beginning(TopicPosition(EPOCH, 5), True)
    assert read_beginning(begins.cells()) == begins
    for wrong in ({epoch: EPOCH}, {number: 5}):
        with pytest.raises(LbmDecodeError):
            read_position(wrong)
    for left_out in (epoch, number, recovered):
        cells = {key: value for key, value in begins.cells().items() if key != left_out}
        with pytest.raises(LbmDecodeError):
            read_beginning(cells)


def test_it_may_begin_anywhere_and_skip_what_never_came() -> None:
    kept = TopicHistory(EPOCH, NEVER, NEVER, 10)
    assert (kept.first, kept.last, len(kept)) == (11, 10, 0)
    kept.add(b"11", None)
    kept.add(b"12", read_headers({"a": 1}))
    kept.skip(5)
    assert (kept.first, kept.last, len(kept), kept.cost) == (18, 17, 0, 0)
    assert kept.begin(TopicPosition(EPOCH, 12)) == Beginning(TopicPosition(EPOCH, 17), False)
    assert kept.begin(TopicPosition(EPOCH, 17)).recovered
    kept.add(b"18", None)
    assert kept.read(18, 18, NEVER).notes == [b"18"]
