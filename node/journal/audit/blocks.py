"""The last block, while its checkpoints come: which sessions it has, and which it lacks.

One rule: a node writes a checkpoint of each open session, so one that is open and in no
checkpoint has lost its end; but nothing is said of a block that is not whole, or before which
records were lost.
"""

from collections.abc import Collection

from node.journal.audit.output import Output
from node.journal.records import Record


class Blocks:
    """Tells of whole blocks to `output`; `lost`: since the last one records came of which nobody
    knows what they were."""

    __slots__ = ("_expected", "_named", "_output", "_record", "lost")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._record: Record | None = None
        self._expected = 0  # checkpoints that are still to come
        self._named: set[int] = set()
        self.lost = False

    def begin(self, record: Record, live: int) -> None:
        """A block, which so many checkpoints follow."""
        self._record, self._expected, self._named = record, live, set()

    def checkpoint(self, session: int | None) -> None:
        """A checkpoint of a session; None if it cannot be read."""
        self._expected = max(self._expected - 1, 0)
        if session is None:
            self._record = None  # whose it was nobody knows
        else:
            self._named.add(session)

    def miss(self) -> int:
        """No more checkpoints follow: how many should have."""
        missing, self._expected = self._expected, 0
        if missing:
            self._record = None
        return missing

    def leave(self) -> None:
        """What comes next is of another segment."""
        self._record, self._expected = None, 0

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
