"""The history of an event that was handed out: one entry for each attempt that came to nothing.

One rule: it is JSON, bounded as in every store. Knows no database.
"""

import json

from node.bus.dead_letters import error_line, shorten
from node.bus.model import Failure


def with_failure(text: str | None, attempt: int, consumer: str, at: float, error: str) -> str:
    """A history, as it is kept, with one more entry."""
    entries = [] if text is None else json.loads(text)
    entries.append([attempt, consumer, at, error_line(error)])
    shorten(entries)
    return json.dumps(entries, separators=(",", ":"))


def failures_of(text: str | None) -> list[Failure]:
    """The entries of a history as it is kept."""
    return [] if text is None else [Failure(*entry) for entry in json.loads(text)]
