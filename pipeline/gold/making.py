"""All gold tables from a summary of everything that was read."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from parley._pipeline.gold.calls import CALLS, calls
from parley._pipeline.gold.findings import FINDINGS, findings, of_silver, of_statuses, told_twice
from parley._pipeline.gold.sessions import SESSIONS, sessions
from parley._pipeline.gold.topics import TOPICS, topics
from parley._pipeline.gold.traffic import GRAPH, TRAFFIC, graph, traffic
from parley._pipeline.gold.tunnels import TUNNELS, tunnels
from parley._pipeline.reconcile.ends import End, Found, Row, covered, session_ends
from parley._pipeline.reconcile.events import Reader, compare_events
from parley._pipeline.reconcile.sessions import compare_ends, missing_journals
from parley._pipeline.reconcile.tunnels import compare_tunnels
from parley._pipeline.summary.kinds import Summary

SCHEMAS: Final = {
    "findings": FINDINGS,
    "traffic": TRAFFIC,
    "calls": CALLS,
    "topics": TOPICS,
    "sessions": SESSIONS,
    "graph": GRAPH,
    "tunnels": TUNNELS,
}


def gold_tables(summary: Summary, read: Reader, check_key: bytes) -> dict[str, pa.Table]:
    """All tables by their names.

    `read` gives the rows of events where two journals are not alike; `check_key` is that of the
    summary's checksums.
    """
    about, joined = rows_of(summary, "sessions"), rows_of(summary, "tunnels")
    ends = session_ends(about)
    times = covered(summary["statuses"], ends)

    def found() -> Iterator[Found]:
        yield from of_silver(rows_of(summary, "findings"))
        yield from told_twice(about)
        yield from of_statuses(summary["statuses"])
        yield from compare_events(summary["blocks"], ends, read, check_key)
        yield from of_ends(ends, joined, times)

    return {
        "findings": findings(found()),
        "traffic": traffic(summary),
        "calls": calls(summary),
        "topics": topics(summary),
        "sessions": sessions(summary, ends),
        "graph": graph(summary),
        "tunnels": tunnels(joined),
    }


def of_ends(
    ends: Sequence[End], joined: Sequence[Row], times: Mapping[str, tuple[int, int]]
) -> Iterator[Found]:
    """What the comparison of sessions and of tunnels as a whole finds."""
    yield from compare_ends(ends)
    yield from missing_journals(ends, times)
    yield from compare_tunnels(joined, times)


def rows_of(summary: Summary, name: str) -> list[dict[str, Any]]:
    """Silver's rows of sessions, tunnels or findings."""
    return [json.loads(text) for text in summary[name].column("other").to_pylist()]


def statuses_of(summary: Summary) -> Counter[str]:
    """How many events and notes have each status."""
    counts: Counter[str] = Counter()
    rows = summary["statuses"].select(["status", "rows"]).to_pydict()
    for status, count in zip(rows["status"], rows["rows"], strict=True):
        counts[status] += count
    return counts
