"""Segments as files: listing, dividing into ranges, and reading despite damage."""

from itertools import pairwise
from pathlib import Path

import pytest

from parley._crypto.identity import NodeId
from parley._node.journal import keys, segments
from parley._node.journal.record_types import SegmentEnd
from parley._node.journal.records import BAD_CRC, BAD_LENGTH, OK, Record, encode_record
from parley._node.journal.records import TORN as TORN_RECORD
from parley._node.journal.segments import (
    LIVE,
    TORN,
    RecordRange,
    list_segments,
    list_torn,
    plan_ranges,
    read_end,
    read_footer,
    read_range,
    scan_segment,
)
from tests.node.journal.small_segments import (
    closed_segment,
    end_of,
    event,
    name_of,
    records_of,
    write,
    write_open,
)

OTHER = NodeId(bytes(32))


def read_all(path: Path, target: int = 1) -> list[Record]:
    ranges = plan_ranges(path, path.stat().st_size, target=target)
    return [r for one in ranges for r in read_range(path, one.start, one.end, one.blocks)]


def whole(path: Path) -> list[Record]:
    return list(read_range(path, 0, path.stat().st_size))


def assert_covers(records: list[Record], size: int) -> None:
    """Check that all bytes are in exactly one record."""
    assert all(one.offset + one.size == two.offset for one, two in pairwise(records))
    assert (records[0].offset, records[-1].offset + records[-1].size) == (0, size)


# Listing.


def test_segments_are_listed_in_the_order_of_their_node(tmp_path: Path) -> None:
    names = [
        name_of(1, LIVE, run=2),
        name_of(0, run=2),
        name_of(10),
        name_of(9),
        name_of(0, node=OTHER),
    ]
    for size, name in enumerate(names):
        (tmp_path / str(name)).write_bytes(bytes(size))
    (tmp_path / str(name_of(9, TORN))).write_bytes(b"torn")
    for other in ("x.pjl", f"{name_of(3)}.part", f"{OTHER.text}.lock"):
        (tmp_path / other).touch()
    found = list_segments(tmp_path)
    assert [file.name for file in found] == [names[4], names[3], names[2], names[1], names[0]]
    assert [file.size for file in found] == [4, 3, 2, 1, 0]
    assert [file.is_live for file in found] == [False] * 4 + [True]
    assert [file.name for file in list_segments(tmp_path, OTHER.text)] == [names[4]]
    assert [(file.name, file.size) for file in list_torn(tmp_path)] == [(name_of(9, TORN), 4)]


def test_segment_closed_during_the_listing_is_listed_once(tmp_path: Path) -> None:
    write(tmp_path, b"ab")
    write_open(tmp_path, b"abc")
    assert [(file.name.state, file.size) for file in list_segments(tmp_path)] == [(".pjl", 2)]


def test_segment_closed_after_the_listing_is_read(tmp_path: Path) -> None:
    closed = write(tmp_path, closed_segment())
    listed = closed.with_name(str(name_of(state=LIVE)))
    assert list(read_range(listed, 0, closed.stat().st_size)) == whole(closed)
    assert scan_segment(listed) == scan_segment(closed)
    with pytest.raises(FileNotFoundError):
        scan_segment(tmp_path / str(name_of(5)))


# The end of a segment.


def test_the_footer_is_found_from_the_last_bytes(tmp_path: Path) -> None:
    records = records_of(blocks=2)
    path = write(tmp_path, b"".join([*records, end_of(records, cut=7)]))
    footer = read_footer(path)
    assert footer is not None
    assert (footer.records, footer.cut) == (len(records), 7)
    assert footer.blocks == scan_segment(path).blocks
    assert len(footer.blocks) == 2


def test_damaged_footer_is_ignored(tmp_path: Path) -> None:
    data = closed_segment(blocks=1, events=1)
    record = read_end(write(tmp_path, data))
    assert record is not None
    for size in range(len(data)):
        assert read_footer(write(tmp_path, data[:size])) is None, size
    for at in range(record.offset, len(data)):
        assert read_footer(write(tmp_path, flipped(data, at))) is None, at


@pytest.mark.parametrize("blocks", [(9, 9), (9, 8), (0, 9), (2**40,)])
def test_footer_with_impossible_blocks_is_ignored(tmp_path: Path, blocks: tuple[int, ...]) -> None:
    end = SegmentEnd(1, blocks).encode()
    data = event(100) + encode_record(keys.SEGMENT_END, 1, end)
    path = write(tmp_path, data)
    assert read_footer(path) is None
    assert plan_ranges(path, len(data)) == [RecordRange(0, len(data), 0, ())]


# Ranges.


@pytest.mark.parametrize("state", [".pjl", LIVE])
@pytest.mark.parametrize("target", [1, 150, 250, 10**6])
def test_ranges_begin_with_blocks_and_are_complete(tmp_path: Path, target: int, state: str) -> None:
    data = closed_segment(blocks=6)
    path = write(tmp_path, data, state)
    blocks = scan_segment(path).blocks
    ranges = plan_ranges(path, len(data), target=target)
    assert all(one.end == two.start for one, two in pairwise(ranges))
    assert (ranges[0].start, ranges[-1].end) == (0, len(data))
    assert {one.start for one in ranges[1:]} <= set(blocks)
    assert all(one.end - one.start >= target for one in ranges[:-1])
    for one in ranges:
        assert one.block == (one.start if one.start else 0)
        assert one.blocks == tuple(block for block in blocks if one.start < block < one.end)
    assert read_all(path, target) == whole(path)


