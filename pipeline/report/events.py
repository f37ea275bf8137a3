"""What the report has of single events: those around findings, and traffic of less than minutes.

Gold has neither: events are read from silver, a few columns of them at a time, and let go at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TIME, grouped
from parley._pipeline.report.figures import BEGINNING, EVENT_ROWS, NEAR, EventRow

# Columns of all events, or of those of some sessions, in pieces.
Scan = Callable[[Sequence[str], Sequence[str] | None], Iterator[pa.Table]]

_SENT: Final = "sent"
_TRAFFIC: Final = ("journal", "sender", "receiver", "direction", "time", "wire_size")


def events_of(scan: Scan, wanted: Mapping[str, Sequence[int]]) -> dict[str, list[EventRow]]:
    """For each of these sessions at most `EVENT_ROWS` rows: first those at most `NEAR` places from
    the places that belong to it here, then those at its beginning; in the order of their places,
    one journal's beside the other's."""
    near = {
        session: {place + away for place in places for away in range(-NEAR, NEAR + 1)}
        for session, places in wanted.items()
    }
    anywhere = pa.array(sorted(set().union(*near.values())), LONG)
    found: dict[str, list[EventRow]] = {session: [] for session in wanted}
    if not wanted:
        return found
    for piece in scan([*EventRow._fields, "item"], list(wanted)):
        place = piece.column("place")
        worth = pc.or_(pc.less(place, BEGINNING), pc.is_in(place, anywhere))
        rows = piece.filter(pc.and_(pc.equal(piece.column("item"), 0), worth))
        at = rows.schema.get_field_index("time")
        rows = rows.set_column(at, "time", rows.column("time").cast(LONG))
        for values in zip(
            *(rows.column(name).to_pylist() for name in EventRow._fields), strict=True
        ):
            row = EventRow(*values)
            found[row.session].append(row)
    return {session: _some(rows, near[session]) for session, rows in found.items()}


def _some(rows: list[EventRow], near: set[int]) -> list[EventRow]:
    """The first `EVENT_ROWS` of a session's events, those that are near before others."""
    rows.sort(key=lambda row: (row.place not in near, row.place, row.direction, row.journal or ""))
    return rows[:EVENT_ROWS]


def fine_traffic(scan: Scan, width: int) -> pa.Table:
    """What each journal has of each `width` microseconds, with the columns of gold's `traffic` that
    pictures are made of: minute (here when the bin begins), node, peer, direction, events,
    wire_bytes."""
    keys = ["minute", "node", "peer", "direction"]
    sums = ["events", "wire_bytes"]
    pieces = []
    for piece in scan([*_TRAFFIC, "item", "inside", "status"], None):
        known = pc.not_equal(pc.fill_null(piece.column("status"), ""), "duplicate")
        rows = piece.filter(pc.and_(pc.equal(piece.column("item"), 0), known))
        inside = pc.fill_null(rows.column("inside"), 0)
        size = pc.if_else(pc.equal(inside, 0), pc.fill_null(rows.column("wire_size"), 0), 0)
        direction = rows.column("direction")
        peer = pc.if_else(
            pc.equal(direction, _SENT), rows.column("receiver"), rows.column("sender")
        )
        time = rows.column("time").cast(LONG)
        begins = pc.multiply(pc.divide(time, width), width).cast(TIME)
        one = pa.repeat(pa.scalar(1, LONG), rows.num_rows)
        columns = [begins, rows.column("journal"), peer, direction, one, size.cast(LONG)]
        pieces.append(grouped(pa.table(columns, names=[*keys, *sums]), keys, total=sums))
    return grouped(pa.concat_tables(pieces), keys, total=sums)
