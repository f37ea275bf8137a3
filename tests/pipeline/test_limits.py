"""Limits of the pipeline's tasks, exceeded: every row is still given, and given once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from parley._node.journal.audit import Audit
from parley._node.journal.audit.content import CompactRow, Content
from parley._pipeline import audit_task as walk_module
from parley._pipeline import dated_files
from parley._pipeline.arrow_rows import event_batches, other_batch
from parley._pipeline.dated_files import event_files
from parley._pipeline.gold.store import MAX_DATES, GoldDirectory
from parley._pipeline.schema import EVENT, FINDING, PENDING, SEGMENT, SPAN, SUMMARY, TIP
from parley._pipeline.stitch import local as here
from parley._pipeline.stitch import rows as stitch_module
from parley._pipeline.stitch.rows import stitch_rows
from parley._pipeline.stitch.runs import segment_row
from parley._pipeline.summarise import EventGroup

NODE = "a" * 52
STEM = f"{NODE}-20261121T000000000000Z-00000000"
NOW = 1_795_000_000_000_000_000
DAY = 86_400 * 10**9


# Dates of a task's events.


def of_days(*days: int) -> pa.RecordBatch:
    """Return an event for each of these days, at an offset that identifies it."""
    head = (NODE, STEM, "01" * 16, "sent", NODE, "b" * 52)
    rows = [
        CompactRow(
            *(head, day, day, NOW + day * DAY, 1, 99, 80, b"d", 0, 0x0301),
            *(Content("call"), "t", None, b"x", "ok"),
        )
        for day in days
    ]
    (batch,) = event_batches(rows, [None] * len(rows), EVENT, None, payloads=True)
    return batch


def written(directory: Path) -> dict[str, list[tuple[int, Any]]]:
    """Offsets and times of the rows in each date's file."""
    found = {}
    for file in directory.rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        offsets, times = (table.column(name).to_pylist() for name in ("offset", "time"))
        found[file.parent.name] = list(zip(offsets, times, strict=True))
    return found


def test_a_task_of_too_many_dates_has_few_files_and_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dated_files, "MAX_DATES", 3)
    batches = [of_days(*range(10)), of_days(0, 7, 11), of_days(12)]
    with event_files(tmp_path, "task") as files:
        for batch in batches:
            files.write(batch)
            assert len(files._writers) <= 3
    found = written(tmp_path)
    assert len(found) == 3
    given = [
        pair
        for batch in batches
        for pair in zip(
            batch.column("offset").to_pylist(), batch.column("time").to_pylist(), strict=True
        )
    ]
    assert Counter(pair for some in found.values() for pair in some) == Counter(given)
    # Dates with a separate directory contain no other dates, except in the first.
    first, *others = sorted(found)
    assert len(found[first]) == len(given) - len(others)
    for name in others:
        assert {f"date={time.date()}" for _, time in found[name]} == {name}


def test_two_attempts_of_a_task_write_different_hidden_files(tmp_path: Path) -> None:
    with event_files(tmp_path, "task") as first, event_files(tmp_path, "task") as second:
        for files in (first, second):
            files.write(of_days(1))
        assert len(list(tmp_path.rglob(".task.*"))) == 2
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_a_task_of_as_many_dates_as_it_may_has_a_file_for_each(tmp_path: Path) -> None:
    for name, days in (("most", dated_files.MAX_DATES), ("more", dated_files.MAX_DATES + 9)):
        with event_files(tmp_path / name, "task") as files:
            files.write(of_days(*range(days)))
        found = written(tmp_path / name)
        assert len(found) == dated_files.MAX_DATES
        assert sum(map(len, found.values())) == days


def test_traffic_of_too_many_dates_is_in_one_file(tmp_path: Path) -> None:
    store = GoldDirectory(tmp_path)
    for number, days in enumerate((MAX_DATES, MAX_DATES + 1)):
        date = pa.array(range(days), pa.int32()).cast(pa.date32())
        table = pa.table({"date": date, "node": pa.repeat(NODE, days)})
        store.write("traffic", number, table)
        files = list(tmp_path.glob(f"gold/traffic/slot={number}/**/*.parquet"))
        assert len(files) == (days if days == MAX_DATES else 1)
        found = store.read("traffic", number)
        assert found is not None
        assert found.sort_by("date") == table


def test_other_rows_of_too_many_dates_have_few_directories(tmp_path: Path) -> None:
    """Both Spark and stitching, which only has the times of rows, write few directories."""
    days = 3 * dated_files.MAX_DATES
    rows = [{"segment": STEM, "offset": day, "time_ns": NOW + day * DAY} for day in range(days)]
    for batch in (other_batch(rows, FINDING), of_days(*range(days))):
        assert len(pc.unique(batch.column("date"))) == dated_files.MAX_DATES
        dates = batch.column("time").cast(pa.date32())
        at = batch.schema.get_field_index("date")
        part = batch.column("part")[0].as_py()
        here._write(tmp_path, 0, batch.set_column(at, "date", dates))
        found = written(tmp_path / f"part={part}")
        assert len(found) == dated_files.MAX_DATES
        assert sorted(offset for some in found.values() for offset, _ in some) == [*range(days)]


