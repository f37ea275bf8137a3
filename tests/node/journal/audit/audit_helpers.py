"""Journals in memory that tests alter, and the results of their audits."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from parley._crypto.registry import PARAMETERS, Suite
from parley._node.journal import keys
from parley._node.journal.audit import Audit
from parley._node.journal.audit.broken_chain import BrokenChain
from parley._node.journal.audit.content import CompactRow
from parley._node.journal.audit.direction import DirectionTracker
from parley._node.journal.audit.rows import Finding, SessionRow, TunnelRow
from parley._node.journal.record_types import EVENT_HEAD
from parley._node.journal.records import Record
from parley._node.protocol import codes
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, records_of

Records = list[tuple[str, Record]]
PREFIX_AT = EVENT_HEAD + 5
CALL = codes.SIM << 8 | codes.CALL
SUITE = Suite.of(
    dict(zip(PARAMETERS, ("x25519", "ed25519", "sha256", "aes-256-gcm", "chain"), strict=True))
)


@cache
def recorded(blocks: bool = True) -> Records:
    """Return Bob's journal of 120 events from Alice, with a block after every 40."""
    made = RecordedPair()
    for number in range(120):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        if blocks and number in (40, 80):
            made.run(0.05)
            made.journals[1].roll()
    made.run(0.05)
    made.end()
    return records_of(made.journals[1].segments)


def received(records: Records) -> list[int]:
    """Return the indices of received events, in the order of their places (from 1)."""
    return [
        index
        for index, (_, record) in enumerate(records)
        if record.kind == keys.EVENT and record.body[4] == keys.RECEIVED
    ]


def put(records: Records, index: int, **changed: Any) -> Records:
    stem, record = records[index]
    return [*records[:index], (stem, record._replace(**changed)), *records[index + 1 :]]


def first_of(records: Records, kind: int) -> int:
    """Return the index of the first record of a kind."""
    return next(index for index, (_, record) in enumerate(records) if record.kind == kind)


def flipped(records: Records, index: int) -> Records:
    body = records[index][1].body
    return put(records, index, body=body[:-1] + bytes([body[-1] ^ 1]))


class Audited:
    """The audit of records with adjusted offsets.

    `pending` and `kept` are the most rows and events that a direction stored.
    """

    def __init__(self, records: Records, *, key: bool = True) -> None:
        audit = Audit((AUDITOR,) if key else ())
        self.pending = self.kept = self.labels = 0
        last, offset = records[0][0], records[0][1].offset  # Reading may begin at a block.
        for stem, record in records:
            offset = 0 if stem != last else offset
            last = stem
            audit.record(stem, record._replace(offset=offset))
            offset += record.size
            for live in audit._live.values():
                self._update_in_sequence(live.trackers, live._broken_chains)
        audit.finish_pending()
        self.rows: list[CompactRow] = [
            row for rows, _ in audit.take_compact_events() for row in rows
        ]
        self.findings: list[Finding] = audit.take_findings()
        self.sessions: list[SessionRow] = audit.take_sessions()
        self.tunnels: list[TunnelRow] = audit.take_tunnels()

    def _update_in_sequence(
        self, trackers: Sequence[DirectionTracker], searches: Sequence[BrokenChain | None]
    ) -> None:
        for one, broken in zip(trackers, searches, strict=True):
            self.pending = max(self.pending, len(one.pending))
            self.labels = max(self.labels, len(one.labels))
            self.kept = max(self.kept, len(broken._kept) if broken else 0)

    @property
    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings]

    @property
    def statuses(self) -> Counter[str]:
        return Counter(row.status for row in self.rows)


def events_in(records: Records) -> int:
    """Count the events that are records, and both Proofs."""
    return sum(record.kind == keys.EVENT for _, record in records) + 2
