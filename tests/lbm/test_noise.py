"""Padding: exact targets, against a reference that tries every noise cell."""

import pytest

from lbm.codec import decode, encode, encode_value
from lbm.errors import LbmError
from lbm.noise import NO_PADDING, PADME, Padding, pad, parse_padding

BUCKETS = [Padding("bucket", size) for size in (1, 7, 16, 64, 100, 256, 1000, 1024)]
RULES = [PADME, *BUCKETS]
NO_LIMIT = 1 << 30


def payload_of(length: int, cells: int = 1) -> bytes:
    """A payload of exactly `length` bytes with `cells` cells, the first one a filler."""
    rest = dict.fromkeys(range(1, cells), 0)
    for size in range(length, -1, -1):
        payload = encode({cells: bytes(size), **rest})
        if len(payload) == length:
            return payload
    # Lengths that a byte string cannot reach alone: a number takes the last byte.
    for size in range(length, -1, -1):
        payload = encode({cells: [bytes(size), 0], **rest})
        if len(payload) == length:
            return payload
    raise AssertionError(f"no payload of {length} bytes with {cells} cells")


def fits(padding: Padding, length: int) -> bool:
    """Whether the rule has this size, written the slow way."""
    if length < 32:
        return False
    if padding.rule == "bucket":
        return length % padding.bucket == 0
    exponent = 0
    while 2 ** (exponent + 1) <= length:
        exponent += 1
    kept = len(bin(exponent)) - 2
    return length % 2 ** (exponent - kept) == 0


def noise_cell_sizes(longest: int) -> set[int]:
    """Every length that key and value of a noise cell can have together."""
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
def test_every_length_reaches_the_least_size(padding: Padding) -> None:
    for length in range(4, 3001):
        payload = payload_of(length)
        padded = pad(payload, padding, NO_LIMIT)
        assert len(padded) == least_reachable(padding, length, 0), length
        assert decode(padded) == decode(payload)
        assert encode(decode(padded, keep_noise=True)) == padded
