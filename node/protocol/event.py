"""Events as bytes: the raw form, and the type and payload inside an encrypted one.

A payload that is not there is the single byte 0x00 on the wire and empty
bytes everywhere else (docs/protocol.md section 2).
"""

from struct import Struct
from typing import Final, NamedTuple

from parley._node.protocol.errors import violation
from parley._node.protocol.limits import RAW_EVENT_MINIMUM

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
