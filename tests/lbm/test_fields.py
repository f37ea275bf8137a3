"""Tests of typed reading: the right type and range, the default of an absent cell, or an error."""

from collections.abc import Callable
from typing import Any, assert_type

import pytest

from parley._lbm.codec import Value
from parley._lbm.errors import LbmDecodeError
from parley._lbm.fields import (
    REQUIRED,
    read_array,
    read_bool,
    read_bytes,
    read_map,
    read_text,
    read_text_map,
    read_uint,
)
from tests.sweep import sweep

Reader = Callable[..., Any]

VALUES: list[Value] = [
    0,
    2**64 - 1,
    b"",
    b"abc",
    "",
    "abc",
    True,
    False,
    [],
    [1],
    {},
    {1: 2},
    {"a": 2},
    1.0,
    None,
    -1,
]

# The indices of VALUES that each reader accepts.
READERS: dict[Reader, set[int]] = {
    read_uint: {0, 1},
    read_bytes: {2, 3},
    read_text: {4, 5},
    read_bool: {6, 7},
    read_array: {8, 9},
    read_map: {10, 11},
    read_text_map: {10, 12},
}

each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


@each_reader
@sweep("position", range(len(VALUES)))
def test_types(reader: Reader, position: int) -> None:
    value = VALUES[position]
    cells = {21: value}
    if position in READERS[reader]:
        assert reader(cells, 21) is value
        assert reader(cells, 21, default="other") is value
        return
    # A wrong type is malformed even if the cell is optional.
    for options in ({}, {"default": None}, {"default": 5}):
        with pytest.raises(LbmDecodeError, match=r"21 \(topic\)"):
            reader(cells, 21, **options)


@each_reader
def test_absent(reader: Reader) -> None:
    with pytest.raises(LbmDecodeError, match="300 is missing"):
        reader({21: 0}, 300)
    with pytest.raises(LbmDecodeError, match="missing"):
        reader({}, 21, default=REQUIRED)
    assert reader({}, 21, default=None) is None
    # The caller's default isn't checked.
    assert reader({}, 21, default=-1) == -1


def test_ranges() -> None:
    assert read_uint({7: 5}, 7, minimum=5, maximum=5) == 5
    assert read_uint({}, 7, default=0, minimum=5) == 0
    for value in (4, 6):
        with pytest.raises(LbmDecodeError, match=r"7 \(max_payload\) is not in 5\.\.5"):
            read_uint({7: value}, 7, minimum=5, maximum=5)
    with pytest.raises(LbmDecodeError):
        read_uint({7: -1}, 7, default=None)


def test_sizes() -> None:
    assert read_bytes({2: bytes(32)}, 2, size=32) == bytes(32)
    assert read_bytes({2: b""}, 2, size=0) == b""
    assert read_bytes({}, 2, default=None, size=32) is None
    for size in (0, 31, 33):
        with pytest.raises(LbmDecodeError, match="32 bytes"):
            read_bytes({2: bytes(size)}, 2, size=32)


def test_static_types() -> None:
    cells: dict[int, Value] = {1: 1, 2: b"", 3: "", 4: True, 5: [], 6: {}}
    assert assert_type(read_uint(cells, 1), int) == 1
    assert assert_type(read_uint(cells, 9, default=7), int) == 7
    assert assert_type(read_uint(cells, 9, default=None), int | None) is None
    assert assert_type(read_bytes(cells, 2), bytes) == b""
    assert assert_type(read_bytes(cells, 9, default=None), bytes | None) is None
    assert assert_type(read_text(cells, 3), str) == ""
    assert assert_type(read_text(cells, 9, default=None), str | None) is None
    assert assert_type(read_bool(cells, 4), bool) is True
    assert assert_type(read_bool(cells, 9, default=False), bool) is False
    assert assert_type(read_array(cells, 5), list[Any]) == []
    assert assert_type(read_array(cells, 9, default=None), list[Any] | None) is None
    assert assert_type(read_map(cells, 6), dict[int, Any]) == {}
    assert assert_type(read_text_map(cells, 6), dict[str, Any]) == {}
    assert assert_type(read_text_map(cells, 9, default=None), dict[str, Any] | None) is None
