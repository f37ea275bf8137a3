"""The Spark task that audits rows of bronze and returns rows of silver as Arrow batches.

A task verifies its rows from the nearest block onwards, independently of other tasks.
`pipeline.stitch` checks everything that needs the results of several tasks, such as a seal in the
next range.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.content import CompactRow
from parley._node.journal.records import BAD_CRC, BAD_LENGTH, OK, TORN
from parley._pipeline.arrow_rows import BATCH_ROWS, event_batches, other_batch
from parley._pipeline.bronze_rows import BronzeRows
from parley._pipeline.dated_files import event_files
from parley._pipeline.errors import PipelineError
from parley._pipeline.schema import (
    EVENT,
    FINDING,
    PENDING,
    SEGMENT,
    SESSION,
    SPAN,
    STATEMENT,
    TUNNEL,
)
from parley._pipeline.stitch.runs import segment_row
from parley._pipeline.summarise import with_summaries

# One task sees only part of a journal, so `pipeline.stitch` checks the order of segments.
_ACROSS_TASKS: Final = frozenset({"missing-segment", "no-end"})
_OF_SEGMENTS: Final = (OK, BAD_CRC, BAD_LENGTH, TORN)

MANY_NOTES: Final = 2**18  # a note takes more memory than its bytes in an event

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def make_audit_task(
    private_keys: Sequence[bytes],
    *,
    payloads: bool,
    directory: Path | None = None,
    check_key: bytes | None = None,
) -> BatchFunction:
    """Return a function for `mapInArrow` that audits rows of bronze in journal order.

    Without `private_keys` (the auditors' keys, 32 bytes each) nothing is decrypted. With a
    `directory`, rows of final events are written there and the function returns only the other
    rows. With a `check_key` (16 bytes), the returned rows include summaries.
    """

    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        auditors = [AuditorPrivateKey(key) for key in private_keys]
        task = _AuditTask(Audit(auditors, stitched=True), payloads=payloads)
        with _without_collections():
            if directory is None:
                yield from with_summaries(_audit_rows(task, batches), check_key)
                return
            before = (batch for batch in batches if batch.num_rows)
            first = next(before, None)
            if first is None:
                return
            with event_files(directory, _name_of(first)) as files:
                for batch in with_summaries(_audit_rows(task, chain([first], before)), check_key):
                    if batch.column("part")[0].as_py() == EVENT:
                        files.write(batch)
                    else:
                        yield batch

    return walk


def _audit_rows(task: "_AuditTask", batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        task.take(batch)
        while task.has_many:
            yield from task.some_events()
        yield from task.flush()
    task.finish()
    yield from task.flush(everything=True)


def _name_of(batch: pa.RecordBatch) -> str:
    """Name a task's files after the range of its first row."""
    segment, start = batch.column("segment")[0].as_py(), batch.column("range_start")[0].as_py()
    return f"{segment}-{start or 0:012d}"


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable garbage collection, which takes a fifth of the time with millions of acyclic rows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _AuditTask:
    """The audit of one task and its pending output rows."""

    def __init__(self, audit: Audit, *, payloads: bool) -> None:
        self._audit = audit
        self._payloads = payloads
        self._at = "", 0
        self._rows: list[CompactRow] = []
        self._sealed: list[int | None] = []
        self._notes = 0  # number of output rows
        self._segments: list[dict[str, Any]] = []

    @property
    def has_many(self) -> bool:
        return len(self._rows) >= BATCH_ROWS or self._notes >= MANY_NOTES

    def take(self, batch: pa.RecordBatch) -> None:
        rows = BronzeRows(batch)
        take_run = self._audit.events_in_sequence
        for at, stop in rows.runs():
            while at < stop:
                last = at
                if rows.whole[at]:
                    last = take_run(
                        rows.segments[at],
                        at,
                        stop,
                        rows.offsets,
                        rows.sizes,
                        rows.times,
                        rows.bodies,
                    )
                if last > at:
                    at = last
                    self._at = rows.segments[at - 1], rows.offsets[at - 1] + rows.sizes[at - 1]
                else:
                    self._take_record(rows, at)
                    at += 1
        self._collect()

    def finish(self) -> None:
        self._audit.finish()
        self._collect()

    def some_events(self) -> Iterator[pa.RecordBatch]:
        """Yield a full batch of events."""
        rows, self._rows = self._rows[:BATCH_ROWS], self._rows[BATCH_ROWS:]
        sealed, self._sealed = self._sealed[:BATCH_ROWS], self._sealed[BATCH_ROWS:]
        self._notes = _notes_of(self._rows)
        return event_batches(rows, sealed, EVENT, None, payloads=self._payloads)

    def flush(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield all pending rows except events; with `everything`, also the last events."""
        audit = self._audit
        while everything and self._rows:
            yield from self.some_events()
        findings = [asdict(finding) for finding in audit.take_findings()]
        findings = [finding for finding in findings if finding["kind"] not in _ACROSS_TASKS]
        if findings:
            yield other_batch(findings, FINDING)
        sessions = [row._asdict() for row in audit.take_sessions()]
        if sessions:
            yield other_batch(sessions, SESSION)
        tunnels = [row._asdict() for row in audit.take_tunnels()]
        if tunnels:
            yield other_batch(tunnels, TUNNEL)
        statements = [row._asdict() for row in audit.take_statements()]
        if statements:
            yield other_batch(statements, STATEMENT)
        spans: list[dict[str, Any]] = []
        for span, pending in audit.take_spans():
            chains = {
                name: value.hex()
                for name, value in span._asdict().items()
                if isinstance(value, bytes)
            }
            time = pending[0].time_ns if pending else None
            spans.append({**span._asdict(), **chains, "time_ns": time})
            where = f"{span.segment}:{span.offset}"
            unsealed = [None] * len(pending)
            yield from event_batches(pending, unsealed, PENDING, where, payloads=self._payloads)
        if spans:
            yield other_batch(spans, SPAN)
        if self._segments:
            yield other_batch(self._segments, SEGMENT)
            self._segments = []

    def _take_record(self, rows: BronzeRows, at: int) -> None:
        """Audit a row that isn't a plain event in sequence, as about one row in 64."""
        if rows.status(at) not in _OF_SEGMENTS:
            return  # not a segment or not readable; bronze reports it
        segment, offset, lead = rows.segments[at], rows.offsets[at], rows.leads[at]
        if self._at != (segment, offset) and not lead and offset not in (0, rows.starts[at]):
            raise PipelineError(
                f"cannot audit segment {segment!r}: rows are out of order at offset {offset}"
            )
        record = rows.record(at)
        self._audit.record(segment, record, silent=lead)
        if record.kind == keys.SEGMENT and not lead:
            self._segments.append(segment_row(segment))
        block = self._audit.take_block()
        if block is not None:
            self._segments.append(segment_row(segment, block))
        self._at = segment, offset + rows.sizes[at]

    def _collect(self) -> None:
        for group, sealed in self._audit.take_compact_events():
            self._rows += group
            self._sealed += repeat(sealed, len(group))
            self._notes += _notes_of(group)


def _notes_of(rows: Sequence[CompactRow]) -> int:
    return sum([len(row.content.notes) for row in rows if row.content.notes is not None])
