"""The encoding of named events, in both flavours: two lengths, a header, data.

A header may be longer than its fields; the rest is ignored. All integers are big-endian.
"""

import struct
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from parley._node.dialects.limits import DialectLimits
from parley._node.protocol.errors import (
    LocalProtocolError,
    PayloadTooLargeError,
    too_large,
    violation,
)

# Only its first byte must match; all releases of the crate write this version.
FORMAT_VERSION: Final = bytes((0, 9, 0))
NO_REF: Final = 0x00
REF: Final = 0xFF

# The two lengths, which do not count themselves; and the first of them, which can be checked
# before the second has come.
LENGTHS_SIZE: Final = 10
TOTAL_SIZE: Final = 8
LARGEST_HEADER: Final = 65_535
LARGEST_CODE: Final = 65_535

# The crate's own names of the last reply and of a failure.
END_NAME: Final = "end"
ERROR_NAME: Final = "error"
# The name of a reply that was given none: all events have a name here, and a reply for which
# nothing waits is an event of that name. The name of the event replied to would make two sides
# ask each other for ever.
REPLY_NAME: Final = "reply"

_TOTAL = struct.Struct(">Q")
_LENGTHS = struct.Struct(">QH")
_LENGTH = struct.Struct(">H")
_ERROR = struct.Struct(">HI")

# header_length, version (of which one byte counts), id, [type,] indicator and, in an event
# that is not a reply, the length of its namespace.
_READ_PLAIN = struct.Struct(">8xHBxxQBH")
_READ_TYPED = struct.Struct(">8xHBxxQBBH")
_READ_REF = struct.Struct(">QH")
_WRITE_PLAIN = struct.Struct(">QH3sQB")
_WRITE_TYPED = struct.Struct(">QH3sQBB")
_WRITE_REF = struct.Struct(">Q")

# A header without any name, and how much longer it is with a ref id.
_LEAST_HEADER = {
    "plain": _READ_PLAIN.size - LENGTHS_SIZE + _LENGTH.size,
    "typed": _READ_TYPED.size - LENGTHS_SIZE + _LENGTH.size,
}
_REF_SIZE = 8

# Frames up to this size are copied once more, since slices of bytes are faster to make.
_SMALL = 4_096


class Flavour(StrEnum):
    """The header of the document (bromine 0.14 to 0.17), or that of 0.18 and later, with the
    event's type after its id. The wire doesn't tell them apart."""

    PLAIN = "plain"
    TYPED = "typed"


class BromineType(IntEnum):
    """The types of the typed flavour. A plain event is a RESPONSE if it refers to another event,
    otherwise an INITIATOR."""

    INITIATOR = 0
    RESPONSE = 1
    END = 2
    ERROR = 3


_TYPES = tuple(BromineType)
# Members of an enum are slow to look up.
_INITIATOR, _RESPONSE = BromineType.INITIATOR, BromineType.RESPONSE
_TYPED = Flavour.TYPED


class BromineEvent(NamedTuple):
    """One event. `ref_id` is the event to which it replies; `namespace` is empty for none."""

    event_id: int
    type: BromineType
    ref_id: int | None
    namespace: str
    name: str
    data: bytes


def measure_of(flavour: Flavour, longest: int) -> Callable[[bytes, int], int]:
    """Return the `measure` of a `FrameSplitter` for events of at most `longest` bytes."""
    least_header = _LEAST_HEADER[flavour]
    longest_total = longest - LENGTHS_SIZE
    unpack = _LENGTHS.unpack_from

    def measure(data: bytes, at: int) -> int:
        if len(data) - at < LENGTHS_SIZE:
            (total,) = _TOTAL.unpack_from(data, at)
            if total > longest_total:
                raise too_large(f"an event of {total:,} bytes; at most {longest_total:,}")
            return LENGTHS_SIZE  # to be measured again with both lengths
        total, header_size = unpack(data, at)
        if total > longest_total:
            raise too_large(f"an event of {total:,} bytes; at most {longest_total:,}")
        if header_size < least_header:
            raise violation(f"a header of {header_size} bytes; it has at least {least_header}")
        if total < header_size:
            raise violation(f"{total} bytes in all, of which {header_size} are the header")
        size: int = total + LENGTHS_SIZE
        return size

    return measure


