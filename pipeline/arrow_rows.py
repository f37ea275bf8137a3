"""Conversion of an audit's rows to Arrow batches with the columns of `WALKED_ARROW`.

Values that many rows share, such as event heads and contents, are built once and repeated in C. If
one event carries many notes, only the note columns differ between its rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from parley._node.journal.audit.content import CompactRow
from parley._node.journal.audit.rows import HEAD_COLUMNS
from parley._node.journal.segments import CLOSED, parse_name
from parley._pipeline.dated_files import limit_dates
from parley._pipeline.schema import WALKED_ARROW
from parley._pipeline.summary.kinds import Summary, encode_table

BATCH_ROWS: Final = 16_384
BATCH_SIZE: Final = 2**26  # bytes of payloads: an Arrow column can store at most 2 GiB
_SECOND_NS: Final = 1_000_000_000
_TIME: Final = WALKED_ARROW.field("time").type
# Columns that are copied unchanged from a row.
_PLAIN: Final = (
    "offset",
    "place",
    "stream",
    "wire_size",
    "blob_size",
    "digest",
    "async_id",
    "topic",
    "label",
    "payload",
    "inside",
    "status",
)


def event_batches(
    rows: Sequence[CompactRow],
    sealed: Sequence[int | None],
    part: str,
    other: str | None,
    *,
    payloads: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of events, one for each note; `sealed` are the times of their seals in ns.

    A batch has at most `BATCH_ROWS` rows and `BATCH_SIZE` bytes of payload, or is one event.
    """
    for first, last in _pieces(rows):
        yield _event_batch(rows[first:last], sealed[first:last], part, other, payloads=payloads)


