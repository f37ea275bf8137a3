"""`parley journal verify`: verify every chain, seal and commitment of the journals in a directory.

With an auditor's key, also list the key statements that peers presented, and the IDs that ended.
Exits with 7 if there are findings. docs/guides/journal.md explains them.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.markup import escape

from parley._node.cli.exit_codes import Exit
from parley._node.cli.journal.keys import (
    read_auditor_keys,
)
from parley._node.cli.journal.segments import AuditBatch, ProgressBar, audit_segments, find_segments
from parley._node.cli.output import Output, format_brief_time, format_time, pluralise
from parley._node.cli.terminal import table_of
from parley._node.journal.audit.ended_ids import EndedId, SessionBegin, find_ended_ids
from parley._node.journal.audit.rows import (
    EVENT_COLUMNS,
    MALFORMED,
    STATUS_AT,
    UNDECRYPTABLE,
    UNSEALED,
    Finding,
    StatementRow,
)
from parley._node.journal.segments import CLOSED, parse_name
from parley._node.logs import one_line
from parley._node.trust.petnames import Petnames

MOST_SHOWN: Final = 200  # rows to show in a table; --json shows all
LISTED: Final = 4  # sessions to list for an ended ID; --json lists all

_ITEM_AT: Final = EVENT_COLUMNS.index("item")
# Statuses that are not findings; they are shown by direction.
_OPEN: Final = (UNSEALED, UNDECRYPTABLE, MALFORMED)
_CHANGES: Final = ("parted", "resumed")  # changes of transports, as nodes record them
_KEY: Final = tuple(map(EVENT_COLUMNS.index, ("journal", "session", "direction", "status")))
_PLACE_AT: Final = EVENT_COLUMNS.index("place")
_PROVES: Final = (
    "A holder of an ID's key opened the ID's sessions, before and after the statement, which "
    "invalidates none of them. Nothing proves when a key was stolen: `made` is the signer's claim, "
    "which a thief can backdate, and `presented` is the time of the journal's node."
)


def verify(
    directory: Path,
    auditor_key: list[Path] | None,
    passphrase_file: Path | None,
    node: str | None,
    as_json: bool,
) -> None:
    out = Output(as_json)
    auditors = read_auditor_keys(auditor_key, passphrase_file)
    journals = find_segments(directory, node)
    totals = {text: Totals() for text in journals}
    shown: list[Finding] = []
    bar = ProgressBar(sum(each.size for segments in journals.values() for each in segments))
    with bar.shown():
        for piece in audit_segments(journals, auditors, bar, payloads=False):
            totals[piece.node].add(piece)
            for finding in piece.findings:
                out.event("finding", **_described(finding))
            shown += piece.findings[: MOST_SHOWN - len(shown)]
    for text, each in totals.items():
        out.print(f"journal of {out.petnames.beside(text)}")
        out.print(f"  {pluralise(len(journals[text]), 'segment')}, {each.sentence}")
    every = sum(totals.values(), Totals())
    _show(out, shown, every.findings.total())
    _show_open(out, every.open)
    _show_statements(out, every.presented)
    ended = find_ended_ids(every.presented, every.begins.values())
    _show_ended(out, ended)
    if not auditors:
        out.print("payloads were not decrypted: give --auditor-key")
    out.done(
        journals=len(journals),
        segments=sum(map(len, journals.values())),
        records=every.records,
        sessions=len(every.sessions),
        **{what: every.changes[what] for what in _CHANGES},
        tunnels=every.tunnels,
        statements=len(every.presented),
        ended=len(ended),
        events=every.statuses.total(),
        statuses=every.statuses,
        findings=every.findings.total(),
        kinds=every.findings,
        decrypted=bool(auditors),
    )
    if every.findings:
        raise click.exceptions.Exit(Exit.FINDINGS)


@dataclass(slots=True)
class EventRange:
    """Number and positions of the events with one status, in one direction of a session."""

    first: int
    last: int
    count: int = 0


class Totals:
    """Counts of an audit: `changes` of transports, forwarded `tunnels`, `statuses` of events and
    `findings` by kind. `open` has the events with `_OPEN` statuses by journal, session, direction
    and status. `presented` are the key statements, and `begins` the sessions, by journal and ID.
    """

    def __init__(self) -> None:
        self.records = self.tunnels = 0
        self.sessions: set[str] = set()
        self.begins: dict[tuple[str, str], SessionBegin] = {}
        self.presented: list[StatementRow] = []
        self.changes: Counter[str] = Counter()  # sessions suspended and resumed
        self.statuses: Counter[str] = Counter()
        self.findings: Counter[str] = Counter()
        self.open: dict[tuple[str, str, str, str], EventRange] = {}

    def add(self, piece: AuditBatch) -> None:
        """Count a batch. Of several notes of one event, only the first counts."""
        self.records += piece.records
        self.sessions.update(row.session for row in piece.sessions)
        self.changes.update(row.what for row in piece.sessions if row.what in _CHANGES)
        for row in piece.sessions:
            key = row.journal, row.session
            if key not in self.begins:
                self.begins[key] = SessionBegin(*key, row.remote_node, row.started_ns)
        self.presented += piece.statements
        self.tunnels += len(piece.tunnels)
        for event in piece.events:
            if not event[_ITEM_AT]:
                self.statuses[event[STATUS_AT]] += 1
                if event[STATUS_AT] in _OPEN:
                    journal, session, direction, status = (event[at] for at in _KEY)
                    place = event[_PLACE_AT]
                    where = journal, session, direction, status
                    which = self.open.setdefault(where, EventRange(place, place))
                    which.first, which.last = min(which.first, place), max(which.last, place)
                    which.count += 1
        self.findings.update(finding.kind for finding in piece.findings)

    def __add__(self, other: "Totals") -> "Totals":
        both = Totals()
        both.records = self.records + other.records
        both.sessions = self.sessions | other.sessions
        both.changes = self.changes + other.changes
        both.begins = self.begins | other.begins
        both.presented = self.presented + other.presented
        both.tunnels = self.tunnels + other.tunnels
        both.statuses = self.statuses + other.statuses
        both.findings = self.findings + other.findings
        both.open = self.open | other.open
        return both

    @property
    def sentence(self) -> str:
        listed = ", ".join(f"{count:,} {name}" for name, count in sorted(self.statuses.items()))
        tunnels = f"{pluralise(self.tunnels, 'tunnel')}, " if self.tunnels else ""
        parted = ", ".join(f"{what} {pluralise(self.changes[what], 'time')}" for what in _CHANGES)
        return (
            f"{pluralise(len(self.sessions), 'session')}{f' ({parted})' if self.changes else ''}, "
            f"{tunnels}"
            f"{pluralise(self.statuses.total(), 'event')}{listed and f' ({listed})'}, "
            f"{pluralise(self.findings.total(), 'finding')}"
        )


def _show(out: Output, findings: list[Finding], total: int) -> None:
    if not findings:
        return
    table = table_of("findings", "finding", "where", "evidence")
    for each in findings:
        evidence = one_line(out.petnames.in_text(each.evidence))
        where = _where(each, out.petnames)
        table.add_row(each.kind, escape(where), escape(evidence))
    out.table(table)
    if total > len(findings):
        out.print(f"and {total - len(findings)} more; --json shows all")


def _show_open(out: Output, found: dict[tuple[str, str, str, str], EventRange]) -> None:
    if not found:
        return
    table = table_of("events that are not ok", "status", "where", "events", "places")
    for number, ((journal, session, direction, status), which) in enumerate(found.items()):
        where = {"journal": journal, "session": session, "direction": direction}
        out.event("not-ok", status=status, **where, **asdict(which))
        if number < MOST_SHOWN:
            places = f"{which.first:,} to {which.last:,}"
            whose = out.petnames.beside_short(journal)
            at = f"session {session[:8]} {direction}\njournal of {whose}"
            table.add_row(status, escape(at), f"{which.count:,}", places)
    out.table(table)
    if len(found) > MOST_SHOWN:
        out.print(f"and {len(found) - MOST_SHOWN:,} more; --json shows all")


def _show_statements(out: Output, presented: list[StatementRow]) -> None:
    if not presented:
        return
    head = ("status", "session", "presented by", "ends", "successor", "signer", "made (claimed)")
    table = table_of("presented key statements", *head)
    for number, row in enumerate(presented):
        out.event("statement", **_presented(row))
        if number < MOST_SHOWN:
            table.add_row(
                row.status,
                f"{row.session[:8]} {row.direction}",
                *(escape(_short(out.petnames, node)) for node in (row.presenter, row.origin)),
                escape(_short(out.petnames, row.successor)),
                _signer(row.by_recovery),
                format_brief_time(_made_ns(row)),
            )
    out.table(table)
    if len(presented) > MOST_SHOWN:
        out.print(f"and {len(presented) - MOST_SHOWN:,} more; --json shows all")


def _show_ended(out: Output, ended: list[EndedId]) -> None:
    if not ended:
        return
    head = ("ended ID", "journal of", "presented", "sessions before", "sessions after")
    table = table_of("ended IDs", *head)
    for number, each in enumerate(ended):
        first = each.first
        out.event("ended", **_presented(first), before=each.before, after=each.after)
        if number < MOST_SHOWN:
            table.add_row(
                *(escape(_short(out.petnames, node)) for node in (first.origin, first.journal)),
                format_brief_time(first.time_ns),
                *(_listed(sessions) for sessions in (each.before, each.after)),
            )
    out.table(table)
    if len(ended) > MOST_SHOWN:
        out.print(f"and {len(ended) - MOST_SHOWN:,} more; --json shows all")
    out.print(_PROVES)


def _listed(sessions: list[str]) -> str:
    """Return the number of sessions and the first of them."""
    names = ", ".join(session[:8] for session in sessions[:LISTED])
    more = ", .." if len(sessions) > LISTED else ""
    return f"{len(sessions):,}: {names}{more}" if sessions else "0"


def _short(petnames: Petnames, node: str | None) -> str:
    return "" if node is None else petnames.beside_short(node)


def _signer(by_recovery: bool | None) -> str:
    return "" if by_recovery is None else "recovery key" if by_recovery else "primary key"


def _made_ns(row: StatementRow) -> int | None:
    return None if row.made_ms is None else row.made_ms * 10**6


def _presented(row: StatementRow) -> dict[str, Any]:
    fields = row._asdict()
    fields["time"] = format_time(fields.pop("time_ns"))
    return fields


def _where(finding: Finding, petnames: Petnames) -> str:
    lines = []
    if finding.session is not None:
        place = "" if finding.place is None else f" {finding.place:,}"
        lines.append(f"session {finding.session[:8]} {finding.direction or ''}{place}")
    if finding.count > 1:
        lines.append(pluralise(finding.count, "event"))
    name = parse_name(finding.segment + CLOSED)
    segment = finding.segment
    if name is not None:
        segment = f"{petnames.beside_short(name.node)} {name.start} {name.number}"
    lines.append(f"{segment} at {finding.offset:,}")
    if finding.time_ns is not None:
        lines.append(format_brief_time(finding.time_ns))
    return "\n".join(lines)


def _described(finding: Finding) -> dict[str, Any]:
    fields = asdict(finding)
    fields["time"] = format_time(fields.pop("time_ns"))
    return fields
