"""The codec of a canonical CBOR profile (labelled binary maps, LBM; docs/protocol.md section 3).

Each value has exactly one encoding, and decoding rejects all others. A general CBOR library accepts
more, and would have to re-encode every payload to detect that. The codec gives a meaning to only
one key: key 0 of a payload is padding ("noise").
"""

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeAlias

from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._lbm.limits import DEFAULT_LIMITS, LEAST_CONTAINERS, LbmLimits, most_containers

# Elements of arrays and maps are checked when they are read (fields.py), so their type is Any.
Value: TypeAlias = int | float | bytes | str | bool | list[Any] | dict[Any, Any] | None
Encodable: TypeAlias = Value | bytearray | memoryview | tuple[Any, ...] | Mapping[Any, Any]


class Encoded:
    """An encoded value, which the encoder copies as it is."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def plain(value: object) -> int | float | bytes | str | list[Any]:
    """Convert a buffer or an instance of a subclass (such as IntEnum) to its plain type.

    Ignores the `__int__` or `__str__` of the subclass. Raises LbmEncodeError for other types.
    """
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(memoryview(value))
        except ValueError:
            raise LbmEncodeError("cannot encode a released memoryview") from None
    raise LbmEncodeError(f"cannot encode a value of type {type(value).__name__}")


def plain_key(key: object) -> int | str:
    """Convert a map key like `plain`; raises LbmEncodeError unless it is an integer or text."""
    if isinstance(key, int | str) and not isinstance(key, bool):
        return int.__index__(key) if isinstance(key, int) else str.__str__(key)
    raise LbmEncodeError(f"{type(key).__name__} cannot be a map key")


# Major types (RFC 8949, section 3.1). LBM has no tags (6), and no arguments in type 7.
UINT: Final = 0
NEGATIVE: Final = 1
BYTES: Final = 2
TEXT: Final = 3
ARRAY: Final = 4
MAP: Final = 5

# Major type 7: the initial bytes of the values that LBM allows.
FALSE: Final = 0xF4
TRUE: Final = 0xF5
NULL: Final = 0xF6
FLOAT: Final = 0xFB

# The canonical NaN (section 3).
CANONICAL_NAN: Final = bytes.fromhex("7ff8000000000000")

_pack_16 = Struct(">BH").pack
_pack_32 = Struct(">BI").pack
_pack_64 = Struct(">BQ").pack


def encode_head(major: int, n: int) -> bytes:
    """Encode the head of major type 0..5 with an argument of 0..2^64-1; raises LbmEncodeError for
    larger ones.
    """
    lead = major << 5
    if n < 24:
        return bytes((lead | n,))
    if n < 0x100:
        return bytes((lead | 24, n))
    if n < 0x10000:
        return _pack_16(lead | 25, n)
    if n < 0x100000000:
        return _pack_32(lead | 26, n)
    if n < 0x10000000000000000:
        return _pack_64(lead | 27, n)
    raise LbmEncodeError(f"cannot encode an integer or a size of {n.bit_length()} bits: at most 64")


# Precomputed heads, because nearly all integers and sizes in an event are below 256.
UINT_HEADS, NEGATIVE_HEADS, BYTES_HEADS, TEXT_HEADS, ARRAY_HEADS, MAP_HEADS = (
    tuple(encode_head(major, n) for n in range(256)) for major in range(6)
)


_MAX_DEPTH: Final = DEFAULT_LIMITS.max_depth
_BUFFERS: Final = (bytes, bytearray, memoryview)
_FALSE: Final = bytes((FALSE,))
_TRUE: Final = bytes((TRUE,))
_NULL: Final = bytes((NULL,))
_NAN: Final = bytes((FLOAT,)) + CANONICAL_NAN

_CONTAINERS: Final = frozenset({list, tuple, dict})
_KEY_TYPES: Final = frozenset({int, str})

_pack_float = Struct(">Bd").pack


def encode(cells: Mapping[int, Encodable]) -> bytes:
    """Encode a payload: a map from unsigned keys to values, in any order (section 3).

    Tuples are encoded as arrays, bytearrays and memoryviews as byte strings, instances of
    subclasses as their base type.

    Raises:
        LbmEncodeError: another type, an integer of more than 64 bits, a lone surrogate, mixed
            keys, or more than 16 levels.

    Example:

        from parley.protocol import decode, encode

        payload = encode({21: "news", 22: [1, 2.5, None]})
        assert decode(payload) == {21: "news", 22: [1, 2.5, None]}
    """
    if type(cells) is not dict:
        if not isinstance(cells, Mapping):
            raise LbmEncodeError(
                f"cannot encode a payload of type {type(cells).__name__}: expected dict"
            )
        cells = dict(cells)
    if 0 in cells and not isinstance(cells[0], _BUFFERS):
        kind = type(cells[0]).__name__
        raise LbmEncodeError(f"noise (key 0 of a payload) is a byte string, not {kind}")
    parts: list[bytes] = []
    try:
        _write_map(cells, parts, 1)
    except UnicodeEncodeError as error:
        raise LbmEncodeError(_surrogate(error)) from None
    # parts[0] is the head of the map, parts[1] the head of its first key.
    if cells and parts[1] >= b"\x20":
        raise LbmEncodeError(
            f"a payload has unsigned keys only, not {ascii(next(iter(cells)))[:40]}"
        )
    return b"".join(parts)


def encode_value(value: Encodable, *, enclosing: int = 1) -> bytes:
    """Encode one value, for use as `Encoded` in a payload.

    `enclosing` is the number of containers around it, which count towards the 16 levels. Raises
    LbmEncodeError.
    """
    if type(value) is bytes:  # a fast path for most notes, in half the time
        size = len(value)
        return (BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size)) + value
    parts: list[bytes] = []
    try:
        _write_items((value,), parts, enclosing + 1)
    except UnicodeEncodeError as error:
        raise LbmEncodeError(_surrogate(error)) from None
    return b"".join(parts)


def is_large(value: object, most: int) -> bool:
    """Return whether a list, tuple or dict has more than `most` items, including nested ones."""
    return type(value) in _CONTAINERS and _count(value, most) > most


def encode_slices(value: Encodable, most: int) -> Iterator[bytes]:
    """Encode a value like `encode_value`, in pieces of about `most` items. Don't change the value
    meanwhile.
    """
    try:
        yield from _slices(value, 2, most)
    except UnicodeEncodeError:
        raise LbmEncodeError("cannot encode text with a lone surrogate") from None


def _slices(value: Any, level: int, most: int) -> Iterator[bytes]:
    if not is_large(value, most):
        yield _joined((value,), level)
        return
    if level > _MAX_DEPTH:
        raise LbmEncodeError(f"cannot encode more than {_MAX_DEPTH} levels")
    is_map = type(value) is dict
    yield encode_head(MAP if is_map else ARRAY, len(value))
    run: list[Any] = []
    left = most
    for item in _in_order(value) if is_map else value:
        count = _count(item, most) if type(item) in _CONTAINERS else 1
        if count > left and run:
            yield _joined(run, level + 1)
            run, left = [], most
        if count > most:
            yield from _slices(item, level + 1, most)
        else:
            run.append(item)
            left -= count
    if run:
        yield _joined(run, level + 1)


def _joined(items: Iterable[Any], level: int) -> bytes:
    parts: list[bytes] = []
    _write_items(items, parts, level)
    return b"".join(parts)


def _count(container: Any, most: int) -> int:
    """Count the items of a container including itself; stop soon after `most`."""
    count, line = 1, [container]
    while line and count <= most:
        one = line.pop()
        values: Iterable[Any] = one
        count += len(one)
        if type(one) is dict:
            count += len(one)
            values = one.values()
        if count <= most:
            line += [value for value in values if type(value) in _CONTAINERS]
    return count


def _write_items(items: Iterable[Any], parts: list[bytes], level: int) -> None:
    """Append the encodings of `items` to `parts`; containers among them are at `level`."""
    for item in items:
        kind = type(item)
        # Compare exact types, because True is an instance of int.
        if kind is int:
            if 0 <= item < 256:
                parts.append(UINT_HEADS[item])
            elif item >= 0:
                parts.append(encode_head(UINT, item))
            elif item >= -256:
                parts.append(NEGATIVE_HEADS[~item])
            else:
                parts.append(encode_head(NEGATIVE, ~item))
        elif kind is str:
            text = item.encode()
            size = len(text)
            parts.append(TEXT_HEADS[size] if size < 256 else encode_head(TEXT, size))
            parts.append(text)
        elif kind is bytes:
            size = len(item)
            parts.append(BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size))
            parts.append(item)
        elif kind is list or kind is tuple:
            if level > _MAX_DEPTH:
                raise LbmEncodeError(f"cannot encode more than {_MAX_DEPTH} levels")
            count = len(item)
            parts.append(ARRAY_HEADS[count] if count < 256 else encode_head(ARRAY, count))
            _write_items(item, parts, level + 1)
        elif kind is dict:
            _write_map(item, parts, level)
        elif item is None:
            parts.append(_NULL)
        elif item is True:
            parts.append(_TRUE)
        elif item is False:
            parts.append(_FALSE)
        elif kind is float:
            parts.append(_pack_float(FLOAT, item) if item == item else _NAN)
        elif kind is Encoded:
            parts.append(item.data)
        elif isinstance(item, Mapping):
            _write_map(dict(item), parts, level)
        else:
            _write_items((plain(item),), parts, level)


def _write_map(cells: dict[Any, Any], parts: list[bytes], level: int) -> None:
    """Append a map at `level` to `parts`."""
    if level > _MAX_DEPTH:
        raise LbmEncodeError(f"cannot encode more than {_MAX_DEPTH} levels")
    count = len(cells)
    parts.append(MAP_HEADS[count] if count < 256 else encode_head(MAP, count))
    last = -1
    for key in cells:
        if type(key) is not int or key <= last:
            _write_items(_in_order(cells), parts, level + 1)
            return
        last = key
    # Fast path: unsigned keys in ascending order, mostly with short strings and small numbers, as
    # writers of events list them.
    for key, item in cells.items():
        parts.append(UINT_HEADS[key] if key < 256 else encode_head(UINT, key))
        kind = type(item)
        if kind is bytes:
            size = len(item)
            parts.append(BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size))
            parts.append(item)
        elif kind is int and item >= 0:
            parts.append(UINT_HEADS[item] if item < 256 else encode_head(UINT, item))
        elif kind is str:
            text = item.encode()
            size = len(text)
            parts.append(TEXT_HEADS[size] if size < 256 else encode_head(TEXT, size))
            parts.append(text)
        else:
            _write_items((item,), parts, level + 1)


def _surrogate(error: UnicodeEncodeError) -> str:
    near = ascii(error.object[max(error.start - 20, 0) : error.end])
    return f"cannot encode text with a lone surrogate at character {error.start}: {near}"


def _in_order(cells: dict[Any, Any]) -> Iterable[Any]:
    """Return keys and values in turn, sorted by encoded key, after checking the keys."""
    kinds = frozenset(map(type, cells))
    if not kinds <= _KEY_TYPES:
        plain_cells = {plain_key(key): value for key, value in cells.items()}
        if len(plain_cells) != len(cells):
            raise LbmEncodeError(
                f"cannot encode {len(cells)} map keys: only {len(plain_cells)} have "
                "different encodings"
            )
        cells = plain_cells
        kinds = frozenset(map(type, cells))
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise LbmEncodeError(f"cannot encode map keys of mixed types: {names}")
    keys = sorted(cells)
    if int in kinds:
        if keys[0] < 0:
            raise LbmEncodeError(f"cannot encode the negative map key {keys[0]}")
    elif len(keys) > 1:
        # Encoded texts compare by size first. UTF-8 bytes compare like code points, and sorting is
        # stable.
        keys.sort(key=len if "".join(keys).isascii() else _utf8_size)
    return [item for key in keys for item in (key, cells[key])]


def _utf8_size(text: str) -> int:
    return len(text.encode())


# For the low five bits 24..27 of a head: how to read the argument, its size in bytes, and the least
# number that has no shorter form.
_FORMS: Final = (
    (Struct(">B").unpack_from, 1, 24),
    (Struct(">H").unpack_from, 2, 0x100),
    (Struct(">I").unpack_from, 4, 0x10000),
    (Struct(">Q").unpack_from, 8, 0x100000000),
)

# Upper estimates of the memory of an item in addition to its bytes, and of a container, in bytes of
# CPython: an object and its slot; an object and its first slots.
ITEM_WEIGHT: Final = 88
CONTAINER_WEIGHT: Final = 96

# Shorter runs of byte strings are faster to read one by one.
_LEAST_RUN: Final = 8

_unpack_float = Struct(">d").unpack_from

# Errors that malformed data causes: our own; text that is not UTF-8; and, if the data ends early,
# an index or length error (a compiled slice is limited to lengths of 64 bits).
_SHORT: Final = (IndexError, StructError, ValueError)


def decode(
    data: bytes | bytearray | memoryview,
    limits: LbmLimits = DEFAULT_LIMITS,
    *,
    keep_noise: bool = False,
) -> dict[int, Value]:
    """Decode a payload (section 3). Its padding (key 0) is dropped unless `keep_noise`.

    Raises:
        LbmDecodeError: the data is not the canonical encoding of a payload, or exceeds `limits`.

    Example:

        from parley.protocol import LbmLimits, decode

        assert decode(bytes.fromhex("a11563616263"), LbmLimits(max_bytes=100)) == {21: "abc"}
    """
    return decode_weighed(data, limits, keep_noise=keep_noise)[0]


def decode_weighed(
    given: bytes | bytearray | memoryview,
    limits: LbmLimits = DEFAULT_LIMITS,
    *,
    keep_noise: bool = False,
) -> tuple[dict[int, Value], int]:
    """Like `decode`, but also return an upper estimate of the memory of the cells in bytes."""
    size = len(given)
    if size > limits.max_bytes:
        raise LbmDecodeError(f"more than {limits.max_bytes} bytes")
    data = given if isinstance(given, bytes) else bytes(given)
    # Each container takes at least a byte, so short payloads can't have too many.
    containers = size if size < LEAST_CONTAINERS else most_containers(size)
    budget = [limits.max_items - 1, containers]
    try:
        n = data[0] - 0xA0
        pos = 1
        if not 0 <= n < 0x20:
            raise LbmDecodeError(f"the payload begins with 0x{data[0]:02x}, which is not a map")
        if n >= 24:
            n, pos = _read_argument(data, pos, n)
        cells, end = _read_body(data, pos, n, {}, limits.max_depth - 1, budget)
    except _SHORT as error:
        raise _malformed(error) from None
    if end != size:
        raise LbmDecodeError(
            f"{size - end} trailing bytes"
            if end < size
            else f"the data ends early, after {size} bytes"
        )
    # All keys of a decoded map have the same type, so checking one suffices.
    if type(next(iter(cells), 0)) is not int:
        raise LbmDecodeError(
            f"a payload has unsigned keys only, not {ascii(next(iter(cells)))[:40]}"
        )
    if 0 in cells:
        if type(cells[0]) is not bytes:
            kind = type(cells[0]).__name__
            raise LbmDecodeError(f"noise (key 0 of a payload) is a byte string, not {kind}")
        if not keep_noise:
            del cells[0]
    items = limits.max_items - budget[0]
    return cells, size + ITEM_WEIGHT * items + CONTAINER_WEIGHT * (containers - budget[1])


def peek_text(data: bytes, key: int) -> str | None:
    """Return the text of the cell `key` if it is the first one after padding, else None. This is
    cheap; the rest of the payload isn't checked.
    """
    try:
        if not 0xA0 <= data[0] < 0xC0:
            return None
        _, pos = _read_head(data, 0)
        if data[pos] == 0 and data[pos + 1] >> 5 == BYTES:
            size, pos = _read_head(data, pos + 1)
            pos += size
        is_uint = data[pos] < 0x20
        found, pos = _read_head(data, pos)
        if not is_uint or found != key or data[pos] >> 5 != TEXT:
            return None
        size, pos = _read_head(data, pos)
        return data[pos : pos + size].decode() if size <= len(data) - pos else None
    except _SHORT:
        return None


def decode_value(data: bytes, limits: LbmLimits = DEFAULT_LIMITS) -> Value:
    """Decode a single value; raises LbmDecodeError."""
    size = len(data)
    if size > limits.max_bytes:
        raise LbmDecodeError(f"more than {limits.max_bytes} bytes")
    budget = [limits.max_items, 1 + most_containers(size)]  # one for the payload's map
    value: Value
    try:
        (value,), end = _read_body(bytes(data), 0, 1, None, limits.max_depth, budget)
    except _SHORT as error:
        raise _malformed(error) from None
    if end != size:
        raise LbmDecodeError(
            f"{size - end} trailing bytes"
            if end < size
            else f"the data ends early, after {size} bytes"
        )
    return value


def _malformed(error: Exception) -> LbmDecodeError:
    if isinstance(error, LbmDecodeError):
        return error
    text = isinstance(error, UnicodeDecodeError)
    malformed = LbmDecodeError("text is not UTF-8" if text else "the data ends early")
    malformed.__suppress_context__ = True  # because a compiled `raise` doesn't support `from None`
    return malformed


def _read_body(
    data: bytes,
    pos: int,
    count: int,
    cells: dict[int | str, Any] | None,
    levels: int,
    budget: list[int],
) -> tuple[Any, int]:
    """Read `count` pairs into `cells`, or the elements of an array; return them and the end
    position.

    `levels` more containers may be nested. `budget` is how many items and containers may follow.
    This is one long function, because a call for each item would double its time. Positions may
    exceed the data. That raises IndexError or struct.error, and the caller compares the end
    positions.
    """
    items = count if cells is None else 2 * count
    left = budget[0] - items
    if left < 0:
        raise LbmDecodeError(f"too many items: {-left} more than the limit, at byte {pos}")
    if items > len(data) - pos:  # each takes at least a byte
        raise LbmDecodeError(f"the data ends early: {items} items announced at byte {pos}")
    budget[0] = left
    if cells is None and count >= _LEAST_RUN and data[pos] >> 5 == BYTES:
        run = _read_run(data, pos, count)
        if run is not None:
            return run
    array: list[Any] = []
    key: int | str = 0
    value: Any
    last_uint = last_size = -1
    last_text = b""
    for _ in range(count):
        if cells is not None:
            head = data[pos]
            pos += 1
            if head < 0x20:
                n = head
                if n >= 24:
                    n, pos = _read_argument(data, pos, n)
                if n <= last_uint:
                    raise LbmDecodeError(f"map keys do not ascend: {n} after {last_uint}")
                key = last_uint = n
            elif 0x60 <= head < 0x80:
                n = head - 0x60
                if n >= 24:
                    n, pos = _read_argument(data, pos, n)
                end = pos + n
                text = data[pos:end]
                # Encoded keys compare by their size, then by their bytes.
                if n <= last_size and (n < last_size or text <= last_text):
                    raise LbmDecodeError(f"map keys do not ascend: the text before byte {end}")
                last_size = n
                last_text = text
                key = text.decode()
                pos = end
            else:
                raise LbmDecodeError(
                    f"a map key must be unsigned or text: 0x{head:02x} before byte {pos}"
                )
        head = data[pos]
        pos += 1
        if head < 24:
            value = head
        elif head < 0xC0:
            n = head & 31
            if n < 24:
                pass
            elif n == 24:
                n = data[pos]
                pos += 1
                if n < 24:
                    raise LbmDecodeError(
                        f"a number that is not in its shortest form: {n} before byte {pos}"
                    )
            elif n < 28:  # inlined from _read_argument
                unpack, size, least = _FORMS[n - 24]
                (n,) = unpack(data, pos)
                pos += size
                if n < least:
                    raise LbmDecodeError(
                        f"a number that is not in its shortest form: {n} before byte {pos}"
                    )
            else:
                raise LbmDecodeError(
                    f"an indefinite length or a reserved head: 0x{head:02x} before byte {pos}"
                )
            if head >= 0x80:
                if not levels:
                    raise LbmDecodeError(f"too many levels, at byte {pos}")
                inner: dict[int | str, Any] | None = {} if head >= 0xA0 else None
                if n:
                    budget[1] -= 1
                    if budget[1] < 0:
                        raise LbmDecodeError(f"too many arrays and maps, at byte {pos}")
                    value, pos = _read_body(data, pos, n, inner, levels - 1, budget)
                else:
                    value = [] if inner is None else inner
            elif head >= 0x40:
                end = pos + n
                value = data[pos:end]
                if head >= 0x60:
                    value = value.decode()
                pos = end
            elif head < 0x20:
                value = n
            else:
                value = ~n
        elif head == NULL:
            value = None
        elif head == FALSE:
            value = False
        elif head == TRUE:
            value = True
        elif head == FLOAT:
            (value,) = _unpack_float(data, pos)
            end = pos + 8
            if value != value and data[pos:end] != CANONICAL_NAN:
                raise LbmDecodeError(f"a NaN that is not canonical, before byte {end}")
            pos = end
        else:
            raise LbmDecodeError(
                f"a tag, a short float or another simple value: 0x{head:02x} before byte {pos}"
            )
        if cells is None:
            array.append(value)
        else:
            cells[key] = value
    if last_uint >= 0 <= last_size:
        raise LbmDecodeError(f"map keys of both kinds before byte {pos}: {last_uint} and a text")
    return (array if cells is None else cells), pos


def _read_head(data: bytes, pos: int) -> tuple[int, int]:
    info = data[pos] & 31
    return (info, pos + 1) if info < 24 else _read_argument(data, pos + 1, info)


def _read_argument(data: bytes, pos: int, info: int) -> tuple[int, int]:
    """Read the argument for a head whose low five bits are 24 or more; return it and its end
    position.
    """
    if info > 27:
        raise LbmDecodeError(
            f"an indefinite length or a reserved head: argument {info} before byte {pos}"
        )
    unpack, size, least = _FORMS[info - 24]
    (n,) = unpack(data, pos)
    if n < least:
        raise LbmDecodeError(
            f"a number that is not in its shortest form: {n} before byte {pos + size}"
        )
    return n, pos + size


def _read_run(data: bytes, pos: int, count: int) -> tuple[list[bytes], int] | None:
    """Read `count` byte strings of one size, as in Notes; return None if their heads differ.

    Comparing the heads column by column takes a third of the time of reading them one by one.
    """
    size = data[pos] & 31
    start = pos + 1
    if size >= 24:
        size, start = _read_argument(data, start, size)
    step = start - pos + size
    end = pos + step * count
    if end > len(data):
        return None
    for column in range(pos, start):
        if data[column:end:step] != data[column : column + 1] * count:
            return None
    return [data[i : i + size] for i in range(start, start + step * count, step)], end
