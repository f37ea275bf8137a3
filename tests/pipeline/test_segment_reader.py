"""Records as Arrow batches: the same records that the journal's own reading finds."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.journal.records import BAD_CRC, BAD_LENGTH, OK, TORN, Record, encode_record
from parley._node.journal.segments import LIVE, RecordRange, plan_ranges, read_range
from parley._pipeline import segment_reader
from parley._pipeline.schema import BRONZE_ARROW, FOREIGN, UNREADABLE
from parley._pipeline.segment_reader import SegmentRange, foreign_batch, read_segment_range
from tests.pipeline.segments import Made, make_segment

MADE = make_segment()


def rows(
    path: Path, range_: RecordRange, made: Made = MADE, **options: Any
) -> list[dict[str, Any]]:
    found = list(read_segment_range(SegmentRange(str(path), made.name, range_, **options)))
    assert all(batch.schema == BRONZE_ARROW for batch in found)
    return [row for batch in found for row in batch.to_pylist()]


def whole(path: Path) -> RecordRange:
    return RecordRange(0, path.stat().st_size, 0, MADE.blocks)


def as_record(row: dict[str, Any]) -> Record:
    time = row["time_ns"] or 0
    return Record(row["offset"], row["size"], row["kind"], time, row["body"], row["status"])


def test_the_columns_of_a_sound_segment(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    found = rows(path, whole(path))
    assert [row["offset"] for row in found] == list(MADE.offsets)
    assert [row["kind"] for row in found[:4]] == [1, 2, 6, 6]
    assert {row["status"] for row in found} == {OK}
    assert {row["journal"] for row in found} == {MADE.name.node}
    assert {row["segment"] for row in found} == {MADE.name.stem}
    event = found[5]
    assert event["session"] == 3
    assert event["direction"] == 1
    assert event["body"] == bytes([0, 0, 0, 3, 1]) + bytes([0, 0, 3]) * 4
    assert event["time"] == datetime.fromtimestamp(event["time_ns"] // 10**9, UTC)
    assert found[0]["session"] is None
    assert found[1]["direction"] is None
    # A range belongs to one day: the day of its first record.
    assert {row["date"] for row in found} == {date(2025, 11, 14)}


@given(
    st.lists(st.tuples(st.integers(0, len(MADE.data) - 1), st.integers(1, 255)), max_size=4),
    st.integers(0, len(MADE.data)) | st.just(len(MADE.data)),
    st.sampled_from([64, 300, segment_reader.CHUNK]),
)
def test_damage_is_what_the_journals_reading_finds(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], size: int, chunk: int
) -> None:
    data = bytearray(MADE.data)
    for offset, bits in flips:
        data[offset] ^= bits
    path = tmp_path_factory.mktemp("damaged") / str(MADE.name)
    path.write_bytes(data[:size])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_reader, "CHUNK", chunk)
        for range_ in plan_ranges(path, size, target=500):
            expected = list(read_range(path, range_.start, range_.end, range_.blocks))
            found = [row for row in rows(path, range_) if not row["lead"]]
            assert [as_record(row) for row in found] == [
                record._replace(time=record.time if record.time < 2**63 else 0)
                for record in expected
            ]


def test_a_range_that_begins_in_a_block_brings_what_leads_up_to_it(tmp_path: Path) -> None:
    path = MADE.write(tmp_path)
    block = MADE.blocks[1]
    start = MADE.offsets[MADE.offsets.index(block) + 5]
    found = rows(path, RecordRange(start, MADE.blocks[2], block, ()))
    assert [row["offset"] for row in found] == [
        o for o in MADE.offsets if block <= o < MADE.blocks[2] or not o
    ]
    assert [row["lead"] for row in found] == [row["offset"] < start for row in found]
    assert {(row["range_start"], row["block_start"]) for row in found} == {(start, block)}


def test_times_and_bodies_that_no_writer_would_write(tmp_path: Path) -> None:
    odd = [encode_record(6, 2**64 - 1, b""), encode_record(255, 2**63 - 1, b"\1\2\3\4\5")]
    path = tmp_path / str(MADE.name)
    path.write_bytes(b"".join(odd))
    first, second, _ = rows(path, RecordRange(0, path.stat().st_size, 0, ()))
    assert (first["time"], first["time_ns"], first["session"]) == (None, None, None)
    assert (second["kind"], second["time_ns"], second["session"]) == (255, 2**63 - 1, None)
    assert second["time"].year == 2262


def test_a_record_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "CHUNK", 1000)
    data = [encode_record(6, 0, bytes([n]) * size) for n, size in enumerate((10, 5000, 20))]
    path = tmp_path / str(MADE.name)
    path.write_bytes(b"".join(data))
    found = rows(path, RecordRange(0, path.stat().st_size, 0, ()))
    assert [(len(row["body"]), row["status"]) for row in found] == [
        (10, OK),
        (5000, OK),
        (20, OK),
        (0, TORN),  # the segment is closed, and has no end
    ]


def test_of_a_file_that_is_no_journal_little_is_kept(tmp_path: Path) -> None:
    path = tmp_path / str(MADE.name)
    path.write_bytes(b"\xff" * 10**6)
    (row,) = rows(path, whole(path)._replace(blocks=()))
    assert (row["offset"], row["size"], row["status"]) == (0, 10**6, BAD_LENGTH)
    assert len(row["body"]) == 2**16


def test_what_happens_to_a_file_before_it_is_read(tmp_path: Path) -> None:
    path = MADE.write(tmp_path, LIVE)
    range_ = whole(path)
    # Closed, and so renamed.
    closed = path.rename(tmp_path / str(MADE.name))
    assert len(rows(path, range_)) == len(MADE.offsets)
    # Truncated: the existing part, and a row for the missing one.
    closed.write_bytes(MADE.data[: MADE.blocks[1]])
    *found, last = rows(closed, range_)
    assert [row["offset"] for row in found] == [o for o in MADE.offsets if o < MADE.blocks[1]]
    assert (last["offset"], last["status"]) == (MADE.blocks[1], TORN)
    assert last["offset"] + last["size"] == range_.end
    # Gone, or something else.
    closed.unlink()
    (row,) = rows(closed, range_)
    assert (row["status"], row["size"]) == (UNREADABLE, range_.end)
    closed.mkdir()
    (row,) = rows(closed, range_)
    assert row["status"] == UNREADABLE
    assert b"directory" in row["body"]


def test_a_growing_files_last_record_is_torn_not_damaged(tmp_path: Path) -> None:
    path = MADE.write(tmp_path, LIVE)
    end = MADE.offsets[-3] + 9
    *_, last = rows(path, RecordRange(0, end, 0, ()), is_growing=True)
    assert (last["offset"], last["size"], last["status"]) == (MADE.offsets[-3], 9, TORN)


def test_a_bad_crc_keeps_what_stands_there_but_its_time_is_not_trusted(tmp_path: Path) -> None:
    data = bytearray(MADE.data)
    data[MADE.offsets[4] + 9] ^= 1
    path = tmp_path / str(MADE.name)
    path.write_bytes(data)
    row = rows(path, whole(path))[4]
    assert (row["status"], row["time"]) == (BAD_CRC, None)
    assert row["time_ns"] is not None


def test_a_foreign_file_is_a_row() -> None:
    (row,) = foreign_batch("/somewhere/backup.pjl").to_pylist()
    assert (row["journal"], row["segment"], row["status"]) == (None, "backup.pjl", FOREIGN)


def test_a_file_cut_to_before_its_range_is_told_where_the_range_begins(tmp_path: Path) -> None:
    """Readers get rows in order: earlier rows belong to another range."""
    path = MADE.write(tmp_path)
    start = MADE.blocks[1]
    path.write_bytes(MADE.data[: start // 2])
    [row] = rows(path, RecordRange(start, len(MADE.data), start, ()))
    assert (row["status"], row["offset"], row["lead"]) == (TORN, start, False)
    assert row["size"] == len(MADE.data) - start
