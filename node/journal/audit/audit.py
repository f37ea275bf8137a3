"""Reads a node's records in order and returns events, sessions, tunnels, statements and findings.

Every record becomes a row or a finding, never an exception. The command line and the pipeline read
the files, pass the records to the audit and collect its rows.
"""

from collections.abc import Sequence
from struct import error as StructError
from typing import Final

from parley._crypto.auditor import AuditorPrivateKey
from parley._node.journal import keys
from parley._node.journal.audit.content import CompactRow, event_rows
from parley._node.journal.audit.direction import DirectionTracker
from parley._node.journal.audit.keyring import BoxOpener
from parley._node.journal.audit.output import (
    CUT,
    DAMAGE,
    FOREIGN,
    NO_END,
    NO_START,
    TWICE,
    AuditOutput,
)
from parley._node.journal.audit.rows import (
    EventRow,
    Finding,
    SessionRow,
    Span,
    StatementRow,
    TunnelRow,
)
from parley._node.journal.audit.segment import UNKNOWN, Blocks, OpenSegment, UnknownSessions
from parley._node.journal.audit.session import AuditedSession, resume_session, start_session
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.record_types import (
    CHANGES,
    EVENT,
    EVENT_HEAD,
    Checkpoint,
    KeyUpdate,
    Secret,
    SessionEnd,
    SessionStart,
    parse_block,
)
from parley._node.journal.records import BAD_CRC, OK, TORN, Record
from parley._node.journal.segments import SegmentName, parse_name

_unpack_event: Final = EVENT.unpack_from
_BOTH: Final = (keys.RECEIVED, keys.SENT)


