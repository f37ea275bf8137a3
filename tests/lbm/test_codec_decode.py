"""Tests of section 3's rules for decoding: a valid and an invalid example of each."""

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import (
    ARRAY,
    BYTES,
    Value,
    decode,
    decode_value,
    encode,
    encode_head,
    peek_text,
)
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import HANDSHAKE_LIMITS, LbmLimits, most_containers
from tests.sweep import sweep

CANONICAL_NAN = "fb7ff8000000000000"

# Encodings of a value, which is put into the payload {22: value}.
ACCEPTED_VALUES = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("18ff", 255),
    ("190100", 256),
    ("19ffff", 65535),
    ("1a00010000", 65536),
    ("1affffffff", 2**32 - 1),
    ("1b0000000100000000", 2**32),
    ("1bffffffffffffffff", 2**64 - 1),
    ("20", -1),
    ("37", -24),
    ("3818", -25),
    ("390100", -257),
    ("3bffffffffffffffff", -(2**64)),
    ("40", b""),
    ("43010203", b"\x01\x02\x03"),
    ("5818" + "07" * 24, b"\x07" * 24),
    ("590100" + "00" * 256, bytes(256)),
    ("60", ""),
    ("63c3bc61", "üa"),
    ("64f09f9980", "\U0001f640"),
    ("7818" + "61" * 24, "a" * 24),
    ("80", []),
    ("8301f640", [1, None, b""]),
    ("9818" + "00" * 24, [0] * 24),
    ("a0", {}),
    ("a2000118ff02", {0: 1, 255: 2}),
    ("a2617a01626161f6", {"z": 1, "aa": None}),
    ("a2616101620000f6", {"a": 1, "\0\0": None}),
    ("a16001", {"": 1}),
    ("a2617a0162c3a402", {"z": 1, "ä": 2}),
    ("a1" + "7818" + "61" * 24 + "01", {"a" * 24: 1}),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("fb0000000000000000", 0.0),
    ("fb8000000000000000", -0.0),
    ("fb3ff0000000000000", 1.0),
    ("fb7ff0000000000000", math.inf),
    ("fbfff0000000000000", -math.inf),
    (CANONICAL_NAN, math.nan),
]

REFUSED_VALUES = {
    "17 in two bytes": "1817",
    "255 in three bytes": "1900ff",
    "65535 in five bytes": "1a0000ffff",
    "2^32-1 in nine bytes": "1b00000000ffffffff",
    "-24 in two bytes": "3817",
    "-256 in three bytes": "3900ff",
    "size of bytes not shortest": "580141",
    "size of long bytes not shortest": "5900ff" + "00" * 255,
    "size of text not shortest": "780161",
    "count of an array not shortest": "980101",
    "count of a map not shortest": "b8010101",
    "map key not shortest": "a1180101",
    "size of a text key not shortest": "a178016101",
    "reserved head 1c": "1c00",
    "reserved head 3d": "3d00",
    "reserved head 5e": "5e00",
    "reserved head of a map key": "a11c0001",
    "integer without an end (1f)": "1f",
    "bytes of indefinite length": "5f4101ff",
    "text of indefinite length": "7f6161ff",
    "array of indefinite length": "9f01ff",
    "map of indefinite length": "bf0101ff",
    "text key of indefinite length": "a17f6161ff01",
    "break alone": "ff",
    "float of 16 bits": "f93e00",
    "float of 32 bits": "fa3fc00000",
    "NaN of 16 bits": "f97e00",
    "NaN with a payload": "fb7ff8000000000001",
    "negative NaN": "fbfff8000000000000",
    "signalling NaN": "fb7ff0000000000001",
    "undefined": "f7",
    "simple value 0": "e0",
    "simple value 19": "f3",
    "simple value 32": "f820",
    "false in two bytes": "f814",
    "reserved simple head": "fc",
    "tag": "c100",
    "text not UTF-8": "61ff",
    "text with a surrogate": "63eda080",
    "text overlong": "62c080",
    "text cut in a character": "61c3",
    "key not UTF-8": "a161ff01",
    "negative key": "a12001",
    "bytes as key": "a1416101",
    "boolean as key": "a1f501",
    "null as key": "a1f601",
    "float as key": "a1fb3ff000000000000001",
    "array as key": "a18001",
    "map as key": "a1a001",
    "tagged key": "a1c10101",
    "keys of both kinds": "a20101616101",
    "keys of both kinds, text first": "a26161010101",
    "duplicate key": "a201010102",
    "duplicate long key": "a218ff0118ff02",
    "duplicate text key": "a2616101616102",
    "duplicate empty text key": "a260016002",
    "unsigned keys descend": "a202010101",
    "long before short unsigned key": "a21818010101",
    "text keys descend": "a2616201616101",
    "long before short text key": "a2626161016162f6",
}


