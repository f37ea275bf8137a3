"""Tests of encoding in slices: the same bytes, and slices of similar length."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parley._lbm.codec import Encoded, Value, encode, encode_slices, encode_value, is_large
from parley._lbm.errors import LbmEncodeError
from tests.lbm.strategies import values


@example([[[0, 1], {1: 2}], {"b": [1] * 9, "a": {}}, (), [{}]], 1)
@given(values, st.integers(1, 20))
def test_slices_are_the_encoding(value: Value, most: int) -> None:
    slices = list(encode_slices(value, most))
    assert b"".join(slices) == encode_value(value)
    assert len(slices) == 1 or is_large(value, most)


@pytest.mark.parametrize(
    ("value", "items"),
    [
        ([{"a": 1}] * 400, 1 + 3 * 400),
        ([[0]] * 400, 1 + 2 * 400),
        ({"x": [0] * 900}, 1 + 1 + 1 + 900),
        ({str(number): [0] for number in range(400)}, 1 + 3 * 400),
        ([[[0] * 50] * 10] * 4, 1 + 4 * (1 + 10 * 51)),
    ],
)
def test_a_slice_has_no_more_items_than_asked_for(value: Any, items: int) -> None:
    assert is_large(value, items - 1)
    assert not is_large(value, items)
    slices = list(encode_slices(value, 100))
    assert items // 100 <= len(slices) <= items // 40
    # Each of these items has one byte, a text up to four, and a head up to three.
    assert max(map(len, slices)) <= 400


def test_what_is_not_a_container_is_not_large() -> None:
    for value in (None, 5, b"x" * 100_000, "x" * 100_000, [0] * 9):
        assert not is_large(value, 10)


def deep(levels: int) -> list[Any]:
    value: list[Any] = [0] * 10
    for _ in range(levels - 1):
        value = [value, *[0] * 10]
    return value


@pytest.mark.parametrize(
    "value", [deep(16), [*[0] * 10, object()], [*[0] * 10, "\ud800"], [*[0] * 10, {-1: 0}]]
)
def test_a_value_without_an_encoding_is_refused(value: Any) -> None:
    for encode_it in (lambda: encode_value(value), lambda: list(encode_slices(value, 5))):
        with pytest.raises(LbmEncodeError):
            encode_it()
    assert list(encode_slices(deep(15), 5))


def test_an_encoded_value_is_copied() -> None:
    value = {"a": [1, "x"]}
    encoded: Any = Encoded(encode_value(value))
    assert encode({22: encoded, 23: [encoded]}) == encode({22: value, 23: [value]})
    assert encode_value(encoded) == encode_value(value)
