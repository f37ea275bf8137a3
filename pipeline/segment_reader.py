"""Reading a range of a segment as Arrow batches with the columns of bronze.

Record boundaries and statuses (`ok`, `bad-crc`, `bad-length`, `torn`) match those of
`node.journal.segments.read_range`. Avoiding a Python object for each record makes this several
times faster. Reading never fails, whatever a file contains.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from parley._node.errors import os_reason
from parley._node.journal import keys
from parley._node.journal.records import (
    BAD_CRC,
    BAD_LENGTH,
    FRAME_SIZE,
    HEAD_SIZE,
    LEAST_LENGTH,
    MAX_LENGTH,
    OK,
    TORN,
)
from parley._node.journal.segments import (
    LONGEST_DAMAGE,
    RecordRange,
    SegmentName,
    is_cut,
    open_segment,
    read_at,
)
from parley._pipeline.schema import BRONZE_ARROW, FOREIGN, UNREADABLE

# Bytes read and returned at a time, unless one record is longer.
CHUNK: Final = 2**22

_FRAME: Final = Struct(">II")
# The header of a record, and the start of a session record's body: u32 session, u8 direction.
_HEAD: Final = np.arange(HEAD_SIZE + 5)
_SESSION_KINDS: Final = np.array(
    [*range(keys.CHECKPOINT, keys.SESSION_END + 1), keys.PARTED, keys.RESUMED]
)
_DIRECTION_KINDS: Final = np.array([keys.EVENT, keys.KEY_UPDATE])
_EPOCH: Final = date(1970, 1, 1)
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The part of a segment that one task reads; sizes and offsets in bytes.

    Rows start at the range's block; rows before the range itself are marked `lead`. The segment's
    first record, which names the auditors, is also included with `lead`, unless earlier ranges
    contained it in whole blocks. If `is_growing`, the file may continue after the end, and a record
    that doesn't end there is torn.
    """

    path: str
    name: SegmentName
    range: RecordRange
    is_growing: bool = False


def read_segment_range(part: SegmentRange) -> Iterator[pa.RecordBatch]:
    """Yield all records of a range in order; a damaged or missing file does not raise an error."""
    rows = _Rows(part)
    start, end, block, blocks = part.range
    reached = start
    kind: int | None = None
    status: str | None = None
    try:
        with open_segment(Path(part.path)) as file:
            size = file.seek(0, 2)
            if 0 < block < size:
                yield from _read_head(file, block, rows, is_whole=start == block)
            bounds = [block, *(one for one in (start, *blocks) if block < one < size)]
            bounds.append(min(end, size))
            for one, next_ in pairwise(bounds):
                may_be_torn = part.is_growing or next_ == size
                for batch in _read_block(file, one, next_, may_be_torn, rows):
                    kind, status = (batch.column(name)[-1].as_py() for name in ("kind", "status"))
                    yield batch
                reached = next_
            if size < end or size == 0 or size < start:
                # The file was longer when it was listed, or it lacks even a first record.
                missing = max(size, start)  # the previous range reports damage before this range
                yield rows.damage(missing, max(end - missing, 0), b"", TORN)
            elif size == end and is_cut(Path(part.path), kind, status):
                yield rows.damage(size, 0, b"", TORN)
    except OSError as error:
        told = os_reason(error).encode()
        yield rows.damage(reached, max(end - reached, 0), told, UNREADABLE)


def foreign_batch(path: str) -> pa.RecordBatch:
    """Return the row for a file that is named like a segment but isn't one."""
    return marker_batch(Path(path).name, FOREIGN)


def marker_batch(segment: str, status: str) -> pa.RecordBatch:
    """Return a row that isn't of a record."""
    nothing: dict[str, str | int | None] = dict.fromkeys(BRONZE_ARROW.names)
    row = nothing | dict.fromkeys(
        ("offset", "size", "range_start", "block_start", "date", "lead"), 0
    )
    row |= {"segment": segment, "status": status}
    arrays = [_repeated(name, value, 1) for name, value in row.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=BRONZE_ARROW)


