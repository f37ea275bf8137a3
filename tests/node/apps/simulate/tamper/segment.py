"""A closed segment in memory, changed and written back so that its form gives nothing away.

Lengths, CRCs, counts of checkpoints, and the segment end's counts and offsets are made right again.
One segment is in memory at a time.
"""

from pathlib import Path
from typing import Final

from parley._node.journal import keys
from parley._node.journal.bodies import SegmentEnd, encode_block, parse_block
from parley._node.journal.fields import EVENT, parse_event_head
from parley._node.journal.records import encode_record, read_records

HEAD: Final = EVENT.size  # session and direction, before an event's bytes


class Segment:
    """`records` are all but the segment end; `save` writes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        *self.records, end = read_records(path.read_bytes())
        self._end = SegmentEnd.parse(end.body)
        self._end_time = end.time

    def events(self, session: int, direction: int) -> list[int]:
        """Where the events of a session and direction are in `records`, in their order."""
        head = EVENT.pack(session, direction)
        return [
            index
            for index, record in enumerate(self.records)
            if record.kind == keys.EVENT and record.body.startswith(head)
        ]

    def of_session(self, session: int) -> list[int]:
        """Where all records of a session are, in their order."""
        head = session.to_bytes(4, "big")
        return [
            index
            for index, record in enumerate(self.records)
            if keys.CHECKPOINT <= record.kind <= keys.SESSION_END and record.body.startswith(head)
        ]

    def wire(self, index: int) -> bytes:
        """The bytes of an event as they were on the wire."""
        return self.records[index].body[HEAD:]

    def put_wire(self, index: int, wire: bytes) -> None:
        """Have an event other bytes."""
        body = self.records[index].body
        self.put(index, body[:HEAD] + wire)

    def put(self, index: int, body: bytes) -> None:
        """Have a record another body."""
        self.records[index] = self.records[index]._replace(body=body)

    def updates_keys(self, index: int) -> bool:
        """Whether the event is a KeyUpdate, which a record of its own follows."""
        session, direction = parse_event_head(self.records[index].body)
        head = EVENT.pack(session, direction)
        for record in self.records[index + 1 :]:
            if record.kind in (keys.EVENT, keys.KEY_UPDATE) and record.body.startswith(head):
                return record.kind == keys.KEY_UPDATE
        return False

    def save(self) -> None:
        """Write the file anew."""
        out = bytearray()
        blocks: list[int] = []
        for index, record in enumerate(self.records):
            body = record.body
            if record.kind == keys.BLOCK:
                blocks.append(len(out))
                body = encode_block(parse_block(body)[0], self._checkpoints(index + 1))
            out += encode_record(record.kind, record.time, body)
        end = SegmentEnd(len(self.records), tuple(blocks), self._end.cut)
        out += encode_record(keys.SEGMENT_END, self._end_time, end.encode())
        self.path.write_bytes(out)

    def _checkpoints(self, index: int) -> int:
        count = 0
        while index + count < len(self.records) and self._is_checkpoint(index + count):
            count += 1
        return count

    def _is_checkpoint(self, index: int) -> bool:
        return self.records[index].kind == keys.CHECKPOINT
