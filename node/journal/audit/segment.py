"""What a segment says of itself in its first and its last record.

One rule: it is compared with the file's name and with the records in between, and where
they differ that is a finding.
"""

from collections.abc import Iterable

from node.journal import keys
from node.journal.audit.output import Output
from node.journal.bodies import SegmentEnd, SegmentHead
from node.journal.names import SegmentName, run_start
from node.journal.parsing import Box
from node.journal.records import OK, Record


class OpenSegment:
    """The segment that is read; its records begin behind the first, at `begins`."""

    __slots__ = ("_auditors", "_ended", "_output", "begins")

    def __init__(self, output: Output) -> None:
        self._output = output
        self.begins = 0
        self._ended = False
        self._auditors: set[bytes] | None = None  # None if its first record was not read

    def begin(self, record: Record) -> None:
        """The record with which reading begins; a crash may leave a segment without any but
        its end."""
        first = (keys.SEGMENT, keys.SEGMENT_END)
        if record.offset == 0 and record.status == OK and record.kind not in first:
            what = "a segment that does not begin with the record of what it is"
            self._output.finding("malformed-record", record, what)

    def head(self, record: Record, name: SegmentName | None) -> None:
        """The first record; raises JournalFormatError."""
        head = SegmentHead.parse(record.body)
        if record.offset:
            what = "a segment that begins inside of another"
            self._output.finding("malformed-record", record, what)
            return
        self.begins = record.size
        self._auditors = set(head.auditors)
        known = SegmentName(head.node_id.text, run_start(head.start), head.number)
        if name is not None and known != name._replace(state=known.state):
            self._output.finding("wrong-name", record, "the file's name is not that of its segment")

    def end(self, record: Record) -> None:
        """The last record; raises JournalFormatError."""
        end = SegmentEnd.parse(record.body)
        if self._ended:
            self._output.finding("malformed-record", record, "a segment that ends twice")
        self._ended = True
        if end.cut:
            what = f"{end.cut} bytes were cut off the end of this segment after a crash"
            self._output.finding("torn", record, what)

    def boxes(self, boxes: Iterable[Box], record: Record) -> None:
        """The boxes of a secret; told once in a segment if they are for others than it names."""
        if self._auditors is None or self._auditors == {auditor for auditor, _ in boxes}:
            return
        self._auditors = None
        what = "a secret is sealed to other auditors than those that the segment names"
        self._output.finding("wrong-auditors", record, what)
