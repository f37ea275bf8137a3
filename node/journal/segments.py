"""Segment files: their names, their ranges for readers, and reading records.

The start of a record follows from the start of the segment, a block or the segment end. Readers
never search for it in other bytes (docs/journal.md). They need memory for a chunk and one record.
When sorted by name, the segments of a node are in order.
"""

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path, PurePath
from struct import Struct
from typing import BinaryIO, Final, NamedTuple

from parley._crypto.identity import NodeId
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.record_types import LIMITS, SegmentEnd
from parley._node.journal.records import (
    BAD_LENGTH,
    FRAME_SIZE,
    HEAD_SIZE,
    LEAST_LENGTH,
    MAX_LENGTH,
    OK,
    Record,
    read_records,
)
from parley._node.journal.records import TORN as TORN_RECORD

CLOSED: Final = ".pjl"
LIVE: Final = ".pjl.open"
TORN: Final = ".pjl.torn"
LOCK: Final = ".lock"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_START_FORMAT: Final = "%Y%m%dT%H%M%S%fZ"
_NAME: Final = re.compile(
    r"(?P<node>[a-z2-7]{52})-(?P<start>\d{8}T\d{12}Z)-(?P<number>\d{8})(?P<state>\.pjl(\.open|\.torn)?)",
    re.ASCII,
)


class SegmentName(NamedTuple):
    """The parts of a segment's file name. `start` is precise to the microsecond."""

    node: str
    start: str
    number: int
    state: str = CLOSED

    def __str__(self) -> str:
        return f"{self.node}-{self.start}-{self.number:08d}{self.state}"

    @property
    def stem(self) -> str:
        return f"{self.node}-{self.start}-{self.number:08d}"


def run_start(time: int) -> str:
    """Format the start of a run from `time` in ns since the epoch."""
    return f"{_EPOCH + timedelta(microseconds=time // 1000):%Y%m%dT%H%M%S%fZ}"


def parse_name(path: str | PurePath) -> SegmentName | None:
    """Parse the name of a segment; return None if `path` has another name."""
    found = _NAME.fullmatch(PurePath(path).name)
    if found is None or not _is_time(found["start"]):
        return None
    return SegmentName(found["node"], found["start"], int(found["number"]), found["state"])


def _is_time(start: str) -> bool:
    try:
        datetime.strptime(start, _START_FORMAT)
    except ValueError:
        return False
    return True


def lock_name(node_id: NodeId) -> str:
    """Return the name of the lock file of a node's journal."""
    return node_id.text + LOCK


# How much is read at a time, unless one record is longer.
CHUNK: Final = 2**20
# The size of a range after which the next block begins another range.
RANGE_SIZE: Final = 2**24
# How many bytes of damage are kept as a body, because the damage may extend over a whole file.
LONGEST_DAMAGE: Final = 2**16

_HEAD: Final = Struct(">IIB")
_LENGTH: Final = Struct(">I")
_MAX_END: Final = LIMITS.max_bytes + HEAD_SIZE


class SegmentFile(NamedTuple):
    """A file of a journal. `size` is its size in bytes when it was listed."""

    path: Path
    name: SegmentName
    size: int

    @property
    def is_live(self) -> bool:
        """Whether the file is being written, or was when its node crashed."""
        return self.name.state == LIVE


class RecordRange(NamedTuple):
    """The bytes of a segment from `start` to `end`, for one reader.

    `block` is the offset of the block to which `start` belongs, or 0 before the first block.
    `blocks` are the offsets of the block records between `start` and `end`; a record must begin at
    each.
    """

    start: int
    end: int
    block: int
    blocks: tuple[int, ...]


class SegmentScan(NamedTuple):
    """The result of walking from record to record by their lengths, without checking CRCs.

    `end` is the offset after the last complete record, `records` counts them, and `blocks` are the
    offsets of block records. `status` is the reason why the walk ended: `ok` at the end of the
    file, `torn` or `bad-length`.
    """

    end: int
    records: int
    blocks: tuple[int, ...]
    status: str


