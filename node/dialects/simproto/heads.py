"""The heads of SimProto's dialog layer: 17 bytes before each message's payload.

    type (1)   id (8)   length of the payload (8)       little-endian

One rule: each field is judged as soon as it is there, before a byte of payload is kept.
Knows no dialogs.
Source: the SimProto document, 'Dialog Layer'.
"""

from struct import Struct
from typing import Final

from node.protocol.errors import too_large, violation

REQUEST: Final = 0
RESPONSE: Final = 1
PING: Final = 2
PONG: Final = 3

HEAD: Final = Struct("<BQQ")
HEAD_SIZE: Final = HEAD.size  # 17
LAST_ID: Final = 2**64 - 1
# The document gives Ping and Pong a length as well, and no use for a payload. One of up to
# so many bytes is read; that of a Ping comes back with its Pong.
LONGEST_PING_PAYLOAD: Final = 1_024


def serialise_message(kind: int, dialog: int, payload: bytes = b"") -> bytes:
    """A whole message."""
    return HEAD.pack(kind, dialog, len(payload)) + payload


class HeadReader:
    """Reads heads; payloads of requests and responses have at most `longest` bytes."""

    __slots__ = ("_longest",)

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def measure(self, data: bytes, at: int) -> int:
        """How many bytes the message has that begins at `at`, or its head if that is not
        all there; one byte is.

        Raises:
            RemoteProtocolError: `protocol-error` for a type that there is not,
                `frame-too-large` for a length above the limit.
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
            raise violation(f"a message of type {kind}")
        limit = self._longest if kind <= RESPONSE else LONGEST_PING_PAYLOAD
        if length > limit:
            raise too_large(f"a payload of {length:,} bytes; at most {limit:,}")
