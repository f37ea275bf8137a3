"""The rows that an audit returns, each with its journal, segment and, if known, session."""

from collections.abc import Iterable
from typing import Final

from parley._crypto.identity import PublicIdentity
from parley._node.journal.audit.content import UNREAD, CompactRow
from parley._node.journal.audit.keyring import BoxOpener
from parley._node.journal.audit.presented import Presented
from parley._node.journal.audit.rows import (
    DIRECTIONS,
    GAP,
    Finding,
    SessionRow,
    Span,
    StatementRow,
    TunnelRow,
)
from parley._node.journal.keys import RECEIVED
from parley._node.journal.record_types import EVENT_HEAD, JoinedTunnel, SessionFacts
from parley._node.journal.records import Record

# The maximum length of an address or role, because each row of a session repeats them.
LONGEST_TEXT: Final = 1_024
# The evidence for a record's status.
DAMAGE: Final = {
    "bad-crc": "the record's bytes do not match its checksum",
    "bad-length": "no record can begin with these bytes; everything up to the next block is lost",
    "torn": "the file ends in the middle of a record, or without a segment end",
}
NO_START: Final = "a checkpoint of a session that neither began before nor was in the last block"
TWICE: Final = "a session with the same ID began before: the journal contains it twice"
FOREIGN: Final = "the session's local identity is not the identity of the journal's node"
NO_END: Final = "the journal ended while this session was open: the node did not shut down properly"
CUT: Final = (
    "the session was open, but a later block of the same run has no checkpoint of it, and no end "
    "record precedes it"
)


class AuditOutput:
    """The rows of one audit. `journal` and `segment` are those being read.

    With `stitched`, the caller compares spans and finds errors between them. While `silent`,
    nothing is added, because an earlier reading reported it.
    """

    def __init__(self, boxes: BoxOpener, *, stitched: bool) -> None:
        self.boxes = boxes
        self.stitched = stitched
        self.silent = False
        self.block: int | None = None  # The offset of the last complete block.
        self.journal = ""
        self.segment = ""
        # Rows that are final, with the time of their seal.
        self.events: list[tuple[list[CompactRow], int | None]] = []
        self.findings: list[Finding] = []
        self.sessions: list[SessionRow] = []
        self.spans: list[tuple[Span, list[CompactRow]]] = []
        self.tunnels: list[TunnelRow] = []
        self.statements: list[StatementRow] = []

    def report(self, what: Finding | SessionRow) -> None:
        if self.silent:
            return
        if isinstance(what, Finding):
            self.findings.append(what)
        else:
            self.sessions.append(what)

    def tunnel(self, record: Record) -> None:
        """Add the row of a tunnel's record; raises JournalFormatError."""
        one = JoinedTunnel.parse(record.body)
        if self.silent:
            return
        self.tunnels.append(
            TunnelRow(
                self.journal,
                self.segment,
                record.offset,
                record.time,
                one.trace.hex(),
                one.hop,
                one.length,
                one.before.text,
                one.after.text,
                one.began,
                one.ended,
                one.forward,
                one.back,
            )
        )

    def end_span(self, span: Span, pending: list[CompactRow]) -> None:
        """Add a span, and the rows that wait for a seal in a later span."""
        if not self.silent:
            self.spans.append((span, pending))

    def finding(self, kind: str, record: Record, evidence: str) -> None:
        """Add a finding about a record that belongs to no known session."""
        self.report(
            Finding(
                kind,
                self.journal,
                self.segment,
                None,
                None,
                None,
                record.time or None,
                record.offset,
                1,
                evidence,
            )
        )

    def unknown_event(self, record: Record, direction: int) -> None:
        """Add the row of an event whose session is unknown."""
        if self.silent:
            return
        wire = record.body[EVENT_HEAD:]
        stream = int.from_bytes(wire[:4], "big")
        head = (self.journal, self.segment, None, DIRECTIONS[direction], None, None)
        row = CompactRow(
            head,
            record.offset,
            None,
            record.time,
            stream,
            len(wire),
            None,
            None,
            None,
            None,
            UNREAD,
            None,
            None,
            None,
            GAP,
        )
        self.events.append(([row], None))


class SessionOutput:
    """The rows of one session. `local` and `remote` are node IDs as text."""

    def __init__(
        self,
        output: AuditOutput,
        facts: SessionFacts,
        local: PublicIdentity,
        remote: PublicIdentity,
        started: int,
    ) -> None:
        self.output = output
        self.id = facts.session_id.hex()
        self.local = local.node_id.text
        self.remote = remote.node_id.text
        self._facts = facts
        self._started = started

    def rows(self, rows: list[CompactRow], sealed_ns: int | None = None) -> None:
        """Add rows of final events, and the time of the seal that covers them."""
        self.output.events.append((rows, sealed_ns))

    def finding(
        self,
        kind: str,
        direction: int | None,
        place: int | None,
        time: int | None,
        offset: int,
        evidence: str,
        count: int = 1,
        segment: str | None = None,
    ) -> None:
        """Add a finding about this session, in the segment being read or in another."""
        output = self.output
        name = None if direction is None else DIRECTIONS[direction]
        output.report(
            Finding(
                kind,
                output.journal,
                segment or output.segment,
                self.id,
                name,
                place,
                time,
                offset,
                count,
                evidence,
            )
        )

    def head(self, direction: int) -> tuple[str, ...]:
        """Return the first columns of all events of a direction."""
        output = self.output
        ends = (self.remote, self.local) if direction == RECEIVED else (self.local, self.remote)
        return (output.journal, output.segment, self.id, DIRECTIONS[direction], *ends)

    def statements(self, direction: int, offset: int, presented: Iterable[Presented]) -> None:
        """Add the rows of the statements in the Proof of a direction."""
        output = self.output
        if output.silent:
            return
        presenter = self.remote if direction == RECEIVED else self.local
        output.statements += [
            StatementRow(
                output.journal,
                output.segment,
                self.id,
                offset,
                self._started,
                DIRECTIONS[direction],
                presenter,
                number,
                *statement,
            )
            for number, statement in enumerate(presented)
        ]

    def row(self, what: str, time: int, offset: int) -> SessionRow:
        facts, output = self._facts, self.output
        return SessionRow(
            output.journal,
            output.segment,
            self.id,
            offset,
            time,
            what,
            facts.initiator,
            self.local,
            self.remote,
            facts.local_role[:LONGEST_TEXT],
            facts.remote_role[:LONGEST_TEXT],
            facts.address[:LONGEST_TEXT],
            " ".join(facts.suite),
            self._started,
        )

    def report(self, row: SessionRow) -> None:
        self.output.report(row)
