"""Tests of padding: exact sizes, compared with a reference that tries every noise cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import Value, decode, encode, encode_head, encode_value
from parley._lbm.errors import LbmError
from parley._lbm.limits import LbmLimits
from parley._lbm.padding import NO_PADDING, PADME, Padding, pad, parse_padding
from tests.sweep import sweep

BUCKETS = [Padding("bucket", size) for size in (1, 7, 16, 64, 100, 256, 1000, 1024)]
RULES = [PADME, *BUCKETS]
ANY_RULE = st.just(PADME) | st.builds(Padding, st.just("bucket"), st.integers(1, 5000))
NO_LIMIT = 1 << 30


def payload_of(length: int, cells: int = 1) -> bytes:
    """Return a payload of exactly `length` bytes with `cells` cells, the last one a filler."""
    rest: dict[int, Value] = dict.fromkeys(range(1, cells), 0)
    longest = length - len(encode(rest))
    for size in range(longest, max(longest - 16, -1), -1):
        # A byte string can't produce some lengths, but one in an array can.
        for filler in (bytes(size), [bytes(size), 0]):
            payload = encode({**rest, cells: filler})
            if len(payload) == length:
                return payload
    raise AssertionError(f"no payload of {length} bytes with {cells} cells")


def fits(padding: Padding, length: int) -> bool:
    """Return whether the rule has this size, computed the slow way."""
    if length < 32:
        return False
    if padding.rule == "bucket":
        return length % padding.bucket == 0
    exponent = 0
    while 2 ** (exponent + 1) <= length:
        exponent += 1
    kept = len(bin(exponent)) - 2
    return length % (1 << (exponent - kept)) == 0


def noise_cell_sizes(longest: int) -> set[int]:
    """Return every length that key and value of a noise cell can have together."""
    return {1 + len(encode_value(bytes(size))) for size in range(longest)}


CELL_SIZES = noise_cell_sizes(2200)


def least_reachable(padding: Padding, length: int, growth: int) -> int:
    if fits(padding, length):
        return length
    size = length
    while not (fits(padding, size) and size - length - growth in CELL_SIZES):
        size += 1
    return size


@pytest.mark.parametrize("padding", RULES, ids=str)
@pytest.mark.slow
def test_every_length_reaches_the_least_size(padding: Padding) -> None:
    for length in range(4, 3001):
        payload = payload_of(length)
        padded = pad(payload, padding, NO_LIMIT)
        assert len(padded) == least_reachable(padding, length, 0), length
        assert decode(padded) == decode(payload)
        assert encode(decode(padded, keep_noise=True)) == padded


@sweep(("cells", "growth"), [(22, 0), (23, 1), (24, 0), (254, 0), (255, 1), (256, 0)])
@sweep("padding", [PADME, Padding("bucket", 64)], ids=str)
def test_the_growth_of_the_header_is_counted(padding: Padding, cells: int, growth: int) -> None:
    shortest = 4 * cells + 40
    for length in range(shortest, shortest + 70):
        payload = payload_of(length, cells)
        padded = pad(payload, padding, NO_LIMIT)
        assert len(padded) == least_reachable(padding, length, growth), length
        if len(padded) != length:
            assert len(decode(padded, keep_noise=True)) == cells + 1
            assert decode(padded) == decode(payload)


def test_the_growth_of_a_large_header_is_counted() -> None:
    payload = payload_of(400_000, 65_535)
    padded = pad(payload, Padding("bucket", 1000), NO_LIMIT)
    assert padded == payload
    padded = pad(payload, Padding("bucket", 65_536), NO_LIMIT)
    assert len(padded) == 7 * 65_536
    assert padded[:5].hex() == "ba00010000"
    assert decode(padded, LbmLimits(max_items=2**18)) == decode(payload)


@pytest.mark.parametrize("addition", [65_538, 65_539, 65_540, 65_541, 65_542])
def test_noise_of_more_than_64_kibibytes(addition: int) -> None:
    sizes = {1 + len(encode_head(2, size)) + size for size in range(65_000, 66_000)}
    payload = payload_of(60)
    bucket = Padding("bucket", 60 + addition)
    expected = 60 + addition if addition in sizes else 2 * (60 + addition)
    assert len(pad(payload, bucket, NO_LIMIT)) == expected
    assert (addition in sizes) is (addition not in {65_540, 65_541})


@given(st.dictionaries(st.integers(1, 400), st.binary(max_size=60), max_size=40), ANY_RULE)
def test_any_payload(cells: dict[int, Value], padding: Padding) -> None:
    payload = encode(cells)
    padded = pad(payload, padding, NO_LIMIT)
    assert decode(padded) == cells
    assert fits(padding, len(padded))
    assert pad(padded, padding, NO_LIMIT) == padded


def test_never_above_the_limit() -> None:
    payload = payload_of(100)
    for padding, target in ((PADME, 104), (Padding("bucket", 128), 128)):
        assert len(pad(payload, padding, target)) == target
        for limit in (target - 1, 101, 100, 99):
            assert pad(payload, padding, limit) == payload


def test_off() -> None:
    assert pad(payload_of(100), NO_PADDING, NO_LIMIT) == payload_of(100)


def test_noise_that_is_there_stays_alone() -> None:
    payload = encode({0: b"x", 1: 2})
    assert pad(payload, PADME, NO_LIMIT) == payload


@pytest.mark.parametrize("payload", [b"", b"\x00", b"data, not a map", b"\x80", b"\xf6"])
def test_what_is_no_map_is_not_padded(payload: bytes) -> None:
    assert pad(payload, PADME, NO_LIMIT) == payload


def test_an_empty_payload_is_padded() -> None:
    padded = pad(encode({}), PADME, NO_LIMIT)
    assert len(padded) == 32
    assert decode(padded) == {}


@pytest.mark.parametrize("text", ["off", "padme", "bucket:1", "bucket:64", "bucket:67108864"])
def test_rules_are_parsed(text: str) -> None:
    padding = parse_padding(text)
    assert str(padding) == text
    assert padding == parse_padding(str(padding))


@sweep(
    "text",
    [
        "",
        "on",
        "PADME",
        "padme:2",
        "off ",
        "bucket",
        "bucket:",
        "bucket:0",
        "bucket:-1",
        "bucket:+1",
        "bucket:1.5",
        "bucket: 8",
        "bucket:1_000",
        "bucket:0x10",
        "bucket:67108865",
        "bucket:" + "9" * 5000,
        "bucket:\u0663",
        "bucket:²",
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(LbmError):
        parse_padding(text)