def other_batch(rows: Sequence[Mapping[str, Any]], part: str) -> pa.RecordBatch:
    """Return rows other than events, each as JSON in the column `other`."""
    times = [(row.get("time_ns") or _run_start(row["segment"])) // 1000 for row in rows]
    arrays = {
        name: pa.array([row.get(name) for row in rows], pa.string())
        for name in ("journal", "segment", "session", "direction")
    }
    arrays["offset"] = pa.array([row.get("offset") for row in rows], pa.int64())
    arrays["other"] = pa.array([json.dumps(row) for row in rows], pa.string())
    return _batch(arrays, np.array(times, dtype=np.int64), part)


def summary_batch(summary: Summary, part: str, time_us: int) -> pa.RecordBatch:
    """Return one row for each kind in a summary; `time_us` is the time of any of its events."""
    count = len(summary)
    arrays = {
        "other": pa.array(list(summary), pa.string()),
        "payload": pa.array([encode_table(table) for table in summary.values()], pa.binary()),
    }
    return _batch(arrays, np.full(count, time_us, dtype=np.int64), part)


def _pieces(rows: Sequence[CompactRow]) -> Iterator[tuple[int, int]]:
    contents = [row.content for row in rows]
    carries_notes = any(
        one.notes for one in dict(zip(map(id, contents), contents, strict=True)).values()
    )
    if (
        0 < len(rows) <= BATCH_ROWS
        and not carries_notes
        and sum([row.wire_size for row in rows if not row.inside]) <= BATCH_SIZE
    ):
        yield 0, len(rows)
        return
    first = size = count = 0
    for at, row in enumerate(rows):
        notes = row.content.notes
        if notes:
            more, bytes_ = len(notes), sum(map(len, notes))
        else:
            more, bytes_ = 1, len(row.payload or b"")
        if at > first and (count + more > BATCH_ROWS or size + bytes_ > BATCH_SIZE):
            yield first, at
            first, size, count = at, 0, 0
        size += bytes_
        count += more
    if first < len(rows):
        yield first, len(rows)


def _event_batch(
    rows: Sequence[CompactRow],
    sealed: Sequence[int | None],
    part: str,
    other: str | None,
    *,
    payloads: bool,
) -> pa.RecordBatch:
    columns = dict(zip(CompactRow._fields, zip(*rows, strict=True), strict=True))
    arrays = _head_columns(columns["head"])
    contents, where = _distinct(columns["content"])
    for name in ("type", "namespace", "code", "opens", "request"):
        arrays[name] = _take_values([getattr(one, name) for one in contents], where, _type(name))
    for name in _PLAIN:
        arrays[name] = pa.array(columns[name], _type(name))
    numbers = pa.array(columns["number"], pa.int32())
    arrays["category"] = pc.shift_right(numbers, 8)
    arrays["subcategory"] = pc.bit_wise_and(numbers, 255)
    times = np.array(columns["time_ns"], dtype=np.int64)
    arrays["seal_delay_us"] = _delays(times, sealed)
    items = [1 if one.notes is None else len(one.notes) for one in contents]
    counts = np.array(items, dtype=np.int32)[where]
    if any(one.notes is not None for one in contents):
        lengths = np.maximum(counts, 1)  # an event without notes also gets a row
        event = np.repeat(np.arange(len(rows)), lengths)  # the row's event
        arrays = {name: array.take(pa.array(event)) for name, array in arrays.items()}
        times = times[event]
        payload = chain.from_iterable(row.content.notes or (row.payload,) for row in rows)
        arrays["payload"] = pa.array(payload, pa.binary())
        firsts = np.cumsum(lengths) - lengths
        arrays["item"] = pa.array(np.arange(len(event)) - firsts[event], pa.int32())
        arrays["items"] = pa.array(counts[event])
    else:
        arrays["item"] = pa.repeat(pa.scalar(0, pa.int32()), len(rows))
        arrays["items"] = pa.array(counts)
    arrays["payload_size"] = pc.binary_length(arrays["payload"])
    if not payloads:
        del arrays["payload"]
    arrays["other"] = pa.repeat(pa.scalar(other, pa.string()), len(times))
    return _batch(arrays, times // 1000, part)


def _head_columns(heads: Sequence[tuple[str | None, ...]]) -> dict[str, pa.Array]:
    distinct, where = _distinct(heads)
    return {
        name: _take_values([head[index] for head in distinct], where, pa.string())
        for index, name in enumerate(HEAD_COLUMNS)
    }


def _distinct(values: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the distinct objects, and for each value the index of its object."""
    ids = np.fromiter(map(id, values), np.uint64, len(values))
    if (ids == ids[0]).all():
        return [values[0]], np.zeros(len(values), dtype=np.int32)
    _, firsts, where = np.unique(ids, return_index=True, return_inverse=True)
    return [values[first] for first in firsts], where


def _take_values(values: list[Any], where: Any, type_: pa.DataType) -> pa.Array:
    if len(values) == 1:
        return pa.repeat(pa.scalar(values[0], type_), len(where))
    return pa.array(values, type_).take(pa.array(where))


def _delays(times: Any, sealed: Sequence[int | None]) -> pa.Array:
    seals = pa.array(sealed, pa.int64())
    # Rows have no other times, and stitching uses only these.
    delays = seals.fill_null(0).to_numpy(zero_copy_only=False) // 1000 - times // 1000
    return pa.array(delays, mask=seals.is_null().to_numpy(zero_copy_only=False))


def _type(name: str) -> pa.DataType:
    return WALKED_ARROW.field(name).type


def _run_start(segment: str) -> int:
    """Return the start time of the segment's run in ns, for rows that have no time."""
    name = parse_name(segment + CLOSED)
    if name is None:
        return 0
    start = datetime.strptime(name.start, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return int(start.timestamp()) * _SECOND_NS


def _batch(arrays: dict[str, pa.Array], micros: Any, part: str) -> pa.RecordBatch:
    """Return a batch of these columns; `time` is in microseconds and missing columns are null."""
    count = len(micros)
    arrays["time"] = time = pa.array(micros).cast(_TIME)
    arrays["date"] = limit_dates(pc.cast(time, pa.date32()))
    arrays["part"] = pa.repeat(part, count)
    return pa.RecordBatch.from_arrays(
        [
            arrays[field.name] if field.name in arrays else pa.nulls(count, field.type)
            for field in WALKED_ARROW
        ],
        schema=WALKED_ARROW,
    )
