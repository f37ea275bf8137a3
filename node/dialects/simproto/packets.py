"""The packets of SimProto's sim layer, which dialogs carry as their payloads.

    request    type (1)   length of the topic (2, little-endian)   topic   data
    response   type (1)   data

One rule: a packet says where its data begins, and the data is whatever is left. Knows
neither dialogs nor topics. Source: the SimProto document, 'Sim Layer'.
"""

from struct import Struct
from typing import Final, NamedTuple

from node.protocol.errors import PayloadTooLargeError, violation

# Types of requests.
RPC: Final = 0
SUBSCRIBE: Final = 1
UNSUBSCRIBE: Final = 2
NOTIFY: Final = 3

# Types of responses: `ResultCode` has the same numbers, and more that are never sent here.
ACCEPTED: Final = 0
NOT_FOUND: Final = 1
DOUBLE_SUBSCRIPTION: Final = 2  # Subscribe
NOT_SUBSCRIBED: Final = 2  # Unsubscribe, Notify
REJECTED: Final = 3  # Subscribe, with data
# Those that go without data, whatever was asked.
NO_DATA: Final = frozenset({NOT_FOUND, DOUBLE_SUBSCRIPTION})

REQUEST_HEAD: Final = Struct("<BH")
REQUEST_HEAD_SIZE: Final = REQUEST_HEAD.size  # 3
RESPONSE_HEADS: Final = tuple(bytes([code]) for code in range(256))


class RequestPacket(NamedTuple):
    """A request. `topic` is bytes: they are matched exactly, and may be no UTF-8."""

    kind: int
    topic: bytes
    data: bytes


class ResponsePacket(NamedTuple):
    """A response: the document's code and what came with it."""

    code: int
    data: bytes


def serialise_request(kind: int, topic: str, longest_topic: int) -> bytes:
    """A request packet up to its data, which follows.

    Raises:
        PayloadTooLargeError: the topic is longer than `longest_topic` bytes of UTF-8.
        ValueError: it has no UTF-8 (lone surrogates).
    """
    name = topic.encode()
    if len(name) > longest_topic:
        raise PayloadTooLargeError(f"a topic of {len(name):,} bytes; at most {longest_topic:,}")
    return REQUEST_HEAD.pack(kind, len(name)) + name


def parse_request(packet: memoryview) -> RequestPacket:
    """Read a request packet.

    Raises:
        RemoteProtocolError: it is cut, or of a type that there is not.
    """
    if len(packet) < REQUEST_HEAD_SIZE:
        raise violation(f"a request packet of {len(packet)} bytes")
    kind, size = REQUEST_HEAD.unpack_from(packet)
    if kind > NOTIFY:
        raise violation(f"a request packet of type {kind}")
    end = REQUEST_HEAD_SIZE + size
    if end > len(packet):
        raise violation(f"a topic of {size:,} bytes in a packet of {len(packet):,}")
    return RequestPacket(kind, bytes(packet[REQUEST_HEAD_SIZE:end]), bytes(packet[end:]))


def parse_response(packet: memoryview) -> ResponsePacket:
    """Read a response packet. Any code may come: all but 0 are failures.

    Raises:
        RemoteProtocolError: it is empty.
    """
    if not packet:
        raise violation("a response packet without a type")
    return ResponsePacket(packet[0], bytes(packet[1:]))
