"""Tampers with records of tunnels, knowing docs/journal.md alone, as `forger` with the others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2

from tests.pipeline.forger import Record, Segment

TUNNEL = 12
TRACE, LENGTH, FORWARD, BACK = 298, 300, 305, 306

# Possible changes of a server's record of a tunnel; None: it has none.
KINDS: dict[str, Callable[[Any], Any]] = {
    "hidden": lambda cells: None,
    "more": lambda cells: {**cells, FORWARD: cells[FORWARD] + 1},
    "less": lambda cells: {**cells, BACK: 0},
    "longer": lambda cells: {**cells, LENGTH: cells[LENGTH] + 1},
}


def forge(directory: Path, node: str) -> dict[str, str]:
    """Plant one fault of each kind in the node's records, in order, and return the changes by
    trace.
    """
    left, done = list(KINDS), {}
    for path in sorted(directory.glob(f"{node}*.pjl")):
        segment = Segment(path)
        for record in [one for one in segment.records if one.kind == TUNNEL]:
            if left:
                done[cbor2.loads(record.body)[TRACE].hex()] = left[0]
                _change(segment, record, left.pop(0))
        segment.save()
    if left:
        raise ValueError(f"no place for {left}")
    return done


def _change(segment: Segment, record: Record, kind: str) -> None:
    cells = KINDS[kind](cbor2.loads(record.body))
    if cells is None:
        segment.records.remove(record)
    else:
        record.body = cbor2.dumps(cells, canonical=True)
