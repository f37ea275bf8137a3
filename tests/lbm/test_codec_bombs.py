"""Tests of payloads that try to exhaust the decoder: rejected quickly and with little memory."""

import time
import tracemalloc

import pytest

from parley._lbm.codec import decode, decode_value, encode
from parley._lbm.errors import LbmDecodeError
from parley._lbm.limits import DEFAULT_LIMITS, HANDSHAKE_LIMITS
from tests.sweep import sweep

MEBIBYTE = 1024 * 1024

BOMBS = {
    "nested arrays": "81" * 100_000,
    "nested maps": "a100" * 50_000,
    "nested text maps": "a16161" * 33_000,
    "nested tags": "c1" * 100_000,
    "nested indefinite arrays": "9f" * 100_000,
    "nested full arrays": "9a0000ffff" * 15 + "00" * 70_000,
    "bytes of 4 GiB": "5affffffff",
    "bytes of 2^64": "5bffffffffffffffff",
    "text of 4 GiB": "7affffffff",
    "text of 2^64": "7bffffffffffffffff",
    "text key of 2^63": "a17b7fffffffffffffff00",
    "array of 2^32": "9b0000000100000000",
    "array of 2^64": "9bffffffffffffffff",
    "map of 2^32": "bb0000000100000000",
    "map of 2^64": "bbffffffffffffffff",
    "map of 2^32 with keys": "bb0000000100000000" + "0000" * 50_000,
    "many empty arrays": "9a000fffff" + "80" * 0xFFFFF,
    "many full arrays": "9a0000ffff" + "8100" * 0xFFFF + "00",
    "huge run": "9affffffff" + "5affffffff" * 20,
    "run of huge strings": "88" + "5affffffff" * 8,
    "bignum": "c249010000000000000000",
    "huge bignum": "c25affffffff",
    "negative bignum": "c349010000000000000000",
    "decimal with a huge exponent": "c4821b7fffffffffffffff01",
    "bigfloat with a huge exponent": "c5821b7fffffffffffffff01",
    "rational": "d81e820100",
    "regular expression": "d823" + "6e" + b"(a+)+(a+)+(a+)".hex(),
    "shared value": "d81c81d81d00",
    "shared values, doubling": "83d81c820000d81c82d81d00d81d00d81c82d81d01d81d01",
    "string reference": "d90100816461616161",
    "set": "d9010281820000",
    "date": "c074323031332d30332d32315432303a30343a30305a",
    "date out of range": "c11b7fffffffffffffff",
    "MIME message": "d8246161",
    "address": "d9010444c0a80001",
    "self-described CBOR": "d9d9f700",
    "encoded CBOR": "d81843820000",
}


@sweep("text", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_cheaply(text: str) -> None:
    value = bytes.fromhex(text)
    for data in (b"\xa1\x16" + value, b"\xa2\x16" + value + b"\x17\x00", b"\xa1" + value + b"\x00"):
        refused_cheaply(data)
    for data in (value, b"\xa1\x16\x88" + value * 8):
        refused_cheaply(data)


@sweep("text", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_before_the_proofs(text: str) -> None:
    with pytest.raises(LbmDecodeError):
        decode(b"\xa1\x16" + bytes.fromhex(text), HANDSHAKE_LIMITS)
    with pytest.raises(LbmDecodeError):
        decode_value(bytes.fromhex(text), HANDSHAKE_LIMITS)


def refused_cheaply(data: bytes) -> None:
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(LbmDecodeError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Far above the measured milliseconds, so it only detects unbounded growth.
    assert time.perf_counter() - started < 5
    assert peak < 16 * MEBIBYTE


def test_the_most_items_are_accepted_and_one_more_is_not() -> None:
    most = DEFAULT_LIMITS.max_items - 3
    assert decode(encode({22: [[]] * most})) == {22: [[]] * most}
    with pytest.raises(LbmDecodeError, match="items"):
        decode(encode({22: [[]] * (most + 1)}))


@pytest.mark.parametrize("shift", [0, 13, 32, 47])
def test_keys_that_collide_do_not_slow_reading(shift: int) -> None:
    """Integers hash to themselves, so a peer can choose keys that share their low bits."""
    data = encode({22: dict.fromkeys((i << shift for i in range(60_000)), 0)})
    started = time.perf_counter()
    assert len(decode(data)) == 1
    assert time.perf_counter() - started < 5
