"""All findings in one table: those of silver, of events' statuses, and of both ends' comparison."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, of_rows, only
from parley._pipeline.gold.meanings import FAULT, KINDS
from parley._pipeline.reconcile.ends import Found, Row

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
    """Columns: weight, and those of `Found`."""
    return of_rows(((_weight(one.kind), *one) for one in found), FINDINGS)


def _weight(kind: str) -> str:
    known = KINDS.get(kind)
    return FAULT if known is None else known.weight


def of_silver(rows: Iterable[Row]) -> Iterator[Found]:
    """Silver's own findings."""
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


def told_twice(sessions: Iterable[Row]) -> Iterator[Found]:
    """Sessions that begin more than once in one journal, by silver's rows of sessions."""
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
                evidence="the session begins more than once: it stands there a second time",
            )


def of_statuses(statuses: pa.Table) -> Iterator[Found]:
    """One finding for all events of a direction that are in their places and yet unread."""
    rows = only(statuses, "status", *_STATUSES)
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
