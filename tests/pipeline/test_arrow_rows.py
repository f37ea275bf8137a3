"""Compact rows as Arrow batches: the same as one by one, within their limits."""

from itertools import count, product

import pyarrow as pa
import pytest

from parley._node.journal.audit.content import UNREAD, CompactRow, Content, event_rows
from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._pipeline import arrow_rows
from parley._pipeline.arrow_rows import event_batches
from parley._pipeline.schema import EVENT, WALKED_ARROW

NOW = 1_795_000_000_000_000_123
HEADS = ("a" * 52, "s", "01", "sent", "a" * 52, "b" * 52), ("a" * 52, "s", None, "sent", None, None)
CONTENTS = (
    UNREAD,
    Content("call", "prices", None, None, None, None),
    Content("reset", None, None, 3, 2**40, 7),
    Content("notes", "news", notes=[b"one", b"", b"three"]),
    Content("emit", "c", "a.b"),
    Content("notes", notes=[]),
)


def a_row(number: int, head: tuple[str | None, ...], content: Content) -> CompactRow:
    unread = content is UNREAD
    return CompactRow(
        head,
        number * 100,
        None if unread else number,
        NOW + number,
        number % 3,
        120,
        None if unread else 99,
        None if unread else b"digest",
        None if unread else number,
        None if unread else 0x0310,
        content,
        content.topic,
        None if unread else f"topic:{content.topic}",
        None if unread or content.notes else b"payload",
        "gap" if unread else "ok",
        (number - 1) % 5 or None,
    )


@pytest.mark.parametrize("payloads", [True, False])
@pytest.mark.parametrize("contents", [CONTENTS, CONTENTS[1:2], CONTENTS[:3], CONTENTS[3:]])
def test_a_batch_has_the_rows_that_there_are_one_by_one(
    contents: tuple[Content, ...], payloads: bool
) -> None:
    numbers = count()
    rows = [a_row(next(numbers), head, one) for head, one in product(HEADS, contents)]
    seals = [None if number % 2 else NOW + 50_000 for number in range(len(rows))]
    (batch,) = event_batches(rows, seals, EVENT, None, payloads=payloads)
    assert batch.schema == WALKED_ARROW
    wanted = [
        dict(zip(EVENT_COLUMNS, one, strict=True))
        for row, seal in zip(rows, seals, strict=True)
        for one in event_rows([row], seal, payloads=payloads)
    ]
    given = batch.to_pylist()
    for one in given:
        assert one.pop("part") == EVENT
        assert one.pop("other") is None
        assert one.pop("date") == one["time"].date()
    for one in wanted:
        one["time"] = pa.scalar(one.pop("time_ns") // 1000, pa.timestamp("us", tz="UTC")).as_py()
    assert given == wanted


def test_a_batch_has_no_more_rows_and_bytes_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(rows: list[CompactRow]) -> list[int]:
        batches = event_batches(rows, [None] * len(rows), EVENT, None, payloads=True)
        return [batch.num_rows for batch in batches]

    call, notes = (a_row(1, HEADS[0], one) for one in (CONTENTS[1], CONTENTS[3]))
    monkeypatch.setattr(arrow_rows, "BATCH_ROWS", 4)
    assert sizes([]) == []
    assert sizes([call] * 9) == [4, 4, 1]
    assert sizes([notes] * 3) == [3, 3, 3]
    assert sizes([notes, call, notes]) == [4, 3]
    monkeypatch.setattr(arrow_rows, "BATCH_SIZE", 20)
    assert sizes([call] * 5) == [2, 2, 1]
    # An event that alone has more is one all the same.
    assert sizes([call._replace(payload=bytes(99), wire_size=140), call]) == [1, 1]
