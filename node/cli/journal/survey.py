"""What a journal's files say of themselves, counted: nothing is verified or decrypted.

All bytes are counted, as records or as damage. Memory grows with the
sessions, and with the tunnels if they are wanted, not with the events.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from parley._crypto.errors import IdentityError
from parley._crypto.identity import PublicIdentity
from parley._node.journal import keys
from parley._node.journal.errors import JournalFormatError
from parley._node.journal.record_types import (
    CHANGES,
    Checkpoint,
    JoinedTunnel,
    SegmentEnd,
    SegmentHead,
    SessionEnd,
    SessionParted,
    SessionStart,
    parse_event_head,
)
from parley._node.journal.records import OK, Record
from parley._node.journal.segments import CLOSED, SegmentFile, SegmentName

OPEN: Final = "open"  # being written, or the newest and left by a crash
LEFT: Final = "left open"  # a newer segment is there: a crash left it


@dataclass(slots=True)
class SegmentFacts:
    """One segment. `first` and `last` are times in ns; sizes are bytes.

    `cut` is what recovery cut off, `unfinished` what stands after the last whole record of
    one that is open, `damaged` what is not a record, or an altered one.
    """

    name: SegmentName
    state: str
    size: int
    records: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    last: int | None = None
    cut: int = 0
    unfinished: int = 0
    damaged: int = 0
    software: str = ""
    auditors: tuple[bytes, ...] = ()


@dataclass(slots=True)
class SessionCounts:
    """One session, as its node has it. `code` is None while it has not ended;
    `parted` and `resumed` are how often it lost its transport and got another."""

    session_id: str
    run: str
    remote_node: str
    address: str
    initiator: bool
    started: int
    ended: int | None = None
    code: int | None = None
    received: int = 0
    sent: int = 0
    parted: int = 0
    resumed: int = 0


class JournalSurvey:
    """Counts what is in the segments of one node, told one after another.

    `tunnels` are those that the node says it joined, if they are wanted `with_tunnels`.
    """

    def __init__(self, node: str, *, with_tunnels: bool = False) -> None:
        self.node = node
        self.segments: list[SegmentFacts] = []
        self.tunnels: list[JoinedTunnel] = []
        self._with_tunnels = with_tunnels
        self._sessions: dict[tuple[str, int], SessionCounts] = {}

    @property
    def sessions(self) -> list[SessionCounts]:
        """All that were met, in the order of their beginning."""
        return sorted(self._sessions.values(), key=lambda each: each.started)

    def sessions_of(self, run: str) -> int:
        """How many sessions a run has."""
        return sum(each.run == run for each in self._sessions.values())

    def segment(self, file: SegmentFile, is_newest: bool, records: Iterable[Record]) -> None:
        """Count one segment's records."""
        state = "closed" if file.name.state == CLOSED else OPEN if is_newest else LEFT
        facts = SegmentFacts(file.name, state, file.size)
        self.segments.append(facts)
        seen = 0
        for record in records:
            seen += record.size
            if record.status == OK:
                facts.records[keys.KIND_NAMES.get(record.kind, f"kind {record.kind}")] += 1
                self._record(facts, record)
            else:
                facts.damaged += record.size
        facts.unfinished = max(0, file.size - seen)

    def _record(self, facts: SegmentFacts, record: Record) -> None:
        facts.first = record.time if facts.first is None else facts.first
        facts.last = record.time
        try:
            self._body(facts, record)
        except JournalFormatError:
            facts.damaged += record.size

    def _body(self, facts: SegmentFacts, record: Record) -> None:
        run, kind, body = facts.name.start, record.kind, record.body
        if kind == keys.EVENT:
            number, direction = parse_event_head(body)
            session = self._sessions.get((run, number))
            if session is not None and direction == keys.SENT:
                session.sent += 1
            elif session is not None:
                session.received += 1
        elif kind == keys.SEGMENT:
            head = SegmentHead.parse(body)
            facts.software, facts.auditors = head.software, head.auditors
        elif kind == keys.SEGMENT_END:
            facts.cut = SegmentEnd.parse(body).cut
        elif kind == keys.SESSION_START:
            self._met(run, SessionStart.parse(body), record.time)
        elif kind == keys.CHECKPOINT:
            point = Checkpoint.parse(body)
            self._met(run, point, point.started)
        elif kind in CHANGES:
            change = CHANGES[kind](body)
            session = self._sessions.get((run, change.session))
            if session is not None and isinstance(change, SessionParted):
                session.parted += 1
            elif session is not None:
                session.resumed += 1
        elif kind == keys.TUNNEL:
            tunnel = JoinedTunnel.parse(body)
            if self._with_tunnels:
                self.tunnels.append(tunnel)
        elif kind == keys.SESSION_END:
            end = SessionEnd.parse(body)
            session = self._sessions.get((run, end.session))
            if session is not None:
                session.code, session.ended = end.code, record.time

    def _met(self, run: str, what: SessionStart | Checkpoint, started: int) -> None:
        facts = what.facts
        if (run, what.session) not in self._sessions:
            self._sessions[run, what.session] = SessionCounts(
                facts.session_id.hex(),
                run,
                _node_id(facts.remote_keys),
                facts.address,
                facts.initiator,
                started,
            )


def _node_id(identity: object) -> str:
    try:
        return PublicIdentity.parse(identity).node_id.text
    except IdentityError:
        return "malformed"
