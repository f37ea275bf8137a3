"""Encodes and decodes events: raw, inside an encrypted event, and inside a Batch.

An absent payload is the single byte 0x00 on the wire (docs/protocol.md section 2). A Batch (2/6,
section 8) contains small events of one stream, each encoded as `async u16 || category u8 ||
subcategory u8 || length u32 || payload`.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from parley._node.protocol.codes import MAIN_STREAM, STREAM
from parley._node.protocol.errors import violation
from parley._node.protocol.event_types import event_name
from parley._node.protocol.limits import BATCH_COUNT, BATCH_SIZE, RAW_EVENT_MINIMUM

NO_PAYLOAD: Final = b"\x00"
RAW_HEAD: Final = Struct(">IHBB")  # stream, async id, category, subcategory
INNER_HEAD: Final = Struct(">HBB")  # the same without the stream


class Event:
    """A decrypted event. `payload` has its wire form of at least one byte.

    In a connection's reports, it is an event for the application (2/5, or category 3 and above).
    There, an absent payload is empty bytes. Pass `cost` to `consume` once the event is used (0: not
    needed).
    """

    __slots__ = ("async_id", "category", "cost", "payload", "stream", "subcategory")

    def __init__(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes,
        cost: int = 0,
    ) -> None:
        self.stream = stream
        self.async_id = async_id
        self.category = category
        self.subcategory = subcategory
        self.payload = payload
        self.cost = cost

    @property
    def head(self) -> tuple[int, int, int, int]:
        """Stream, async ID, category and subcategory."""
        return self.stream, self.async_id, self.category, self.subcategory

    def __str__(self) -> str:
        """Return, for example, `[4] sim/call id=7 128 B`."""
        name = event_name(self.category, self.subcategory)
        async_id = f" id={self.async_id}" if self.async_id else ""
        size = 0 if self.payload == NO_PAYLOAD else len(self.payload)
        return f"[{self.stream}] {name}{async_id} {size} B"

    def __repr__(self) -> str:
        return f"<Event {self}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return (self.head, self.payload, self.cost) == (other.head, other.payload, other.cost)


def parse_raw(data: bytes | memoryview) -> Event:
    """Parse an unencrypted event.

    Raises:
        RemoteProtocolError: `protocol-error`: too short, or category or subcategory 0.
    """
    if len(data) < RAW_EVENT_MINIMUM:
        raise violation(f"a raw event of {len(data)} bytes")
    stream, async_id, category, subcategory = RAW_HEAD.unpack_from(data)
    if not category or not subcategory:
        raise violation(f"event {category}/{subcategory}: category or subcategory 0")
    return Event(stream, async_id, category, subcategory, bytes(data[RAW_HEAD.size :]))


def serialise_raw(event: Event) -> bytes:
    """Return an unencrypted event as bytes, without the frame length."""
    head = RAW_HEAD.pack(event.stream, event.async_id, event.category, event.subcategory)
    return head + (event.payload or NO_PAYLOAD)


def handshake_event(subcategory: int, payload: bytes) -> bytes:
    """Return a raw handshake event: category 1, stream 0, without an async ID."""
    return serialise_raw(Event(0, 0, 1, subcategory, payload))


# Async id, category, subcategory, length of the payload.
BATCH_HEAD: Final = Struct(">HBBI")
HEAD_SIZE: Final = BATCH_HEAD.size
_pack_head: Final = BATCH_HEAD.pack
_unpack_head: Final = BATCH_HEAD.unpack_from


def serialise_batch(
    events: Iterable[tuple[int, int, int, bytes | memoryview | bytearray]],
) -> bytes:
    """Return the payload of a Batch. Each event is async ID, category, subcategory and a payload of
    at least one byte. The caller must respect the limits of a Batch.
    """
    parts: list[bytes | memoryview | bytearray] = []
    for async_id, category, subcategory, payload in events:
        parts += (_pack_head(async_id, category, subcategory, len(payload)), payload)
    return b"".join(parts)


def parse_batch(batch: Event) -> list[Event]:
    """Return the 2 to 256 events of a Batch.

    Raises:
        RemoteProtocolError: `protocol-error`: a Batch isn't allowed on this stream or has an async
            ID; an event in it is truncated, is below category 3, or lacks a subcategory or payload;
            or the Batch is too long, or has too few or too many events.
    """
    stream, async_id, payload = batch.stream, batch.async_id, batch.payload
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
        events.append(Event(stream, async_id, category, subcategory, payload[start:at]))
    if not 2 <= len(events) <= BATCH_COUNT:
        raise violation(f"a Batch of {len(events)} events")
    return events
