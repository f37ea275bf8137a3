"""An audit's rows as Arrow batches, with the columns of silver.

One rule: what is the same in many rows is made once and repeated in C; a batch has exactly
the columns of `WALKED_ARROW`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from node.journal.audit.rows import EVENT_COLUMNS, HEAD_COLUMNS, EventRow
from node.journal.names import CLOSED, parse_name
from pipeline.silver_schema import WALKED_ARROW

_SECOND_NS: Final = 1_000_000_000
_TIME: Final = WALKED_ARROW.field("time").type
_COLUMNS: Final = EVENT_COLUMNS[len(HEAD_COLUMNS) :]


def event_batch(rows: Sequence[EventRow], part: str, other: str | None) -> pa.RecordBatch:
    """Rows of events, each with its head as one tuple; `part` and `other` are the same in all."""
    heads, *columns = zip(*rows, strict=True)
    arrays = _head_columns(heads)
    named = dict(zip(_COLUMNS, columns, strict=True))
    time = _as_time(np.array(named.pop("time_ns"), dtype=np.int64) // 1000)
    count = len(rows)
    arrays["other"] = pa.repeat(pa.scalar(other, pa.string()), count)
    return _batch(arrays, named, time, count, part)


def other_batch(rows: Sequence[Mapping[str, Any]], part: str) -> pa.RecordBatch:
    """Rows that are no events: whole, as JSON, in `other`."""
    times = [(row.get("time_ns") or _run_start(row["segment"])) // 1000 for row in rows]
    named = {name: [row.get(name) for row in rows] for name in ("journal", "segment", "session")}
    arrays = {"other": pa.array([json.dumps(row) for row in rows], pa.string())}
    return _batch(arrays, named, _as_time(np.array(times, dtype=np.int64)), len(rows), part)


def _head_columns(heads: Sequence[tuple[str | None, ...]]) -> dict[str, pa.Array]:
    """The columns of heads: there are few different ones, and they are the same objects."""
    numbers: dict[tuple[str | None, ...], int] = {}
    at = np.array([numbers.setdefault(head, len(numbers)) for head in heads], dtype=np.int32)
    where = pa.array(at)
    return {
        name: pa.array([head[index] for head in numbers], pa.string()).take(where)
        for index, name in enumerate(HEAD_COLUMNS)
    }


def _as_time(micros: Any) -> pa.Array:
    return pa.array(micros).cast(_TIME)


def _run_start(segment: str) -> int:
    """When the run of a segment began, in ns: for what has no time of its own."""
    name = parse_name(segment + CLOSED)
    if name is None:
        return 0
    start = datetime.strptime(name.start, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return int(start.timestamp()) * _SECOND_NS


def _batch(
    arrays: dict[str, pa.Array],
    columns: Mapping[str, Sequence[Any]],
    time: pa.Array,
    count: int,
    part: str,
) -> pa.RecordBatch:
    arrays["time"] = time
    arrays["date"] = pc.cast(time, pa.date32())
    arrays["part"] = pa.repeat(part, count)
    for field in WALKED_ARROW:
        if field.name not in arrays:
            values = columns.get(field.name)
            arrays[field.name] = (
                pa.nulls(count, field.type) if values is None else pa.array(values, field.type)
            )
    return pa.RecordBatch.from_arrays(
        [arrays[name] for name in WALKED_ARROW.names], schema=WALKED_ARROW
    )
