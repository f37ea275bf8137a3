"""Small segments made by the journal's encoders, with empty records, for readers.

A segment's bytes are a function of its arguments.
"""

from dataclasses import dataclass
from pathlib import Path

from parley._crypto.identity import NodeId
from parley._node.journal import keys
from parley._node.journal.record_types import SegmentEnd, SegmentHead, encode_block
from parley._node.journal.records import encode_record
from parley._node.journal.segments import CLOSED, SegmentName, run_start

START = 1_763_078_399_000_000_000  # 2025-11-13 23:59:59 UTC


@dataclass(frozen=True)
class Made:
    """A segment's name, bytes, offsets of its records and of its blocks."""

    name: SegmentName
    data: bytes
    offsets: tuple[int, ...]
    blocks: tuple[int, ...]

    def write(self, directory: Path, state: str = CLOSED, upto: int | None = None) -> Path:
        """Into a file of its name; only the first `upto` bytes, if given."""
        directory.mkdir(exist_ok=True)
        path = directory / str(self.name._replace(state=state))
        path.write_bytes(self.data[:upto])
        return path


def make_segment(number: int = 0, *, node: int = 1, blocks: int = 3, events: int = 20) -> Made:
    """A closed segment of `blocks` blocks with `events` events each, a second apart."""
    node_id = NodeId(bytes([node]) * 32)
    name = SegmentName(node_id.text, run_start(START), number)
    data = bytearray()
    offsets: list[int] = []

    def add(kind: int, body: bytes) -> None:
        offsets.append(len(data))
        data.extend(encode_record(kind, START + 10**9 * len(offsets), body))

    add(keys.SEGMENT, SegmentHead(node_id, START, number, (), "a test").encode())
    begins: list[int] = []
    for block in range(blocks):
        begins.append(len(data))
        add(keys.BLOCK, encode_block(block, 0))
        for event in range(events):
            wire = bytes([number, block, event]) * (event + 1)
            add(keys.EVENT, event.to_bytes(4, "big") + bytes([event % 2]) + wire)
    add(keys.SEGMENT_END, SegmentEnd(len(offsets), tuple(begins)).encode())
    return Made(name, bytes(data), tuple(offsets), tuple(begins))