@sweep(("text", "value"), ACCEPTED_VALUES)
def test_accepted(text: str, value: object) -> None:
    data = bytes.fromhex("a116" + text)
    # repr distinguishes True from 1 and 1.0, and -0.0 from 0.0; NaN equals NaN.
    assert repr(decode(data)) == repr({22: value})
    assert repr(decode_value(data[2:])) == repr(value)
    assert encode(decode(data)) == data


@sweep("text", REFUSED_VALUES.values(), ids=REFUSED_VALUES.keys())
def test_refused(text: str) -> None:
    value = bytes.fromhex(text)
    # As the last value, before another one, in an array, and in a map of each kind.
    for data in (
        b"\xa1\x16" + value,
        b"\xa2\x16" + value + b"\x17\x00",
        b"\xa1\x16\x81" + value,
        b"\xa1\x16\x89" + value + bytes(8),
        b"\xa1\x16\xa1\x00" + value,
        b"\xa1\x16\xa1\x61a" + value,
    ):
        with pytest.raises(LbmDecodeError):
            decode(data)
    with pytest.raises(LbmDecodeError):
        decode_value(value)


def test_a_payload_may_be_empty_or_large() -> None:
    assert decode(b"\xa0") == {}
    cells = dict.fromkeys(range(1, 300))
    assert encode(cells)[:3] == b"\xb9\x01\x2b"
    assert decode(encode(cells)) == cells


def test_unknown_keys_are_read() -> None:
    cells = {34: 1, 255: 2, 256: 3, 2**64 - 1: 4}
    assert decode(encode(cells)) == cells


def test_noise_is_dropped_in_the_payload_and_only_there() -> None:
    data = bytes.fromhex("a200430000001000")
    assert decode(data) == {16: 0}
    assert decode(data, keep_noise=True) == {0: bytes(3), 16: 0}
    assert decode(b"\xa1\x16\xa1\x00\x00") == {22: {0: 0}}
    assert decode_value(b"\xa1\x00\x00") == {0: 0}


@pytest.mark.parametrize("noise", ["00", "6161", "80", "f6", "f4"])
@pytest.mark.parametrize("keep_noise", [False, True])
def test_noise_is_a_byte_string(noise: str, keep_noise: bool) -> None:
    with pytest.raises(LbmDecodeError):
        decode(bytes.fromhex("a100" + noise), keep_noise=keep_noise)


def test_depth() -> None:
    # The payload's map is level 1, so 15 more containers are allowed.
    for opener in (b"\x81", b"\xa1\x00", b"\xa1\x61a"):
        decode(b"\xa1\x16" + opener * 15 + b"\x00")
        with pytest.raises(LbmDecodeError, match="levels"):
            decode(b"\xa1\x16" + opener * 16 + b"\x00")
        decode_value(opener * 16 + b"\x00")
        with pytest.raises(LbmDecodeError, match="levels"):
            decode_value(opener * 17 + b"\x00")
    for empty in (b"\x80", b"\xa0"):
        decode(b"\xa1\x16" + b"\x81" * 14 + empty)
        with pytest.raises(LbmDecodeError, match="levels"):
            decode(b"\xa1\x16" + b"\x81" * 15 + empty)
    assert decode(b"\xa1\x16\x00", LbmLimits(max_depth=1)) == {22: 0}
    with pytest.raises(LbmDecodeError, match="levels"):
        decode(b"\xa1\x16\x80", LbmLimits(max_depth=1))


@pytest.mark.parametrize(
    ("data", "items"),
    [
        (b"\xa0", 1),
        (b"\xa1\x16\x00", 3),
        (b"\xa1\x16\x80", 3),
        (b"\xa1\x16\x82\x00\x00", 5),
        (b"\xa1\x16\xa1\x00\x81\x00", 6),
        (b"\xa2\x16\x80\x17\x81\x00", 6),
        (b"\xa1\x16\x94" + b"\x41a" * 20, 23),
    ],
)
def test_items_are_counted(data: bytes, items: int) -> None:
    decode(data, LbmLimits(max_items=items))
    if items > 1:
        with pytest.raises(LbmDecodeError, match="items"):
            decode(data, LbmLimits(max_items=items - 1))


def test_bytes_are_counted() -> None:
    data = encode({22: bytes(10)})
    decode(data, LbmLimits(max_bytes=len(data)))
    with pytest.raises(LbmDecodeError, match="bytes"):
        decode(data, LbmLimits(max_bytes=len(data) - 1))


def test_the_limits_before_the_proofs() -> None:
    decode(encode({22: [0] * 253}), HANDSHAKE_LIMITS)
    with pytest.raises(LbmDecodeError):
        decode(encode({22: [0] * 254}), HANDSHAKE_LIMITS)
    decode(encode({22: bytes(16_384 - 5)}), HANDSHAKE_LIMITS)
    with pytest.raises(LbmDecodeError):
        decode(encode({22: bytes(16_384 - 4)}), HANDSHAKE_LIMITS)


