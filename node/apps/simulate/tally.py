"""What happened in a simulation, as the applications on its nodes saw it.

One rule: nothing here comes from a journal, so that what is made of the journals can be
compared with it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

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
