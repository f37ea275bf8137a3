"""How many items a payload of named events has, before a library makes objects of them.

Only what is too long to be harmless is looked at; an item takes a byte at
least, so that shorter payloads cannot have too many. What is not of its format is for the
decoder to refuse.
"""

import re
from collections.abc import Callable
from typing import Final

# As many as a payload of LBM may have.
MOST_ITEMS: Final = 131_072
_JSON_TEXT: Final = re.compile(rb'"[^"]*"')


def has_too_many(count: Callable[[bytes], int], data: bytes) -> bool:
    """Whether a payload has more items than that, counted by its format's function."""
    return len(data) > MOST_ITEMS and count(data) > MOST_ITEMS


def json_items(data: bytes) -> int:
    """Values in a JSON text: one, and more for each container and each comma."""
    # One after the other, each in one go: an expression for both would be slow on bad texts.
    bare = _JSON_TEXT.sub(b"", data.replace(b"\\\\", b"").replace(b'\\"', b""))
    return 1 + bare.count(b",") + bare.count(b"[") + bare.count(b"{")


def cbor_items(data: bytes) -> int:
    """Heads in a CBOR text; counts no further than one too many."""
    position, count, size = 0, 0, len(data)
    while position < size and count <= MOST_ITEMS:
        head = data[position]
        position += 1
        count += 1
        major, short = head >> 5, head & 31
        if short < 24 or short > 27:
            length = short  # 28 to 31 have no number after them, nor bytes
        else:
            width = 1 << short - 24
            length = int.from_bytes(data[position : position + width])
            position += width
        if major in (2, 3) and short < 28:
            position += length
    return count


def msgpack_items(data: bytes) -> int:
    """Heads in a MessagePack text; counts no further than one too many."""
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


# From 0xC4 on: bytes of the length, bytes besides, whether as many bytes follow.
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
