"""Tests of section 3's rules for encoding: a valid and an invalid example of each."""

import math
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest

from parley._lbm.codec import encode, encode_value
from parley._lbm.errors import LbmEncodeError
from tests.sweep import sweep


class Number(IntEnum):
    """Members are encoded as numbers."""

    SEVEN = 7
    NEGATIVE = -3


class Word(StrEnum):
    """Members are encoded as text."""

    ALPHA = "alpha"


class Ratio(float):
    """A subclass of float."""


class Blob(bytes):
    """A subclass of bytes."""


class Row(list[int]):
    """A subclass of list."""


class Boastful(int):
    """Has methods that return wrong values."""

    def __int__(self) -> int:
        return 99

    __index__ = __int__


class SecondKey(str):
    """Equal only to itself, so that a dict accepts it next to the same text."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = str.__hash__


Pair = namedtuple("Pair", "left right")

# Values of one plain type are in the tests of the decoder, which encode the decoded values again.
ACCEPTED_VALUES = [
    (-256, "38ff"),
    (-math.nan, "fb7ff8000000000000"),
    (bytearray(b"ab"), "426162"),
    (memoryview(b"abcd")[::2], "426163"),
    (memoryview(b"abcd").cast("H"), "4461626364"),
    ("a" * 256, "790100" + "61" * 256),
    ([1, [2]], "82018102"),
    ((1, (2,)), "82018102"),
    (Pair(1, "a"), "82016161"),
    ([0] * 256, "990100" + "00" * 256),
    ({2: None, 1: True}, "a201f502f6"),
    ({256: 0, 255: 0, 24: 0, 23: 0}, "a4170018180018ff0019010000"),
    ({"aa": 1, "z": 2}, "a2617a0262616101"),
    ({"ä": 1, "z": 2, "aa": 3, "": 4}, "a46004617a0262616103" + "62c3a401"),
    ({"b": 1, "a": 2}, "a261610261" + "6201"),
    (OrderedDict(a=1), "a1616101"),
    (defaultdict(int, {1: 2}), "a10102"),
    (MappingProxyType({1: 2}), "a10102"),
    (UserDict({1: 2}), "a10102"),
    (Ratio(1.5), "fb3ff8000000000000"),
    (Blob(b"x"), "4178"),
    (Row([1]), "8101"),
    (Number.SEVEN, "07"),
    (Number.NEGATIVE, "22"),
    (Word.ALPHA, "65616c706861"),
    ({Number.SEVEN: Word.ALPHA}, "a10765616c706861"),
    ({Word.ALPHA: 1, "b": 2}, "a2616202" + "65616c70686101"),
    (Boastful(5), "05"),
]


@sweep(("value", "text"), ACCEPTED_VALUES)
def test_accepted(value: Any, text: str) -> None:
    assert encode_value(value).hex() == text
    assert encode({22: value}).hex() == "a116" + text


def test_a_large_map() -> None:
    data = encode_value(dict.fromkeys(range(255, -1, -1), 0))
    assert data[:5].hex() == "b901000000"
    assert data[-6:].hex() == "18fe0018ff00"


def holds_itself() -> list[Any]:
    array: list[Any] = [0]
    array.append(array)
    return array


def maps_itself() -> dict[int, Any]:
    cells: dict[int, Any] = {}
    cells[1] = cells
    return cells


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


REFUSED_VALUES = {
    "2^64": 2**64,
    "-2^64-1": -(2**64) - 1,
    "huge": 1 << 5000,
    "huge in an enumeration's class": Boastful(1 << 70),
    "set": {1, 2},
    "frozenset": frozenset(),
    "Decimal": Decimal("1.5"),
    "Fraction": Fraction(1, 2),
    "complex": 1j,
    "date": date(2024, 1, 1),
    "object": object(),
    "class": int,
    "function": len,
    "generator": (n for n in range(3)),
    "range": range(3),
    "lone surrogate": "\ud800",
    "surrogate in a key": {"\udfff": 1},
    "surrogate with a longer key": {"\udfff": 1, "aa": 2},
    "negative key": {-1: 0},
    "negative key among others": {1: 0, -1: 0},
    "key of 2^64": {2**64: 0},
    "boolean key": {True: 0},
    "boolean key with integers": {0: 0, True: 0},
    "null key": {None: 0},
    "float key": {1.0: 0},
    "bytes key": {b"a": 0},
    "tuple key": {(1,): 0},
    "keys of both kinds": {1: 0, "a": 0},
    "enumerated keys of both kinds": {Number.SEVEN: 0, Word.ALPHA: 0},
    "keys that become equal": {SecondKey("a"): 0, SecondKey("a" * 1): 1},
    "array that holds itself": holds_itself(),
    "map that holds itself": maps_itself(),
    "released memoryview": released(),
}


@sweep("value", REFUSED_VALUES.values(), ids=REFUSED_VALUES.keys())
def test_refused(value: Any) -> None:
    for around in (value, [value], {1: value}, {"a": [value]}):
        with pytest.raises(LbmEncodeError):
            encode_value(around)
        with pytest.raises(LbmEncodeError):
            encode({22: around})


def test_the_payload_has_unsigned_keys_in_ascending_order() -> None:
    assert encode({}) == b"\xa0"
    assert encode({300: 1, 22: 2, 2**64 - 1: 3}).hex() == "a3160219012c011bffffffffffffffff03"
    assert encode(MappingProxyType({1: 2})) == encode({1: 2})
    assert encode({Number.SEVEN: 1}) == b"\xa1\x07\x01"


@pytest.mark.parametrize(
    "cells",
    [{"a": 1}, {Word.ALPHA: 1}, {-1: 1}, {False: 1}, {None: 1}, {1: 1, "a": 1}, [], None, b"", 5],
    ids=str,
)
def test_refused_as_a_payload(cells: Any) -> None:
    with pytest.raises(LbmEncodeError):
        encode(cells)


def test_noise_is_a_byte_string_and_only_in_the_payload() -> None:
    assert encode({0: b"abc", 1: 2}).hex() == "a200436162630102"
    assert encode({0: bytearray(1)}) == encode({0: bytes(1)})
    assert encode({1: {0: "any"}}).hex() == "a101a10063616e79"
    for noise in ("abc", 1, None, [b""]):
        with pytest.raises(LbmEncodeError):
            encode({0: noise})


def nested(levels: int, container: Any) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = {1: value} if container is dict else container([value])
    return value


@pytest.mark.parametrize("container", [list, tuple, dict])
def test_depth(container: Any) -> None:
    # The payload's map is level 1, and a single value is nested in it.
    encode({22: nested(15, container)})
    encode_value(nested(15, container))
    encode_value(nested(14, container), enclosing=2)
    encode_value(nested(16, container), enclosing=0)
    with pytest.raises(LbmEncodeError):
        encode({22: nested(16, container)})
    with pytest.raises(LbmEncodeError):
        encode_value(nested(16, container))
    with pytest.raises(LbmEncodeError):
        encode_value(nested(15, container), enclosing=2)
    with pytest.raises(LbmEncodeError):
        encode_value(nested(17, container), enclosing=0)


def test_what_is_encoded_is_not_changed() -> None:
    cells: dict[int, Any] = {5: [1, {"b": 2, "a": 3}], 2: bytearray(b"x")}
    encode(cells)
    assert list(cells) == [5, 2]
    assert cells[5] == [1, {"b": 2, "a": 3}]
    assert list(cells[5][1]) == ["b", "a"]


def test_any_mapping_is_a_map() -> None:
    class Squares(Mapping[int, int]):
        def __getitem__(self, key: int) -> int:
            return key * key

        def __iter__(self) -> Any:
            return iter((3, 1, 2))

        def __len__(self) -> int:
            return 3

    assert encode(Squares()).hex() == "a3010102040309"
    assert encode_value([Squares()]).hex() == "81a3010102040309"
