"""Payload formats of named events: values to bytes and back (docs/protocol.md section 10).

Decoders return plain values (numbers, text, bytes, booleans, None, lists and maps) and refuse
payloads with too many items before a library makes objects of them.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from io import BytesIO
from typing import Any, Final, Literal, NoReturn, cast

import cbor2
import msgpack

from parley._lbm.codec import Encodable, Value, decode_value, encode_value
from parley._node.errors import FormatError as FormatError
from parley._node.errors import codec_fault

# The same limit as for LBM payloads.
MOST_ITEMS: Final = 131_072
_JSON_TEXT: Final = re.compile(rb'"[^"]*"')


def has_too_many(count: Callable[[bytes], int], data: bytes) -> bool:
    """Whether a payload has more items than allowed; `count` counts them."""
    return len(data) > MOST_ITEMS and count(data) > MOST_ITEMS


def json_items(data: bytes) -> int:
    """Count the values in a JSON text, approximately: one plus one per container and comma."""
    # Two passes, because one regular expression for both would be slow on malformed texts.
    bare = _JSON_TEXT.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b""))
    return 1 + bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def cbor_items(data: bytes) -> int:
    """Count the heads in CBOR data, up to one more than allowed."""
    position, count, size = 0, 0, len(data)
    while position < size and count <= MOST_ITEMS:
        head = data[position]
        position += 1
        count += 1
        major, short = head >> 5, head & 31
        if short < 24 or short > 27:
            length = short  # The values 28 to 31 have no argument.
        else:
            width = 1 << short - 24
            length = int.from_bytes(data[position : position + width])
            position += width
        if major in (2, 3) and short < 28:
            position += length
    return count


def msgpack_items(data: bytes) -> int:
    """Count the heads in MessagePack data, up to one more than allowed."""
    position, count, size = 0, 0, len(data)
    while position < size and count <= MOST_ITEMS:
        head = data[position]
        position += 1
        count += 1
        if 0xA0 <= head <= 0xBF:
            position += head & 31
        elif 0xC4 <= head <= 0xDF:
            width, fixed, has_bytes = _MSGPACK[head - 0xC4]
            if has_bytes:
                position += int.from_bytes(data[position : position + width])
            position += width + fixed
    return count


# From 0xC4 on: bytes of the length, additional bytes, and whether a length of bytes follows.
_MSGPACK: Final = (
    *((1, 0, True), (2, 0, True), (4, 0, True)),  # bin
    *((1, 1, True), (2, 1, True), (4, 1, True)),  # ext
    *((0, 4, False), (0, 8, False)),  # float
    *((0, 1, False), (0, 2, False), (0, 4, False), (0, 8, False)),  # uint
    *((0, 1, False), (0, 2, False), (0, 4, False), (0, 8, False)),  # int
    *((0, 2, False), (0, 3, False), (0, 5, False), (0, 9, False), (0, 17, False)),  # fixext
    *((1, 0, True), (2, 0, True), (4, 0, True)),  # str
    *((2, 0, False), (4, 0, False)),  # array
    *((2, 0, False), (4, 0, False)),  # map
)


# The names of the formats; `raw` has no format ID.
FormatName = Literal["lbm", "msgpack", "json", "cbor", "raw"]

# The nesting limit of CBOR, as in LBM; the other formats have those of their libraries.
DEEPEST: Final = 16
# CBOR tags that the library would decode. Some create objects that are not plain values, such as
# dates, regular expressions or cycles; all are refused.
_KNOWN_TAGS: Final = (
    *(0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004),
    *(43_000, 55_799),
)


class Format(IntEnum):
    """Format IDs; 0 to 3 are those of the existing implementation of the byte-exact dialect."""

    MESSAGEPACK = 0
    BINCODE = 1
    POSTCARD = 2
    JSON = 3
    LBM = 16
    CBOR = 17


NAMES: Final[Mapping[str, Format]] = {
    "lbm": Format.LBM,
    "msgpack": Format.MESSAGEPACK,
    "json": Format.JSON,
    "cbor": Format.CBOR,
}


def encode_as(format_id: int, value: Encodable) -> bytes:
    """Encode a value, without the format ID.

    Raises:
        FormatError: the value cannot be encoded in this format, or the format is unknown.
    """
    encoder = _ENCODERS.get(format_id)
    if encoder is None:
        raise FormatError(f"cannot encode a value in format {format_id}: the format is unknown")
    try:
        return encoder(value)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FormatError(
            f"cannot encode the value in format {format_id}: {codec_fault(error)}"
        ) from error


def decode_as(format_id: int, data: bytes) -> Value:
    """Decode a payload without its format ID; bincode and postcard payloads stay bytes.

    Raises:
        FormatError: the data is not valid in this format, or the format is unknown.
    """
    decoder = _DECODERS.get(format_id)
    if decoder is None:
        raise FormatError(f"cannot decode the payload: format {format_id} is unknown")
    try:
        return _plain(decoder(data))
    except _FAILURES as error:
        raise FormatError(
            f"cannot decode the payload in format {format_id}: {codec_fault(error)}"
        ) from error


_FAILURES: Final = (
    *(ValueError, TypeError, OverflowError, RecursionError, MemoryError),
    *(cbor2.CBORError, msgpack.UnpackException),
)


def _encode_msgpack(value: Encodable) -> bytes:
    packed: bytes = msgpack.packb(value, default=_as_dict)
    return packed


def _encode_json(value: Encodable) -> bytes:
    _require_text_keys(value)
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_dict
    )
    return text.encode()


def _as_dict(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded")


def _require_text_keys(value: Encodable) -> None:
    """Check that all keys are text; otherwise the JSON encoder would silently convert numbers to
    text.
    """
    left: list[Any] = [value]
    levels = 0
    while left:
        levels += 1
        if levels > MOST_ITEMS:
            raise ValueError(f"too many items: at most {MOST_ITEMS:,}")
        item = left.pop()
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                wrong = next(key for key in item if not isinstance(key, str))
                raise TypeError(f"the keys of a map must be text in JSON, not {ascii(wrong)[:40]}")
            left += [inner for inner in item.values() if isinstance(inner, _CONTAINERS)]
        elif isinstance(item, list | tuple):
            left += [inner for inner in item if isinstance(inner, _CONTAINERS)]


def _require_few(count: Callable[[bytes], int], data: bytes) -> None:
    if has_too_many(count, data):
        raise ValueError(f"too many items: at most {MOST_ITEMS:,}")


def _decode_msgpack(data: bytes) -> Any:
    _require_few(msgpack_items, data)
    most = min(len(data), MOST_ITEMS)  # The library allocates this many items immediately.
    return msgpack.unpackb(
        data, strict_map_key=False, max_array_len=most, max_map_len=most, max_ext_len=0
    )


def _decode_json(data: bytes) -> Any:
    _require_few(json_items, data)
    value = json.loads(data.decode(), parse_constant=_no_constant)
    if b"\\ud" in data.lower():  # Unpaired surrogates are not valid text.
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _decode_cbor(data: bytes) -> Any:
    _require_few(cbor_items, data)
    stream = BytesIO(data)
    decoder = cbor2.CBORDecoder(
        stream,
        tag_hook=_no_tag,
        semantic_decoders=_NO_TAGS,
        max_depth=DEEPEST,
        allow_duplicate_keys=False,
        read_size=1,  # Don't read ahead, so that trailing data can be detected.
    )
    value = decoder.decode()
    if stream.read(1):
        raise ValueError(f"data follows the value of {stream.tell() - 1:,} bytes")
    return value


def _no_tag(*_: object) -> NoReturn:
    raise ValueError("tags are not supported")


_NO_TAGS: Final[dict[int, Callable[..., NoReturn]]] = dict.fromkeys(_KNOWN_TAGS, _no_tag)
_ENCODERS: Final[dict[int, Callable[[Encodable], bytes]]] = {
    Format.MESSAGEPACK: _encode_msgpack,
    Format.JSON: _encode_json,
    Format.LBM: encode_value,
    Format.CBOR: encode_value,  # LBM's deterministic encoding is valid CBOR.
}
_DECODERS: Final[dict[int, Callable[[bytes], Any]]] = {
    Format.MESSAGEPACK: _decode_msgpack,
    Format.BINCODE: bytes,
    Format.POSTCARD: bytes,
    Format.JSON: _decode_json,
    Format.LBM: decode_value,
    Format.CBOR: _decode_cbor,
}

_SCALARS: Final = frozenset({int, float, str, bytes, bool, type(None)})
_CONTAINERS: Final = (Mapping, list, tuple)


def _plain(value: Any) -> Value:
    """Return the value if it only contains plain types."""
    if type(value) in _SCALARS:
        return cast("Value", value)
    left = [value]
    while left:
        item = left.pop()
        if type(item) is dict:
            for key in item:
                if type(key) not in _SCALARS:
                    raise ValueError(f"a key is a {type(key).__name__}, not a plain value")
            left += [inner for inner in item.values() if type(inner) not in _SCALARS]
        elif type(item) is list:
            left += [inner for inner in item if type(inner) not in _SCALARS]
        else:
            raise ValueError(f"a {type(item).__name__} is not a plain value")
    return cast("Value", value)
