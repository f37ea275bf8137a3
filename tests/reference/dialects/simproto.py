"""Both layers of SimProto, implemented from its document alone.

Integers are little-endian. Input that the document doesn't define closes the stream. IDs in use and
subscriptions are not tracked.
"""

from dataclasses import dataclass
from struct import pack, unpack
from typing import Final

from tests.reference.dialects.reading import CLOSES, INCOMPLETE, LOCAL, Fields, Wrong

HEADER: Final = 17
TYPES: Final = ("request", "response", "ping", "pong")
KINDS: Final = ("rpc", "subscribe", "unsubscribe", "notify")
# The codes of each kind's response, in the order of their numbers; `*` has data.
CODES: Final = {
    "rpc": ("accepted*", "topic not found"),
    "subscribe": ("accepted*", "topic not found", "double subscription", "rejected*"),
    "unsubscribe": ("accepted", "topic not found", "not subscribed"),
    "notify": ("accepted", "topic not found", "not subscribed"),
}


@dataclass(frozen=True)
class Message:
    """One message of the dialog layer."""

    type: str
    id: int
    payload: bytes = b""

    @property
    def raw(self) -> bytes:
        """T, id, len, payload."""
        return pack("<BQQ", TYPES.index(self.type), self.id, len(self.payload)) + self.payload


def read_message(data: bytes, limit: int) -> tuple[Message, bytes]:
    """The first message and what follows it; `limit` is the longest payload in bytes.

    Raises Wrong: `closes`, or `incomplete`. Type and length are judged as soon as they are
    there, before the payload is waited for.
    """
    if data and data[0] >= len(TYPES):
        raise Wrong(CLOSES, f"no type of message: {data[0]}")
    fields = Fields(data, INCOMPLETE)
    kind, ident, size = unpack("<BQQ", fields.take(HEADER, "header"))
    if size > limit:
        raise Wrong(CLOSES, f"a payload of {size} bytes, the limit is {limit}")
    return Message(TYPES[kind], ident, fields.take(size, "payload")), fields.rest


def request(kind: str, topic: bytes, data: bytes = b"") -> bytes:
    """T, len, topic, data: the payload of a request. Raises Wrong `local`."""
    if len(topic) > 0xFFFF:
        raise Wrong(LOCAL, "a topic has at most 65,535 bytes")
    return pack("<BH", KINDS.index(kind), len(topic)) + topic + data


def read_request(payload: bytes) -> tuple[str, bytes, bytes]:
    """(kind, topic, data); raises Wrong `closes`."""
    fields = Fields(payload, CLOSES)
    kind, size = unpack("<BH", fields.take(3, "type and length of the topic"))
    if kind >= len(KINDS):
        raise Wrong(CLOSES, f"no type of request: {kind}")
    return KINDS[kind], fields.take(size, "topic"), fields.rest


def response(kind: str, meaning: str, data: bytes = b"") -> bytes:
    """T, data: the payload of a response to a request of this kind. Raises Wrong `local`."""
    for code, name in enumerate(CODES[kind]):
        if name.rstrip("*") == meaning:
            if data and not name.endswith("*"):
                raise Wrong(LOCAL, f"{meaning!r} has no data in the answer to {kind}")
            return bytes([code]) + data
    raise Wrong(LOCAL, f"no answer to {kind}: {meaning}")


def read_response(kind: str, payload: bytes) -> tuple[str, bytes]:
    """Return (meaning, data). Raises Wrong `closes`. Data is dropped where the message has none."""
    if not payload:
        raise Wrong(CLOSES, "a response has a type")
    if payload[0] >= len(CODES[kind]):
        raise Wrong(CLOSES, f"no type of response to {kind}: {payload[0]}")
    name = CODES[kind][payload[0]]
    return name.rstrip("*"), payload[1:] if name.endswith("*") else b""
