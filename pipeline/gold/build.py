"""All gold tables, including findings, computed from a summary."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, rows_with, table_of_rows
from parley._pipeline.gold.finding_texts import FAULT, KINDS
from parley._pipeline.gold.statements import STATEMENTS, statements
from parley._pipeline.gold.tables import (
    CALLS,
    GRAPH,
    SESSIONS,
    TOPICS,
    TRAFFIC,
    TUNNELS,
    calls,
    graph,
    sessions,
    topics,
    traffic,
    tunnels,
)
from parley._pipeline.reconcile.events import Reader, compare_events
from parley._pipeline.reconcile.sessions import (
    End,
    Found,
    Row,
    compare_ends,
    covered,
    missing_journals,
    session_ends,
)
from parley._pipeline.reconcile.tunnels import compare_tunnels
from parley._pipeline.summary.kinds import Summary

FINDINGS: Final = pa.schema(
    [
        *((name, TEXT) for name in ("weight", "kind", "journal", "session", "direction")),
        ("place", LONG),
        ("time", TIME),
        ("segment", TEXT),
        ("offset", LONG),
        ("count", LONG),
        ("evidence", TEXT),
    ]
)
_STATUSES: Final = ("malformed", "unsealed")


def findings(found: Iterable[Found]) -> pa.Table:
    """Return the findings table. Columns: weight, and the fields of `Found`."""
    return table_of_rows(((_weight(one.kind), *one) for one in found), FINDINGS)


def _weight(kind: str) -> str:
    known = KINDS.get(kind)
    return FAULT if known is None else known.weight


def silver_findings(rows: Iterable[Row]) -> Iterator[Found]:
    for row in rows:
        time = row.get("time_ns")
        yield Found(
            row["kind"],
            row.get("journal"),
            row.get("session"),
            row.get("direction"),
            row.get("place"),
            None if time is None else time // 1000,
            row.get("segment"),
            row.get("offset"),
            row["count"],
            row.get("evidence"),
        )


def repeated_sessions(sessions: Iterable[Row]) -> Iterator[Found]:
    """Yield findings for sessions that begin more than once in one journal."""
    starts: defaultdict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for row in sessions:
        if row["what"] == "start":
            starts[row["journal"], row["session"]].append((row["segment"], row["offset"]))
    for (journal, session), places in starts.items():
        if len(places) > 1:
            segment, offset = max(places)
            yield Found(
                "session-twice",
                journal,
                session,
                segment=segment,
                offset=offset,
                events=len(places),
                evidence="the session begins a second time in the journal",
            )


def status_findings(statuses: pa.Table) -> Iterator[Found]:
    """Yield one finding for all events of a direction that are in sequence but could not be
    read.
    """
    rows = rows_with(statuses, "status", *_STATUSES)
    rows = rows.filter(pc.greater(rows.column("count"), 0))
    times = rows.column("time").cast(LONG)
    rows = rows.set_column(rows.schema.get_field_index("time"), "time", times)
    names = ("status", "journal", "session", "direction", "place", "time", "segment", "offset")
    for row in rows.select([*names, "count", "places", "last"]).to_pylist():
        last, kind, count = row.pop("last"), row.pop("status"), row.pop("count")
        evidence = _which(count, row.pop("places"), row["place"], last)
        yield Found(kind, **row, events=count, evidence=evidence)


def _which(count: int, places: int, first: Any, last: Any) -> str:
    if first == last:
        return f"{count} event{'s' if count > 1 else ''}, at place {first}"
    if last is not None and last - first + 1 == places:
        return f"{count} events, at places {first} to {last}"
    return f"{count} events, between places {first} and {last}"


SCHEMAS: Final = {
    "findings": FINDINGS,
    "traffic": TRAFFIC,
    "calls": CALLS,
    "topics": TOPICS,
    "sessions": SESSIONS,
    "graph": GRAPH,
    "tunnels": TUNNELS,
    "statements": STATEMENTS,
}


def gold_tables(summary: Summary, read: Reader, check_key: bytes) -> dict[str, pa.Table]:
    """Return all gold tables by name.

    `read` returns rows of events where two journals differ. `check_key` is the key that the
    summary's checksums were computed with.
    """
    about, joined = rows_of(summary, "sessions"), rows_of(summary, "tunnels")
    ends = session_ends(about)
    times = covered(summary["statuses"], ends)

    def found() -> Iterator[Found]:
        yield from silver_findings(rows_of(summary, "findings"))
        yield from repeated_sessions(about)
        yield from status_findings(summary["statuses"])
        yield from compare_events(summary["blocks"], ends, read, check_key)
        yield from _end_findings(ends, joined, times)

    return {
        "findings": findings(found()),
        "traffic": traffic(summary),
        "calls": calls(summary),
        "topics": topics(summary),
        "sessions": sessions(summary, ends),
        "graph": graph(summary),
        "tunnels": tunnels(joined),
        "statements": statements(rows_of(summary, "statements"), about),
    }


def _end_findings(
    ends: Sequence[End], joined: Sequence[Row], times: Mapping[str, tuple[int, int]]
) -> Iterator[Found]:
    """Return the findings from comparing whole sessions and tunnels."""
    yield from compare_ends(ends)
    yield from missing_journals(ends, times)
    yield from compare_tunnels(joined, times)


def rows_of(summary: Summary, name: str) -> list[dict[str, Any]]:
    """Return silver's rows of sessions, tunnels, statements or findings."""
    return [json.loads(text) for text in summary[name].column("other").to_pylist()]


def statuses_of(summary: Summary) -> Counter[str]:
    counts: Counter[str] = Counter()
    rows = summary["statuses"].select(["status", "rows"]).to_pydict()
    for status, count in zip(rows["status"], rows["rows"], strict=True):
        counts[status] += count
    return counts