def parse_event(frame: memoryview, flavour: Flavour, longest_name: int) -> BromineEvent:
    """Parse a complete frame.

    Raises:
        RemoteProtocolError: `protocol-error`, or `frame-too-large` for a name.
    """
    whole = bytes(frame) if len(frame) <= _SMALL else frame
    if flavour is _TYPED:
        header_size, version, event_id, number, indicator, size = _READ_TYPED.unpack_from(whole)
        at = _READ_TYPED.size
        if number >= len(_TYPES):
            raise violation(f"an event of type {number}")
        kind = _TYPES[number]
    else:
        header_size, version, event_id, indicator, size = _READ_PLAIN.unpack_from(whole)
        at = _READ_PLAIN.size
        kind = _RESPONSE if indicator else _INITIATOR
    if version != FORMAT_VERSION[0]:
        raise violation(f"format version {version}")
    end = LENGTHS_SIZE + header_size
    ref_id = None
    if indicator == REF:
        if at + _REF_SIZE + _LENGTH.size > end:
            raise violation(f"the header of {header_size:,} bytes ends inside its fixed fields")
        ref_id, size = _READ_REF.unpack_from(whole, at - _LENGTH.size)
        at += _REF_SIZE
    elif indicator != NO_REF:
        hint = "; is it of the typed flavour?" if indicator < len(_TYPES) else ""
        raise violation(f"an indicator of {indicator:#04x}{hint}")
    stop = at + size
    if stop + _LENGTH.size > end:
        raise violation(
            f"the header of {header_size:,} bytes ends inside its namespace of {size:,} bytes"
        )
    namespace = _parse_name(whole, at, stop, longest_name) if size else ""
    (size,) = _LENGTH.unpack_from(whole, stop)
    at = stop + _LENGTH.size
    stop = at + size
    if stop > end:
        raise violation(
            f"the header of {header_size:,} bytes ends inside its name of {size:,} bytes"
        )
    name = _parse_name(whole, at, stop, longest_name)
    return BromineEvent(event_id, kind, ref_id, namespace, name, bytes(whole[end:]))


def serialise_head(
    flavour: Flavour,
    event_id: int,
    kind: BromineType,
    ref_id: int | None,
    namespace: str,
    name: str,
    data_size: int,
    limits: DialectLimits,
) -> bytes:
    """Return the bytes of an event before its data.

    Raises:
        PayloadTooLargeError: the event would be longer than `longest_frame`.
        LocalProtocolError: a name is longer than `longest_name` or has a lone surrogate, or both
            together are longer than a header can be.
    """
    try:
        spaces, names = namespace.encode(), name.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"cannot send the event {ascii(name)[:80]} (namespace {ascii(namespace)[:80]}): it has "
            "a lone surrogate"
        ) from error
    for what, encoded in (("namespace", spaces), ("name", names)):
        if len(encoded) > limits.longest_name:
            raise LocalProtocolError(
                f"a {what} of {len(encoded):,} bytes; at most {limits.longest_name:,} "
                "(longest_name), and the other side may take less"
            )
    header_size = _LEAST_HEADER[flavour] + len(spaces) + len(names)
    if ref_id is not None:
        header_size += _REF_SIZE
    if header_size > LARGEST_HEADER:
        raise LocalProtocolError(f"name and namespace make a header of {header_size:,} bytes")
    total = header_size + data_size
    if total + LENGTHS_SIZE > limits.longest_frame:
        raise PayloadTooLargeError(
            f"an event of {total + LENGTHS_SIZE:,} bytes; at most {limits.longest_frame:,}"
        )
    indicator = NO_REF if ref_id is None else REF
    if flavour is _TYPED:
        head = _WRITE_TYPED.pack(total, header_size, FORMAT_VERSION, event_id, kind, indicator)
    else:
        head = _WRITE_PLAIN.pack(total, header_size, FORMAT_VERSION, event_id, indicator)
    reference = b"" if ref_id is None else _WRITE_REF.pack(ref_id)
    pack = _LENGTH.pack
    return b"".join((head, reference, pack(len(spaces)), spaces, pack(len(names)), names))


def encode_error(code: int, text: str) -> bytes:
    """Encode the payload of an error: u16 code, u32 length, UTF-8 text.

    Raises:
        ValueError: `code` is not 0..65,535.
    """
    if not 0 <= code <= LARGEST_CODE:
        raise ValueError(f"{code} is not a code of 16 bits")
    encoded = text.encode("utf-8", "replace")
    return _ERROR.pack(code, len(encoded)) + encoded


def decode_error(data: bytes) -> tuple[int, str] | None:
    """Return the code and text of an error's payload, None if it is malformed."""
    if len(data) < _ERROR.size:
        return None
    code, size = _ERROR.unpack_from(data)
    encoded = data[_ERROR.size : _ERROR.size + size]
    if len(encoded) < size:
        return None
    try:
        return code, encoded.decode()
    except UnicodeDecodeError:
        return None


def _parse_name(frame: bytes | memoryview, at: int, stop: int, longest: int) -> str:
    if stop - at > longest:
        raise too_large(f"a name of {stop - at:,} bytes; at most {longest:,} (longest_name)")
    try:
        return str(frame[at:stop], "utf-8")
    except UnicodeDecodeError:
        raise violation(f"a name is not UTF-8: {bytes(frame[at:stop])[:40]!r}") from None
