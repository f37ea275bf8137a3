"""`parley journal inspect`: list the journals in a directory and the contents of their segments.

Nothing is verified or decrypted; `verify` does that. Memory grows with the number of sessions and
tunnels, but not with events.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import IdentityError, InvalidKeyError
from parley._crypto.identity import PublicIdentity
from parley._node.cli.journal.segments import ProgressBar, find_segments, read_segment
from parley._node.cli.output import Output, format_brief_time, format_time
from parley._node.cli.terminal import table_of
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
from parley._node.protocol.codes import code_name
from parley._node.trust.petnames import Petnames

OPEN: Final = "open"  # being written, or the newest one after a crash
LEFT: Final = "left open"  # a crash left it open, and a newer segment exists


@dataclass(slots=True)
class SegmentFacts:
    """The contents of a segment. `first` and `last` are times in ns; sizes are in bytes.

    `cut` was removed by recovery, `unfinished` follows the last complete record of an open segment,
    `damaged` is unreadable or altered.
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
    """Counts of one session, as its node recorded it. `code` is None until the session ends;
    `parted` and `resumed` count lost and replaced transports.
    """

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
    """Counts the records of one node's segments; with `with_tunnels`, also lists the tunnels."""

    def __init__(self, node: str, *, with_tunnels: bool = False) -> None:
        self.node = node
        self.segments: list[SegmentFacts] = []
        self.tunnels: list[JoinedTunnel] = []
        self._with_tunnels = with_tunnels
        self._sessions: dict[tuple[str, int], SessionCounts] = {}

    @property
    def sessions(self) -> list[SessionCounts]:
        """All sessions, in the order of their start."""
        return sorted(self._sessions.values(), key=lambda each: each.started)

    def sessions_of(self, run: str) -> int:
        return sum(each.run == run for each in self._sessions.values())

    def segment(self, file: SegmentFile, is_newest: bool, records: Iterable[Record]) -> None:
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


_EVENT: Final = "event"


def inspect(
    directory: Path,
    node: str | None,
    sessions: bool,
    tunnels: bool,
    as_json: bool,
) -> None:
    out = Output(as_json)
    journals = find_segments(directory, node)
    surveys = []
    bar = ProgressBar(sum(each.size for segments in journals.values() for each in segments))
    with bar.shown():
        for text, segments in journals.items():
            survey = JournalSurvey(text, with_tunnels=tunnels)
            surveys.append(survey)
            for segment in segments:
                bar.about(segment.name)
                survey.segment(segment, segment is segments[-1], read_segment(segment, bar))
    for survey in surveys:
        _show(out, survey, with_sessions=sessions)
    every = [facts for survey in surveys for facts in survey.segments]
    out.done(
        journals=len(surveys),
        segments=len(every),
        runs=len({(facts.name.node, facts.name.start) for facts in every}),
        sessions=sum(len(survey.sessions) for survey in surveys),
        size=sum(facts.size for facts in every),
        records=sum((facts.records for facts in every), Counter[str]()),
        damaged=sum(facts.damaged for facts in every),
    )


def _show(out: Output, survey: JournalSurvey, *, with_sessions: bool) -> None:
    out.print(f"journal of {out.petnames.beside(survey.node)}")
    for auditor in sorted({key for facts in survey.segments for key in facts.auditors}):
        out.print(f"auditor    {_auditor(auditor)}")
    for facts in survey.segments:
        out.event("segment", **_described(survey.node, facts))
    out.table(_runs(survey), _segments(survey))
    if with_sessions:
        for session in survey.sessions:
            out.event("session", **_session(survey.node, session))
        out.table(_sessions(survey, out.petnames))
    for tunnel in survey.tunnels:
        out.event("tunnel", **_tunnel(survey.node, tunnel))
    if survey.tunnels:
        out.table(_tunnels(survey, out.petnames))


