"""What happened in a simulation, as the applications on its nodes saw it; and what the journals
hold, counted record by record.

The first comes from no journal, and the second verifies nothing, so that an audit of the journals
can be compared with both.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley._node.journal import keys
from parley._node.journal.record_types import parse_event_head
from parley._node.journal.segments import list_segments, read_range

ACCEPTED = "accepted"
LATE = "late"  # a deadline passed, or the caller gave up: code 17 or 18
LOST = "lost"  # the connection ended before the answer came; it may not have been sent


@dataclass(slots=True)
class Tally:
    """Counts. `calls` by topic and outcome: `accepted`, `late`, `lost` or the code's number;
    `published` and `received` notes by topic, `emits` named events by outcome, `files` by
    how they ended, `endings` sessions by how they were ended."""

    sessions: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    chunks: int = 0
    published: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    subscriptions: Counter[str] = field(default_factory=Counter)
    slow_resets: Counter[str] = field(default_factory=Counter)
    emits: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    file_bytes: int = 0
    application_events: int = 0
    key_updates: int = 0
    rekeys: int = 0
    endings: Counter[str] = field(default_factory=Counter)

    def outcomes(self) -> Counter[str]:
        """Calls by outcome, whatever their topic."""
        found: Counter[str] = Counter()
        for (_, outcome), count in self.calls.items():
            found[outcome] += count
        return found

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        calls: dict[str, dict[str, int]] = {}
        for (topic, outcome), count in sorted(self.calls.items()):
            calls.setdefault(topic, {})[outcome] = count
        return {
            "sessions": self.sessions,
            "calls": calls,
            "chunks": self.chunks,
            "published": dict(sorted(self.published.items())),
            "received": dict(sorted(self.received.items())),
            "subscriptions": dict(sorted(self.subscriptions.items())),
            "slow_resets": dict(sorted(self.slow_resets.items())),
            "emits": dict(sorted(self.emits.items())),
            "files": dict(sorted(self.files.items())),
            "file_bytes": self.file_bytes,
            "application_events": self.application_events,
            "key_updates": self.key_updates,
            "rekeys": self.rekeys,
            "endings": dict(sorted(self.endings.items())),
        }


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
