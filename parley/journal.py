"""Journals: recording, auditors' keys, reading and auditing."""

from parley._crypto.auditor import AuditorKey, AuditorPrivateKey
from parley._crypto.keyfile import load_auditor_key, save_auditor_key
from parley._node.journal.audit import Audit
from parley._node.journal.audit.content import CompactRow
from parley._node.journal.audit.rows import (
    EVENT_COLUMNS,
    EventRow,
    Finding,
    SessionRow,
    Span,
    StatementRow,
    TunnelRow,
)
from parley._node.journal.journal import Journal, JournalMetrics
from parley._node.journal.options import Auditor, Fsync, OnFailure, WriteOptions
from parley._node.journal.prune import Pruned, prune
from parley._node.journal.records import Record, encode_record
from parley._node.journal.segments import SegmentFile, list_segments, read_range

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
    "StatementRow",
    "TunnelRow",
    "WriteOptions",
    "encode_record",
    "list_segments",
    "load_auditor_key",
    "prune",
    "read_range",
    "save_auditor_key",
]
