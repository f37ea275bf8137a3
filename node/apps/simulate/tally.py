"""Counts of a simulation: by the applications on the nodes, and by the records in the journals.

The former do not use journals, and the latter verify nothing, so that an audit can be compared with
both.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parley._node.journal import keys
from parley._node.journal.record_types import parse_event_head
from parley._node.journal.segments import list_segments, read_range

ACCEPTED = "accepted"
LATE = "late"  # the deadline passed or the caller cancelled: code 17 or 18
LOST = "lost"  # the connection ended before the answer; the call may not have been sent


@dataclass(slots=True)
class Tally:
    """Counts of the applications.

    Attributes: calls: by topic and outcome: `accepted`, `late`, `lost` or the code's number.
    published, received: notes by topic. emits: named events by outcome. files: by outcome. endings:
    sessions by the way they ended.
    """

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
        """Return the calls by outcome, for all topics."""
        found: Counter[str] = Counter()
        for (_, outcome), count in self.calls.items():
            found[outcome] += count
        return found

    def fields(self) -> dict[str, Any]:
        """Return the counts as values for JSON."""
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
    """Counts of the journals.

    Attributes: size: bytes. records: by the name of their kind. events: by node and direction
    (`sent`, `received`).
    """

    segments: int = 0
    size: int = 0
    records: Counter[str] = field(default_factory=Counter)
    events: dict[str, Counter[str]] = field(default_factory=dict)

    def total(self) -> int:
        """Return the events in all journals; an event recorded by both sides counts twice."""
        return self.records[keys.KIND_NAMES[keys.EVENT]]

    def fields(self) -> dict[str, Any]:
        """Return the counts as values for JSON."""
        return {
            "segments": self.segments,
            "size": self.size,
            "records": dict(sorted(self.records.items())),
            "events": {node: dict(sorted(found.items())) for node, found in self.events.items()},
        }


def count(directory: Path) -> Counts:
    """Count the records in all segments of a directory; raise OSError if it cannot be read."""
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
