"""Each dialect's bytes as the load generators send them: written from the documents.

Nothing of the project is used here, so that a generator costs next to nothing and cannot
share a mistake with the server. Knows no sockets.
"""

import struct
from typing import Protocol

TOPIC = b"echo"
LARGEST_FRAME = 1 << 20  # what the gateways take by default

_SIMPROTO = struct.Struct("<BQQ")
_SHORT = struct.Struct("<H")
_NAMED = struct.Struct(">QH3sQBHH")
_NAMED_HEADER = _NAMED.size - 10 + len(TOPIC)
_TOTAL = struct.Struct(">Q")
_RELAY = struct.Struct(">I16s16s")
_MESSAGEPACK, _BINARY = 0, 0xC6


class Wire(Protocol):
    """How to speak one dialect. `head_size` bytes of an answer say how long it is.

    `pause` is how many seconds a client that reads nothing has to wait between two windows of
    requests: with more of them at once it would be hung up on before it blocks.
    """

    head_size: int
    pause: float

    def hello(self, client: int) -> bytes:
        """What the client of this number sends first."""

    def request(self, payload: bytes, number: int) -> bytes:
        """A request that is answered with its payload; `number` tells it from others."""

    def answer_size(self, head: bytes) -> int:
        """How long the answer is that begins so."""

    def largest(self) -> bytes:
        """A request that is as long as the server takes them."""


class SimProto:
    """RPC of the topic "echo"."""

    head_size = _SIMPROTO.size
    pause = 0.005

    def hello(self, client: int) -> bytes:
        """Nothing."""
        return b""

    def request(self, payload: bytes, number: int) -> bytes:
        """T, id, len; T, len, topic, data; little-endian."""
        packet = b"\x00" + _SHORT.pack(len(TOPIC)) + TOPIC + payload
        return _SIMPROTO.pack(0, number, len(packet)) + packet

    def answer_size(self, head: bytes) -> int:
        """Head and payload."""
        return self.head_size + int(_SIMPROTO.unpack_from(head)[2])

    def largest(self) -> bytes:
        """`len` is the greatest that is taken."""
        return self.request(bytes(LARGEST_FRAME - 3 - len(TOPIC)), 1)


class Named:
    """The event "echo", plain flavour, with bytes in MessagePack."""

    head_size = _TOTAL.size
    pause = 0.0

    def hello(self, client: int) -> bytes:
        """Nothing."""
        return b""

    def request(self, payload: bytes, number: int) -> bytes:
        """total_length, header_length; version, id, no ref id, no namespace, name; data."""
        data = struct.pack(">BBI", _MESSAGEPACK, _BINARY, len(payload)) + payload
        total = _NAMED_HEADER + len(data)
        head = _NAMED.pack(total, _NAMED_HEADER, b"\x00\x09\x00", number, 0, 0, len(TOPIC))
        return head + TOPIC + data

    def answer_size(self, head: bytes) -> int:
        """Its total does not count the two lengths."""
        return 10 + int(_TOTAL.unpack_from(head)[0])

    def largest(self) -> bytes:
        """The whole event is as long as is taken; its answer has a longer header."""
        return self.request(bytes(LARGEST_FRAME - 64), 1)


class Relay:
    """Messages to oneself: the relay itself answers nothing."""

    head_size = 4
    pause = 0.0

    def hello(self, client: int) -> bytes:
        """The UUID."""
        return uuid(client)

    def request(self, payload: bytes, number: int) -> bytes:
        """From the client of this number to itself."""
        return message(number, number, payload)

    def answer_size(self, head: bytes) -> int:
        """LEN does not count itself."""
        return 4 + int.from_bytes(head[:4], "big")

    def largest(self) -> bytes:
        """LEN is the greatest that is taken."""
        return message(HOSTILE, HOSTILE, bytes(LARGEST_FRAME - 32))


EVERYBODY, HOSTILE, NOBODY = -1, 1_000, 2_000  # instead of a client's number


def uuid(client: int) -> bytes:
    """The UUID of a client; nil for everybody."""
    return (client + 1).to_bytes(16, "big")


def message(to: int, sender: int, payload: bytes) -> bytes:
    """A message through the relay, between clients of these numbers."""
    return _RELAY.pack(32 + len(payload), uuid(to), uuid(sender)) + payload


WIRES: dict[str, Wire] = {"simproto": SimProto(), "named": Named(), "relay": Relay()}
