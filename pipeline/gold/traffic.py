"""Traffic by minute, node, peer, topic, label and direction, and which node talks to which.

Both work without an auditor's key; then `topic`, `namespace` and `label` are null.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, grouped, shaped
from parley._pipeline.summary.kinds import KINDS, Summary

TRAFFIC: Final = pa.schema([("date", pa.date32()), *KINDS["traffic"].schema])
GRAPH: Final = pa.schema(
    [
        ("sender", TEXT),
        ("receiver", TEXT),
        ("sessions", LONG),
        ("events", LONG),
        ("wire_bytes", LONG),
        ("first", TIME),
        ("last", TIME),
    ]
)


def traffic(summary: Summary) -> pa.Table:
    """What went over the wire, as each node's own journal has it.

    An event that two journals have is in two rows, one of each node: to sum over all nodes, take
    the `sent` ones. Columns: date, minute, node, peer, topic, namespace, label, direction, events,
    notes, ok, wire_bytes, payload_bytes.
    """
    table = summary["traffic"]
    dates = pc.cast(table.column("minute"), pa.date32())
    return shaped(table.append_column("date", dates), TRAFFIC)


def graph(summary: Summary) -> pa.Table:
    """One row for each node and each node that it sent something to.

    Each event counts once, whichever of the two journals has it. Columns: sender, receiver,
    sessions, events, wire_bytes, first, last.
    """
    table = grouped(
        directions(summary),
        ["sender", "receiver"],
        total=["events", "wire_bytes"],
        least=["first"],
        most=["last"],
        count="sessions",
    )
    return shaped(table, GRAPH)


def directions(summary: Summary) -> pa.Table:
    """One row for each direction of each session: from whom to whom, how much, when.

    Of the two journals that may have it, the counts are those of the one that has more.
    """
    return grouped(
        summary["directions"],
        ["session", "sender", "receiver"],
        most=["events", "wire_bytes", "last"],
        least=["first"],
    )
