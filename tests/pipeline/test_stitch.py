"""Results of adjacent spans, and the pass over rows; without Spark."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from parley._node.journal.audit.content import CompactRow, Content
from parley._pipeline.arrow_rows import event_batches, other_batch
from parley._pipeline.schema import EVENT, FINDING, PENDING, SEGMENT, SPAN, SUMMARY, TIP, WAITING
from parley._pipeline.stitch.rows import stitch_rows
from parley._pipeline.stitch.runs import Runs, segment_row
from parley._pipeline.stitch.spans import LinkedSpan, link

NODE = "a" * 52
RUN, LATER = "20261121T000000000000Z", "20261122T000000000000Z"
NOW = 1_795_000_000_000_000_000


def stem(number: int = 0, run: str = RUN) -> str:
    return f"{NODE}-{run}-{number:08d}"


def span(start: int, end: int, offset: int, **other: Any) -> dict[str, Any]:
    """Return a span from place `start` to `end`, with a matching chain."""
    return {
        "journal": NODE,
        "segment": stem(),
        "offset": offset,
        "session": "01" * 16,
        "direction": "sent",
        "start_chain": f"chain {start}",
        "start_place": start,
        "end_segment": stem(),
        "end_offset": offset + 100,
        "end_chain": f"chain {end}",
        "end_place": end,
        "pending": 0,
        "unplaced": 0,
        "sealed_ns": None,
        "start_state": "same",
        "end_state": "same",
        "started": start == 0,
        "ended": False,
        **other,
    }


def runs(*segments: tuple[str, int, int]) -> Runs:
    made = Runs(NODE)
    for one in segments or ((RUN, 0, 0),):
        made.add(*one)
    return made


def linked(*spans: dict[str, Any], of: Runs | None = None) -> list[LinkedSpan]:
    return link([(one, True) for one in spans], of or runs()).spans


def found(*spans: dict[str, Any], of: Runs | None = None) -> list[dict[str, Any]]:
    return link([(one, True) for one in spans], of or runs()).findings


def test_the_next_valid_seal_of_a_piece_vouches_for_what_was_before_it() -> None:
    spans = linked(
        span(0, 5, 0, pending=2),
        span(5, 9, 100, sealed_ns=7),
        span(9, 12, 200, sealed_ns=8, pending=1),
        span(12, 12, 300),
    )
    assert [one.seal_ns for one in spans] == [7, 8, None, None]
    assert [one.waits for one in spans] == [False, False, True, True]
    # The last one, and the one whose events still wait.
    assert [one.is_tip for one in spans] == [False, False, True, True]


@pytest.mark.parametrize("name", ["start_chain", "start_place", "start_state"])
def test_a_seal_vouches_for_nothing_behind_a_break(name: str) -> None:
    other = 6 if name == "start_place" else "another"
    broken = span(5, 9, 100, sealed_ns=7, **{name: other})
    first, second = linked(span(0, 5, 0, pending=2), broken)
    assert first.seal_ns is None
    assert not first.waits
    assert not first.is_tip
    assert second.is_tip


def test_what_is_wrong_between_two_spans_is_told_once() -> None:
    def kinds(*spans: dict[str, Any]) -> list[tuple[str, int, int]]:
        return [(one["kind"], one["place"], one["count"]) for one in found(*spans)]

    assert kinds(span(0, 5, 0), span(5, 9, 100)) == []
    assert kinds(span(0, 5, 0), span(8, 9, 100)) == [("gap", 6, 3)]
    assert kinds(span(0, 5, 0, unplaced=2), span(7, 9, 100)) == [("bad-chain", 6, 2)]
    assert kinds(span(0, 5, 0, unplaced=2)) == [("bad-chain", 6, 2)]
    assert kinds(span(0, 5, 0, unplaced=2), span(9, 9, 100)) == [("gap", 6, 2)]
    assert kinds(span(0, 5, 0, ended=True), span(5, 9, 100)) == [("checkpoint-mismatch", 5, 1)]
    assert kinds(span(0, 5, 0), span(4, 9, 100)) == [("checkpoint-mismatch", 5, 1)]


def test_the_break_before_a_span_that_an_earlier_batch_had_was_told_then() -> None:
    before, tip, new = span(0, 5, 0), span(7, 9, 100), span(9, 11, 200)
    told = link([(before, False), (tip, False), (new, True)], runs())
    assert told.findings == []


def test_a_session_must_begin_where_nothing_was_pruned() -> None:
    assert [one["kind"] for one in found(span(3, 5, 64))] == ["no-start"]
    assert found(span(0, 5, 64)) == []
    pruned = span(3, 5, 64, segment=stem(4))
    assert found(pruned, of=runs((RUN, 4, 4), (RUN, 5, 5))) == []
    assert [one["kind"] for one in found(pruned, of=runs((RUN, 4, 2)))] == ["no-start"]
    # Both directions of a session are one finding.
    both = span(3, 5, 64), span(2, 2, 64, direction="received")
    assert [one["kind"] for one in found(*both)] == ["no-start"]


def test_a_later_run_ends_the_sessions_of_the_one_before() -> None:
    open_, later = span(0, 5, 0, pending=2), runs((RUN, 0, 0), (LATER, 0, 0))
    (one,) = linked(open_, of=later)
    assert not one.waits
    assert not one.is_tip
    (told,) = found(open_, of=later)
    assert (told["kind"], told["segment"], told["offset"]) == ("no-end", stem(), 100)
    assert found(span(0, 5, 0, ended=True), of=later) == []


def test_missing_segments_are_told_and_the_last_is_kept() -> None:
    some = runs((RUN, 3, 2), (RUN, 4, 4), (RUN, 7, 7), (LATER, 0, 0))
    (told,) = some.findings()
    assert (told["kind"], told["segment"], told["count"]) == ("missing-segment", stem(7), 2)
    kept = [(row["run"], row["number"], row["first"]) for row in some.rows()]
    assert kept == [(RUN, 7, 2), (LATER, 0, 0)]


# The pass over rows.


def pending(number: int, where: str, payload: bytes = b"x") -> list[pa.RecordBatch]:
    head = (NODE, stem(), "01" * 16, "sent", NODE, "b" * 52)
    row = CompactRow(
        head,
        number,
        number,
        NOW,
        1,
        99,
        80,
        b"d",
        0,
        0x0301,
        Content("call"),
        "t",
        None,
        payload,
        "ok",
    )
    return list(event_batches([row], [None], PENDING, where, payloads=True))


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the results of stitching without its summaries."""
    rows = (row for batch in batches for row in batch.to_pylist())
    return [row for row in rows if row["part"] not in (SUMMARY, WAITING)]


