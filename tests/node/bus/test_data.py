"""The data of an event as JSON."""

import json
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.bus.data import decode_body, encode_body, encode_value
from parley._node.bus.errors import InvalidEventError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=5)


@given(OBJECTS)
def test_what_is_encoded_is_decoded(data: dict[str, Any]) -> None:
    body = encode_body(data, 2**20)
    assert decode_body(body) == data
    assert decode_body(body.encode()) == data
    assert "\n" not in body


def test_any_mapping_is_accepted() -> None:
    assert encode_body(UserDict({"a": 1}), 100) == '{"a":1}'


def loop() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["self"] = data
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "text",
        {1: 2},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": b"bytes"},
        {"a": {1, 2}},
        {"a": "\ud800"},
        {"\ud800": 1},
        loop(),
    ],
    ids=repr,
)
def test_data_that_cannot_be_encoded(data: object) -> None:
    with pytest.raises(InvalidEventError):
        encode_body(data, 2**20)


HUGE = "9" * 5_000


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f'{{"a":{HUGE}}}', "an integer has more than 4,300 digits"),
        (f'{{"a":-{HUGE}}}'.encode(), "an integer has more than 4,300 digits"),
        ('{"a":' + "[" * 100_000, "nested too deeply"),
        (b'{"a":"\xff"}', "text that is not Unicode"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
    ids=["huge", "huge bytes", "deep", "not UTF-8", "cut"],
)
def test_error_texts_do_not_mention_the_interpreter(body: str | bytes, why: str) -> None:
    with pytest.raises(InvalidEventError) as caught:
        decode_body(body)
    assert str(caught.value) == f"the data is not JSON: {why}"


def test_an_integer_that_is_too_long_is_not_published() -> None:
    for encode in (encode_value, lambda data: encode_body(data, 2**20)):
        with pytest.raises(
            InvalidEventError, match=r"JSON: an integer has more than 4,300 digits$"
        ):
            encode({"a": 10**5_000})


def test_recursive_value() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidEventError):
        encode_value(deep)


@pytest.mark.parametrize(("text", "size"), [("x", 1), ("ä", 2), ("€", 3), ("🙂", 4)])
def test_size_is_measured_in_bytes(text: str, size: int) -> None:
    data = {"a": text * 50}
    whole = 50 * size + len('{"a":""}')
    assert len(encode_body(data, whole).encode()) == whole
    with pytest.raises(InvalidEventError, match=f"{whole} bytes"):
        encode_body(data, whole - 1)


@pytest.mark.parametrize(
    "body", ["", "{", "[]", "1", "null", '"a"', b"\xff", "[" * 100_000, json.dumps([{}])]
)
def test_invalid_bodies(body: str | bytes) -> None:
    with pytest.raises(InvalidEventError):
        decode_body(body)
