"""A segment being read: its first and last record, its blocks, and unknown sessions.

The segment's claims are compared with the file's name and its records. Blocks are numbered and
followed by a checkpoint of each open session, so that removed or added ones are noticed. Events of
a session whose start or checkpoint was not read get rows, and each such session gets one finding.
"""

from collections.abc import Collection, Iterable
from typing import Final

from parley._node.journal import keys
from parley._node.journal.audit.output import AuditOutput
from parley._node.journal.audit.rows import Finding
from parley._node.journal.record_types import Box, SegmentEnd, SegmentHead
from parley._node.journal.records import OK, Record
from parley._node.journal.segments import SegmentName, run_start


class OpenSegment:
    """The segment being read. The records after its first one begin at `begins`."""

    def __init__(self, output: AuditOutput) -> None:
        self._output = output
        self.begins = 0
        self._ended = False
        self._auditors: set[bytes] | None = None  # None if its first record was not read.

    def begin(self, record: Record) -> None:
        """Check the first record to be read, which may be the segment's end after a crash."""
        first = (keys.SEGMENT, keys.SEGMENT_END)
        if record.offset == 0 and record.status == OK and record.kind not in first:
            what = "the segment does not begin with a segment record"
            self._output.finding("malformed-record", record, what)

    def head(self, record: Record, name: SegmentName | None) -> None:
        """Check the first record. Raises JournalFormatError."""
        head = SegmentHead.parse(record.body)
        if record.offset:
            what = "a segment record inside another segment"
            self._output.finding("malformed-record", record, what)
            return
        self.begins = record.size
        self._auditors = set(head.auditors)
        known = SegmentName(head.node_id.text, run_start(head.start), head.number)
        if name is not None and known != name._replace(state=known.state):
            self._output.finding(
                "wrong-name", record, "the file's name does not match its segment record"
            )

    def end(self, record: Record) -> None:
        """Check the last record. Raises JournalFormatError."""
        end = SegmentEnd.parse(record.body)
        if self._ended:
            self._output.finding("malformed-record", record, "the segment ends twice")
        self._ended = True
        if end.cut:
            what = f"{end.cut} bytes were cut off the end of this segment after a crash"
            self._output.finding("torn", record, what)

    def boxes(self, boxes: Iterable[Box], record: Record) -> None:
        """Report, once per segment, boxes of a secret that are not for the segment's auditors."""
        if self._auditors is None or self._auditors == {auditor for auditor, _ in boxes}:
            return
        self._auditors = None
        what = "a secret is encrypted to auditors that the segment does not list"
        self._output.finding("wrong-auditors", record, what)


class Blocks:
    """The last block while its checkpoints are read: the sessions that it has and lacks.

    `lost`: there were unreadable records since the last block. After them, and for an incomplete
    block, nothing is reported.
    """

    def __init__(self, output: AuditOutput) -> None:
        self._output = output
        self._record: Record | None = None
        self._expected = 0  # The checkpoints that must follow.
        self._named: set[int] = set()
        self._number: int | None = None  # The number of the next block in the segment, if known.
        self.lost = False

    def begin(self, record: Record, number: int, live: int) -> None:
        """Begin a block that is followed by `live` checkpoints."""
        if self._number not in (None, number) and not self.lost:
            self._report(record, f"block {number} is here instead of block {self._number}")
        self._record, self._expected, self._named = record, live, set()
        self._number = number + 1

    def checkpoint(self, record: Record, session: int | None) -> None:
        """Count a checkpoint of a session; `session` is None if it cannot be read."""
        known = session in self._named
        if (known or not self._expected) and not self.lost:
            self._report(record, "an unexpected or repeated checkpoint in this block")
        self._expected = max(self._expected - 1, 0)
        if session is None:
            self._record = None  # The session is unknown.
        else:
            self._named.add(session)

    def miss(self, record: Record) -> None:
        """Report the checkpoints that are still missing at a record of another kind."""
        missing, self._expected = self._expected, 0
        if missing:
            self._record = None
            self._report(record, f"{missing} checkpoints are missing here")

    def end(self, record: Record, begins: int) -> None:
        """Check that a segment with records, which begin at `begins`, has a block."""
        if self._number == 0 and record.offset > begins and not self.lost:
            self._report(record, "the segment has no block")

    def enter(self, offset: int) -> None:
        """Continue in another segment, or at another offset."""
        self._record, self._expected = None, 0
        self._number = None if offset else 0

    def end_of(self, session: int, here: int) -> int:
        """Return the offset up to which a session was followed.

        This is `here`, or the start of an incomplete block that may or may not have the session.
        """
        if self._record is None or session in self._named:
            return here
        return self._record.offset

    def whole(self, live: Collection[int]) -> tuple[Record, list[int]] | None:
        """Return a complete block, and the sessions of `live` that it lacks."""
        record = self._record
        if record is None or self._expected:
            return None
        self._record = None
        if not self._output.silent:
            self._output.block = record.offset
        return record, [number for number in live if number not in self._named]

    def _report(self, record: Record, what: str) -> None:
        self._output.finding("missing-checkpoint", record, what)


# How many sessions have separate findings; all others share one finding.
MOST_UNKNOWN: Final = 1_024
UNKNOWN: Final = "a record of a session without a start or checkpoint"
_OTHERS: Final = -1


class UnknownSessions:
    """Sessions whose start or checkpoint was not read, with their numbers of events."""

    def __init__(self, output: AuditOutput) -> None:
        self._output = output
        self._counts: dict[int, int] = {}

    def event(self, record: Record, number: int, direction: int) -> None:
        if self._output.silent:
            return  # Counted by an earlier reading.
        if len(self._counts) >= MOST_UNKNOWN and number not in self._counts:
            number = _OTHERS
        self._counts[number] = self._counts.get(number, 0) + 1
        self._output.unknown_event(record, direction)

    def report(self, offset: int) -> None:
        """Report the findings at the offset where reading ended."""
        output = self._output
        for number, count in self._counts.items():
            which = "other numbers" if number == _OTHERS else f"number {number}"
            output.report(
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