@pytest.mark.parametrize("step", [1, 3, 100])
def test_pending_events_wait_or_are_final(step: int) -> None:
    """However the rows are cut into batches."""
    sealed = span(0, 5, 0, pending=2), span(5, 9, 100, sealed_ns=NOW + 5_000, pending=1)
    rows = pa.Table.from_batches(
        [
            other_batch([segment_row(stem())], SEGMENT),
            other_batch(list(sealed), SPAN),
            *pending(4, f"{stem()}:0"),
            *pending(5, f"{stem()}:0"),
            *pending(9, f"{stem()}:100"),
        ]
    ).combine_chunks()
    given = rows_of(list(stitch_rows(rows.to_batches(max_chunksize=step))))
    by_part: dict[str, list[dict[str, Any]]] = {}
    for row in given:
        by_part.setdefault(row["part"], []).append(row)
    assert {part: len(some) for part, some in by_part.items()} == {
        EVENT: 2,
        PENDING: 1,
        TIP: 1,
        SEGMENT: 1,
    }
    assert [(row["status"], row["seal_delay_us"], row["other"]) for row in by_part[EVENT]] == [
        ("ok", 5, None),
        ("ok", 5, None),
    ]
    assert by_part[PENDING][0]["other"] == f"{stem()}:100"


def test_events_of_a_span_that_no_seal_follows_are_unsealed() -> None:
    broken = span(0, 5, 0, pending=1, session="01" * 16), span(8, 9, 100, sealed_ns=NOW)
    batches = [
        other_batch([segment_row(stem())], SEGMENT),
        other_batch(list(broken), SPAN),
        *pending(5, f"{stem()}:0"),
        # Of an unreported span.
        *pending(6, f"{stem()}:50"),
    ]
    given = rows_of(list(stitch_rows(batches)))
    told = Counter((row["part"], row["status"]) for row in given)
    assert told[EVENT, "unsealed"] == 2
    assert told[FINDING, None] == 1


def test_journals_and_sessions_do_not_mix() -> None:
    other = "c" * 52
    theirs = {
        name: value.replace(NODE, other) if isinstance(value, str) else value
        for name, value in span(3, 5, 0).items()
    }
    batches = [
        other_batch([segment_row(stem()), segment_row(stem(3))], SEGMENT),
        other_batch([span(0, 5, 0), span(7, 9, 0, session="02" * 16, started=True)], SPAN),
        other_batch([segment_row(stem().replace(NODE, other))], SEGMENT),
        other_batch([theirs], SPAN),
    ]
    given = rows_of(list(stitch_rows(batches)))
    assert Counter((row["journal"], row["part"]) for row in given) == {
        (NODE, FINDING): 1,  # the missing segments
        (NODE, TIP): 2,
        (NODE, SEGMENT): 1,
        (other, FINDING): 1,  # no start
        (other, TIP): 1,
        (other, SEGMENT): 1,
    }
