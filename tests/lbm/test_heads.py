"""Heads: every form, at the borders where it grows."""

import pytest

from parley._lbm.errors import LbmEncodeError
from parley._lbm.heads import (
    ARRAY,
    ARRAY_HEADS,
    BYTES,
    BYTES_HEADS,
    MAP,
    MAP_HEADS,
    NEGATIVE,
    NEGATIVE_HEADS,
    TEXT,
    TEXT_HEADS,
    UINT,
    UINT_HEADS,
    encode_head,
)
from tests.sweep import sweep

TABLES = {
    UINT: UINT_HEADS,
    NEGATIVE: NEGATIVE_HEADS,
    BYTES: BYTES_HEADS,
    TEXT: TEXT_HEADS,
    ARRAY: ARRAY_HEADS,
    MAP: MAP_HEADS,
}


@sweep(
    ("n", "info", "size"),
    [
        (0, 0, 0),
        (23, 23, 0),
        (24, 24, 1),
        (0xFF, 24, 1),
        (0x100, 25, 2),
        (0xFFFF, 25, 2),
        (0x10000, 26, 4),
        (0xFFFFFFFF, 26, 4),
        (0x100000000, 27, 8),
        (0xFFFFFFFFFFFFFFFF, 27, 8),
    ],
)
@sweep("major", TABLES)
def test_the_shortest_form(major: int, n: int, info: int, size: int) -> None:
    argument = n.to_bytes(size, "big") if size else b""
    assert encode_head(major, n) == bytes([major * 32 + info]) + argument


def test_more_than_64_bits() -> None:
    with pytest.raises(LbmEncodeError):
        encode_head(UINT, 2**64)


def test_the_tables_hold_the_heads_below_256() -> None:
    for major, table in TABLES.items():
        assert list(table) == [encode_head(major, n) for n in range(256)]