def list_segments(directory: str | Path, node: str | None = None) -> list[SegmentFile]:
    """List the closed and live segments in a directory, of all nodes or of one (52 characters).

    The segments of each node are in order. A segment renamed during the listing is listed once, as
    closed; one that is removed is not listed. Raises OSError.

    Example:

        from pathlib import Path
        from parley.journal import list_segments, read_range

        Path("journal").mkdir()
        for segment in list_segments("journal"):
            for record in read_range(segment.path, 0, segment.size):
                print(record.kind)
    """
    found: dict[str, SegmentFile] = {}
    for file in _list_files(directory, node):
        if file.name.state != TORN and (file.name.state == CLOSED or file.name.stem not in found):
            found[file.name.stem] = file
    return [found[stem] for stem in sorted(found)]


def list_torn(directory: str | Path, node: str | None = None) -> list[SegmentFile]:
    """List the files that recovery cut off the ends of segments, sorted. Raises OSError."""
    return sorted(file for file in _list_files(directory, node) if file.name.state == TORN)


def _list_files(directory: str | Path, node: str | None) -> Iterator[SegmentFile]:
    for path in Path(directory).iterdir():
        name = parse_name(path)
        if name is None or (node is not None and name.node != node):
            continue
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            closed = closed_path(path)
            if name.state != LIVE or not closed.exists():
                continue
            path, name, size = closed, name._replace(state=CLOSED), closed.stat().st_size
        yield SegmentFile(path, name, size)


def closed_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(LIVE.removeprefix(CLOSED)))


def open_segment(path: Path) -> BinaryIO:
    """Open a segment for reading, even if it was closed, and so renamed, after it was listed."""
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return closed_path(path).open("rb", buffering=0)


def read_end(path: Path) -> Record | None:
    """Read the `segment end` of a closed segment; return None if it is missing or damaged."""
    with open_segment(path) as file:
        size = file.seek(0, os.SEEK_END)
        if size < FRAME_SIZE + LEAST_LENGTH + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(read_at(file, size - _LENGTH.size, _LENGTH.size))
        start = size - FRAME_SIZE - length
        if not LEAST_LENGTH + _LENGTH.size <= length <= _MAX_END or start < 0:
            return None
        data = read_at(file, start, size - start)
    record = next(read_records(data, 0, start))
    if record.status != OK or record.kind != keys.SEGMENT_END or record.size != len(data):
        return None
    return record


def read_footer(path: Path) -> SegmentEnd | None:
    """Parse the `segment end` of a closed segment; return None if it is missing or damaged.

    Its blocks are ascending offsets in the segment. The reader must check that block records are
    there. Raises OSError.
    """
    record = read_end(path)
    if record is None:
        return None
    try:
        footer = SegmentEnd.parse(record.body)
    except JournalFormatError:
        return None
    offsets = [0, *footer.blocks, record.offset]
    rising = all(one < next_ for one, next_ in pairwise(offsets))
    return footer if rising or not footer.blocks else None


def scan_segment(path: Path, start: int = 0, size: int | None = None) -> SegmentScan:
    """Walk from record to record from `start` to `size` or the file's end. Raises OSError."""
    with open_segment(path) as file:
        end = file.seek(0, os.SEEK_END) if size is None else size
        return _walk_heads(file, start, end)


def _walk_heads(file: BinaryIO, start: int, end: int) -> SegmentScan:
    unpack, head_size = _HEAD.unpack_from, _HEAD.size
    blocks: list[int] = []
    at, records = start, 0
    chunk, base, safe = b"", start, start  # A head that begins before `safe` is in the chunk.
    while at < end:
        if at >= safe:
            chunk, base = read_at(file, at, min(CHUNK, end - at)), at
            safe = base + len(chunk) - head_size + 1
            if at >= safe:  # The file ends within a head.
                [rest] = read_records(chunk)
                return SegmentScan(at, records, tuple(blocks), rest.status)
        length, _, kind = unpack(chunk, at - base)
        if not LEAST_LENGTH <= length <= MAX_LENGTH:
            return SegmentScan(at, records, tuple(blocks), BAD_LENGTH)
        if at + FRAME_SIZE + length > end:
            return SegmentScan(at, records, tuple(blocks), TORN_RECORD)
        if kind == keys.BLOCK:
            blocks.append(at)
        at += FRAME_SIZE + length
        records += 1
    return SegmentScan(at, records, tuple(blocks), OK)


