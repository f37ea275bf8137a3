"""From the rows of bronze to those of silver, in one task: an audit between Arrow batches.

One rule: a task verifies what it is given from the nearest block on, and knows nothing of
other tasks: what only they can tell (a seal in the next range) is left to `pipeline.stitch`.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from crypto.auditor import AuditorPrivateKey
from node.journal.audit import Audit
from node.journal.audit.rows import EVENT_COLUMNS, HEAD_COLUMNS, EventRow
from node.journal.keys import EVENT as KIND_EVENT
from node.journal.records import BAD_CRC, BAD_LENGTH, OK, TORN, Record
from pipeline.arrow_rows import event_batch, other_batch
from pipeline.errors import PipelineError
from pipeline.event_files import EventFiles
from pipeline.silver_schema import EVENT, FINDING, PENDING, SESSION, SPAN

# What of bronze a walk needs.
NEEDED: Final = (
    "segment",
    "offset",
    "size",
    "kind",
    "time_ns",
    "body",
    "range_start",
    "status",
    "lead",
)
BATCH_ROWS: Final = 16_384
BATCH_SIZE: Final = 2**26  # bytes of payloads: a column of Arrow's holds 2 GiB
_PAYLOAD_AT: Final = EVENT_COLUMNS.index("payload") - len(HEAD_COLUMNS) + 1
# What one task tells of the order of segments is not all there is: `pipeline.stitch` does.
_ACROSS_TASKS: Final = frozenset({"missing-segment", "no-end"})
_DAMAGED: Final = (OK, BAD_CRC, BAD_LENGTH, TORN)
_TIME_AT: Final = EVENT_COLUMNS.index("time_ns") - len(HEAD_COLUMNS) + 1

Walk = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def walker(private_keys: Sequence[bytes], *, payloads: bool, directory: Path | None = None) -> Walk:
    """A function for `mapInArrow` over rows of bronze in their order.

    `private_keys` are auditors' (32 bytes each); none means that nothing is decrypted. With a
    `directory` the rows of final events are written there, and the others alone returned.
    """

    def walk(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        auditors = [AuditorPrivateKey(key) for key in private_keys]
        task = _Task(Audit(auditors, payloads=payloads, stitched=True))
        with _without_collections():
            if directory is None:
                yield from _walked(task, batches)
                return
            before = (batch for batch in batches if batch.num_rows)
            first = next(before, None)
            if first is None:
                return
            with EventFiles(directory, _name_of(first)) as files:
                for batch in _walked(task, chain([first], before)):
                    if batch.column("part")[0].as_py() == EVENT:
                        files.write(batch)
                    else:
                        yield batch

    return walk


def _walked(task: "_Task", batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        task.take(batch)
        while task.has_many:
            yield task.some_events()
        yield from task.rest()
    task.finish()
    yield from task.rest(everything=True)


def _name_of(batch: pa.RecordBatch) -> str:
    """What a task's files are called: as the range that its first row is of."""
    segment, start = batch.column("segment")[0].as_py(), batch.column("range_start")[0].as_py()
    return f"{segment}-{start or 0:012d}"


@contextmanager
def _without_collections() -> Iterator[None]:
    """Millions of rows and no cycle among them: looking for some takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Task:
    """The audit of one task, and its rows on their way out."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._at = "", 0
        self._rows: list[EventRow] = []

    @property
    def has_many(self) -> bool:
        """Whether a batch of events is full."""
        return len(self._rows) >= BATCH_ROWS

    def take(self, batch: pa.RecordBatch) -> None:
        """Feed the audit with rows of bronze."""
        columns = {name: batch.column(name) for name in NEEDED}
        # Nearly always the same in a whole batch, so that no text is made for each row.
        whole = pc.all(pc.equal(columns["status"], OK)).as_py()
        statuses = repeat(OK) if whole else columns["status"].to_pylist()
        leads = columns["lead"].to_pylist() if columns["lead"].true_count else repeat(False)
        rest = (columns[name].to_pylist() for name in NEEDED[:-2])
        record_of, follow, usual = Record, self._audit.record, self._audit.usual_event
        at_segment, at_offset = self._at
        for segment, offset, size, kind, time, body, start, status, lead in zip(
            *rest, statuses, leads, strict=False
        ):
            if (
                kind == KIND_EVENT
                and status is OK
                and time
                and usual(segment, offset, size, time, body)
            ):
                at_offset = offset + size
                continue
            if status not in _DAMAGED:
                continue  # a file that is no segment, or cannot be read: bronze says so
            follows = at_offset == offset and at_segment == segment
            if not follows and not lead and offset not in (0, start):
                raise PipelineError(f"the rows of {segment} are not in order at {offset}")
            # A time that no column holds is null there.
            follow(segment, record_of(offset, size, kind, time or 0, body, status), silent=lead)
            at_segment, at_offset = segment, offset + size
        self._at = at_segment, at_offset
        self._rows += self._audit.take_headed_events()

    def finish(self) -> None:
        """The task has no more rows."""
        self._audit.finish()
        self._rows += self._audit.take_headed_events()

    def some_events(self) -> pa.RecordBatch:
        """A full batch of events: of rows, or of bytes of payload."""
        rows = next(_pieces(self._rows[:BATCH_ROWS]))
        self._rows = self._rows[len(rows) :]
        return event_batch(rows, EVENT, None)

    def rest(self, *, everything: bool = False) -> Iterator[pa.RecordBatch]:
        """What is no event, and the last events if that is everything."""
        audit = self._audit
        while everything and self._rows:
            yield self.some_events()
        findings = [asdict(finding) for finding in audit.take_findings()]
        findings = [finding for finding in findings if finding["kind"] not in _ACROSS_TASKS]
        if findings:
            yield other_batch(findings, FINDING)
        sessions = [row._asdict() for row in audit.take_sessions()]
        if sessions:
            yield other_batch(sessions, SESSION)
        spans: list[dict[str, Any]] = []
        for span, pending in audit.take_spans():
            chains = {
                name: value.hex()
                for name, value in span._asdict().items()
                if isinstance(value, bytes)
            }
            spans.append({**span._asdict(), **chains, "time_ns": _time_of(pending)})
            if pending:
                for one in _pieces(pending):
                    rows = [(*row, None) for row in one]
                    yield event_batch(rows, PENDING, f"{span.segment}:{span.offset}")
        if spans:
            yield other_batch(spans, SPAN)


def _pieces(rows: list[EventRow]) -> Iterator[list[EventRow]]:
    """Rows in pieces of at most `BATCH_SIZE` bytes of payload, or a row more."""
    first = size = 0
    for number, row in enumerate(rows):
        size += len(row[_PAYLOAD_AT] or b"")
        if size >= BATCH_SIZE:
            yield rows[first : number + 1]
            first, size = number + 1, 0
    if first < len(rows):
        yield rows[first:]


def _time_of(rows: list[EventRow]) -> int | None:
    return rows[0][_TIME_AT] if rows else None
