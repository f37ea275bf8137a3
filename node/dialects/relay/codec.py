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
UUIDS_SIZE: Final = 2 * UUID_SIZE  # the least LEN
LENGTH: Final = Struct(">I")
HEAD: Final = Struct(">I16s16s")
CODE: Final = Struct(">I")
BROADCAST: Final = bytes(UUID_SIZE)  # as the recipient: all but the sender
NOBODY: Final = BROADCAST  # as the recipient of an error: a client without a UUID
SERVER: Final = b"\xff" * UUID_SIZE  # as the sender: an error


class RelayCode(IntEnum):
    """The codes of error messages."""

    INVALID_UUID = 1
    ALREADY_CONNECTED = 2
    INVALID_FORMAT = 3
    NOT_AUTHORISED = 4
    NOT_CONNECTED = 5
    INTERNAL_ERROR = 6


# The text after the code: fixed, except that NOT_CONNECTED also names the target.
TEXTS: Final[dict[RelayCode, str]] = {
    RelayCode.INVALID_UUID: "invalid UUID",
    RelayCode.ALREADY_CONNECTED: "UUID already connected",
    RelayCode.INVALID_FORMAT: "invalid message length",
    RelayCode.NOT_AUTHORISED: "the sender is not the UUID of this connection",
    RelayCode.NOT_CONNECTED: "target UUID not connected",
    RelayCode.INTERNAL_ERROR: "internal server error",
}


class RelayMessage(NamedTuple):
    """A message as a client reads it: its sender (16 bytes), its payload, and whether it is a
    broadcast."""

    sender_bytes: bytes
    payload: bytes
    is_broadcast: bool

    @property
    def sender(self) -> UUID:
        """The UUID of the sender, as the relay guarantees."""
        return UUID(bytes=self.sender_bytes)


class RelayFault(NamedTuple):
    """An error that the relay reports; other servers may use codes outside of `RelayCode`."""

    code: int
    text: str


def is_client_uuid(uuid: bytes) -> bool:
    """Whether a client may have this UUID, whatever its version and variant."""
    return len(uuid) == UUID_SIZE and uuid not in (BROADCAST, SERVER)


def encode_message(to: bytes, sender: bytes, payload: bytes) -> bytes:
    """Encode a message; `to` and `sender` are 16 bytes each.

    Raises:
        ValueError: a UUID has another size.
    """
    if len(to) != UUID_SIZE or len(sender) != UUID_SIZE:
        raise ValueError(
            f"the UUIDs have {len(to)} and {len(sender)} bytes; each must have {UUID_SIZE}"
        )
    return HEAD.pack(UUIDS_SIZE + len(payload), to, sender) + payload


def encode_error(to: bytes, code: int, text: str = "") -> bytes:
    """Encode an error for the client `to`."""
    return encode_message(to, SERVER, CODE.pack(code) + text.encode())


def not_connected(sender: bytes, target: bytes) -> bytes:
    """Encode the error for a message of `sender` to a target that isn't connected."""
    name = target.hex()
    dashed = f"{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}"
    text = f"{TEXTS[RelayCode.NOT_CONNECTED]}: {dashed}"
    return encode_error(sender, RelayCode.NOT_CONNECTED, text)


def check_length(length: int, longest: int) -> None:
    """Check LEN as soon as it has come.

    Raises:
        RemoteProtocolError: it is below 32, or above `longest`.
    """
    if length < UUIDS_SIZE:
        raise violation(f"a message of {length} bytes; its UUIDs alone have {UUIDS_SIZE}")
    if length > longest:
        raise too_large(f"a message of {length} bytes; at most {longest}")


def decode_messages(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield recipient, sender and payload of complete, checked messages."""
    at, end = 0, len(data)
    while at < end:
        length, to, sender = HEAD.unpack_from(data, at)
        after = at + LENGTH.size + length
        yield to, sender, data[at + HEAD.size : after]
        at = after


def decode_error(payload: bytes) -> RelayFault:
    """Decode the error in a payload; replaces bytes that aren't UTF-8.

    Raises:
        RemoteProtocolError: it has no code.
    """
    if len(payload) < CODE.size:
        raise violation(f"an error of {len(payload)} bytes is too short for its code")
    (code,) = CODE.unpack_from(payload)
    return RelayFault(code, bytes(payload[CODE.size :]).decode("utf-8", "replace"))