def plan_ranges(
    path: Path, size: int, start: int = 0, block: int = 0, target: int = RANGE_SIZE
) -> list[RecordRange]:
    """Divide a segment from `start` on into ranges of about `target` bytes.

    A closed segment is divided by its `segment end`, or by walking if that is damaged. A live
    segment is divided by walking up to its last complete record. A record begins at `start`, and
    `block` is the offset of its block. All ranges except the first begin with a block. Raises
    OSError.
    """
    live = path.name.endswith(LIVE)
    footer = None if live else read_footer(path)
    if footer is not None and footer.blocks:
        blocks: Sequence[int] = footer.blocks
        block = max((one for one in blocks if one <= start), default=0)
    else:
        heads = scan_segment(path, start, size)
        blocks = heads.blocks
        size = heads.end if live else size
        block = start if start in blocks else block
    ranges: list[RecordRange] = []
    inside: list[int] = []
    for one in blocks:
        if not start < one < size:
            continue
        if one - start < target:
            inside.append(one)
            continue
        ranges.append(RecordRange(start, one, block, tuple(inside)))
        start, block, inside = one, one, []
    if start < size:
        ranges.append(RecordRange(start, size, block, tuple(inside)))
    return ranges


def read_range(path: Path, start: int, end: int, blocks: Sequence[int] = ()) -> Iterator[Record]:
    """Read the records from `start`, where one begins, up to `end`.

    Each byte is in exactly one record. A record that reaches beyond the next of `blocks`, or beyond
    `end` inside the file, is `bad-length` up to that point. At the end of the file it is `torn`.
    The `body` of both has the first LONGEST_DAMAGE bytes. A closed segment without a `segment end`
    is followed by a `torn` record without bytes. Raises OSError.
    """
    last: Record | None = None
    with open_segment(path) as file:
        size = file.seek(0, os.SEEK_END)
        end = min(end, size)
        bounds = [start, *(block for block in blocks if start < block < end), end]
        for one, next_ in pairwise(bounds):
            for last in _read_block(file, one, next_, next_ == size):
                yield last
    if end == size and is_cut(path, last and last.kind, last and last.status):
        yield Record(size, 0, 0, 0, b"", TORN_RECORD)


def is_cut(path: Path, kind: int | None, status: str | None) -> bool:
    """Return whether a segment with this last record (None: without records) lacks its end."""
    if not path.name.endswith(CLOSED) or status in (BAD_LENGTH, TORN_RECORD):
        return False  # A live segment has no end yet, and damage was already reported.
    return kind != keys.SEGMENT_END


def _read_block(file: BinaryIO, start: int, end: int, is_last: bool) -> Iterator[Record]:
    """Yield the records of bytes whose walk must arrive at `end`; `is_last`: the file's end."""
    at, wanted = start, CHUNK
    while at < end:
        wanted = min(wanted, end - at)
        data = read_at(file, at, wanted)
        if len(data) < wanted:  # The file was truncated after it was opened.
            end, is_last = at + len(data), True
        offset, wanted = at, CHUNK
        for record in read_records(data, 0, offset):
            if record.status == BAD_LENGTH:
                yield _damage(record.offset, end, record.body, BAD_LENGTH)
                return
            if record.status == TORN_RECORD:
                here = _LENGTH.unpack_from(record.body)[0] if record.size >= FRAME_SIZE else 0
                if record.offset + max(here, LEAST_LENGTH) + FRAME_SIZE > end:
                    status = TORN_RECORD if is_last else BAD_LENGTH
                    yield _damage(record.offset, end, record.body, status)
                    return
                wanted = max(CHUNK, here + FRAME_SIZE)
                break
            yield record
            at = record.offset + record.size
        else:
            at = offset + len(data)


def _damage(start: int, end: int, body: bytes, status: str) -> Record:
    return Record(start, end - start, 0, 0, body[:LONGEST_DAMAGE], status)


def read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end of the file."""
    file.seek(offset)
    data = file.read(size)
    while 0 < len(data) < size:
        more = file.read(size - len(data))
        if not more:
            break
        data += more
    return data


def sync_directory(directory: Path) -> None:
    """Sync names that were created, renamed or removed in a directory; raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
