"""The ledger can fail: lost, repeated, swapped and changed items are reported as such."""

import pytest

from parley._node.errors import PeerClosedError
from parley._node.protocol.codes import CloseCode
from tests.soak.ledger import LARGEST_PIECE, PERIOD, TOLD, Book, Bytes, Numbers, content


def told(numbers: list[object], count: int | None = None) -> list[str]:
    """Return the complaints of a reader of these numbers; `count` should have arrived."""
    found: list[str] = []
    check = Numbers(found.append)
    for number in numbers:
        check.take(number)
    if count is not None:
        check.end(count)
    return found


def test_a_row_in_order_is_right() -> None:
    assert told([0, 1, 2, 3], 4) == []


@pytest.mark.parametrize(
    ("numbers", "count", "violations"),
    [
        ([0, 2], None, ["gap: 1 to 1 did not come"]),
        ([0, 5, 6], None, ["gap: 1 to 4 did not come"]),
        ([1], None, ["gap: 0 to 0 did not come"]),
        ([0, 1, 1, 2], None, ["duplicate: 1 came again, 2 was next"]),
        ([0, 1, 0], None, ["duplicate: 0 came again, 2 was next"]),
        ([0, 2, 1, 3], None, ["gap: 1 to 1 did not come", "wrong order: 1 came after 2"]),
        ([0, 2, 1, 1], None, [None, None, "duplicate: 1 came again, 3 was next"]),
        ([0, 1], 3, ["lost at the end: 2 of 3 came"]),
        ([0, 1, 2], 2, ["lost at the end: 3 of 2 came"]),
        ([0, b"?"], None, ["not a number but b'?'"]),
    ],
)
def test_each_fault_is_reported_as_such(
    numbers: list[object], count: int | None, violations: list[str | None]
) -> None:
    found = told(numbers, count)
    assert len(found) == len(violations)
    assert [one for one, wanted in zip(found, violations, strict=True) if wanted] == [
        wanted for wanted in violations if wanted
    ]


def test_where_notes_may_be_lost_they_are_counted() -> None:
    found: list[str] = []
    check = Numbers(found.append, may_miss=True)
    check.restart(100)
    for number in (100, 104, 105, 110):
        check.take(number)
    assert (found, check.missing, check.expected) == ([], 7, 111)
    check.take(102)
    assert found == ["wrong order: 102 came after 110"]


def test_bytes_are_known_by_their_position() -> None:
    found: list[str] = []
    check = Bytes(found.append)
    check.take(content(0, 1_000))
    check.take(content(1_000, LARGEST_PIECE))
    check.end(1_000 + LARGEST_PIECE)
    assert found == []
    check.end(1_000)
    assert found == [f"lost at the end: {1_000 + LARGEST_PIECE} of 1000 bytes came"]


@pytest.mark.parametrize("position", [0, 65_536, PERIOD - 10, 3 * PERIOD])
@pytest.mark.parametrize("shift", [1, -1, 64, 60_000, 65_536])
def test_a_piece_from_elsewhere_is_told(position: int, shift: int) -> None:
    found: list[str] = []
    check = Bytes(found.append, position)
    check.take(content(position + shift, 100))
    assert found == [f"other bytes than were sent, from {position} on (100)"]


LOST = PeerClosedError(CloseCode.CONNECTION_LOST)


@pytest.mark.parametrize(
    ("error", "violations"),
    [
        (LOST, 0),
        (ExceptionGroup("both", [LOST, ExceptionGroup("inner", [LOST])]), 0),
        (PeerClosedError(CloseCode.BAD_RECORD), 1),
        (PeerClosedError(CloseCode.NORMAL), 1),
        (KeyError("x"), 1),
        (ExceptionGroup("both", [LOST, KeyError("x"), ValueError("y")]), 2),
    ],
    ids=str,
)
def test_a_part_may_end_by_the_cut_alone(error: Exception, violations: int) -> None:
    book = Book(7)
    for _ in range(2):
        with book.part("a"):
            assert book.active == {"a": 1}
            raise error
    assert len(book.violations) == 2 * violations
    assert all(what.startswith("a ended with") for what in book.violations)
    assert not book.active


def test_of_many_violations_the_first_are_told_and_all_counted() -> None:
    book = Book(1)
    check = book.numbers("calls/0")
    for number in range(0, 100, 2):
        check.take(number)
    tally = book.tally()
    assert tally["violations"][0] == "calls/0: gap: 1 to 1 did not come"
    assert (len(tally["violations"]), tally["uncounted"]) == (TOLD, 49 - TOLD)
    assert tally["received"] == {"calls/0": 99}
