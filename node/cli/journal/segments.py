"""Find and audit the segments of journals, with a progress bar.

Each node's segments are audited separately and in order. Rows are yielded in batches, so memory is
limited.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.errors import ConfigError, FileError
from parley._node.journal.audit.audit import Audit
from parley._node.journal.audit.content import event_rows
from parley._node.journal.audit.rows import (
    UNSEALED,
    EventRow,
    Finding,
    SessionRow,
    StatementRow,
    TunnelRow,
)
from parley._node.journal.records import Record
from parley._node.journal.segments import (
    RecordRange,
    SegmentFile,
    SegmentName,
    list_segments,
    plan_ranges,
    read_range,
)

SHORTEST_ID: Final = 4  # minimum length of a node ID's prefix
_BAR_STEP: Final = 1 << 20  # bytes between updates of the progress bar
_PIECE_RECORDS: Final = 4_096  # maximum records of a batch
_PIECE_SIZE: Final = 1 << 24  # maximum bytes of a batch


def find_segments(directory: Path, node: str | None) -> dict[str, list[SegmentFile]]:
    """Return the segments in a directory by node ID, in order.

    Raises:
        FileError: there are none.
        ConfigError: `node` matches no node, or several. OSError.
    """
    found = {
        text: list(segments)
        for text, segments in groupby(list_segments(directory), key=lambda each: each.name.node)
    }
    if not found:
        raise FileError(f"cannot read journals in '{directory}': there are none")
    if node is None:
        return found
    fitting = [text for text in found if text.startswith(node)]
    if len(node) < SHORTEST_ID or len(fitting) != 1:
        which = "no" if not fitting else "more than one, or too short for one,"
        raise ConfigError(f"--node {node} fits {which} node id with a journal in {directory}")
    return {fitting[0]: found[fitting[0]]}


class ProgressBar:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, total: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total)

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._progress:
            yield

    def about(self, name: SegmentName) -> None:
        text = f"{name.node[:8]} {name.start} {name.number}"
        self._progress.update(self._task, description=text)

    def advance(self, size: int) -> None:
        self._progress.advance(self._task, size)


def read_segment(segment: SegmentFile, bar: ProgressBar) -> Iterator[Record]:
    """Yield all complete records of a segment. Raises OSError."""
    waiting = done = 0
    for part in plan_ranges(segment.path, segment.size) or [RecordRange(0, 0, 0, ())]:
        for record in read_range(segment.path, part.start, part.end, part.blocks):
            yield record
            waiting += record.size
            if waiting >= _BAR_STEP:
                bar.advance(waiting)
                done, waiting = done + waiting, 0
    bar.advance(segment.size - done)


class AuditBatch(NamedTuple):
    """The rows of an audit for a number of records."""

    node: str
    records: int
    events: list[EventRow]
    sessions: list[SessionRow]
    tunnels: list[TunnelRow]
    statements: list[StatementRow]
    findings: list[Finding]


def audit_segments(
    journals: Mapping[str, Sequence[SegmentFile]],
    auditors: Sequence[AuditorPrivateKey],
    bar: ProgressBar,
    *,
    payloads: bool,
) -> Iterator[AuditBatch]:
    """Verify all segments; with auditors' keys, also decrypt them. Raises OSError."""
    for node, segments in journals.items():
        audit = Audit(auditors, payloads=payloads)
        count = size = 0
        for segment in segments:
            bar.about(segment.name)
            for record in read_segment(segment, bar):
                audit.record(segment.name.stem, record)
                count += 1
                size += record.size
                if count >= _PIECE_RECORDS or size >= _PIECE_SIZE:
                    yield _take_batch(audit, node, count, payloads=payloads)
                    count = size = 0
        audit.finish_pending()
        yield _take_batch(audit, node, count, payloads=payloads)


def _take_batch(audit: Audit, node: str, records: int, *, payloads: bool) -> AuditBatch:
    events = audit.take_events()
    # All segments are read in order, so a seal that is still missing will not come.
    for _, pending in audit.take_spans():
        unsealed = [row._replace(status=UNSEALED) for row in pending]
        events += event_rows(unsealed, None, payloads=payloads)
    return AuditBatch(
        node,
        records,
        events,
        audit.take_sessions(),
        audit.take_tunnels(),
        audit.take_statements(),
        audit.take_findings(),
    )
