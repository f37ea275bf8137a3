"""Target `frames`: frames cut from a byte stream, and raw events in them (section 2).

The result doesn't depend on how the bytes are cut into pieces. The input is a byte for the limit, a
byte that seeds the cuts, and the stream.
"""

from typing import Final

from parley._node.protocol.event import parse_raw, serialise_raw
from parley._node.protocol.frames import FrameReader, frame
from tests.fuzz.allowed import ALLOWED
from tests.reference import wire

MAX_SIZE: Final = 4096
LIMITS: Final = (16_384, 9, 0, 1024, 2**32 - 1)
HEADER: Final = 4

# The events, how many bytes are left over, and whether a frame was too long.
Outcome = tuple[list[bytes], int, bool]


def fuzz(data: bytes) -> None:
    """Feed the stream as a whole, byte by byte and in odd pieces, and compare the results."""
    limit = LIMITS[data[0] % len(LIMITS)] if data else LIMITS[0]
    seed, stream = int.from_bytes(data[1:2]), data[2:]
    whole = _cut([stream], limit)
    assert whole == _cut([stream[i : i + 1] for i in range(len(stream))], limit)
    assert whole == _cut(_pieces(stream, seed), limit)
    assert whole == _stopping(stream, limit)
    events, left, failed = whole
    assert all(len(event) <= limit for event in events)
    consumed = b"".join(map(frame, events))
    assert stream.startswith(consumed)
    assert failed or len(consumed) + left == len(stream)
    for event in events:
        _read(event)


def _cut(pieces: list[bytes], limit: int) -> Outcome:
    reader, events = FrameReader(limit), list[bytes]()
    try:
        for piece in pieces:
            reader.feed(piece)
            events += map(bytes, iter(reader.take, None))
            assert reader.size <= HEADER + limit
    except ALLOWED["frames"]:
        return events, 0, True
    return events, reader.size, False


def _stopping(stream: bytes, limit: int) -> Outcome:
    """A reader that takes one event at a time, as while a peer is being decided on."""
    reader, events = FrameReader(limit), list[bytes]()
    reader.feed(stream)
    try:
        while (event := reader.take()) is not None:
            events.append(bytes(event))
    except ALLOWED["frames"]:
        return events, 0, True
    return events, reader.size, False


def _pieces(stream: bytes, seed: int) -> list[bytes]:
    pieces, start, state = [], 0, seed
    while start < len(stream):
        state = state * 73 + 41 & 0xFFFF  # Any sequence works if it is reproducible.
        size = 1 + state % (seed + 2)
        pieces.append(stream[start : start + size])
        start += size
    return pieces


def _read(event: bytes) -> None:
    try:
        expected = wire.parse_raw(event)
    except wire.Violation:
        expected = None
    try:
        parsed = parse_raw(event)
    except ALLOWED["frames"]:
        assert expected is None, "the reference takes it"
        return
    assert expected is not None, "the reference refuses it"
    assert parsed.head == (expected.stream, expected.async_id, *expected.type)
    assert parsed.payload == (expected.payload or b"\0")
    assert serialise_raw(parsed) == event
