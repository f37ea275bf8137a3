"""The table by which values become the bytes of SimProto and relay payloads, and back.

    value                      bytes
    none                       empty
    byte string                as it is
    text                       UTF-8
    number, truth value,       the format that the gateway is set to: CBOR (as in LBM),
    array, map                 MessagePack or JSON

In the other direction they are bytes, or none if empty: only the two applications know what
they mean. A value either has exactly one form here, or is refused.
"""

from typing import Final, Literal, get_args

from parley._lbm.codec import Encodable
from parley._node.messaging.formats import NAMES, FormatError, encode_as

# The format of what is neither bytes nor text.
Rest = Literal["cbor", "msgpack", "json"]
RESTS: Final[tuple[Rest, ...]] = get_args(Rest)


class ConversionError(FormatError):
    """A value has no form in a dialect."""


def to_bytes(value: Encodable, rest: Rest = "cbor") -> bytes:
    """Encode a value; `rest` is the format of values that are neither bytes nor text.

    Raises:
        ConversionError: it has no form there, such as bytes inside a map in JSON.
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
        raise ConversionError(f"a value has no form in this dialect: {error}") from error


def from_bytes(data: bytes | memoryview) -> bytes | None:
    """Return received bytes, or None if empty."""
    return bytes(data) or None
