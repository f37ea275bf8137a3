"""Small segments of artificial records, for tests of files: blocks, events, an end.

Their events are random bytes, which are not verified or decrypted.
"""

from pathlib import Path
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.journal import keys
from parley._node.journal.record_types import EVENT, SegmentEnd, SegmentHead, encode_block
from parley._node.journal.records import encode_record
from parley._node.journal.segments import CLOSED, LIVE, SegmentName

NODE: Final = NodeId(bytes(range(32)))
NOW: Final = 1_800_000_000_000_000_000


def name_of(number: int = 0, state: str = CLOSED, node: NodeId = NODE, run: int = 1) -> SegmentName:
    return SegmentName(node.text, f"2026010{run}T000000000000Z", number, state)


def event(size: int, number: int = 0) -> bytes:
    """Return a record of kind event with so many bytes."""
    body = EVENT.pack(0, keys.SENT) + bytes([number]) * size
    return encode_record(keys.EVENT, NOW, body)


def records_of(blocks: int = 3, events: int = 2, size: int = 20) -> list[bytes]:
    """Return the records of a segment without its end: the head, then blocks of so many events."""
    head = SegmentHead(NODE, NOW, 0, (bytes(32),), "x").encode()
    records = [encode_record(keys.SEGMENT, NOW, head)]
    for number in range(blocks):
        records.append(encode_record(keys.BLOCK, NOW, encode_block(number, 0)))
        records += [event(size, 16 * number + one) for one in range(events)]
    return records


def end_of(records: list[bytes], cut: int = 0, time: int = NOW) -> bytes:
    """Return the `segment end` for these records."""
    offset, blocks = 0, []
    for record in records:
        if record[8] == keys.BLOCK:
            blocks.append(offset)
        offset += len(record)
    body = SegmentEnd(len(records), tuple(blocks), cut).encode()
    return encode_record(keys.SEGMENT_END, time, body)


def closed_segment(blocks: int = 3, events: int = 2, size: int = 20) -> bytes:
    records = records_of(blocks, events, size)
    return b"".join([*records, end_of(records)])


def write(directory: Path, data: bytes, state: str = CLOSED, number: int = 0) -> Path:
    """Write a file with the name of a segment."""
    path = directory / str(name_of(number, state))
    path.write_bytes(data)
    return path


def write_open(directory: Path, data: bytes) -> Path:
    return write(directory, data, LIVE)
