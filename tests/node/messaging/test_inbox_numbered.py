"""Notes with numbers, as a subscriber takes them: from an honest publisher, and from any other."""

from collections.abc import Sequence

import pytest

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, encode
from parley._node.messaging.inbox import LAST_NUMBER, NumberedInbox
from parley._node.messaging.topic_history import Beginning, TopicPosition
from parley._node.protocol.codes import NOTES, NOTIFY
from parley._node.protocol.memory_budget import MemoryBudget

EPOCH, OTHER = b"epoch 01", b"epoch 02"


def inbox(
    number: int = 0, recovered: bool = False, after: TopicPosition | None = None
) -> NumberedInbox:
    """One that begins so."""
    begins = Beginning(TopicPosition(EPOCH, number), recovered)
    return NumberedInbox(
        lambda: None, lambda cost, count: None, MemoryBudget(1 << 20), begins, after
    )


def put(box: NumberedInbox, notes: Sequence[Encodable], number: Encodable = None) -> None:
    """An event comes, with the number of its first note."""
    cells: dict[int, Encodable] = {keys.NOTES: list(notes)}
    if len(notes) == 1:
        cells = {keys.DATA: notes[0], keys.HEADERS: {"a": 1}}
    if number is not None:
        cells[keys.NUMBER] = number
    box.put(NOTIFY if len(notes) == 1 else NOTES, encode(cells), 100)


def read_all(box: NumberedInbox) -> list[Value]:
    """All that waits; the position is the same before and after it was read."""
    before, got = box.position, []
    while box:
        notes, _ = box.take()
        got += notes
    assert box.position == before == TopicPosition(EPOCH, box.number)
    return got


def test_each_further_note_is_one_more() -> None:
    box = inbox(6)
    assert box.number == 6
    put(box, ["7"], 7)
    put(box, ["8", "9"])
    put(box, ["10"])
    assert (box.position.number, box.number) == (10, 6)
    assert read_all(box) == ["7", "8", "9", "10"]
    assert (box.number, box.gaps, box.repeated, box.malformed) == (10, 0, 0, 0)


def test_what_was_taken_is_dropped_and_what_is_missing_is_counted() -> None:
    box = inbox()
    put(box, [1, 2, 3], 1)
    put(box, [2, 3, 4], 2)
    put(box, [8, 9], 8)
    put(box, [10])
    assert read_all(box) == [1, 2, 3, 4, 8, 9, 10]
    assert (box.number, box.gaps, box.repeated) == (10, 3, 2)


def test_numbers_that_fall() -> None:
    box = inbox()
    put(box, [1, 2, 3], 1)
    put(box, ["one"], 1)
    put(box, ["two", "three", "four"])  # The count continues from there.
    put(box, ["five"])
    assert read_all(box) == [1, 2, 3, "four", "five"]
    assert (box.number, box.gaps, box.repeated) == (5, 0, 3)


def test_numbers_that_jump_to_the_end_and_beyond() -> None:
    box = inbox()
    put(box, ["last"], LAST_NUMBER)
    put(box, ["beyond"])
    put(box, ["and", "beyond"], LAST_NUMBER)
    put(box, ["late"], 5)
    assert read_all(box) == ["last"]
    assert (box.number, box.gaps) == (LAST_NUMBER, LAST_NUMBER - 1)
    assert (box.malformed, box.repeated) == (2, 1)


@pytest.mark.parametrize("number", [0, -1, "1", b"1", True, 1.0, [1]])
def test_numbers_that_are_none(number: Encodable) -> None:
    box = inbox()
    put(box, ["a"], number)
    put(box, ["a", "b"], number)
    put(box, ["c"], 1)
    assert read_all(box) == ["c"]
    assert (box.malformed, box.number) == (2, 1)


def test_no_notes_at_a_number() -> None:
    box = inbox()
    put(box, [], 9)
    assert read_all(box) == []
    assert (box.number, box.gaps) == (0, 0)  # No note has arrived yet.
    put(box, ["nine"])
    assert read_all(box) == ["nine"]
    assert (box.number, box.gaps) == (9, 8)


def test_where_it_went_on() -> None:
    box = inbox(7, True, TopicPosition(EPOCH, 7))
    assert (box.recovered, box.gaps, box.number) == (True, 0, 7)
    box = inbox(9, False, TopicPosition(EPOCH, 7))
    assert (box.recovered, box.gaps, box.number) == (False, 2, 9)
    box = inbox(9, False, TopicPosition(OTHER, 7))
    assert (box.recovered, box.gaps, box.number) == (False, 0, 9)


def test_a_publisher_that_lies_of_where_it_goes_on() -> None:
    box = inbox(9, True, TopicPosition(OTHER, 9))  # another epoch is never recovered
    assert (box.recovered, box.gaps) == (False, 0)
    box = inbox(9, True, None)
    assert (box.recovered, box.gaps) == (False, 0)
    box = inbox(9, True, TopicPosition(EPOCH, 7))  # Two are missing, whatever it reports.
    assert (box.recovered, box.gaps, box.number) == (False, 2, 9)
    box = inbox(5, True, TopicPosition(EPOCH, 7))  # Accepted notes arrive again.
    assert (box.recovered, box.number) == (True, 7)
    put(box, [6, 7, 8], 6)
    assert read_all(box) == [8]
    assert (box.repeated, box.gaps) == (2, 0)
    box = inbox(2, False, TopicPosition(EPOCH, 7))  # The same, without a report.
    put(box, [3, 4, 5, 6, 7, 8], 3)
    assert read_all(box) == [8]
    assert (box.recovered, box.repeated, box.gaps) == (False, 5, 0)
