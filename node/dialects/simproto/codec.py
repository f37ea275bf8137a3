"""The encoding of SimProto's two layers: dialog messages, and the packets that they carry.

    message    type (1)   id (8)   length of the payload (8)   payload
    request    type (1)   length of the topic (2)   topic   data
    response   type (1)   data

All integers are little-endian. Each field of a message is checked as soon as it has arrived, before
any byte of the payload is stored. The data of a packet extends to the packet's end.
Source: the SimProto document, 'Dialog Layer' and 'Sim Layer'.
"""

from struct import Struct
from typing import Final, NamedTuple

from parley._node.protocol.errors import PayloadTooLargeError, too_large, violation

REQUEST: Final = 0
RESPONSE: Final = 1
PING: Final = 2
PONG: Final = 3

HEAD: Final = Struct("<BQQ")
HEAD_SIZE: Final = HEAD.size  # 17
LAST_ID: Final = 2**64 - 1
# In the document, Ping and Pong have a length, but their payload has no purpose. Payloads up to
# this size are accepted; the Pong repeats the payload of its Ping.
LONGEST_PING_PAYLOAD: Final = 1_024


def serialise_message(kind: int, dialog: int, payload: bytes = b"") -> bytes:
    return HEAD.pack(kind, dialog, len(payload)) + payload


class HeadReader:
    """Measures messages; payloads of requests and responses have at most `longest` bytes."""

    __slots__ = ("_longest",)

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def measure(self, data: bytes, at: int) -> int:
        """Return the size of the message at `at`, or of its head if the head is incomplete.

        Raises:
            RemoteProtocolError: `protocol-error` for an unknown type, `frame-too-large` for a
                length above the limit.
        """
        if len(data) - at < HEAD_SIZE:
            self._check(data[at], 0)
            return HEAD_SIZE
        kind, _, length = HEAD.unpack_from(data, at)
        if length > self._longest or kind > RESPONSE:
            self._check(kind, length)
        return HEAD_SIZE + int(length)

    def _check(self, kind: int, length: int) -> None:
        if kind > PONG:
            raise violation(f"invalid message type {kind}")
        limit = self._longest if kind <= RESPONSE else LONGEST_PING_PAYLOAD
        if length > limit:
            raise too_large(f"a payload of {length:,} bytes exceeds the limit of {limit:,}")


# Types of requests.
RPC: Final = 0
SUBSCRIBE: Final = 1
UNSUBSCRIBE: Final = 2
NOTIFY: Final = 3

# Types of responses. `ResultCode` uses the same numbers, and more that are not sent here.
ACCEPTED: Final = 0
NOT_FOUND: Final = 1
DOUBLE_SUBSCRIPTION: Final = 2  # Subscribe
NOT_SUBSCRIBED: Final = 2  # Unsubscribe, Notify
REJECTED: Final = 3  # Subscribe, with data
# These responses have no data, whatever the request was.
NO_DATA: Final = frozenset({NOT_FOUND, DOUBLE_SUBSCRIPTION})

REQUEST_HEAD: Final = Struct("<BH")
REQUEST_HEAD_SIZE: Final = REQUEST_HEAD.size  # 3
RESPONSE_HEADS: Final = tuple(bytes([code]) for code in range(256))


class RequestPacket(NamedTuple):
    """A request; `topic` is compared as bytes and need not be valid UTF-8."""

    kind: int
    topic: bytes
    data: bytes


class ResponsePacket(NamedTuple):
    code: int
    data: bytes


def serialise_request(kind: int, topic: str, longest_topic: int) -> bytes:
    """Return a request packet without its data.

    Raises:
        PayloadTooLargeError: the topic is longer than `longest_topic` bytes of UTF-8.
        ValueError: the topic contains lone surrogates.
    """
    name = topic.encode()
    if len(name) > longest_topic:
        raise PayloadTooLargeError(
            f"cannot send a topic of {len(name):,} bytes: the limit is {longest_topic:,} "
            "(longest_name)"
        )
    return REQUEST_HEAD.pack(kind, len(name)) + name


def parse_request(packet: memoryview) -> RequestPacket:
    """Parse a request packet.

    Raises:
        RemoteProtocolError: the packet is incomplete or of an unknown type.
    """
    if len(packet) < REQUEST_HEAD_SIZE:
        raise violation(
            f"invalid request packet of {len(packet)} bytes: expected at least {REQUEST_HEAD_SIZE}"
        )
    kind, size = REQUEST_HEAD.unpack_from(packet)
    if kind > NOTIFY:
        raise violation(f"invalid request type {kind}")
    end = REQUEST_HEAD_SIZE + size
    if end > len(packet):
        raise violation(f"invalid topic length {size:,} in a packet of {len(packet):,} bytes")
    return RequestPacket(kind, bytes(packet[REQUEST_HEAD_SIZE:end]), bytes(packet[end:]))


def parse_response(packet: memoryview) -> ResponsePacket:
    """Parse a response packet with any code; every code other than 0 is a failure.

    Raises:
        RemoteProtocolError: the packet is empty.
    """
    if not packet:
        raise violation("invalid response packet: it is empty")
    return ResponsePacket(packet[0], bytes(packet[1:]))
