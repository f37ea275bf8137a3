"""Bytes <-> labelled binary maps: the deterministic CBOR subset of section 3.

The rule: every value has exactly one encoding, and decoding refuses all others, so
that decode and encode are each other's inverse. Written by hand, since a general
CBOR library accepts more than we do and could only be checked by encoding again.
Knows nothing of what a key means, except that key 0 of a payload is noise.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, TypeAlias

from lbm.errors import LbmDecodeError, LbmEncodeError
from lbm.limits import DEFAULT_LIMITS, Limits

Value: TypeAlias = int | float | bytes | str | bool | list[Any] | dict[Any, Any] | None
Encodable: TypeAlias = Value | bytearray | memoryview | tuple[Any, ...] | Mapping[Any, Any]

MAX_DEPTH: Final = DEFAULT_LIMITS.max_depth
_UINT_END: Final = 2**64

# Major types (RFC 8949, section 3.1).
UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP = range(6)

_FLOAT: Final = Struct(">d")
_CANONICAL_NAN: Final = bytes.fromhex("7ff8000000000000")


def encode_head(major: int, n: int) -> bytes:
    """Encode the head of an item: major type 0..6 and its argument 0..2^64-1, shortest form."""
    lead = major << 5
    if n < 24:
        return bytes((lead | n,))
    if n < 0x100:
        return bytes((lead | 24, n))
    if n < 0x10000:
        return bytes((lead | 25,)) + n.to_bytes(2, "big")
    if n < 0x100000000:
        return bytes((lead | 26,)) + n.to_bytes(4, "big")
    if n < _UINT_END:
        return bytes((lead | 27,)) + n.to_bytes(8, "big")
    raise LbmEncodeError("an integer or a size of more than 64 bits")


# Heads of the sizes and integers that nearly every event is made of.
_HEADS: Final = [[encode_head(major, n) for n in range(256)] for major in range(6)]
_UINT_HEADS, _NEGATIVE_HEADS, _BYTES_HEADS, _TEXT_HEADS, _ARRAY_HEADS, _MAP_HEADS = _HEADS


def encode(cells: Mapping[int, Encodable]) -> bytes:
    """Encode a payload: a map from unsigned keys to values, in any order.

    Tuples count as arrays, bytearrays and memoryviews as byte strings. Raises
    LbmEncodeError for whatever has no encoding: other types, integers of more than 64
    bits, lone surrogates, keys of mixed kinds, more than 16 levels.
    """
    noise = cells.get(0, b"")
    if type(noise) is not bytes:
        raise LbmEncodeError("noise (key 0 of a payload) is a byte string")
    parts: list[bytes] = []
    _write_items((cells,), parts.append, 1)
    if cells and parts[1][0] >> 5 != UINT:
        raise LbmEncodeError("a payload has unsigned keys only")
    return b"".join(parts)


def encode_value(value: Encodable, *, enclosing: int = 1) -> bytes:
    """Encode one value, to be spliced into a payload.

    `enclosing` is the number of containers that will be around it, which count
    against the 16 levels: the payload's map, by default. Raises LbmEncodeError.
    """
    parts: list[bytes] = []
    _write_items((value,), parts.append, 1 + enclosing)
    return b"".join(parts)


def decode(
    data: bytes, limits: Limits = DEFAULT_LIMITS, *, keep_noise: bool = False
) -> dict[int, Value]:
    """Decode a payload; its noise (key 0) is dropped unless `keep_noise`.

    Raises LbmDecodeError for anything but the one encoding of a map with unsigned
    keys within the limits, and takes memory and time in proportion to `len(data)`.
    """
    cells = decode_value(data, limits)
    if type(cells) is not dict or type(next(iter(cells), 0)) is not int:
        raise LbmDecodeError("a payload is a map with unsigned keys")
    if 0 in cells:
        if type(cells[0]) is not bytes:
            raise LbmDecodeError("noise (key 0 of a payload) is a byte string")
        if not keep_noise:
            del cells[0]
    return cells


def decode_value(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Value:
    """Decode one value, its outermost container counting as level 1; raises LbmDecodeError."""
    if len(data) > limits.max_bytes:
        raise LbmDecodeError("payload too large")
    if type(data) is not bytes:
        data = bytes(data)
    try:
        (value,), end = _read_items(data, 0, 1, limits.max_depth, [limits.max_items])
    except IndexError:
        raise LbmDecodeError("payload ends early") from None
    except UnicodeDecodeError:
        raise LbmDecodeError("text is not UTF-8") from None
    if end != len(data):
        raise LbmDecodeError("trailing bytes")
    return value  # type: ignore[no-any-return]


def _write_items(items: Iterable[Any], append: Callable[[bytes], object], depth: int) -> None:
    """Append the encodings of `items`; a container among them is at level `depth`."""
    for item in items:
        kind = type(item)
        if kind is int:
            if 0 <= item < 256:
                append(_UINT_HEADS[item])
            elif item >= 0:
                append(encode_head(UINT, item))
            else:
                append(encode_head(NEGATIVE, -1 - item))
        elif kind is str:
            try:
                text = item.encode()
            except UnicodeEncodeError:
                raise LbmEncodeError("text with a lone surrogate") from None
            size = len(text)
            append(_TEXT_HEADS[size] if size < 256 else encode_head(TEXT, size))
            append(text)
        elif kind is bytes:
            size = len(item)
            append(_BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size))
            append(item)
        elif kind is list or kind is tuple:
            if depth > MAX_DEPTH:
                raise LbmEncodeError(f"more than {MAX_DEPTH} levels")
            append(encode_head(ARRAY, len(item)))
            _write_items(item, append, depth + 1)
        elif kind is dict:
            if depth > MAX_DEPTH:
                raise LbmEncodeError(f"more than {MAX_DEPTH} levels")
            append(encode_head(MAP, len(item)))
            _write_map(item, append, depth + 1)
        elif item is None:
            append(b"\xf6")
        elif kind is bool:
            append(b"\xf5" if item else b"\xf4")
        elif kind is float:
            append(b"\xfb" + (_FLOAT.pack(item) if item == item else _CANONICAL_NAN))
        else:
            _write_items((_plain(item),), append, depth)


def _write_map(cells: dict[Any, Any], append: Callable[[bytes], object], depth: int) -> None:
    kinds = set(map(type, cells))
    if kinds == {int}:
        keys = sorted(cells)
        if keys[0] < 0:
            raise LbmEncodeError("a negative map key")
    elif kinds == {str}:
        # Encoded keys compare by their size first, then by code point.
        try:
            keys = sorted(cells, key=lambda key: (len(key.encode()), key))
        except UnicodeEncodeError:
            raise LbmEncodeError("text with a lone surrogate") from None
    elif kinds:
        raise LbmEncodeError("map keys are all unsigned integers or all text")
    else:
        return
    for key in keys:
        _write_items((key, cells[key]), append, depth)


def _plain(item: object) -> Value:
    """Reduce subclasses and buffers to the types that have an encoding."""
    if isinstance(item, int):
        return int.__index__(item)
    if isinstance(item, str):
        return str.__str__(item)
    if isinstance(item, float):
        return float.__float__(item)
    if isinstance(item, bytes | bytearray | memoryview):
        return bytes(item)
    if isinstance(item, list | tuple):
        return list(item)
    if isinstance(item, Mapping):
        return dict(item)
    raise LbmEncodeError(f"{type(item).__name__} has no encoding")


def _read_items(
    data: bytes, pos: int, count: int, depth: int, budget: list[int]
) -> tuple[list[Any], int]:
    """Read `count` items at `pos`, with `depth` levels left; returns them and the end.

    Reading past the end is left to raise IndexError, for speed.
    """
    budget[0] -= count
    if budget[0] < 0:
        raise LbmDecodeError("too many items")
    items: list[Any] = []
    append = items.append
    for _ in range(count):
        head = data[pos]
        pos += 1
        if head < 24:
            append(head)
            continue
        if head >= 0xE0:
            if head == 0xF4:
                append(False)
            elif head == 0xF5:
                append(True)
            elif head == 0xF6:
                append(None)
            elif head == 0xFB:
                end = pos + 8
                raw = data[pos:end]
                if len(raw) < 8:
                    raise LbmDecodeError("payload ends early")
                (number,) = _FLOAT.unpack(raw)
                if number != number and raw != _CANONICAL_NAN:
                    raise LbmDecodeError("NaN that is not canonical")
                append(number)
                pos = end
            else:
                raise LbmDecodeError("a simple value or float that is not LBM")
            continue
        n = head & 31
        if n >= 24:
            if n == 24:
                n = data[pos]
                pos += 1
                if n < 24:
                    raise LbmDecodeError("not the shortest form")
            elif n < 28:
                size = 1 << (n - 24)
                end = pos + size
                if end > len(data):
                    raise LbmDecodeError("payload ends early")
                n = int.from_bytes(data[pos:end], "big")
                if not n >> (size << 2):
                    raise LbmDecodeError("not the shortest form")
                pos = end
            else:
                raise LbmDecodeError("indefinite lengths are not LBM")
        major = head >> 5
        if major == UINT:
            append(n)
        elif major == NEGATIVE:
            append(-1 - n)
        elif major == BYTES:
            end = pos + n
            if end > len(data):
                raise LbmDecodeError("payload ends early")
            append(data[pos:end])
            pos = end
        elif major == TEXT:
            end = pos + n
            if end > len(data):
                raise LbmDecodeError("payload ends early")
            append(data[pos:end].decode())
            pos = end
        elif major == ARRAY:
            if not depth:
                raise LbmDecodeError("too many levels")
            if n > len(data) - pos:
                raise LbmDecodeError("payload ends early")
            array, pos = _read_items(data, pos, n, depth - 1, budget)
            append(array)
        elif major == MAP:
            if not depth:
                raise LbmDecodeError("too many levels")
            if 2 * n > len(data) - pos:
                raise LbmDecodeError("payload ends early")
            flat, pos = _read_items(data, pos, 2 * n, depth - 1, budget)
            append(_build_map(flat))
        else:
            raise LbmDecodeError("tags are not LBM")
    return items, pos


def _build_map(flat: list[Any]) -> dict[Any, Any]:
    """Make a map of alternating keys and values, whose keys are of one kind and ascend."""
    keys = flat[::2]
    kinds = set(map(type, keys))
    if kinds == {int}:
        if keys[0] < 0 or sorted(keys) != keys:
            raise LbmDecodeError("map keys are not unsigned, or not in order")
    elif kinds == {str}:
        if sorted(keys, key=lambda key: (len(key.encode()), key)) != keys:
            raise LbmDecodeError("map keys are not in order")
    elif kinds:
        raise LbmDecodeError("map keys are neither all unsigned nor all text")
    cells = dict(zip(keys, flat[1::2], strict=True))
    if len(cells) != len(keys):
        raise LbmDecodeError("duplicate map key")
    return cells
