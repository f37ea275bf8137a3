"""Payloads of Notify and Notes are what `lbm.encode` makes, put together from parts."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, encode
from parley._lbm.errors import LbmDecodeError, LbmEncodeError
from parley._node.messaging.notes import (
    NO_HEADERS,
    NOTES_OVERHEAD,
    Note,
    decode_notes,
    decode_notify,
    encode_note,
    notes_payload,
    notify_payload,
    read_headers,
    read_slow_text,
    slow_text,
)
from parley._node.protocol.codes import NOTES, NOTIFY
from parley._node.protocol.limits import NOTES_COUNT
from tests.lbm.strategies import values

HEADERS = st.dictionaries(st.text(max_size=8), values, min_size=1, max_size=4)


@given(values)
def test_a_notify_is_what_the_codec_makes(data: Value) -> None:
    payload = notify_payload(encode_note(data))
    assert payload == encode({keys.DATA: data})
    assert notes_payload([encode_note(data)]) == (NOTIFY, payload)
    assert encode({keys.DATA: decode_notify(payload).data}) == payload


@given(values, HEADERS)
def test_a_notify_with_headers_is_what_the_codec_makes(
    data: Value, headers: Mapping[str, Value]
) -> None:
    payload = notify_payload(encode_note(data), headers)
    assert payload == encode({keys.DATA: data, keys.HEADERS: headers})
    note = decode_notify(payload)
    assert encode({keys.DATA: note.data, keys.HEADERS: note.headers}) == payload


@given(st.lists(values, min_size=2, max_size=40))
def test_notes_are_what_the_codec_makes(data: list[Value]) -> None:
    subcategory, payload = notes_payload([encode_note(one) for one in data])
    assert subcategory == NOTES
    assert payload == encode({keys.NOTES: data})
    assert encode({keys.NOTES: decode_notes(payload)}) == payload


@pytest.mark.parametrize("count", [2, 23, 24, 255, 256, NOTES_COUNT])
def test_every_length_of_notes(count: int) -> None:
    notes = [encode_note(number) for number in range(count)]
    _, payload = notes_payload(notes)
    assert payload == encode({keys.NOTES: list(range(count))})
    assert len(payload) - sum(map(len, notes)) <= NOTES_OVERHEAD
    assert decode_notes(payload) == list(range(count))


def test_notes_in_the_greatest_number_and_one_more() -> None:
    assert len(decode_notes(encode({keys.NOTES: [0] * 4_096}))) == 4_096
    with pytest.raises(LbmDecodeError, match="4096 elements"):
        decode_notes(encode({keys.NOTES: [0] * 4_097}))


def test_notes_may_be_none_at_all() -> None:
    assert decode_notes(encode({keys.NOTES: []})) == []


@pytest.mark.parametrize(
    "payload",
    [b"", b"junk", encode({}), encode({keys.NOTES: 1}), encode({keys.NOTES: {}}), b"\x80"],
)
def test_malformed_notes(payload: bytes) -> None:
    with pytest.raises(LbmDecodeError):
        decode_notes(payload)


def test_a_notify_without_data_is_null() -> None:
    note = decode_notify(encode({}))
    assert note == Note(None, NO_HEADERS)
    assert note.headers is NO_HEADERS


@pytest.mark.parametrize(
    "payload", [b"", b"junk", encode({keys.HEADERS: [1]}), encode({keys.HEADERS: {1: 2}})]
)
def test_malformed_notify(payload: bytes) -> None:
    with pytest.raises(LbmDecodeError):
        decode_notify(payload)


def nested(levels: int) -> Value:
    value: Value = 0
    for _ in range(levels):
        value = [value]
    return value


def test_a_note_may_be_nested_as_deeply_as_it_can_travel_in_company() -> None:
    note = encode_note(nested(14))
    _, payload = notes_payload([note, note])
    assert decode_notes(payload) == [nested(14)] * 2
    with pytest.raises(LbmEncodeError):
        encode_note(nested(15))


def test_headers_are_read_when_the_note_is_published() -> None:
    inner: list[Encodable] = [1]
    given_headers: dict[str, Encodable] = {"a": inner}
    headers = read_headers(given_headers)
    inner.append({"no encoding"})  # type: ignore[arg-type]  # what an application may do later
    given_headers["b"] = 2
    assert headers.values == {"a": [1]}
    alone = notify_payload(encode_note(None))
    assert len(notify_payload(encode_note(None), headers.values)) == len(alone) + headers.size


@pytest.mark.parametrize("headers", [{1: 2}, {"a": object()}, {"a": 2**64}, {"\ud800": 1}])
def test_headers_without_an_encoding(headers: dict[str, Encodable]) -> None:
    with pytest.raises(LbmEncodeError):
        read_headers(headers)


@given(st.integers(0, 2**64 - 1))
def test_how_many_were_lost_is_read_as_it_was_said(count: int) -> None:
    assert read_slow_text(slow_text(count)) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "25",
        "too slow",
        " notes were not read in time",
        "-1 notes were not read in time",
        "²5 notes were not read in time",
        "9" * 5_000 + " notes were not read in time",
    ],
)
def test_a_text_of_another_kind_says_nothing(text: str) -> None:
    assert read_slow_text(text) == 0
