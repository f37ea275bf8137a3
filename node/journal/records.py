"""Records as bytes: their frame, and reading a sequence of records.

u32 length || u32 crc32 || u8 kind || u64 time || body

Readers never search for a record inside the bytes of another one, because a peer may have chosen
them (docs/journal.md).
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

HEAD: Final = Struct(">IIBQ")  # Length, crc32, kind, time.
FRAME_SIZE: Final = 8  # Length and crc32.
HEAD_SIZE: Final = HEAD.size
LEAST_LENGTH: Final = 9
MAX_LENGTH: Final = 2**26 + 2**16

_pack_frame = Struct(">II").pack
_pack_start = Struct(">BQ").pack

# The status of a piece of a segment.
OK: Final = "ok"
BAD_CRC: Final = "bad-crc"
BAD_LENGTH: Final = "bad-length"
TORN: Final = "torn"


class Record(NamedTuple):
    """One record, or bytes that are not a record: `status` is `ok` or the kind of damage.

    `bad-crc`: the length is plausible, but the record was altered; `kind` and `time` are as found.
    `bad-length`: no record can begin here; `body` is everything up to the next block.
    `torn`: the bytes end before the record does. The last two have kind and time 0.
    `size` counts all bytes from `offset` on.
    """

    offset: int
    size: int
    kind: int
    time: int
    body: bytes
    status: str = OK


def encode_record(kind: int, time: int, body: bytes) -> bytes:
    """Encode a record; `time` in ns since the epoch."""
    record = _pack_start(kind, time) + body
    return _pack_frame(len(record), crc32(record)) + record


def read_records(data: bytes | memoryview, start: int = 0, offset: int = 0) -> Iterator[Record]:
    """Yield the records of `data` from `start` on. `offset` is the position of data[0] in its file.

    Each byte is in exactly one record. A `bad-length` or `torn` record is the last one.
    """
    view = memoryview(data)
    end = len(view)
    unpack = HEAD.unpack_from
    at = start
    while at < end:
        if end - at < FRAME_SIZE:
            yield Record(offset + at, end - at, 0, 0, bytes(view[at:]), TORN)
            return
        length = int.from_bytes(view[at : at + 4], "big")
        if not LEAST_LENGTH <= length <= MAX_LENGTH:
            yield Record(offset + at, end - at, 0, 0, bytes(view[at:]), BAD_LENGTH)
            return
        size = length + FRAME_SIZE
        if end - at < size:
            yield Record(offset + at, end - at, 0, 0, bytes(view[at:]), TORN)
            return
        _, crc, kind, time = unpack(view, at)
        whole = crc32(view[at + FRAME_SIZE : at + size]) == crc
        body = bytes(view[at + HEAD_SIZE : at + size])
        yield Record(offset + at, size, kind, time, body, OK if whole else BAD_CRC)
        at += size
