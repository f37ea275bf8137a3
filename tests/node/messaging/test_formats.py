"""Tests of node/messaging/formats.py: plain values or FormatError, whatever the input."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import Value
from parley._node.messaging.formats import (
    MOST_ITEMS,
    NAMES,
    Format,
    FormatError,
    decode_as,
    encode_as,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
)
KEYS = st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS.filter(lambda value: not isinstance(value, float) or math.isfinite(value)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
FORMATS = [*Format, 4, 15, 18, 255]
SCALAR_TYPES = (int, float, str, bytes, bool, type(None))


def assert_plain(value: object) -> None:
    """Check that it contains no special types, and that all text is text."""
    left = [value]
    while left:
        item = left.pop()
        if type(item) is list:
            left += item
        elif type(item) is dict:
            left += [*item, *item.values()]
        else:
            assert type(item) in SCALAR_TYPES
            if type(item) is str:
                item.encode()


@pytest.mark.parametrize("format_id", [Format.LBM, Format.CBOR, Format.MESSAGEPACK])
@given(value=VALUES)
def test_what_was_encoded_is_read(format_id: int, value: Value) -> None:
    assert decode_as(format_id, encode_as(format_id, value)) == value


@given(value=JSON_VALUES)
def test_what_was_encoded_as_json_is_read(value: Value) -> None:
    assert decode_as(Format.JSON, encode_as(Format.JSON, value)) == value


@pytest.mark.parametrize("format_id", FORMATS)
@given(data=st.binary(max_size=80) | st.text(alphabet='[]{}",:\\ud80019eE-.ntf', max_size=40))
def test_any_bytes_are_a_plain_value_or_an_error(format_id: int, data: bytes | str) -> None:
    raw = data.encode() if isinstance(data, str) else data
    try:
        value = decode_as(format_id, raw)
    except FormatError:
        return
    assert_plain(value)


@pytest.mark.parametrize("format_id", [Format.LBM, Format.CBOR, Format.MESSAGEPACK, Format.JSON])
@given(value=JSON_VALUES, change=st.binary(min_size=1, max_size=3), data=st.data())
def test_a_changed_or_cut_payload_is_a_plain_value_or_an_error(
    format_id: int, value: Value, change: bytes, data: st.DataObject
) -> None:
    whole = encode_as(format_id, value)
    at = data.draw(st.integers(0, len(whole)))
    for raw in (whole[:at], whole[:at] + change + whole[at + len(change) :]):
        try:
            assert_plain(decode_as(format_id, raw))
        except FormatError:
            continue


@pytest.mark.parametrize("format_id", [Format.BINCODE, Format.POSTCARD])
def test_bincode_and_postcard_stay_bytes(format_id: int) -> None:
    assert decode_as(format_id, b"\x01\x02") == b"\x01\x02"
    with pytest.raises(FormatError):
        encode_as(format_id, b"\x01\x02")


def test_the_ids_are_those_of_the_protocol() -> None:
    assert {one.name: one.value for one in Format} == {
        "MESSAGEPACK": 0,
        "BINCODE": 1,
        "POSTCARD": 2,
        "JSON": 3,
        "LBM": 16,
        "CBOR": 17,
    }
    assert NAMES == {"lbm": 16, "msgpack": 0, "json": 3, "cbor": 17}


@pytest.mark.parametrize(
    ("format_id", "value", "encoded"),
    [
        (Format.MESSAGEPACK, {"a": [1, -1, None, True]}, "81a161940 1ffc0c3".replace(" ", "")),
        (Format.JSON, {"a": [1, -1.5, None, True, "ü"]}, b'{"a":[1,-1.5,null,true,"\xc3\xbc"]}'),
        (Format.LBM, {"a": [1, -1, None, True]}, "a16161840120f6f5"),
        (Format.CBOR, {"a": [1, -1, None, True]}, "a16161840120f6f5"),
    ],
)
def test_exact_bytes(format_id: int, value: Value, encoded: str | bytes) -> None:
    wanted = bytes.fromhex(encoded) if isinstance(encoded, str) else encoded
    assert encode_as(format_id, value) == wanted
    assert decode_as(format_id, wanted) == value


# Every kind of tag, however it is written, and whatever is in it.
TAGS = [*range(40), 54, 100, 256, 258, 260, 261, 1004, 43_000, 55_799, 2**32, 2**64 - 1]


@pytest.mark.parametrize(
    "content", [b"\xf6", b"\x01", b"\x61a", b"\x41a", b"\x82\x01\x02", b"\xa0"]
)
def test_a_tag_is_refused(content: bytes) -> None:
    for tag in TAGS:
        head = bytes([0xC0 + tag]) if tag < 24 else b"\xdb" + tag.to_bytes(8)
        for data in (head + content, b"\x81" + head + content, b"\xa1\x61k" + head + content):
            with pytest.raises(FormatError):
                decode_as(Format.CBOR, data)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xf7", b"\xf0", b"\xf8\xff", b"\xff", b"\xa1\x80\x01", b"\xa1\xa0\x01"),
        *(b"\xa2\x01\x01\x01\x02", b"\x00\x00", b"\x62\xc3\x28", b"\x81" * 17 + b"\x00"),
        *(b"\x9f" * 100_000, b"\x9b" + b"\x7f" * 8, b"\x5b" + b"\x7f" * 8, b"\xbb" + b"\x0f" * 8),
    ],
)
def test_cbor_that_is_no_plain_value(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_as(Format.CBOR, data)


def test_cbor_is_read_beyond_its_deterministic_form() -> None:
    """Others write it in their own way: indefinite lengths, short floats, integers as keys."""
    assert decode_as(Format.CBOR, bytes.fromhex("bf01f93e0018027f616161 62ffff")) == {
        1: 1.5,
        2: "ab",
    }
    assert decode_as(Format.CBOR, b"\x81" * 15 + b"\x00") is not None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xc1", b"\xa1\xff", b"\x00\x00", b"\x81\x90\x01", b"\xd6\xff" + bytes(4)),
        *(b"\xc7\x00\x05", b"\xdd" + b"\xff" * 4, b"\xdf" + b"\xff" * 4, b"\xc6" + b"\xff" * 4),
        *(b"\x91" * 5_000 + b"\x00", (b"\xdd\x00\x01\xff\xff") * 500),
    ],
)
def test_messagepack_that_is_no_plain_value(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_as(Format.MESSAGEPACK, data)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"NaN", b"-Infinity", b"[Infinity]", b"1 2", b"{1:2}", b"\xff", b"\xef\xbb\xbf1"),
        *(b'"\\ud800"', b'{"\\uDBFF":1}', b"[" * 100_000, b"9" * 5_000, b"'a'", b'"\x01"'),
    ],
)
def test_json_that_is_no_plain_value(data: bytes) -> None:
    with pytest.raises(FormatError):
        decode_as(Format.JSON, data)


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode_as(Format.JSON, b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("format_id", "value"),
    [
        *((Format.JSON, value) for value in ({1: 2}, {None: 1}, [{1: 2}], {"a": {True: 1}})),
        *((Format.JSON, value) for value in (math.nan, math.inf, b"x", [b"x"], "\ud800", {1})),
        *((Format.MESSAGEPACK, value) for value in (2**64, -(2**63) - 1, "\ud800", {1}, object())),
        *((Format.CBOR, value) for value in (2**64, "\ud800", {1}, {1: 1, "a": 1})),
        *((Format.LBM, value) for value in (2**64, "\ud800", {1}, {-1: 1})),
    ],
)
def test_a_value_without_a_form(format_id: int, value: Any) -> None:
    with pytest.raises(FormatError):
        encode_as(format_id, value)


@pytest.mark.parametrize("format_id", [Format.JSON, Format.MESSAGEPACK, Format.CBOR, Format.LBM])
def test_a_value_within_itself_has_no_form(format_id: int) -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(FormatError):
        encode_as(format_id, circle)


@pytest.mark.parametrize(
    ("format_id", "few", "many"),
    [
        (
            Format.CBOR,
            b"\x9f" + b"\x00" * (MOST_ITEMS - 2) + b"\xff",
            b"\x9f" + b"\x80" * MOST_ITEMS,
        ),
        (
            Format.MESSAGEPACK,
            b"\xdd" + (MOST_ITEMS - 1).to_bytes(4) + b"\x00" * (MOST_ITEMS - 1),
            b"\xdd" + MOST_ITEMS.to_bytes(4) + b"\x90" * MOST_ITEMS,
        ),
        (
            Format.JSON,
            b"[0" + b",0" * (MOST_ITEMS - 2) + b"]",
            b"[[]" + b",[]" * MOST_ITEMS + b"]",
        ),
    ],
)
def test_no_more_items_than_lbm_has(format_id: int, few: bytes, many: bytes) -> None:
    value = decode_as(format_id, few)
    assert isinstance(value, list)
    assert len(value) > MOST_ITEMS - 4
    with pytest.raises(FormatError, match="too many items"):
        decode_as(format_id, many)
