"""Bytes to values: exactly what the encoder writes, nothing more (section 3).

Whatever the bytes, the result is a value or LbmDecodeError, in time and memory proportional
to the input. The only key with a meaning here is key 0 of a payload, noise.
"""

from struct import Struct
from struct import error as StructError
from typing import Any, Final

from parley._lbm.errors import LbmDecodeError
from parley._lbm.heads import BYTES, CANONICAL_NAN, FALSE, FLOAT, NULL, TEXT, TRUE
from parley._lbm.limits import DEFAULT_LIMITS, LEAST_CONTAINERS, LbmLimits, most_containers
from parley._lbm.values import Value

# How an argument is written whose low five bits are 24..27: its reader, its size in
# bytes, and the least number that is not shorter in another form.
_FORMS: Final = (
    (Struct(">B").unpack_from, 1, 24),
    (Struct(">H").unpack_from, 2, 0x100),
    (Struct(">I").unpack_from, 4, 0x10000),
    (Struct(">Q").unpack_from, 8, 0x100000000),
)

# What an item of a payload takes in memory besides its bytes, and a container, at most about
# and in bytes of CPython: an object and its place; an object and its first places.
ITEM_WEIGHT: Final = 88
CONTAINER_WEIGHT: Final = 96

# Shorter runs of byte strings are read faster one by one.
_LEAST_RUN: Final = 8

_unpack_float = Struct(">d").unpack_from

# What data raises that is malformed: our own errors, text that is not UTF-8 and, where it ends
# early, an index or a length; a compiled slice takes no longer ones than 64 bits have.
_SHORT: Final = (IndexError, StructError, ValueError)


def decode(
    data: bytes | bytearray | memoryview,
    limits: LbmLimits = DEFAULT_LIMITS,
    *,
    keep_noise: bool = False,
) -> dict[int, Value]:
    """Decode a payload; its noise (key 0) is dropped unless `keep_noise`.

    Raises LbmDecodeError for anything but the one encoding of a map with unsigned
    keys within the limits.
    """
    return decode_weighed(data, limits, keep_noise=keep_noise)[0]


def decode_weighed(
    given: bytes | bytearray | memoryview,
    limits: LbmLimits = DEFAULT_LIMITS,
    *,
    keep_noise: bool = False,
) -> tuple[dict[int, Value], int]:
    """As `decode`, with about how many bytes of memory the cells take, rather more than less."""
    size = len(given)
    if size > limits.max_bytes:
        raise LbmDecodeError(f"more than {limits.max_bytes} bytes")
    data = given if isinstance(given, bytes) else bytes(given)
    # Each container takes a byte at least, so short payloads cannot have too many.
    containers = size if size < LEAST_CONTAINERS else most_containers(size)
    budget = [limits.max_items - 1, containers]
    try:
        n = data[0] - 0xA0
        pos = 1
        if not 0 <= n < 0x20:
            raise LbmDecodeError(f"a payload is a map, not what begins with 0x{data[0]:02x}")
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
    # All keys of a decoded map are of one kind, so the first speaks for them.
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
    """The text of the cell `key` of a payload where that is its first cell but for noise, else
    None. What follows is not looked at: it costs nothing, and may be malformed."""
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
    """Decode a single value, a container being at level 1; raises LbmDecodeError."""
    size = len(data)
    if size > limits.max_bytes:
        raise LbmDecodeError(f"more than {limits.max_bytes} bytes")
    budget = [limits.max_items, 1 + most_containers(size)]  # a payload's map is one
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
    malformed.__suppress_context__ = True  # a compiled `raise` takes no `from None`
    return malformed


def _read_body(
    data: bytes,
    pos: int,
    count: int,
    cells: dict[int | str, Any] | None,
    levels: int,
    budget: list[int],
) -> tuple[Any, int]:
    """Read `count` pairs into `cells`, or without it elements of an array; with their end.

    `levels` containers may still be inside each other, `budget[0]` items still follow,
    `budget[1]` containers among them.
    One long function, and the hottest of the package: a call for each item would
    double its time. Slices and positions may run past the end of the data; what comes
    next then raises IndexError or struct.error, and the caller compares the ends.
    """
    items = count if cells is None else 2 * count
    left = budget[0] - items
    if left < 0:
        raise LbmDecodeError(f"too many items: {-left} more than the limit, at byte {pos}")
    if items > len(data) - pos:  # each takes a byte at least
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
                    f"a map key that is neither unsigned nor text: 0x{head:02x} before byte {pos}"
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
            elif n < 28:  # as _read_argument does
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
    """Read the argument of the head at `pos`, whatever its major type; with its end."""
    info = data[pos] & 31
    return (info, pos + 1) if info < 24 else _read_argument(data, pos + 1, info)


def _read_argument(data: bytes, pos: int, info: int) -> tuple[int, int]:
    """Read the argument that a head's low five bits (24 or more) announce; with its end."""
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
    """Read `count` byte strings of one size, as in Notes; None if their heads differ.

    Compares the heads column by column: three times as fast as reading one by one.
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
