"""What journals have in them, counted record by record: the other half of the summary.

One rule: only kinds, sessions and directions are looked at, and nothing is verified, so that
what verifies can be compared with it.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.journal import keys
from node.journal.fields import parse_event_head
from node.journal.segments import list_segments, read_range


@dataclass(slots=True)
class Counts:
    """`events` by node and direction (`sent`, `received`), `records` by the name of their
    kind, `size` in bytes."""

    segments: int = 0
    size: int = 0
    records: Counter[str] = field(default_factory=Counter)
    events: dict[str, Counter[str]] = field(default_factory=dict)

    def total(self) -> int:
        """Events in all journals; each that both sides keep counts twice."""
        return self.records[keys.KIND_NAMES[keys.EVENT]]

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "segments": self.segments,
            "size": self.size,
            "records": dict(sorted(self.records.items())),
            "events": {node: dict(sorted(found.items())) for node, found in self.events.items()},
        }


def count(directory: Path) -> Counts:
    """Count what all segments of a directory have; raises OSError."""
    counts = Counts()
    for file in list_segments(directory):
        counts.segments += 1
        counts.size += file.size
        events = counts.events.setdefault(file.name.node, Counter())
        kinds: Counter[int] = Counter()
        for record in read_range(file.path, 0, file.size):
            kinds[record.kind] += 1
            if record.kind == keys.EVENT:
                _, direction = parse_event_head(record.body)
                events["sent" if direction == keys.SENT else "received"] += 1
        for kind, number in kinds.items():
            counts.records[keys.KIND_NAMES.get(kind, f"kind {kind}")] += number
    return counts
