"""2/6 Batch: a run of small events of one stream, written as one (docs/protocol.md section 8).

It means exactly the events inside, in their order; its form is checked whole before any of them
is looked at. Inside stands `async u16 || category u8 || subcategory u8 || length u32 || payload`
for each.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from parley._node.protocol.codes import MAIN_STREAM, STREAM
from parley._node.protocol.errors import violation
from parley._node.protocol.event import Event
from parley._node.protocol.limits import BATCH_COUNT, BATCH_SIZE

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
