"""Reduction to plain types: what an object is made of, or a refusal."""

from enum import IntEnum, StrEnum
from typing import Any

import pytest

from parley._lbm.errors import LbmEncodeError
from parley._lbm.values import plain, plain_key


class Number(IntEnum):
    """A subclass of int."""

    ONE = 1


class Word(StrEnum):
    """A subclass of str."""

    A = "a"


class Ratio(float):
    """A subclass of float."""


class Blob(bytes):
    """A subclass of bytes."""


class Row(list[int]):
    """A subclass of list."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Number.ONE, 1),
        (Word.A, "a"),
        (Ratio(1.5), 1.5),
        (Blob(b"x"), b"x"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (Row([1]), [1]),
        ((1, 2), [1, 2]),
    ],
)
def test_reduced(value: object, expected: Any) -> None:
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@pytest.mark.parametrize(
    "value", [None, {}, set(), object(), 1j, iter([])], ids=lambda value: type(value).__name__
)
def test_not_reduced(value: object) -> None:
    with pytest.raises(LbmEncodeError):
        plain(value)


def test_keys() -> None:
    assert type(plain_key(Number.ONE)) is int
    assert type(plain_key(Word.A)) is str
    for key in (True, None, 1.0, b"a", (1,)):
        with pytest.raises(LbmEncodeError):
            plain_key(key)
