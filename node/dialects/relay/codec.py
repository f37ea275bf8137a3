"""The encoding of relay messages.

    [LEN: 4][TO: 16][FROM: 16][payload: LEN - 32]      all integers in network byte order

LEN counts both UUIDs and the payload.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from parley._node.protocol.errors import too_large, violation

UUID_SIZE: Final = 16
UUIDS_SIZE: Final = 2 * UUID_SIZE  # the smallest LEN
LENGTH: Final = Struct(">I")
HEAD: Final = Struct(">I16s16s")
CODE: Final = Struct(">I")
BROADCAST: Final = bytes(UUID_SIZE)  # as the recipient: all clients except the sender
NOBODY: Final = BROADCAST  # as the recipient of an error: a client without a UUID
SERVER: Final = b"\xff" * UUID_SIZE  # as the sender: the relay reports an error


class RelayCode(IntEnum):
    """The error codes of a relay.

    Example:

        from parley.dialects import RelayCode

        assert RelayCode(5) is RelayCode.NOT_CONNECTED
    """

    INVALID_UUID = 1
    ALREADY_CONNECTED = 2
    INVALID_FORMAT = 3
    NOT_AUTHORISED = 4
    NOT_CONNECTED = 5
    INTERNAL_ERROR = 6


# The text that follows the code. It is fixed, except that NOT_CONNECTED also names the target.
TEXTS: Final[dict[RelayCode, str]] = {
    RelayCode.INVALID_UUID: "invalid UUID",
    RelayCode.ALREADY_CONNECTED: "UUID already connected",
    RelayCode.INVALID_FORMAT: "invalid message length",
    RelayCode.NOT_AUTHORISED: "the sender is not the UUID of this connection",
    RelayCode.NOT_CONNECTED: "target UUID not connected",
    RelayCode.INTERNAL_ERROR: "internal server error",
}


class RelayMessage(NamedTuple):
    r"""A message that a relay client has received.

    `sender_bytes` is the sender's UUID (16 bytes). `is_broadcast` is True if the sender addressed
    all clients.

    Example:

        from parley.dialects import RelayMessage

        message = RelayMessage(sender_bytes=bytes(15) + b"1", payload=b"hi", is_broadcast=False)
        print(message.sender, message.payload.decode())
    """

    sender_bytes: bytes
    payload: bytes
    is_broadcast: bool

    @property
    def sender(self) -> UUID:
        """The UUID of the sender, which the relay has checked."""
        return UUID(bytes=self.sender_bytes)


class RelayFault(NamedTuple):
    """An error that the relay reports; other servers may use codes that `RelayCode` doesn't
    contain.

    Example:

        from parley.dialects import RelayCode, RelayFault

        fault = RelayFault(code=5, text="target UUID not connected")
        assert fault.code == RelayCode.NOT_CONNECTED
    """

    code: int
    text: str


def is_client_uuid(uuid: bytes) -> bool:
    """Return whether a client may use this UUID, whatever its version and variant."""
    return len(uuid) == UUID_SIZE and uuid not in (BROADCAST, SERVER)


def encode_message(to: bytes, sender: bytes, payload: bytes) -> bytes:
    """Encode a message; `to` and `sender` are 16 bytes each.

    Raises:
        ValueError: a UUID has the wrong size.
    """
    if len(to) != UUID_SIZE or len(sender) != UUID_SIZE:
        raise ValueError(
            f"invalid UUIDs of {len(to)} and {len(sender)} bytes: expected {UUID_SIZE} each"
        )
    return HEAD.pack(UUIDS_SIZE + len(payload), to, sender) + payload


def encode_error(to: bytes, code: int, text: str = "") -> bytes:
    """Encode an error for the client `to`."""
    return encode_message(to, SERVER, CODE.pack(code) + text.encode())


def not_connected(sender: bytes, target: bytes) -> bytes:
    """Encode the error for a message from `sender` to a target that isn't connected."""
    name = target.hex()
    dashed = f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"
    text = f"{TEXTS[RelayCode.NOT_CONNECTED]}: {dashed}"
    return encode_error(sender, RelayCode.NOT_CONNECTED, text)


def check_length(length: int, longest: int) -> None:
    """Check LEN as soon as it has arrived.

    Raises:
        RemoteProtocolError: it is less than 32, or greater than `longest`.
    """
    if length < UUIDS_SIZE:
        raise violation(f"invalid message length {length}: the UUIDs alone have {UUIDS_SIZE} bytes")
    if length > longest:
        raise too_large(f"a message of {length} bytes exceeds the limit of {longest}")


def decode_messages(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield recipient, sender and payload of complete messages that were already checked."""
    at, end = 0, len(data)
    while at < end:
        length, to, sender = HEAD.unpack_from(data, at)
        after = at + LENGTH.size + length
        yield to, sender, data[at + HEAD.size : after]
        at = after


def decode_error(payload: bytes) -> RelayFault:
    """Decode the error in a payload, replacing invalid UTF-8.

    Raises:
        RemoteProtocolError: the payload is too short for a code.
    """
    if len(payload) < CODE.size:
        raise violation(f"invalid error of {len(payload)} bytes: too short for a code")
    (code,) = CODE.unpack_from(payload)
    return RelayFault(code, bytes(payload[CODE.size :]).decode("utf-8", "replace"))
