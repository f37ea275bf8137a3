"""Conversion of values to the bytes of SimProto and relay payloads, and back.

    value                      bytes
    none                       empty
    byte string                unchanged
    text                       UTF-8
    number, truth value,       the format that the gateway is set to: CBOR (as in LBM),
    array, map                 MessagePack or JSON

Received payloads become bytes, or none if empty, because only the applications know what the bytes
mean. A value that cannot be encoded is rejected.
"""

from typing import Final, Literal, get_args

from parley._lbm.codec import Encodable
from parley._node.messaging.formats import NAMES, FormatError, encode_as

# The format of values that are neither bytes nor text.
Rest = Literal["cbor", "msgpack", "json"]
RESTS: Final[tuple[Rest, ...]] = get_args(Rest)


class ConversionError(FormatError):
    """A value that cannot be encoded in a dialect."""


def to_bytes(value: Encodable, rest: Rest = "cbor") -> bytes:
    """Encode a value; `rest` is the format of values that are neither bytes nor text.

    Raises:
        ConversionError: the format cannot represent the value, such as bytes inside a map in JSON.
    """
    if value is None:
        return b""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return encode_as(NAMES[rest], value)
    except ValueError as error:
        raise ConversionError(
            f"cannot encode a value of type {type(value).__name__} in this dialect: {error}"
        ) from error


def from_bytes(data: bytes | memoryview) -> bytes | None:
    """Return received bytes, or None if empty."""
    return bytes(data) or None
