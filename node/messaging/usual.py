"""Calls and Results as most of them are, written and read in a third of the time.

A Call of a topic, data and perhaps a deadline, and a Result that accepts and has data: byte for
byte what `lbm` makes of such cells. Whatever is not exactly that is left to it.
"""

from functools import lru_cache
from typing import Any, Final, cast

from parley._lbm import keys
from parley._lbm.codec import (
    ITEM_WEIGHT,
    UINT,
    Encodable,
    decode_value,
    encode,
    encode_head,
    encode_value,
)
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._node.typed.models import Model

# A topic of that many characters or bytes is short enough to be kept, or read, here.
_SHORT: Final = 24
_ACCEPTED: Final = encode({keys.CODE: 0, keys.DATA: None})[:-1]
_DEADLINE: Final = bytes((keys.DEADLINE_MS,))
_WITH_DEADLINE, _WITHOUT = 0xA3, 0xA2  # heads of a map of 3 and of 2 cells


def usual_result(data: Encodable) -> bytes:
    """The payload of a Result of code 0 with `data`, which is not None; raises LbmEncodeError."""
    return _ACCEPTED + encode_value(data)


def usual_call(topic: str, data: Encodable | Model, deadline_ms: int | None) -> bytes | None:
    """The payload of a Call; None where it is not as usual, or has no encoding."""
    if data is None or type(topic) is not str or len(topic) >= _SHORT:
        return None
    try:
        value = encode_value(cast(Encodable, data))
        if deadline_ms is None:
            return _head(topic, _WITHOUT) + value
        return _head(topic, _WITH_DEADLINE) + value + _DEADLINE + encode_head(UINT, deadline_ms)
    except LbmEncodeError:
        return None


def read_usual_result(payload: bytes) -> dict[int, Any] | None:
    """The cells of a Result of code 0 whose data is a byte string; None for any other."""
    if payload[:4] != _ACCEPTED:
        return None
    start, end = _byte_string(payload, 4)
    return {keys.CODE: 0, keys.DATA: payload[start:]} if end == len(payload) else None


def read_usual_call(payload: bytes) -> tuple[dict[int, Any], int] | None:
    """The cells of a Call whose data is a byte string, and what they take in memory, as
    `Cells.read_weighed` says it; None for any other."""
    size = len(payload)
    if size < 4 or payload[1] != keys.TOPIC or not 0x60 <= payload[2] < 0x60 + _SHORT:
        return None
    at = payload[2] - 0x5D  # behind the topic
    if at >= size or payload[at] != keys.DATA:
        return None
    start, end = _byte_string(payload, at + 1)
    try:
        cells: dict[int, Any] = {keys.TOPIC: payload[3:at].decode(), keys.DATA: payload[start:end]}
    except UnicodeDecodeError:
        return None
    if payload[0] == _WITHOUT:
        return (cells, size + 5 * ITEM_WEIGHT) if end == size else None
    if payload[0] != _WITH_DEADLINE or not end < size <= end + 10:
        return None
    deadline = _deadline(payload[end:])
    if deadline is None:
        return None
    cells[keys.DEADLINE_MS] = deadline
    return cells, size + 7 * ITEM_WEIGHT


@lru_cache(maxsize=1024)
def _head(topic: str, cells: int) -> bytes:
    """All that goes before the data."""
    return bytes((cells,)) + encode({keys.TOPIC: topic, keys.DATA: None})[1:-1]


@lru_cache(maxsize=256)
def _deadline(cell: bytes) -> int | None:
    """The deadline that is all of `cell`, in milliseconds."""
    try:
        value = decode_value(cell[1:]) if cell[:1] == _DEADLINE else None
    except LbmDecodeError:
        return None
    return value if type(value) is int and value >= 0 else None


def _byte_string(payload: bytes, at: int) -> tuple[int, int]:
    """Start and end of the byte string at `at`, of up to 65,535 bytes; 0 and 0 for anything
    else. The end may be beyond that of the payload."""
    head = payload[at] if at < len(payload) else 0
    if 0x40 <= head < 0x58:
        return at + 1, at + head - 0x3F
    if head == 0x58 and at + 1 < len(payload) and (size := payload[at + 1]) >= 24:
        return at + 2, at + 2 + size
    if head == 0x59 and (size := int.from_bytes(payload[at + 1 : at + 3], "big")) >= 256:
        return at + 3, at + 3 + size
    return 0, 0