class Audit:
    """The audit of the records of one node, or of several nodes one after the other.

    `auditors` are private keys; without any, nothing is decrypted. Without `payloads`, rows have no
    payloads. With `stitched`, the caller compares spans. Rows are kept in memory until they are
    taken.

    Example:

        from pathlib import Path
        from parley.journal import Audit, AuditorPrivateKey, list_segments, read_range

        Path("journal").mkdir()
        audit = Audit([AuditorPrivateKey.create()])
        for segment in list_segments("journal"):
            for record in read_range(segment.path, 0, segment.size):
                audit.record(segment.name.stem, record)
        audit.finish_pending()
        assert audit.take_findings() == []
    """

    def __init__(
        self,
        auditors: Sequence[AuditorPrivateKey] = (),
        *,
        payloads: bool = True,
        stitched: bool = False,
    ) -> None:
        self._output = AuditOutput(BoxOpener(auditors), stitched=stitched)
        self._payloads = payloads
        self._name: SegmentName | None = None
        self._next = 0  # The offset at which the next record must begin.
        self._live: dict[int, AuditedSession] = {}
        # Directions whose chain is unbroken, by the first bytes of an event's record.
        self._in_sequence: dict[bytes, DirectionTracker] = {}
        self._unknown = UnknownSessions(self._output)
        self._segment = OpenSegment(self._output)
        self._block = Blocks(self._output)
        self._blocks = 0  # Sessions since the last gap in the records.
        self._may_resume = True  # Whether sessions may have begun before the first record read.
        self._from_beginning = (
            False  # Whether a run begins here, so that no session can have begun before.
        )
        self._started: set[str] = set()

    def events_in_sequence(
        self,
        segment: str,
        first: int,
        stop: int,
        offsets: Sequence[int],
        sizes: Sequence[int],
        times: Sequence[int],
        bodies: Sequence[bytes],
    ) -> int:
        """Take event records `first` to `stop` while they are in sequence and their seals valid.

        Each must begin where the previous one ends. Takes half the time of `record`. Returns the
        index of the first record that must be passed to `record` instead.
        """
        output = self._output
        if offsets[first] != self._next or output.silent or segment != output.segment:
            return first
        track_of = self._in_sequence.get
        at = first
        for at in range(first, stop):
            body = bodies[at]
            tracker = track_of(body[:EVENT_HEAD])
            if tracker is None or not tracker.take_in_sequence(offsets[at], times[at], body):
                break
        else:
            at = stop
        if at > first:
            self._next = offsets[at - 1] + sizes[at - 1]
        return at

    def take_events(self) -> list[EventRow]:
        """Remove and return the rows of final events."""
        return [
            row
            for rows, sealed in self.take_compact_events()
            for row in event_rows(rows, sealed, payloads=self._payloads)
        ]

    def take_compact_events(self) -> list[tuple[list[CompactRow], int | None]]:
        """Remove and return final events in compact form, in groups with their seal's time."""
        taken, self._output.events = self._output.events, []
        return taken

    def take_findings(self) -> list[Finding]:
        """Remove and return the findings since the last call."""
        taken, self._output.findings = self._output.findings, []
        return taken

    def take_sessions(self) -> list[SessionRow]:
        """Remove and return the rows of sessions since the last call."""
        taken, self._output.sessions = self._output.sessions, []
        return taken

    def take_tunnels(self) -> list[TunnelRow]:
        """Remove and return the tunnels that the node claims to have joined."""
        taken, self._output.tunnels = self._output.tunnels, []
        return taken

    def take_statements(self) -> list[StatementRow]:
        """Remove and return the key statements that Proofs presented, which need an auditor's
        key.
        """
        taken, self._output.statements = self._output.statements, []
        return taken

    def take_spans(self) -> list[tuple[Span, list[CompactRow]]]:
        """Remove and return the spans that ended, each with the rows that still wait for a seal."""
        taken, self._output.spans = self._output.spans, []
        return taken

    def take_block(self) -> int | None:
        """Return the offset of the last block that had all its checkpoints, if it is new."""
        taken, self._output.block = self._output.block, None
        return taken

    def record(self, segment: str, record: Record, *, silent: bool = False) -> None:
        """Process the next record of `segment` (its stem or file name).

        A record that doesn't follow the previous one must be a segment's first record or a block.
        `silent` records produce no rows, because an earlier reading produced them.
        """
        name = self._name
        output = self._output
        if segment != output.segment or record.offset != self._next:
            self._jump(segment, record, silent=silent)
        elif name is None:
            return
        self._next = record.offset + record.size
        if silent is not output.silent:
            self._change_silence(record.offset, silent=silent)
        if record.status != OK:
            self._damaged(record)
            return
        if record.kind == keys.EVENT:
            self._event(record)
            return
        try:
            self._other(record)
        except JournalFormatError as error:
            self._output.finding("malformed-record", record, str(error))

    def finish(self) -> None:
        """Return pending rows, because no more records follow for now."""
        self._break_off()

    def finish_pending(self) -> None:
        """Like `finish`, but mark pending events as unsealed: no record will ever follow."""
        for session in self._live.values():
            session.give_up_pending()
        self._break_off()

    def _jump(self, segment: str, record: Record, *, silent: bool) -> None:
        name = parse_name(segment if ".pjl" in segment else segment + ".pjl")
        before, output = self._name, self._output
        if name is None:
            raise JournalFormatError(f"invalid segment name {segment!r}")
        follows = (
            before is not None
            and record.offset == 0
            and not silent  # Otherwise the next record is in the middle of a segment.
            and name.node == before.node
            and name.start == before.start
            and name.number == before.number + 1
        )
        if not follows:
            self._leave(name, record)
            self._from_beginning = name.number == 0 and record.offset == 0
        self._name = name
        output.journal = name.node
        output.segment = segment
        self._block.enter(record.offset)
        if name != before:
            self._segment = OpenSegment(output)
            self._segment.begin(record)
        if follows:
            for session in self._live.values():
                session.next_segment()

    def _leave(self, name: SegmentName, record: Record) -> None:
        before = self._name
        if before is not None and name.node == before.node and record.offset == 0:
            if name.start != before.start:
                for session in self._live.values():
                    session.give_up_pending()
                    session.out.finding("no-end", None, None, None, self._next, NO_END)
            elif name.number > before.number + 1:
                self._output.finding(
                    "missing-segment",
                    record,
                    f"{name.number - before.number - 1} segments are missing before this one",
                )
        self._break_off()

    def _break_off(self) -> None:
        block = self._block
        for number, session in self._live.items():
            session.close_spans(block.end_of(number, self._next), ended=False, lost=block.lost)
        self._live = {}
        self._block = Blocks(self._output)
        self._in_sequence = {}
        self._unknown.report(self._next)
        self._blocks = 0
        self._may_resume = True
        self._name = None
        self._output.segment = ""

    def _change_silence(self, offset: int, *, silent: bool) -> None:
        self._output.silent = silent
        for session in self._live.values():
            if silent:
                session.silence()
            else:
                session.start_reporting(offset)

    def _event(self, record: Record) -> None:
        body = record.body
        try:
            number, direction = _unpack_event(body)
        except StructError:
            number = direction = -1
        if direction not in _BOTH:
            self._output.finding(
                "malformed-record", record, "an event without a session or direction"
            )
            return
        session = self._live.get(number)
        if session is None:
            self._unknown.event(record, number, direction)
            return
        tracker = session.trackers[direction]
        if session.is_in_sequence(direction) and tracker.take_in_sequence(
            record.offset, record.time, body
        ):
            return
        self._event_out_of_sequence(number, session, direction, record, damaged=False)

    def _other(self, record: Record) -> None:
        kind, body = record.kind, record.body
        if kind != keys.CHECKPOINT:
            self._block.miss(record)
        if kind == keys.CHECKPOINT:
            self._checkpoint(record)
        elif kind == keys.SESSION_START:
            self._start(record)
        elif kind == keys.SECRET:
            secret = Secret.parse(body)
            session = self._session(secret.session)
            session.secret(secret, record.offset)
            self._segment.boxes(secret.boxes, record)
            self._update_in_sequence(secret.session, session)
        elif kind == keys.KEY_UPDATE:
            update = KeyUpdate.parse(body)
            self._session(update.session).key_update(update, record.time, record.offset)
        elif kind in CHANGES:
            change = CHANGES[kind](body)
            self._session(change.session).change(change, record.time, record.offset)
        elif kind == keys.TUNNEL:
            self._output.tunnel(record)
        elif kind == keys.SESSION_END:
            end = SessionEnd.parse(body)
            self._session(end.session).end(end, record.time, record.offset)
            self._forget(end.session)
        elif kind == keys.BLOCK:
            self._block.begin(record, *parse_block(body))
            self._blocks += 1
            self._may_resume = self._blocks == 1 and not self._from_beginning
            self._end_absent_sessions()
        elif kind == keys.SEGMENT:
            self._segment.head(record, self._name)
        elif kind == keys.SEGMENT_END:
            self._block.end(record, self._segment.begins)
            self._segment.end(record)

    def _session(self, number: int) -> AuditedSession:
        session = self._live.get(number)
        if session is None:
            raise JournalFormatError(f"{UNKNOWN} (number {number})")
        return session

    def _start(self, record: Record) -> None:
        start = SessionStart.parse(record.body)
        session = start_session(self._output, start, record.time, record.offset)
        session_id = session.out.id
        if session_id in self._started:
            session.out.finding("session-twice", None, None, record.time, record.offset, TWICE)
        if not self._output.stitched:  # Otherwise the caller checks this.
            self._started.add(session_id)
        self._enter(start.session, session, record)

    def _checkpoint(self, record: Record) -> None:
        try:
            checkpoint = Checkpoint.parse(record.body)
        except JournalFormatError:
            self._block.checkpoint(record, None)
            raise
        self._block.checkpoint(record, checkpoint.session)
        for generation in checkpoint.generations:
            self._segment.boxes(generation.boxes, record)
        session = self._live.get(checkpoint.session)
        if session is None:
            session = resume_session(self._output, checkpoint, record.time, record.offset)
            if not self._may_resume and not self._output.stitched:
                session.out.finding("no-start", None, None, record.time, record.offset, NO_START)
            self._enter(checkpoint.session, session, record)
        else:
            session.checkpoint(checkpoint, record.offset, record.time)
            self._update_in_sequence(checkpoint.session, session)
        self._end_absent_sessions()

    def _end_absent_sessions(self) -> None:
        """End the open sessions that a complete block doesn't have."""
        found = self._block.whole(self._live)
        if found is None:
            return
        block, lacking = found
        lost, self._block.lost = self._block.lost, False
        for number in lacking:
            session = self._live[number]
            if not self._output.stitched:  # Otherwise the caller notices that no span follows.
                session.give_up_pending()
                if not lost:
                    session.out.finding("cut-short", None, None, block.time, block.offset, CUT)
            session.close_spans(block.offset, ended=False, lost=lost)
            self._forget(number)

    def _enter(self, number: int, session: AuditedSession, record: Record) -> None:
        if self._name is not None and session.out.local != self._name.node:
            session.out.finding("wrong-node", None, None, record.time, record.offset, FOREIGN)
        before = self._live.get(number)
        if before is not None:
            self._output.finding(
                "malformed-record", record, f"session {number} begins a second time"
            )
            before.give_up_pending()
            before.close_spans(record.offset, ended=True)
        self._live[number] = session
        self._update_in_sequence(number, session)

    def _forget(self, number: int) -> None:
        del self._live[number]
        for direction in _BOTH:
            self._in_sequence.pop(EVENT.pack(number, direction), None)

    def _damaged(self, record: Record) -> None:
        body = record.body
        session, number, direction = None, 0, 0
        if record.status == BAD_CRC and record.kind == keys.EVENT and len(body) > EVENT_HEAD:
            number, direction = _unpack_event(body)
            session = self._live.get(number) if direction in _BOTH else None
        if session is None:
            # The cut end of a file does not explain records that later files lack.
            self._block.lost |= record.status != TORN
            self._output.finding(record.status, record, DAMAGE[record.status])
            return
        place = session.trackers[direction].place + 1
        session.out.finding(BAD_CRC, direction, place, record.time, record.offset, DAMAGE[BAD_CRC])
        self._event_out_of_sequence(number, session, direction, record, damaged=True)

    def _event_out_of_sequence(
        self, number: int, session: AuditedSession, direction: int, record: Record, *, damaged: bool
    ) -> None:
        body = record.body
        session.event(direction, record.offset, record.time, body[EVENT_HEAD:], damaged=damaged)
        self._update_in_sequence(number, session)

    def _update_in_sequence(self, number: int, session: AuditedSession) -> None:
        for direction in _BOTH:
            key = EVENT.pack(number, direction)
            if session.is_in_sequence(direction):
                self._in_sequence[key] = session.trackers[direction]
            else:
                self._in_sequence.pop(key, None)
