"""What a segment says of itself in its first and its last record.

One rule: it is compared with the file's name and with the records in between, and where
they differ that is a finding.
"""

from collections.abc import Iterable

from node.journal.audit.output import Output
from node.journal.bodies import SegmentEnd, SegmentHead
from node.journal.names import SegmentName
from node.journal.parsing import Box
from node.journal.records import Record


class OpenSegment:
    """The segment that is read."""

    __slots__ = ("_auditors", "_output")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._auditors: set[bytes] | None = None  # None if its first record was not read

    def head(self, record: Record, name: SegmentName | None) -> None:
        """The first record; raises JournalFormatError."""
        head = SegmentHead.parse(record.body)
        if record.offset:
            what = "a segment that begins inside of another"
            self._output.finding("malformed-record", record, what)
            return
        self._auditors = set(head.auditors)
        if name is not None and (head.node_id.text, head.number) != (name.node, name.number):
            self._output.finding("wrong-name", record, "the file's name is not that of its segment")

    def end(self, record: Record) -> None:
        """The last record; raises JournalFormatError."""
        end = SegmentEnd.parse(record.body)
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
