"""Tunnels, one row for each trace: the way that it went, and how much went through.

All of it is the servers' own word; what their neighbours say against it is in the findings. It
works without an auditor's key.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from parley._pipeline.gold.arrow import INT, LONG, TEXT, TIME, of_rows
from parley._pipeline.reconcile.ends import Row
from parley._pipeline.reconcile.tunnels import LARGEST, began_of, ended_of

TUNNELS: Final = pa.schema(
    [
        ("trace", TEXT),
        ("path", pa.list_(TEXT)),
        ("length", INT),
        ("hops", INT),
        ("tunnels", LONG),
        ("began", TIME),
        ("ended", TIME),
        ("duration_us", LONG),
        ("forward", LONG),
        ("back", LONG),
    ]
)


def tunnels(rows: Iterable[Row]) -> pa.Table:
    """Columns: trace, path, length, hops, tunnels, began, ended, duration_us, forward, back.

    `path` has the node ids in their order, null where no journal says which: first the account,
    if it dialled its home and that says so, then the `length` ids of the path. `hops` is how many
    servers have a record, `tunnels` the most that one has: more than one if the origin used the
    trace again. `began`, `ended`, `forward` and `back` are those of the first of these servers.
    """
    by_trace: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_trace[row["trace"]].append(row)
    return of_rows((_row(trace, some) for trace, some in by_trace.items()), TUNNELS)


def _row(trace: str, rows: Sequence[Row]) -> list[Any]:
    by_hop: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_hop[row["hop"]].append(row)
    first = by_hop[min(by_hop)]
    return [
        trace,
        _path(rows),
        max(row["length"] for row in rows),
        len(by_hop),
        max(map(len, by_hop.values())),
        min(map(began_of, first)),
        max(map(ended_of, first)),
        # Of one server's two times, never of two clocks.
        max(ended_of(row) - began_of(row) for row in rows),
        *(min(sum(row[way] for row in first), LARGEST) for way in ("forward", "back")),
    ]


def _path(rows: Sequence[Row]) -> list[str | None]:
    """Which node is at which index of a path: by its own word, or else by a neighbour's."""
    said: dict[int, tuple[bool, str]] = {}
    for row in rows:
        hop = row["hop"]
        for at, is_neighbour, name in (
            (hop - 1, True, "before"),
            (hop, False, "journal"),
            (hop + 1, True, "after"),
        ):
            one = is_neighbour, row[name]
            said[at] = min(said.get(at, one), one)
    length = max(row["length"] for row in rows)
    return [said[at][1] if at in said else None for at in range(min(0, *said), length)]
