"""Journals: keeping one, the auditor's keys, and reading it back."""

from crypto.auditor import AuditorKey, AuditorPrivateKey
from crypto.auditor_file import load_auditor_key, save_auditor_key
from node.journal.audit import Audit
from node.journal.audit.rows import EVENT_COLUMNS, Finding, SessionRow, TunnelRow
from node.journal.journal import Journal, JournalMetrics
from node.journal.prune import prune
from node.journal.records import encode_record
from node.journal.segments import list_segments, read_range

__all__ = [
    "EVENT_COLUMNS",
    "Audit",
    "AuditorKey",
    "AuditorPrivateKey",
    "Finding",
    "Journal",
    "JournalMetrics",
    "SessionRow",
    "TunnelRow",
    "encode_record",
    "list_segments",
    "load_auditor_key",
    "prune",
    "read_range",
    "save_auditor_key",
]
