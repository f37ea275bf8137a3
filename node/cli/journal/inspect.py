"""`parley journal inspect`: which journals exist, and what is in their files.

It reads everything and verifies nothing; `verify` does that.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from parley._crypto.auditor import AuditorKey
from parley._crypto.errors import InvalidKeyError
from parley._node.cli.journal.segments import Bar, find_segments, read_segment
from parley._node.cli.journal.survey import JournalSurvey, SegmentFacts, SessionCounts
from parley._node.cli.output import Output, brief_time, show_time
from parley._node.cli.terminal import table_of
from parley._node.journal.record_types import JoinedTunnel
from parley._node.protocol.codes import code_name
from parley._node.trust.petnames import Petnames

_EVENT: Final = "event"


def inspect(
    directory: Path,
    node: str | None,
    sessions: bool,
    tunnels: bool,
    as_json: bool,
) -> None:
    """Show the segments, runs and sessions of the journals in a directory."""
    out = Output(as_json)
    journals = find_segments(directory, node)
    surveys = []
    bar = Bar(sum(each.size for segments in journals.values() for each in segments))
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
    out.say(f"journal of {out.petnames.beside(survey.node)}")
    for auditor in sorted({key for facts in survey.segments for key in facts.auditors}):
        out.say(f"auditor    {_auditor(auditor)}")
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
            brief_time(min(firsts, default=None)),
            brief_time(max(lasts, default=None)),
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
            brief_time(each.started),
            brief_time(each.ended),
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
            brief_time(each.began),
            brief_time(each.ended),
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
        "first_time": show_time(facts.first),
        "last_time": show_time(facts.last),
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
        "began": show_time(session.started),
        "ended": show_time(session.ended),
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
        "began": show_time(tunnel.began),
        "ended": show_time(tunnel.ended),
        "forward": tunnel.forward,
        "back": tunnel.back,
    }


def _auditor(key: bytes) -> str:
    try:
        return AuditorKey(key).text
    except InvalidKeyError:
        return f"no key: {key.hex()}"