# Notes that a task holds.


@pytest.mark.pure  # It replaces a method of the core.
def test_many_notes_are_given_out_before_there_are_many_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walk_module, "MANY_NOTES", 20)
    notes = Content("notes", notes=[b"x"] * 8)
    head = (NODE, STEM, "01" * 16, "sent", NODE, "b" * 52)
    row = CompactRow(head, 0, 1, NOW, 1, 99, 80, b"d", 0, 0x0310, notes, "t", None, None, "ok")
    audit = Audit()
    task = walk_module._AuditTask(audit, payloads=True)
    given = 0
    for number in range(1, 10):
        monkeypatch.setattr(audit, "take_compact_events", lambda: [([row], None)])
        task.finish()
        assert task.has_many is (number % 3 == 0)
        if task.has_many:
            given += sum(batch.num_rows for batch in task.some_events())
    assert given == 72


# Rows that wait to be summed up.


def test_events_with_long_topics_and_labels_are_summed_up_before_there_are_many() -> None:
    """A peer has named its stream once, and each of its small events has that in its row."""
    head = (NODE, STEM, "01" * 16, "sent", NODE, "b" * 52)
    name = "\U0001f98a" * 1_024
    content = Content("notify", topic=name)
    row = CompactRow(head, 0, 1, NOW, 1, 99, 80, b"d", 0, 0x0301, content, name, name, b"", "ok")
    held, most = EventGroup(bytes(16)), 0
    for _ in range(2):
        for batch in event_batches([row] * 16_384, [None] * 16_384, EVENT, None, payloads=True):
            held.add(batch, counted=True, final=True)
            most = max(most, sum(one.nbytes for one, *_ in held._batches))
            if held.has_many:
                assert [rows.num_rows for rows in held.take(SUMMARY)]
    assert most < 2**28


# What stitching holds.


def test_small_files_of_many_bytes_are_not_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As stitching writes them, and as silver does."""
    head = (NODE, STEM, "01" * 16, "sent", NODE, "b" * 52)
    for number, payload in enumerate((b"", bytes(4_096))):
        rows = [
            CompactRow(
                *(head, at, at, NOW, 1, 99, 80, b"d", 0, 0x0301),
                Content("call"),
                "t",
                None,
                payload,
                "ok",
            )
            for at in range(2_000)
        ]
        (batch,) = event_batches(rows, [None] * 2_000, PENDING, STEM, payloads=True)
        here._write(tmp_path / "silver" / f"batch={number}", 0, batch)
        (file,) = (tmp_path / "silver" / f"batch={number}").rglob("*.parquet")
        assert file.stat().st_size < 2**19
        monkeypatch.setattr(here, "MOST_BYTES", batch.nbytes // 2)
        assert not here.stitch_locally(tmp_path, number)
        monkeypatch.setattr(here, "MOST_BYTES", batch.nbytes * 2)
        assert here.stitch_locally(tmp_path, number)


# What stitching finds.


def span(session: int) -> dict[str, Any]:
    """A continued session without its start: a finding and a hint."""
    return {
        "journal": NODE,
        "segment": STEM,
        "offset": session * 100,
        "session": f"{session:032x}",
        "direction": "sent",
        "start_chain": "chain 3",
        "start_place": 3,
        "end_segment": STEM,
        "end_offset": session * 100 + 50,
        "end_chain": "chain 5",
        "end_place": 5,
        "pending": 0,
        "unplaced": 0,
        "sealed_ns": None,
        "start_state": "same",
        "end_state": "same",
        "started": False,
        "ended": False,
    }


def test_findings_and_tips_are_given_out_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stitch_module, "_MANY", 8)
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        yield other_batch([segment_row(STEM)], SEGMENT)
        for session in range(50):
            taken += 1
            yield other_batch([span(session)], SPAN)

    counts: Counter[str] = Counter()
    told: Counter[tuple[str, str]] = Counter()
    for batch in stitch_rows(batches()):
        rows = batch.to_pylist()
        part = rows[0]["part"]
        counts[part] += batch.num_rows
        assert batch.num_rows <= 8
        if part in (FINDING, TIP):
            told.update((part, row["session"]) for row in rows)
            # Of all sessions except the current one, at most this many wait.
            assert taken - counts[part] <= 8
    assert counts == {FINDING: 50, TIP: 50, SEGMENT: 1}
    assert set(told.values()) == {1}
