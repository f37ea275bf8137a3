"""Events of sessions of which nothing is known: neither a start nor a checkpoint is there.

One rule: each has its row, and each session one finding, told when no more can be learnt.
"""

from typing import Final

from node.journal.audit.output import Output
from node.journal.audit.rows import Finding
from node.journal.records import Record

# Sessions that are told of by themselves; all others are one.
MOST_UNKNOWN: Final = 1_024
UNKNOWN: Final = "a record of a session whose start or checkpoint is not there"
_OTHERS: Final = -1


class UnknownSessions:
    """How many events there were of each, by its number."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._counts: dict[int, int] = {}

    def event(self, record: Record, number: int, direction: int) -> None:
        """An event's record."""
        if self._output.silent:
            return  # an earlier reading counted it
        if len(self._counts) >= MOST_UNKNOWN and number not in self._counts:
            number = _OTHERS
        self._counts[number] = self._counts.get(number, 0) + 1
        self._output.unknown_event(record, direction)

    def tell(self, offset: int) -> None:
        """The findings, at the offset where reading ended."""
        output = self._output
        for number, count in self._counts.items():
            which = "other numbers" if number == _OTHERS else f"number {number}"
            output.tell(
                Finding(
                    "no-session",
                    output.journal,
                    output.segment,
                    None,
                    None,
                    None,
                    None,
                    offset,
                    count,
                    f"{UNKNOWN} ({which})",
                )
            )
        self._counts = {}