@pytest.mark.parametrize("state", [".pjl", LIVE])
def test_ranges_continue_from_a_position(tmp_path: Path, state: str) -> None:
    data = closed_segment(blocks=3)
    path = write(tmp_path, data, state)
    heads = scan_segment(path)
    for record in whole(path):
        block = max((one for one in heads.blocks if one <= record.offset), default=0)
        ranges = plan_ranges(path, len(data), record.offset, block, target=1)
        assert (ranges[0].start, ranges[0].block) == (record.offset, block)
        assert ranges[-1].end == len(data)
        assert all(one.block == one.start for one in ranges[1:])
    assert plan_ranges(path, len(data), len(data), heads.blocks[-1]) == []


def test_a_live_segment_ends_with_its_last_whole_record(tmp_path: Path) -> None:
    records = records_of(blocks=1)
    data = b"".join(records)
    for size in range(len(data)):
        path = write_open(tmp_path, data[:size])
        end = sum(map(len, records[: (count := whole_records(records, size))]))
        heads = scan_segment(path)
        assert (heads.end, heads.records) == (end, count)
        assert heads.status == (OK if end == size else TORN_RECORD)
        assert sum(one.end - one.start for one in plan_ranges(path, size)) == end
    for tail in (bytes(30), bytes(9), bytes(8)):
        path = write_open(tmp_path, data + tail)
        assert (scan_segment(path).end, scan_segment(path).status) == (len(data), BAD_LENGTH)


def whole_records(records: list[bytes], size: int) -> int:
    """Count the records that are complete in the first `size` bytes."""
    ends = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    return sum(end <= size for end in ends)


# Reading.


@pytest.mark.parametrize("chunk", [2**20, 64])
def test_every_truncation_leaves_the_records_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    data = closed_segment(blocks=2)
    good = whole(write(tmp_path, data))
    assert {record.status for record in good} == {OK}
    monkeypatch.setattr(segments, "CHUNK", chunk)
    for size in range(1, len(data)):
        found = read_all(write(tmp_path, data[:size]))
        assert_covers(found, size)
        kept = [record for record in good if record.offset + record.size <= size]
        assert found[: len(kept)] == kept
        assert [record.status for record in found[len(kept) :]] in ([], [TORN_RECORD])


@pytest.mark.parametrize("chunk", [2**20, 64])
def test_flipped_byte_damages_at_most_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    data = closed_segment(blocks=3)
    path = write(tmp_path, data)
    good, footer = whole(path), read_footer(path)
    assert footer is not None
    bounds = [0, *footer.blocks, len(data)]
    monkeypatch.setattr(segments, "CHUNK", chunk)
    for at in range(good[-1].offset):
        found = read_all(write(tmp_path, flipped(data, at)))
        assert_covers(found, len(data))
        hit = max(number for number, bound in enumerate(bounds) if bound <= at)
        outside = [r for r in good if not bounds[hit] <= r.offset < bounds[hit + 1]]
        assert [record for record in outside if record not in found] == []
        bad = [record for record in found if record.status != OK]
        assert bad
        assert all(r.offset <= at < r.offset + r.size for r in bad[:1])
        assert {r.status for r in bad} <= {BAD_CRC, BAD_LENGTH, TORN_RECORD}
    for at in range(good[-1].offset, len(data)):  # Without the footer it is read in one walk.
        found = read_all(write(tmp_path, flipped(data, at)))
        assert found[: len(good) - 1] == good[:-1]
        assert found[-1].status != OK


def test_length_beyond_the_next_block_is_invalid(tmp_path: Path) -> None:
    records = records_of(blocks=3, events=1)
    last = bytearray(records[2])
    last[3] += len(records[3])  # The event seems to contain the next block record.
    path = write(tmp_path, b"".join([*records[:2], bytes(last), *records[3:], end_of(records)]))
    bad = [record for record in read_all(path) if record.status != OK]
    assert [(record.status, record.size) for record in bad] == [(BAD_LENGTH, len(last))]


def test_shown_damage_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "LONGEST_DAMAGE", 16)
    path = write_open(tmp_path, event(10) + bytes(100))
    bad = whole(path)[-1]
    assert (bad.status, bad.size, bad.body) == (BAD_LENGTH, 100, bytes(16))
    path = write_open(tmp_path, event(10) + event(100)[:-1])
    bad = whole(path)[-1]
    assert (bad.status, bad.size, bad.body) == (TORN_RECORD, len(event(100)) - 1, event(100)[:16])


@pytest.mark.parametrize("chunk", [16, 21, 22, 23, 1000])
def test_records_longer_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    records = [event(size, number) for number, size in enumerate((5000, 0, 1, 3000, 22, 2))]
    monkeypatch.setattr(segments, "CHUNK", chunk)
    path = write_open(tmp_path, b"".join(records))
    found = whole(path)
    assert [record.size for record in found] == [len(record) for record in records]
    assert all(record.status == OK for record in found)
    assert scan_segment(path).records == len(records)


def test_file_truncated_during_reading(tmp_path: Path) -> None:
    path = write_open(tmp_path, event(10) * 3)
    reading = read_range(path, 0, path.stat().st_size)
    path.write_bytes(event(10) + b"\0\0")
    assert [record.status for record in reading] == [OK, TORN_RECORD]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
