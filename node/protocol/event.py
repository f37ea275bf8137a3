"""Events as bytes: the raw form, and the type and payload inside an encrypted one.

A payload that is not there is the single byte 0x00 on the wire and empty
bytes everywhere else (docs/protocol.md section 2).
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from parley._node.protocol.codes import MAIN_STREAM, STREAM
from parley._node.protocol.errors import violation
from parley._node.protocol.limits import BATCH_COUNT, BATCH_SIZE, RAW_EVENT_MINIMUM

NO_PAYLOAD: Final = b"\x00"
RAW_HEAD: Final = Struct(">IHBB")  # stream, async id, category, subcategory
INNER_HEAD: Final = Struct(">HBB")  # the same without the stream


class Event(NamedTuple):
    """One event, opened. `payload` is as on the wire: at least one byte."""

    stream: int
    async_id: int
    category: int
    subcategory: int
    payload: bytes


def parse_raw(data: bytes | memoryview) -> Event:
    """Read an unencrypted event, 9 bytes or more.

    Raises:
        RemoteProtocolError: `protocol-error`, too short or category/subcategory 0.
    """
    if len(data) < RAW_EVENT_MINIMUM:
        raise violation(f"a raw event of {len(data)} bytes")
    stream, async_id, category, subcategory = RAW_HEAD.unpack_from(data)
    if not category or not subcategory:
        raise violation(f"event {category}/{subcategory}: category or subcategory 0")
    return Event(stream, async_id, category, subcategory, bytes(data[RAW_HEAD.size :]))


def serialise_raw(event: Event) -> bytes:
    """The bytes of an unencrypted event, without the frame length."""
    head = RAW_HEAD.pack(event.stream, event.async_id, event.category, event.subcategory)
    return head + (event.payload or NO_PAYLOAD)


def handshake_event(subcategory: int, payload: bytes) -> bytes:
    """A raw event of category 1 on stream 0 without async id: all of the handshake's are."""
    return serialise_raw(Event(0, 0, 1, subcategory, payload))


# Async id, category, subcategory, length of the payload.
BATCH_HEAD: Final = Struct(">HBBI")
HEAD_SIZE: Final = BATCH_HEAD.size
_pack_head: Final = BATCH_HEAD.pack
_unpack_head: Final = BATCH_HEAD.unpack_from
# A named tuple in half the time of calling its class.
_tuple: Final = tuple.__new__


def serialise_batch(
    events: Iterable[tuple[int, int, int, bytes | memoryview | bytearray]],
) -> bytes:
    """The payload of a Batch: of each event async id, category, subcategory, and payload of at
    least one byte. Whoever asks keeps to the limits."""
    parts: list[bytes | memoryview | bytearray] = []
    for async_id, category, subcategory, payload in events:
        parts += (_pack_head(async_id, category, subcategory, len(payload)), payload)
    return b"".join(parts)


def parse_batch(batch: Event) -> list[Event]:
    """The events that a Batch means, 2 to 256.

    Raises:
        RemoteProtocolError: `protocol-error`, it may not be there, has an async id, or has
            another form: what is inside is cut short or too much, too few or too many, not of
            category 3 or above, without a subcategory or a payload.
    """
    stream, async_id, _, _, payload = batch
    if stream < MAIN_STREAM or async_id:
        raise violation(f"a Batch on stream {stream} with async id {async_id}")
    size = len(payload)
    if size > BATCH_SIZE:
        raise violation(f"a Batch of {size} bytes")
    events: list[Event] = []
    at = 0
    while at < size:
        start = at + HEAD_SIZE
        if start >= size:
            raise violation(f"a Batch of {size} bytes ends in the event at byte {at}")
        async_id, category, subcategory, length = _unpack_head(payload, at)
        at = start + length
        if at > size or not length:
            raise violation(f"a payload of {length} bytes in a Batch with {size - start} left")
        if category <= STREAM or not subcategory:
            raise violation(f"event {category}/{subcategory} in a Batch")
        events.append(_tuple(Event, (stream, async_id, category, subcategory, payload[start:at])))
    if not 2 <= len(events) <= BATCH_COUNT:
        raise violation(f"a Batch of {len(events)} events")
    return events