def test_runs_of_byte_strings() -> None:
    """Runs of one size are read by columns, with the same result."""
    for size in (0, 1, 23, 24, 255, 256, 70_000):
        for count in (1, 7, 8, 9, 30):
            cells = {32: [bytes([i]) * size for i in range(count)]}
            data = encode(cells)
            assert decode(data) == cells
            for cut in (1, size, size + 1):
                with pytest.raises(LbmDecodeError):
                    decode(data[:-cut] if cut else b"")
            with pytest.raises(LbmDecodeError):
                decode(data + b"\x00")


def test_runs_that_break_off() -> None:
    run = [b"abc"] * 20
    odd_ones: list[Value] = [b"ab", b"abcd", "abc", 3, None, [b"abc"], {1: b"abc"}]
    for odd in odd_ones:
        for at in (0, 1, 10, 19):
            cells: dict[int, Value] = {32: [*run[:at], odd, *run[at + 1 :]], 33: 1}
            assert decode(encode(cells)) == cells
    # A size that isn't in its shortest form, at each position of the run.
    with pytest.raises(LbmDecodeError, match="shortest"):
        decode(b"\xa1\x16\x88" + b"\x58\x01a" * 8)
    with pytest.raises(LbmDecodeError, match="indefinite"):
        decode(b"\xa1\x16\x88" + b"\x5f\x41a\xff" * 8)


def test_other_buffers_are_read_too() -> None:
    data = encode({22: b"abc", 23: "text"})
    for buffer in (bytearray(data), memoryview(data)):
        cells = decode(cast("bytes", buffer))
        assert cells == decode(data)
        assert type(cells[22]) is bytes


def test_errors_hide_their_causes() -> None:
    for data in (b"", b"\xa1\x16\x61\xff", b"\xa1\x16\xfb\x00", b"\xa1\x16\x19\x00"):
        with pytest.raises(LbmDecodeError) as caught:
            decode(data)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def array_of(item: bytes, count: int, filling: int = 0) -> bytes:
    """Return a payload with an array of the same items, and further bytes in another cell."""
    payload = b"\x16" + encode_head(ARRAY, count) + item * count
    if filling:
        return b"\xa2" + payload + b"\x17" + encode_head(BYTES, filling) + bytes(filling)
    return b"\xa1" + payload


@pytest.mark.parametrize("item", [b"\x81\x00", b"\xa1\x00\x00", b"\x81\x80"])
@pytest.mark.slow
def test_arrays_and_maps_that_hold_anything_are_counted_by_size(item: bytes) -> None:
    most = 70_000
    while most >= most_containers(len(array_of(item, most))):
        most -= 1
    decode(array_of(item, most))
    for more in (1, 2_000):
        with pytest.raises(LbmDecodeError, match="too many arrays and maps"):
            decode(array_of(item, most + more))
    # More are allowed in a longer payload.
    decode(array_of(item, most + 1_000, filling=16 * 1_000))


@pytest.mark.parametrize(
    "data",
    [
        [5] * 131_000,
        [[]] * 131_000,
        [{}] * 131_000,
        [[1_700_000_000 + number, number / 7] for number in range(43_000)],
        [{"id": number, "ok": True} for number in range(26_000)],
    ],
)
def test_what_honest_programs_send_is_within_the_bounds(data: list[Any]) -> None:
    assert decode(encode({22: data})) == {22: data}


@sweep(
    ("data", "found"),
    [
        (encode({21: "a.b", 22: [1]}), "a.b"),
        (encode({21: "t" * 300}), "t" * 300),
        (encode({0: bytes(500), 21: "x"}), "x"),
        (encode({21: "x"}) + b"whatever", "x"),
        (b"\xb8\x18\x15\x61x\xff\xff", "x"),
        (encode({20: 0, 21: "x"}), None),
        (encode({22: "x"}), None),
        (encode({21: b"x"}), None),
        (b"\xa1\x61a\x61x", None),
        (b"\xa2\x00\x00\x15\x61x", None),
        (b"\xa1\x75" + b"x" * 21, None),
        (b"\xa1\x15\x62x", None),
        (b"\xa1\x15\x62\xff\xff", None),
        (b"\xa1\x15\x7f\x61x", None),
        (b"\x82\x15\x61x", None),
        (b"\xbf\x15\x61x\xff", None),
        (b"", None),
        (b"\xa1", None),
        (b"\xa1\x15", None),
    ],
)
def test_a_first_text_is_read_without_the_rest(data: bytes, found: str | None) -> None:
    assert peek_text(data, 21) == found


@given(st.binary(max_size=40), st.integers(1, 255))
def test_a_first_text_is_what_decoding_says_of_it(data: bytes, key: int) -> None:
    """For any bytes it returns the same text as decoding, or None."""
    found = peek_text(b"\xa1" + data, key)
    try:
        cells = decode(b"\xa1" + data)
    except LbmDecodeError:
        return
    assert found is None or cells[key] == found
