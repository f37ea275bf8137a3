"""Values to bytes: the one encoding of each (section 3).

What has no encoding is refused with LbmEncodeError, never approximated.
A key means nothing here, except that key 0 of a payload is noise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any, Final, TypeAlias

from parley._lbm.errors import LbmEncodeError
from parley._lbm.heads import (
    ARRAY,
    ARRAY_HEADS,
    BYTES,
    BYTES_HEADS,
    CANONICAL_NAN,
    FALSE,
    FLOAT,
    MAP,
    MAP_HEADS,
    NEGATIVE,
    NEGATIVE_HEADS,
    NULL,
    TEXT,
    TEXT_HEADS,
    TRUE,
    UINT,
    UINT_HEADS,
    encode_head,
)
from parley._lbm.limits import DEFAULT_LIMITS
from parley._lbm.values import Encodable, Encoded, plain, plain_key

_Append: TypeAlias = Callable[[bytes], object]

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
    """Encode a payload: a map from unsigned keys to values, given in any order.

    Tuples count as arrays, bytearrays and memoryviews as byte strings, members of
    enumerations and other subclasses as what they are made of. Raises LbmEncodeError
    for everything else that has no encoding: other types, integers of more than 64
    bits, lone surrogates, keys that are not of one kind, more than 16 levels.
    """
    if type(cells) is not dict:
        if not isinstance(cells, Mapping):
            raise LbmEncodeError(f"a payload is a map, not {type(cells).__name__}")
        cells = dict(cells)
    if 0 in cells and not isinstance(cells[0], _BUFFERS):
        kind = type(cells[0]).__name__
        raise LbmEncodeError(f"noise (key 0 of a payload) is a byte string, not {kind}")
    parts: list[bytes] = []
    try:
        _write_map(cells, parts.append, 1)
    except UnicodeEncodeError as error:
        raise LbmEncodeError(_surrogate(error)) from None
    # parts[0] is the map's head, parts[1] the head of its first key.
    if cells and parts[1] >= b"\x20":
        raise LbmEncodeError(
            f"a payload has unsigned keys only, not {ascii(next(iter(cells)))[:40]}"
        )
    return b"".join(parts)


def encode_value(value: Encodable, *, enclosing: int = 1) -> bytes:
    """Encode one value, to be spliced into a payload by the caller.

    `enclosing` is the number of containers that will stand around it and count against
    the 16 levels; by default the payload's map alone. Raises LbmEncodeError.
    """
    if type(value) is bytes:  # most notes; in half the time
        size = len(value)
        return (BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size)) + value
    parts: list[bytes] = []
    try:
        _write_items((value,), parts.append, enclosing + 1)
    except UnicodeEncodeError as error:
        raise LbmEncodeError(_surrogate(error)) from None
    return b"".join(parts)


def is_large(value: object, most: int) -> bool:
    """Whether a list, tuple or dict holds more than `most` items, those inside others included."""
    return type(value) in _CONTAINERS and _count(value, most) > most


def encode_slices(value: Encodable, most: int) -> Iterator[bytes]:
    """Encode a value as `encode_value` does, in pieces of about `most` items each.

    Joined, the pieces are the encoding. The value must not change meanwhile. Raises LbmEncodeError.
    """
    try:
        yield from _slices(value, 2, most)
    except UnicodeEncodeError:
        raise LbmEncodeError("text with a lone surrogate") from None


def _slices(value: Any, level: int, most: int) -> Iterator[bytes]:
    """The pieces of a value; if it is a container, it is at `level`."""
    if not is_large(value, most):
        yield _joined((value,), level)
        return
    if level > _MAX_DEPTH:
        raise LbmEncodeError(f"more than {_MAX_DEPTH} levels")
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
    _write_items(items, parts.append, level)
    return b"".join(parts)


def _count(container: Any, most: int) -> int:
    """How many items a container has, itself included; counting stops beyond `most`."""
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


def _write_items(items: Iterable[Any], append: _Append, level: int) -> None:
    """Append the encodings of `items` one after the other; containers among them are at `level`."""
    for item in items:
        kind = type(item)
        # Exact types: True is an int to isinstance, and must never become one here.
        if kind is int:
            if 0 <= item < 256:
                append(UINT_HEADS[item])
            elif item >= 0:
                append(encode_head(UINT, item))
            elif item >= -256:
                append(NEGATIVE_HEADS[~item])
            else:
                append(encode_head(NEGATIVE, ~item))
        elif kind is str:
            text = item.encode()
            size = len(text)
            append(TEXT_HEADS[size] if size < 256 else encode_head(TEXT, size))
            append(text)
        elif kind is bytes:
            size = len(item)
            append(BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size))
            append(item)
        elif kind is list or kind is tuple:
            if level > _MAX_DEPTH:
                raise LbmEncodeError(f"more than {_MAX_DEPTH} levels")
            count = len(item)
            append(ARRAY_HEADS[count] if count < 256 else encode_head(ARRAY, count))
            _write_items(item, append, level + 1)
        elif kind is dict:
            _write_map(item, append, level)
        elif item is None:
            append(_NULL)
        elif item is True:
            append(_TRUE)
        elif item is False:
            append(_FALSE)
        elif kind is float:
            append(_pack_float(FLOAT, item) if item == item else _NAN)
        elif kind is Encoded:
            append(item.data)
        elif isinstance(item, Mapping):
            _write_map(dict(item), append, level)
        else:
            _write_items((plain(item),), append, level)


def _write_map(cells: dict[Any, Any], append: _Append, level: int) -> None:
    """Append a map, which is itself at `level`."""
    if level > _MAX_DEPTH:
        raise LbmEncodeError(f"more than {_MAX_DEPTH} levels")
    count = len(cells)
    append(MAP_HEADS[count] if count < 256 else encode_head(MAP, count))
    last = -1
    for key in cells:
        if type(key) is not int or key <= last:
            _write_items(_in_order(cells), append, level + 1)
            return
        last = key
    # Unsigned keys in ascending order: how a writer of events lists them, mostly with
    # short strings and small numbers.
    for key, item in cells.items():
        append(UINT_HEADS[key] if key < 256 else encode_head(UINT, key))
        kind = type(item)
        if kind is bytes:
            size = len(item)
            append(BYTES_HEADS[size] if size < 256 else encode_head(BYTES, size))
            append(item)
        elif kind is int and item >= 0:
            append(UINT_HEADS[item] if item < 256 else encode_head(UINT, item))
        elif kind is str:
            text = item.encode()
            size = len(text)
            append(TEXT_HEADS[size] if size < 256 else encode_head(TEXT, size))
            append(text)
        else:
            _write_items((item,), append, level + 1)


def _surrogate(error: UnicodeEncodeError) -> str:
    """What is wrong with text that has no encoding."""
    near = ascii(error.object[max(error.start - 20, 0) : error.end])
    return f"text with a lone surrogate at character {error.start}: {near}"


def _in_order(cells: dict[Any, Any]) -> Iterable[Any]:
    """Keys and values in turn, by the encoded keys, which are checked here."""
    kinds = frozenset(map(type, cells))
    if not kinds <= _KEY_TYPES:
        plain_cells = {plain_key(key): value for key, value in cells.items()}
        if len(plain_cells) != len(cells):
            raise LbmEncodeError(
                f"{len(cells)} map keys of which only {len(plain_cells)} differ in more than class"
            )
        cells = plain_cells
        kinds = frozenset(map(type, cells))
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise LbmEncodeError(f"map keys are all unsigned integers or all text, not {names}")
    keys = sorted(cells)
    if int in kinds:
        if keys[0] < 0:
            raise LbmEncodeError(f"the map key {keys[0]} is negative")
    elif len(keys) > 1:
        # Encoded text compares by its size first. Code points and their UTF-8 bytes
        # compare alike, and sorting is stable.
        keys.sort(key=len if "".join(keys).isascii() else _utf8_size)
    return [item for key in keys for item in (key, cells[key])]


def _utf8_size(text: str) -> int:
    return len(text.encode())
