"""From the rows of bronze to those of silver, in one task: an audit between Arrow batches.

One rule: a task verifies what it is given from the nearest block on, and knows nothing of
other tasks: what only they can tell (a seal in the next range) is left to `pipeline.stitch`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crypto.auditor import AuditorPrivateKey
from node.journal.audit import Audit
from node.journal.audit.rows import EVENT_COLUMNS, EventRow
from node.journal.names import CLOSED, parse_name
from node.journal.records import Record
from pipeline.errors import PipelineError
from pipeline.silver_schema import EVENT, FINDING, PENDING, SESSION, SPAN, WALKED_ARROW

# What of bronze a walk needs.
NEEDED: Final = (
    "segment",
    "offset",
    "size",
    "kind",
    "time_ns",
    "body",
    "status",
    "range_start",
    "lead",
)
BATCH_ROWS: Final = 16_384
_SECOND_NS: Final = 1_000_000_000
# What one task tells of the order of segments is not all there is: `pipeline.stitch` does.
_ACROSS_TASKS: Final = frozenset({"missing-segment", "no-end"})
_DAMAGED: Final = ("ok", "bad-crc", "bad-length", "torn")

Walk = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def walker(private_keys: Sequence[bytes], *, payloads: bool) -> Walk:
    """A function for `mapInArrow` over rows of bronze in their order.

    `private_keys` are auditors' (32 bytes each); none means that nothing is decrypted.
    """

    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        auditors = [AuditorPrivateKey(key) for key in private_keys]
        task = _Task(Audit(auditors, payloads=payloads, stitched=True))
        for batch in batches:
            task.take(batch)
            while task.has_many:
                yield task.some_events()
            yield from task.rest()
        task.finish()
        yield from task.rest(everything=True)

    return walk


class _Task:
    """The audit of one task, and its rows on their way out."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._at: tuple[str, int] | None = None
        self._rows: list[EventRow] = []

    @property
    def has_many(self) -> bool:
        """Whether a batch of events is full."""
        return len(self._rows) >= BATCH_ROWS

    def take(self, batch: pa.RecordBatch) -> None:
        """Feed the audit with rows of bronze."""
        columns = [batch.column(name) for name in NEEDED]
        segments, *rest = (column.to_pylist() for column in columns)
        record_of, follow = Record, self._audit.record
        at = self._at
        for segment, offset, size, kind, time, body, status, start, lead in zip(
            segments, *rest, strict=True
        ):
            if status not in _DAMAGED:
                continue  # a file that is no segment, or cannot be read: bronze says so
            if at != (segment, offset) and offset and not lead and offset != start:
                raise PipelineError(f"the rows of {segment} are not in their order at {offset}")
            # A time that no column holds is null there.
            follow(segment, record_of(offset, size, kind, time or 0, body, status), silent=lead)
            at = segment, offset + size
        self._at = at
        self._rows += self._audit.take_events()

    def finish(self) -> None:
        """The task has no more rows."""
        self._audit.finish()
        self._rows += self._audit.take_events()

    def some_events(self) -> pa.RecordBatch:
        """A full batch of events."""
        rows, self._rows = self._rows[:BATCH_ROWS], self._rows[BATCH_ROWS:]
        return _event_batch(rows, EVENT, None)

    def rest(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """What is no event, and the last events if that is everything."""
        audit = self._audit
        if everything and self._rows:
            yield _event_batch(self._rows, EVENT, None)
        findings = [asdict(finding) for finding in audit.take_findings()]
        findings = [finding for finding in findings if finding["kind"] not in _ACROSS_TASKS]
        if findings:
            yield _other_batch(findings, FINDING)
        sessions = [row._asdict() for row in audit.take_sessions()]
        if sessions:
            yield _other_batch(sessions, SESSION)
        spans: list[dict[str, Any]] = []
        for span, pending in audit.take_spans():
            chains = {"start_chain": span.start_chain.hex(), "end_chain": span.end_chain.hex()}
            spans.append({**span._asdict(), **chains, "time_ns": _time_of(pending)})
            if pending:
                rows = [(*row, None) for row in pending]
                yield _event_batch(rows, PENDING, f"{span.segment}:{span.offset}")
        if spans:
            yield _other_batch(spans, SPAN)


def _time_of(rows: list[EventRow]) -> int | None:
    return rows[0][EVENT_COLUMNS.index("time_ns")] if rows else None


def _run_start(segment: str) -> int:
    """When the run of a segment began, in ns: for what has no time of its own."""
    name = parse_name(segment + CLOSED)
    if name is None:
        return 0
    start = datetime.strptime(name.start, "%Y%m%dT%H%M%S%fZ").replace(tzinfo=UTC)
    return int(start.timestamp()) * _SECOND_NS


def _event_batch(rows: list[EventRow], part: str, other: str | None) -> pa.RecordBatch:
    columns = dict(zip(EVENT_COLUMNS, zip(*rows, strict=True), strict=True))
    times = np.array(columns.pop("time_ns"), dtype=np.int64) // 1000
    time = pa.array(times).cast(pa.timestamp("us", tz="UTC"))
    others = pa.repeat(pa.scalar(other, pa.string()), len(rows))
    return _batch(columns, time, len(rows), part, others)


def _other_batch(rows: list[dict[str, Any]], part: str) -> pa.RecordBatch:
    times = [(row.get("time_ns") or _run_start(row["segment"])) // 1000 for row in rows]
    time = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    columns = {name: [row.get(name) for row in rows] for name in ("journal", "segment", "session")}
    other = pa.array([json.dumps(row) for row in rows], pa.string())
    return _batch(columns, time, len(rows), part, other)


def _batch(
    columns: Mapping[str, Sequence[Any]], time: pa.Array, count: int, part: str, other: pa.Array
) -> pa.RecordBatch:
    arrays = []
    for field in WALKED_ARROW:
        if field.name == "time":
            arrays.append(time)
        elif field.name == "date":
            arrays.append(pc.cast(time, pa.date32()))
        elif field.name == "part":
            arrays.append(pa.repeat(part, count))
        elif field.name == "other":
            arrays.append(other)
        elif field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=WALKED_ARROW)
