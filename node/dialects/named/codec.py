"""The encoding of named events in both flavours: two lengths, a header, and the data.

A header may be longer than its fields; the extra bytes are ignored. All integers are big-endian.
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

# Only the first byte must match; all releases of the crate write this version.
FORMAT_VERSION: Final = bytes((0, 9, 0))
NO_REF: Final = 0x00
REF: Final = 0xFF

# The two length fields, which their values don't include. The first one can be checked before the
# second has arrived.
LENGTHS_SIZE: Final = 10
TOTAL_SIZE: Final = 8
LARGEST_HEADER: Final = 65_535
LARGEST_CODE: Final = 65_535

# The crate's names for the last reply and for a failure.
END_NAME: Final = "end"
ERROR_NAME: Final = "error"
# The default name of a reply. Every event has a name here, and a reply that nothing waits for is
# handled as an event of that name. Reusing the name of the original event could make two sides call
# each other forever.
REPLY_NAME: Final = "reply"

_TOTAL = struct.Struct(">Q")
_LENGTHS = struct.Struct(">QH")
_LENGTH = struct.Struct(">H")
_ERROR = struct.Struct(">HI")

# header_length, version (only one byte is checked), id, [type,] indicator and, in an event that
# isn't a reply, the length of its namespace.
_READ_PLAIN = struct.Struct(">8xHBxxQBH")
_READ_TYPED = struct.Struct(">8xHBxxQBBH")
_READ_REF = struct.Struct(">QH")
_WRITE_PLAIN = struct.Struct(">QH3sQB")
_WRITE_TYPED = struct.Struct(">QH3sQBB")
_WRITE_REF = struct.Struct(">Q")

# The size of a header with empty names, and the additional size of a ref id.
_LEAST_HEADER = {
    "plain": _READ_PLAIN.size - LENGTHS_SIZE + _LENGTH.size,
    "typed": _READ_TYPED.size - LENGTHS_SIZE + _LENGTH.size,
}
_REF_SIZE = 8

# Frames up to this size are copied once more, because slicing bytes is faster than slicing a view.
_SMALL = 4_096


class Flavour(StrEnum):
    """The two header formats, which receivers cannot tell apart.

    PLAIN is the format of the document (bromine 0.14 to 0.17). TYPED (0.18 and later) adds the
    event's type after its id.
    """

    PLAIN = "plain"
    TYPED = "typed"


class BromineType(IntEnum):
    """The event types of the typed flavour.

    In the plain flavour, an event is a RESPONSE if it refers to another event, otherwise an
    INITIATOR.
    """

    INITIATOR = 0
    RESPONSE = 1
    END = 2
    ERROR = 3


_TYPES = tuple(BromineType)
# Looking up the members of an enum is slow.
_INITIATOR, _RESPONSE = BromineType.INITIATOR, BromineType.RESPONSE
_TYPED = Flavour.TYPED


class BromineEvent(NamedTuple):
    """One event: `ref_id` is the event that it replies to; `namespace` is empty if it has none."""

    event_id: int
    type: BromineType
    ref_id: int | None
    namespace: str
    name: str
    data: bytes


def measure_of(flavour: Flavour, longest: int) -> Callable[[bytes, int], int]:
    """Return the `measure` function of a `FrameSplitter` for events of at most `longest` bytes."""
    least_header = _LEAST_HEADER[flavour]
    longest_total = longest - LENGTHS_SIZE
    unpack = _LENGTHS.unpack_from

    def measure(data: bytes, at: int) -> int:
        if len(data) - at < LENGTHS_SIZE:
            (total,) = _TOTAL.unpack_from(data, at)
            if total > longest_total:
                raise too_large(_too_long(total, longest_total))
            return LENGTHS_SIZE  # called again once both lengths have arrived
        total, header_size = unpack(data, at)
        if total > longest_total:
            raise too_large(_too_long(total, longest_total))
        if header_size < least_header:
            raise violation(
                f"invalid header length {header_size}: expected at least {least_header} bytes"
            )
        if total < header_size:
            raise violation(f"invalid event length {total}: the header alone has {header_size}")
        size: int = total + LENGTHS_SIZE
        return size

    return measure


def parse_event(frame: memoryview, flavour: Flavour, longest_name: int) -> BromineEvent:
    """Parse a complete frame.

    Raises:
        RemoteProtocolError: `protocol-error` for an invalid frame, `frame-too-large` for a long
            name.
    """
    whole = bytes(frame) if len(frame) <= _SMALL else frame
    if flavour is _TYPED:
        header_size, version, event_id, number, indicator, size = _READ_TYPED.unpack_from(whole)
        at = _READ_TYPED.size
        if number >= len(_TYPES):
            raise violation(f"invalid event type {number}")
        kind = _TYPES[number]
    else:
        header_size, version, event_id, indicator, size = _READ_PLAIN.unpack_from(whole)
        at = _READ_PLAIN.size
        kind = _RESPONSE if indicator else _INITIATOR
    if version != FORMAT_VERSION[0]:
        raise violation(f"invalid format version {version}: expected {FORMAT_VERSION[0]}")
    end = LENGTHS_SIZE + header_size
    ref_id = None
    if indicator == REF:
        if at + _REF_SIZE + _LENGTH.size > end:
            raise violation(f"the header of {header_size:,} bytes ends inside its fixed fields")
        ref_id, size = _READ_REF.unpack_from(whole, at - _LENGTH.size)
        at += _REF_SIZE
    elif indicator != NO_REF:
        hint = "; does the client use the typed flavour?" if indicator < len(_TYPES) else ""
        raise violation(f"invalid indicator {indicator:#04x}{hint}")
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
    """Return the bytes of an event that precede its data.

    Raises:
        PayloadTooLargeError: the event would be longer than `longest_frame`.
        LocalProtocolError: a name is longer than `longest_name`, contains a lone surrogate, or both
            names together don't fit into a header.
    """
    try:
        spaces, names = namespace.encode(), name.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"cannot send the event {ascii(name)[:80]} (namespace {ascii(namespace)[:80]}): lone "
            "surrogates cannot be encoded"
        ) from error
    for what, encoded in (("namespace", spaces), ("name", names)):
        if len(encoded) > limits.longest_name:
            raise LocalProtocolError(
                f"cannot send an event whose {what} has {len(encoded):,} bytes: the limit is "
                f"{limits.longest_name:,} (longest_name), and the other side's may be lower"
            )
    header_size = _LEAST_HEADER[flavour] + len(spaces) + len(names)
    if ref_id is not None:
        header_size += _REF_SIZE
    if header_size > LARGEST_HEADER:
        raise LocalProtocolError(
            f"cannot send an event with a header of {header_size:,} bytes: name and namespace "
            f"must fit into {LARGEST_HEADER:,}"
        )
    total = header_size + data_size
    if total + LENGTHS_SIZE > limits.longest_frame:
        raise PayloadTooLargeError(
            f"cannot send an event of {total + LENGTHS_SIZE:,} bytes: the limit is "
            f"{limits.longest_frame:,} (longest_frame)"
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
        ValueError: `code` is not in 0..65,535.
    """
    if not 0 <= code <= LARGEST_CODE:
        raise ValueError(f"invalid error code {code}: expected 0 to {LARGEST_CODE}")
    encoded = text.encode("utf-8", "replace")
    return _ERROR.pack(code, len(encoded)) + encoded


def decode_error(data: bytes) -> tuple[int, str] | None:
    """Return the code and text of an error's payload, or None if it is malformed."""
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
        raise too_large(
            f"a name of {stop - at:,} bytes exceeds the limit of {longest:,} (longest_name)"
        )
    try:
        return str(frame[at:stop], "utf-8")
    except UnicodeDecodeError:
        raise violation(f"invalid name {bytes(frame[at:stop])[:40]!r}: not UTF-8") from None


def _too_long(total: int, longest: int) -> str:
    return f"an event of {total:,} bytes exceeds the limit of {longest:,} (longest_frame)"
