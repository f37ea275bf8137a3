"""Tests of node/messaging/payloads.py: payloads are decoded on access, in their declared format."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.formats import Format, FormatError, FormatName
from parley._node.messaging.payloads import (
    FormattedPayload,
    Payload,
    Tandem,
    formatted,
    make_payload,
    read_cells,
)
from parley._node.protocol import event_types

BINARY = st.binary(max_size=40)


# Tandem.


@given(first=BINARY, second=BINARY)
def test_a_tandem_is_read_whole_or_not_at_all(first: bytes, second: bytes) -> None:
    data = Tandem(first, second).encode()
    assert data == len(first).to_bytes(8) + first + len(second).to_bytes(8) + second
    assert Tandem.parse(data) == (first, second)
    for end in range(len(data)):
        with pytest.raises(FormatError, match=r"truncated tandem payload: .*[0-9]"):
            Tandem.parse(data[:end])
    with pytest.raises(FormatError, match=r"1 bytes follow"):
        Tandem.parse(data + b"\0")


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_tandem_or_an_error(data: bytes) -> None:
    try:
        tandem = Tandem.parse(data)
    except FormatError:
        return
    assert tandem.encode() == data


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, 9])
def test_a_length_of_anything(length: int) -> None:
    for data in (length.to_bytes(8) + bytes(8), bytes(8) + length.to_bytes(8) + bytes(8)):
        with pytest.raises(FormatError):
            Tandem.parse(data)


@pytest.mark.parametrize("pair", [("a", b""), (b"", "a"), (None, b""), (b"", 5)])
def test_a_tandem_is_of_bytes(pair: Any) -> None:
    with pytest.raises(FormatError):
        make_payload(Tandem(*pair), "lbm")
    parts: Any = bytearray(b"a"), memoryview(b"b")
    assert Tandem(*parts).encode()[8:9] == b"a"


def test_the_parts_of_a_tandem_may_have_formats() -> None:
    tandem = Tandem(formatted({"a": 1}, "json"), formatted([1], "msgpack"))
    payload = make_payload(tandem, "lbm")
    assert payload.format is None
    assert payload.data == payload.raw == tandem.encode()
    first, second = payload.tandem
    assert FormattedPayload(first).data == {"a": 1}
    assert FormattedPayload(second).data == [1]


# Cells.


@pytest.mark.parametrize(
    ("value", "name", "cells"),
    [
        ({"a": [1]}, "lbm", {keys.DATA: {"a": [1]}, keys.FORMAT: 16}),
        (None, "lbm", {keys.DATA: None, keys.FORMAT: 16}),
        (b"x", "lbm", {keys.DATA: b"x", keys.FORMAT: 16}),
        ({"a": [1]}, "json", {keys.DATA: b'{"a":[1]}', keys.FORMAT: 3}),
        (None, "json", {keys.DATA: b"null", keys.FORMAT: 3}),
        ({"a": 1}, "msgpack", {keys.DATA: b"\x81\xa1a\x01", keys.FORMAT: 0}),
        ({"a": 1}, "cbor", {keys.DATA: b"\xa1\x61a\x01", keys.FORMAT: 17}),
        (b"x", "raw", {keys.DATA: b"x"}),
        (b"", "raw", {keys.DATA: b""}),
        (Tandem(b"a", b""), "lbm", {keys.DATA: b"\0\0\0\0\0\0\0\1a" + bytes(8)}),
        (FormattedPayload(b"\x03[1]"), "lbm", {keys.DATA: b"\x03[1]"}),
        (Payload(b"\1\2", 1), "lbm", {keys.DATA: b"\1\2", keys.FORMAT: 1}),
        (Payload(b"\x01", 16), "json", {keys.DATA: 1, keys.FORMAT: 16}),
    ],
)
def test_what_goes_over_the_wire_is_read_there(
    value: Any, name: FormatName, cells: dict[int, Value]
) -> None:
    payload = make_payload(value, name)
    sent = payload.cells()
    assert sent == cells
    received = Payload(*read_cells(decode(encode(sent))))
    assert received.format == cells.get(keys.FORMAT)
    assert received.raw == payload.raw
    if not isinstance(value, Payload | Tandem):
        assert received.data == payload.data == value


def test_neither_data_nor_format_is_none() -> None:
    payload = Payload(*read_cells({keys.NAME: "x"}))
    assert (payload.data, payload.format, payload.raw) == (None, Format.LBM, b"\xf6")
    assert Payload(*read_cells({keys.FORMAT: 16})).data is None


@pytest.mark.parametrize(
    "cells",
    [
        {keys.DATA: 1},
        {keys.DATA: "x"},
        {keys.DATA: None},
        {keys.FORMAT: 3},
        {keys.DATA: "x", keys.FORMAT: 3},
        {keys.DATA: None, keys.FORMAT: 17},
        {keys.DATA: b"x", keys.FORMAT: 256},
        {keys.DATA: b"x", keys.FORMAT: -1},
        {keys.DATA: b"x", keys.FORMAT: "3"},
        {keys.DATA: b"x", keys.FORMAT: None},
    ],
)
def test_malformed_cells(cells: dict[int, Value]) -> None:
    for own in (event_types.EMIT, event_types.REPLY, event_types.END):
        with pytest.raises(LbmDecodeError):
            own.read(encode({**cells, keys.NAME: "x"}))


def test_what_is_not_of_its_format_stays_bytes_until_it_is_read() -> None:
    for format_id in (*Format, 99, 255):
        payload = Payload(b"\xff\xfe", format_id)
        assert payload.raw == b"\xff\xfe"
        if format_id in (Format.BINCODE, Format.POSTCARD):
            assert payload.data == b"\xff\xfe"
            continue
        with pytest.raises(FormatError):
            _ = payload.data
        with pytest.raises(FormatError):
            _ = payload.tandem


# By a format id in front.


@pytest.mark.parametrize("name", ["lbm", "json", "msgpack", "cbor"])
def test_a_format_id_in_front(name: FormatName) -> None:
    data = formatted({"a": [1, None]}, name)
    payload = FormattedPayload(data)
    assert payload.data == {"a": [1, None]}
    assert payload.format == data[0]
    assert payload.raw == data


def test_bytes_that_may_be_anything() -> None:
    empty = FormattedPayload(b"")
    assert (empty.data, empty.format, empty.raw) == (None, None, b"")
    assert formatted(b"abc", "raw") == b"abc"
    with pytest.raises(FormatError):
        _ = FormattedPayload(b"hello").data  # no format has that id
    with pytest.raises(FormatError):
        formatted("abc", "raw")


@pytest.mark.parametrize(
    ("value", "name"), [("text", "raw"), (None, "raw"), (5, "raw"), (1, "xml"), (1, "LBM")]
)
def test_no_such_payload(value: Any, name: Any) -> None:
    with pytest.raises(FormatError):
        make_payload(value, name)


def test_a_value_without_a_form_is_told_when_it_is_sent() -> None:
    for name in ("json", "msgpack", "cbor"):
        payload = make_payload({1, 2}, name)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(FormatError):
            payload.cells()
