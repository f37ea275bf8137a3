"""The history of an event that was handed out: one entry for each attempt that came to nothing.

One rule: it is bounded, in entries and in characters; the first entry and the last ones stay.
Knows no database.
"""

import json
from typing import Final

from node.bus.model import Failure

ENTRIES: Final = 32
LONGEST_ERROR: Final = 500
# What is said of an attempt that ended without a word.
NOT_ACKNOWLEDGED: Final = "not acknowledged"


def with_failure(text: str | None, attempt: int, consumer: str, at: float, error: str) -> str:
    """A history, as it is kept, with one more entry."""
    line = " ".join(error.encode("utf-8", "replace").decode().split())[:LONGEST_ERROR]
    entries = [] if text is None else json.loads(text)
    entries.append([attempt, consumer, at, line])
    if len(entries) > ENTRIES:
        entries[1 : len(entries) - ENTRIES + 1] = []
    return json.dumps(entries, separators=(",", ":"))


def failures_of(text: str | None) -> list[Failure]:
    """The entries of a history as it is kept."""
    return [] if text is None else [Failure(*entry) for entry in json.loads(text)]
