"""The last block, while its checkpoints come: which sessions it has, and which it lacks.

One rule: blocks are numbered and followed by a checkpoint of each open session, so what was
taken out or added shows; but nothing is said of a block that is not whole, or before which
records were lost.
"""

from collections.abc import Collection

from node.journal.audit.output import Output
from node.journal.records import Record


class Blocks:
    """Tells of whole blocks to `output`; `lost`: since the last one records came of which nobody
    knows what they were."""

    __slots__ = ("_expected", "_named", "_number", "_output", "_record", "lost")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._record: Record | None = None
        self._expected = 0  # checkpoints that are still to come
        self._named: set[int] = set()
        self._number: int | None = None  # of the next block in the segment, if that is known
        self.lost = False

    def begin(self, record: Record, number: int, live: int) -> None:
        """A block, which so many checkpoints follow."""
        if self._number not in (None, number) and not self.lost:
            self._tell(record, f"block {self._number} should be here, and block {number} is")
        self._record, self._expected, self._named = record, live, set()
        self._number = number + 1

    def checkpoint(self, record: Record, session: int | None) -> None:
        """A checkpoint of a session; None if it cannot be read."""
        known = session in self._named
        if (known or not self._expected) and not self.lost:
            self._tell(record, "a checkpoint that its block does not count, or has twice")
        self._expected = max(self._expected - 1, 0)
        if session is None:
            self._record = None  # whose it was nobody knows
        else:
            self._named.add(session)

    def miss(self, record: Record) -> None:
        """No more checkpoints follow, but this record."""
        missing, self._expected = self._expected, 0
        if missing:
            self._record = None
            self._tell(record, f"{missing} checkpoints are missing here")

    def end(self, record: Record, begins: int) -> None:
        """The segment ends, in which a block must have been if anything was: its records begin
        at that offset."""
        if self._number == 0 and record.offset > begins and not self.lost:
            self._tell(record, "the segment has no block")

    def enter(self, offset: int) -> None:
        """What comes next is of another segment, or from another offset of it."""
        self._record, self._expected = None, 0
        self._number = None if offset else 0

    def end_of(self, session: int, here: int) -> int:
        """The offset up to which a session was followed: here, or where a block begins of which
        nobody knows yet whether it has it."""
        if self._record is None or session in self._named:
            return here
        return self._record.offset

    def whole(self, live: Collection[int]) -> tuple[Record, list[int]] | None:
        """Once, when all checkpoints were there: the block, and those of `live` it lacks."""
        record = self._record
        if record is None or self._expected:
            return None
        self._record = None
        if not self._output.silent:
            self._output.block = record.offset
        return record, [number for number in live if number not in self._named]

    def _tell(self, record: Record, what: str) -> None:
        self._output.finding("missing-checkpoint", record, what)
