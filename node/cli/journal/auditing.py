"""Journals of a directory through the audit, in pieces that fit into memory.

One rule: each node's segments go through an audit of their own, in their order, and what
comes out is handed on before more is read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from crypto.auditor import AuditorPrivateKey
from node.cli.journal.reading import Bar, read_segment
from node.journal.audit.audit import Audit
from node.journal.audit.compact import event_rows
from node.journal.audit.rows import UNSEALED, EventRow, Finding, SessionRow
from node.journal.segments import SegmentFile

_STEP: Final = 4_096  # records between two pieces
_STEP_SIZE: Final = 1 << 24  # bytes, likewise


class Piece(NamedTuple):
    """What some records gave, and how many they were."""

    node: str
    records: int
    events: list[EventRow]
    sessions: list[SessionRow]
    findings: list[Finding]


def audited(
    journals: Mapping[str, Sequence[SegmentFile]],
    auditors: Sequence[AuditorPrivateKey],
    bar: Bar,
    *,
    payloads: bool,
) -> Iterator[Piece]:
    """Verify all segments; with auditors' keys also decrypt. Raises OSError."""
    for node, segments in journals.items():
        audit = Audit(auditors, payloads=payloads)
        count = size = 0
        for segment in segments:
            bar.about(f"{segment.name.node[:8]} {segment.name.start} {segment.name.number}")
            for record in read_segment(segment, bar):
                audit.record(segment.name.stem, record)
                count += 1
                size += record.size
                if count >= _STEP or size >= _STEP_SIZE:
                    yield _taken(audit, node, count, payloads=payloads)
                    count = size = 0
        audit.finish_pending()
        yield _taken(audit, node, count, payloads=payloads)


def _taken(audit: Audit, node: str, records: int, *, payloads: bool) -> Piece:
    events = audit.take_events()
    # What waits at a break for a seal behind it: all is read in order here, so none will come.
    for _, pending in audit.take_spans():
        unsealed = [row._replace(status=UNSEALED) for row in pending]
        events += event_rows(unsealed, None, payloads=payloads)
    return Piece(node, records, events, audit.take_sessions(), audit.take_findings())