def _runs(survey: JournalSurvey) -> Table:
    head = ("began", "last record", "segments", "sessions", "events", "bytes")
    table = table_of("runs", *head)
    runs: dict[str, list[SegmentFacts]] = {}
    for facts in survey.segments:
        runs.setdefault(facts.name.start, []).append(facts)
    for start, segments in runs.items():
        firsts = [facts.first for facts in segments if facts.first is not None]
        lasts = [facts.last for facts in segments if facts.last is not None]
        table.add_row(
            format_brief_time(min(firsts, default=None)),
            format_brief_time(max(lasts, default=None)),
            f"{len(segments):,}",
            f"{survey.sessions_of(start):,}",
            f"{sum(facts.records[_EVENT] for facts in segments):,}",
            f"{sum(facts.size for facts in segments):,}",
        )
    return table


def _segments(survey: JournalSurvey) -> Table:
    table = table_of("segments", "segment", "state", "bytes", "events", "others", "remarks")
    for facts in survey.segments:
        table.add_row(
            facts.name.stem.partition("-")[2],
            facts.state,
            f"{facts.size:,}",
            f"{facts.records[_EVENT]:,}",
            f"{facts.records.total() - facts.records[_EVENT]:,}",
            ", ".join(_remarks(facts)),
        )
    return table


def _remarks(facts: SegmentFacts) -> list[str]:
    said = (
        (facts.cut, "cut off by recovery"),
        (facts.unfinished, "after the last whole record"),
        (facts.damaged, "damaged"),
    )
    return [f"{size:,} bytes {what}" for size, what in said if size]


def _sessions(survey: JournalSurvey, petnames: Petnames) -> Table:
    head = ("session", "with", "began", "ended", "code", "received", "sent", "resumed")
    table = table_of("sessions", *head)
    for each in survey.sessions:
        table.add_row(
            each.session_id[:8],
            escape(petnames.beside_short(each.remote_node)),
            format_brief_time(each.started),
            format_brief_time(each.ended),
            "" if each.code is None else f"{each.code} {code_name(each.code)}",
            f"{each.received:,}",
            f"{each.sent:,}",
            f"{each.resumed:,}",
        )
    return table


def _tunnels(survey: JournalSurvey, petnames: Petnames) -> Table:
    head = ("tunnel", "hop", "from", "to", "began", "ended", "forward", "back")
    table = table_of("tunnels", *head)
    for each in survey.tunnels:
        table.add_row(
            each.trace.hex()[:8],
            f"{each.hop} of {each.length - 1}",
            escape(petnames.beside_short(each.before)),
            escape(petnames.beside_short(each.after)),
            format_brief_time(each.began),
            format_brief_time(each.ended),
            f"{each.forward:,}",
            f"{each.back:,}",
        )
    return table


def _described(node: str, facts: SegmentFacts) -> dict[str, Any]:
    return {
        "node_id": node,
        "segment": str(facts.name),
        "run": facts.name.start,
        "number": facts.name.number,
        "state": facts.state,
        "size": facts.size,
        "records": dict(facts.records),
        "first_time": format_time(facts.first),
        "last_time": format_time(facts.last),
        "cut": facts.cut,
        "unfinished": facts.unfinished,
        "damaged": facts.damaged,
        "software": facts.software,
        "auditors": [_auditor(key) for key in facts.auditors],
    }


def _session(node: str, session: SessionCounts) -> dict[str, Any]:
    return {
        "node_id": node,
        "session": session.session_id,
        "run": session.run,
        "remote_node_id": session.remote_node,
        "address": session.address,
        "initiator": session.initiator,
        "began": format_time(session.started),
        "ended": format_time(session.ended),
        "code": session.code,
        "kind": "close",
        "name": None if session.code is None else code_name(session.code),
        "received": session.received,
        "sent": session.sent,
        "parted": session.parted,
        "resumed": session.resumed,
    }


def _tunnel(node: str, tunnel: JoinedTunnel) -> dict[str, Any]:
    return {
        "node_id": node,
        "trace": tunnel.trace.hex(),
        "hop": tunnel.hop,
        "length": tunnel.length,
        "before": tunnel.before.text,
        "after": tunnel.after.text,
        "began": format_time(tunnel.began),
        "ended": format_time(tunnel.ended),
        "forward": tunnel.forward,
        "back": tunnel.back,
    }


def _auditor(key: bytes) -> str:
    try:
        return AuditorKey(key).text
    except InvalidKeyError:
        return f"no key: {key.hex()}"
