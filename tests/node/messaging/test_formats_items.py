"""Tests of node/messaging/formats.py: no value is counted as fewer items than it has."""

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import encode_value
from parley._node.messaging.formats import (
    MOST_ITEMS,
    cbor_items,
    has_too_many,
    json_items,
    msgpack_items,
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=300)
    | st.text(alphabet='",[{\\', max_size=10),
    lambda inner: (
        st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=40), inner, max_size=20)
    ),
    max_leaves=40,
)


def items(value: object) -> int:
    """Values in a value, keys among them."""
    if isinstance(value, list):
        return 1 + sum(map(items, value))
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(items, value.values()))
    return 1


@pytest.mark.slow
@given(value=VALUES)
def test_each_item_counts_once(value: Any) -> None:
    assert cbor_items(encode_value(value)) == items(value)
    assert msgpack_items(msgpack.packb(value)) == items(value)
    # A comma too few makes up for the container, and keys are not counted.
    text = json.dumps(value, ensure_ascii=False).encode()
    assert items(value) / 2 <= json_items(text) <= 2 * items(value)


@pytest.mark.parametrize(
    "value",
    [
        *(bytes(size) for size in (0, 255, 256, 65_536)),
        *("x" * size for size in (31, 32, 255, 256, 65_536)),
        *([0] * size for size in (15, 16, 65_536)),
        *(dict.fromkeys(range(size), 0) for size in (15, 16, 65_536)),
        *(msgpack.ExtType(5, bytes(size)) for size in (1, 2, 4, 8, 16, 3, 300, 65_536)),
        *(2**bits for bits in (6, 7, 8, 15, 16, 31, 32, 63)),
        *(-(2**bits) for bits in (5, 6, 7, 8, 15, 16, 31, 32, 63)),
    ],
)
def test_each_head_of_messagepack(value: object) -> None:
    counted = msgpack_items(msgpack.packb([value, "end"]))
    assert counted == min(2 + items(value), MOST_ITEMS + 1)


@given(data=st.binary(max_size=60))
def test_any_bytes_have_a_number_of_items(data: bytes) -> None:
    for count in (cbor_items, msgpack_items, json_items):
        assert 0 <= count(data) <= len(data) + 1


def test_short_payloads_are_not_looked_at() -> None:
    def count(data: bytes) -> int:
        looked.append(len(data))
        return len(data)

    looked: list[int] = []
    assert not has_too_many(count, bytes(MOST_ITEMS))
    assert has_too_many(count, bytes(MOST_ITEMS + 1))
    assert looked == [MOST_ITEMS + 1]


@pytest.mark.parametrize("piece", [b'"', b'\\"', b'"\\', b"\\", b'"\\\\', b'"a'])
def test_counting_bad_json_takes_no_longer_than_good(piece: bytes) -> None:
    """This would be quadratic, hours here, if each quote were tried again."""
    assert json_items(piece * 3_000_000 + b"x") == 1
