"""Journals: keeping one, the auditor's keys, and reading it back."""

from crypto.auditor import AuditorKey, AuditorPrivateKey
from crypto.auditor_file import load_auditor_key, save_auditor_key
from node.journal.audit import Audit
from node.journal.audit.compact import CompactRow
from node.journal.audit.rows import EVENT_COLUMNS, EventRow, Finding, SessionRow, Span, TunnelRow
from node.journal.journal import Journal, JournalMetrics
from node.journal.options import Auditor, Fsync, OnFailure
from node.journal.prune import Pruned, prune
from node.journal.records import Record, encode_record
from node.journal.segments import SegmentFile, list_segments, read_range

__all__ = [
    "EVENT_COLUMNS",
    "Audit",
    "Auditor",
    "AuditorKey",
    "AuditorPrivateKey",
    "CompactRow",
    "EventRow",
    "Finding",
    "Fsync",
    "Journal",
    "JournalMetrics",
    "OnFailure",
    "Pruned",
    "Record",
    "SegmentFile",
    "SessionRow",
    "Span",
    "TunnelRow",
    "encode_record",
    "list_segments",
    "load_auditor_key",
    "prune",
    "read_range",
    "save_auditor_key",
]
