"""Tests of encoder and decoder together: inverse, canonical, and equal to an independent reader."""

from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import Value, decode, decode_value, encode, encode_value
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from tests.lbm.strategies import damaged, payloads, values


@pytest.mark.slow
@given(payloads)
def test_decode_inverts_encode(payload: dict[int, Value]) -> None:
    data = encode(payload)
    # repr distinguishes 1 from True and 1.0, and -0.0 from 0.0; NaN equals NaN.
    assert repr(decode(data)) == repr(in_order(payload))
    assert encode(decode(data)) == data


@given(values)
def test_decode_value_inverts_encode_value(value: Value) -> None:
    data = encode_value(value)
    assert repr(decode_value(data)) == repr(in_order(value))
    assert encode({22: value}) == b"\xa1\x16" + data


@pytest.mark.slow
@given(payloads, st.randoms(use_true_random=False))
def test_the_order_of_insertion_does_not_matter(payload: dict[int, Value], random: Any) -> None:
    pairs = list(payload.items())
    random.shuffle(pairs)
    assert encode(dict(pairs)) == encode(payload)


@pytest.mark.slow
@given(payloads)
def test_every_truncation_is_refused(payload: dict[int, Value]) -> None:
    data = encode(payload)
    assert [size for size in range(len(data)) if accepts(data[:size])] == []


@pytest.mark.slow
@given(payloads, st.binary(min_size=1, max_size=3))
def test_trailing_bytes_are_refused(payload: dict[int, Value], rest: bytes) -> None:
    assert not accepts(encode(payload) + rest)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"\xa3" + rest))
def test_random_bytes_decode_or_raise_the_one_error(data: bytes) -> None:
    assert reading(data) == reference_reading(data)


@pytest.mark.slow
@given(damaged())
def test_damaged_payloads_read_as_by_a_general_library(data: bytes) -> None:
    assert reading(data) == reference_reading(data)


@pytest.mark.slow
@given(payloads)
def test_intact_payloads_read_as_by_a_general_library(payload: dict[int, Value]) -> None:
    data = encode(payload)
    assert reading(data) == reference_reading(data) != "refused"


def in_order(value: Any) -> Any:
    """Return the value with its maps in the order of their encoded keys."""
    if isinstance(value, list):
        return [in_order(item) for item in value]
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=encode_value)}
    return value


def accepts(data: bytes) -> bool:
    return reading(data) != "refused"


def reading(data: bytes) -> str:
    """Decode with our decoder; only LbmDecodeError is allowed."""
    try:
        return repr(decode(data, keep_noise=True))
    except LbmDecodeError:
        return "refused"


def reference_reading(data: bytes) -> str:
    """Decode by an equivalent rule: it is a CBOR map that we encode to the same bytes."""
    try:
        value = cbor2.loads(data)
    except Exception:
        return "refused"
    try:
        same = isinstance(value, dict) and encode(value) == data
    except LbmEncodeError:
        return "refused"
    return repr(value) if same else "refused"
