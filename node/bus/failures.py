"""What is kept of the attempts of an event that came to nothing: how much, and in what words.

One rule: every store keeps the same: the first entry and the last ones, each a line of a bounded
length. How they are written is the store's.
"""

from typing import Any, Final

# Entries of a history, and characters of each one's error.
LONGEST_HISTORY: Final = 32
LONGEST_ERROR: Final = 500
# What is said of an attempt that ended without a word.
NOT_ACKNOWLEDGED: Final = "not acknowledged"


def error_line(error: str) -> str:
    """An error as a history has it."""
    return " ".join(error.encode("utf-8", "replace").decode().split())[:LONGEST_ERROR]


def shorten(history: list[Any]) -> None:
    """Leave the first entry and the last ones."""
    if len(history) > LONGEST_HISTORY:
        del history[1 : len(history) - LONGEST_HISTORY + 1]
