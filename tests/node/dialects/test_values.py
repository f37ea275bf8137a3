"""The conversion table: every value has exactly one encoding, or is rejected."""

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import Encodable
from parley._node.dialects.values import RESTS, ConversionError, Rest, from_bytes, to_bytes

SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False), st.text()
)
REST = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.lists(SCALARS, max_size=5),
    st.dictionaries(st.text(max_size=8), SCALARS, max_size=5),
)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b""),
        (b"", b""),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        ("", b""),
        ("grün", "grün".encode()),
        (0, b"\x00"),
        (True, b"\xf5"),
        ([], b"\x80"),
        ({"a": [1, None]}, bytes.fromhex("a1616182 01f6".replace(" ", ""))),
    ],
)
def test_the_table(value: Encodable, data: bytes) -> None:
    assert to_bytes(value) == data


@given(REST)
def test_cbor_is_cbor(value: Encodable) -> None:
    assert cbor2.loads(to_bytes(value)) == value


@pytest.mark.parametrize(
    ("rest", "data"), [("cbor", b"\x81\x01"), ("msgpack", b"\x91\x01"), ("json", b"[1]")]
)
def test_the_format_of_the_rest(rest: Rest, data: bytes) -> None:
    assert to_bytes([1], rest) == data
    assert to_bytes("text", rest) == b"text"


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        (2**64, "cbor"),
        (2**64, "msgpack"),
        ({"a": b"bytes"}, "json"),
        ({1: "a number is no name"}, "json"),
        (float("inf"), "json"),
        ("\ud800", "cbor"),
        ({1: 1, "a": 2}, "cbor"),
    ],
)
def test_values_without_an_encoding_are_rejected(value: Encodable, rest: Rest) -> None:
    with pytest.raises(ConversionError):
        to_bytes(value, rest)


def test_back_it_is_bytes_or_none() -> None:
    assert from_bytes(b"") is None
    assert from_bytes(memoryview(b"ab")) == b"ab"


def test_all_formats_are_known() -> None:
    assert set(RESTS) == {"cbor", "msgpack", "json"}