def _read_head(
    file: BinaryIO, block: int, rows: "_Rows", *, is_whole: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the first record, unless an earlier range already covers it.

    An earlier range covers it if it read up to a block that `is_whole` in this range.
    """
    length, _ = _FRAME.unpack(read_at(file, 0, FRAME_SIZE).ljust(FRAME_SIZE, b"\0"))
    end = FRAME_SIZE + length
    if length >= LEAST_LENGTH and (end == block or (end < block and not is_whole)):
        yield from _read_block(file, 0, end, False, rows)


def _read_block(
    file: BinaryIO, start: int, end: int, may_be_torn: bool, rows: "_Rows"
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a block that must end at `end`."""
    at, wanted = start, CHUNK
    while at < end:
        wanted = min(wanted, end - at)
        data = read_at(file, at, wanted)
        if len(data) < wanted:  # the file was truncated after it was opened
            end, may_be_torn = at + len(data), True
        starts, damaged, stop, length = _walk(data)
        if starts:
            yield rows.records(data, at, starts, stop, damaged)
        at, wanted = at + stop, CHUNK
        if length is None:
            continue
        if length < 0 or at + FRAME_SIZE + max(length, LEAST_LENGTH) > end:
            is_torn = length >= 0 and may_be_torn
            body = read_at(file, at, min(end - at, LONGEST_DAMAGE))
            yield rows.damage(at, end - at, body, TORN if is_torn else BAD_LENGTH)
            return
        wanted = max(CHUNK, FRAME_SIZE + length)


def _walk(data: bytes) -> tuple[list[int], list[int], int, int | None]:
    """Find the offsets and CRC errors of all records, the end of the last, and the reason for the
    end.

    The reason is None at the end of the data, the length of an incomplete record (0 if the length
    itself is incomplete), or -1 if no record can begin there.
    """
    unpack, view, end = _FRAME.unpack_from, memoryview(data), len(data)
    starts: list[int] = []
    damaged: list[int] = []
    add = starts.append
    at = 0
    while at < end:
        if end - at < FRAME_SIZE:
            return starts, damaged, at, 0
        length, crc = unpack(data, at)
        if not LEAST_LENGTH <= length <= MAX_LENGTH:
            return starts, damaged, at, -1
        body = at + FRAME_SIZE
        after = body + length
        if after > end:
            return starts, damaged, at, length
        if crc32(view[body:after]) != crc:
            damaged.append(len(starts))
        add(at)
        at = after
    return starts, damaged, at, None


class _Rows:
    """A builder of batches with the values that all rows of a range share."""

    def __init__(self, part: SegmentRange) -> None:
        self._part = part
        self._date: date | None = None

    def records(
        self, data: bytes, offset: int, starts: list[int], end: int, damaged: list[int]
    ) -> pa.RecordBatch:
        """Return the records that begin at `starts` in `data`, which begins at `offset` in the
        file.
        """
        count = len(starts)
        at = np.array(starts, np.int64)
        ends = np.append(at[1:], end)
        content = np.frombuffer(data, np.uint8)
        heads = content[np.minimum(at[:, None] + _HEAD, len(content) - 1)]
        kinds = heads[:, 8].astype(np.int32)
        times = _integers(heads[:, 9:17], ">u8")
        is_whole = np.ones(count, np.bool_)
        is_whole[damaged] = False
        is_time = times < 2**63
        times = times.astype(np.int64)
        sizes = ends - at
        has_direction = np.isin(kinds, _DIRECTION_KINDS) & (sizes >= HEAD_SIZE + 5)
        has_session = np.isin(kinds, _SESSION_KINDS) & (sizes >= HEAD_SIZE + 4)
        if self._date is None:
            known = times[is_whole & is_time]
            self._date = _EPOCH + timedelta(days=int(known[0]) // _DAY_NS) if known.size else None
        # Slices alternate between bodies and the bytes between them; taking every second one copies
        # in C.
        turns = np.empty(2 * count, np.int32)
        turns[0::2] = at + HEAD_SIZE
        turns[1::2] = ends
        both = pa.BinaryArray.from_buffers(
            pa.binary(), 2 * count - 1, [None, pa.py_buffer(turns), pa.py_buffer(data)]
        )
        sessions, directions = _integers(heads[:, 17:21], ">u4"), heads[:, 21]
        return self._batch(
            count,
            {
                "offset": _column("offset", offset + at),
                "size": _column("size", sizes),
                "kind": _column("kind", kinds),
                "time": _column("time", times // 1000, is_time & is_whole),
                "time_ns": _column("time_ns", times, is_time),
                "session": _column("session", sessions, has_session),
                "direction": _column("direction", directions, has_direction),
                "body": both.take(_indices(np.arange(0, 2 * count, 2))),
                "status": _statuses(is_whole),
                "lead": _flags(offset + at < self._part.range.start),
            },
        )

    def damage(self, offset: int, size: int, body: bytes, status: str) -> pa.RecordBatch:
        # The previous range has reported invalid bytes; only a truncated file needs a report here.
        is_lead = offset < self._part.range.start and status == BAD_LENGTH
        row: dict[str, str | bytes | int | None] = {
            **dict.fromkeys(("time", "time_ns", "session", "direction")),
            "offset": offset,
            "size": size,
            "kind": 0,
            "body": body,
            "status": status,
            "lead": is_lead,
        }
        return self._batch(1, {name: _repeated(name, value, 1) for name, value in row.items()})

    def _batch(self, count: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        name, range_ = self._part.name, self._part.range
        if self._date is None:
            self._date = _run_date(name)
        constant: dict[str, str | int] = {
            "journal": name.node,
            "segment": name.stem,
            "number": name.number,
            "range_start": range_.start,
            "block_start": range_.block,
            "date": (self._date - _EPOCH).days,
        }
        columns |= {one: _repeated(one, value, count) for one, value in constant.items()}
        arrays = [columns[one] for one in BRONZE_ARROW.names]
        return pa.RecordBatch.from_arrays(arrays, schema=BRONZE_ARROW)


# Build arrays from buffers: `pa.array` and `pa.scalar` would import pandas in every worker.


def _repeated(name: str, value: str | bytes | int | None, count: int) -> pa.Array:
    kind = BRONZE_ARROW.field(name).type
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str | bytes):
        data = value if isinstance(value, bytes) else value.encode()
        ends = np.arange(count + 1, dtype=np.int32) * len(data)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * count)]
        return pa.Array.from_buffers(kind, count, buffers)
    values = np.full(count, value)
    return _flags(values) if kind == pa.bool_() else _column(name, values)


def _column(name: str, values: Any, is_known: Any = None) -> pa.Array:
    """Return integers as a column of bronze, with null for unknown values."""
    kind = BRONZE_ARROW.field(name).type
    values = np.ascontiguousarray(values, f"i{kind.bit_width // 8}")
    known = None if is_known is None else _bits(is_known)
    return pa.Array.from_buffers(kind, len(values), [known, pa.py_buffer(values)])


def _flags(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def _statuses(is_whole: Any) -> pa.Array:
    if is_whole.all():
        return _repeated("status", OK, len(is_whole))
    both = pa.concat_arrays([_repeated("status", one, 1) for one in (OK, BAD_CRC)])
    return both.take(_indices(~is_whole))


def _indices(values: Any) -> pa.Array:
    values = values.astype(np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _bits(values: Any) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _run_date(name: SegmentName) -> date:
    try:
        return datetime.strptime(name.start[:8], "%Y%m%d").date()
    except ValueError:  # only digits are checked in names
        return _EPOCH


def _integers(octets: Any, kind: str) -> Any:
    """Return the unsigned big-endian integers in rows of octets."""
    return np.ascontiguousarray(octets).view(kind)[:, 0].astype(kind.replace(">", ""))
