"""Tests of crypto/hashing.py: published values, and HMAC by its definition."""

import pytest

from parley._crypto.errors import WrongSizeError
from parley._crypto.hashing import HashAlgorithm, expand, label
from parley._crypto.registry import HASHES
from tests.sweep import sweep

each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)


# From the test vectors of BLAKE3's authors, with the input 0, 1, .., 250, 0, 1, ..: the first 32
# bytes, by length of the input. They cover its chunks of 1,024 bytes and the tree above them.
BLAKE3 = {
    0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
    1024: "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
    1025: "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444",
    3073: "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3",
    6145: "f1323a8631446cc50536a9f705ee5cb619424d46887f3c376c695b70e0f0507f",
}

# RFC 4231, test case 2.
JEFE = {
    "sha256": "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    "sha512": "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554"
    "9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
}


@pytest.mark.parametrize("size", BLAKE3)
def test_published_digests_of_blake3(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    assert HASHES["blake3"].digest(data).hex() == BLAKE3[size]


@each_hash
def test_new_takes_data_in_parts(hash: HashAlgorithm) -> None:
    state = hash.new(b"a")
    state.update(b"bc")
    assert state.digest() == hash.digest(b"abc")


@pytest.mark.parametrize("name", JEFE)
def test_published_hmac(name: str) -> None:
    assert HASHES[name].hmac(b"Jefe", b"what do ya want for nothing?").hex() == JEFE[name]


@each_hash
@sweep("size", [0, 1, 32, 64, 127, 128, 129, 300])
def test_hmac_is_that_of_rfc_2104(hash: HashAlgorithm, size: int) -> None:
    key = bytes(range(256))[:size] if size < 256 else bytes(size)
    block = hash.digest(key) if size > hash.block_size else key
    block = block.ljust(hash.block_size, b"\0")
    inner = hash.digest(bytes(b ^ 0x36 for b in block) + b"data")
    assert hash.hmac(key, b"data") == hash.digest(bytes(b ^ 0x5C for b in block) + inner)


each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)


@each_hash
def test_a_shorter_output_is_the_start_of_a_longer(hash: HashAlgorithm) -> None:
    longest = expand(hash, b"prk", b"info", 255 * hash.size)
    for size in (0, 1, hash.size - 1, hash.size, hash.size + 1, 3309):
        assert expand(hash, b"prk", b"info", size) == longest[:size]
    with pytest.raises(WrongSizeError, match="255"):
        expand(hash, b"prk", b"info", 255 * hash.size + 1)


@each_hash
def test_label_info_is_that_of_section_5(hash: HashAlgorithm) -> None:
    info = b"\x00\x2a\x11parley1 seal mask\x03ctx"
    assert label(hash, b"secret", "seal mask", b"ctx", 42) == expand(hash, b"secret", info, 42)


def test_label_refuses_what_its_lengths_cannot_hold() -> None:
    hash = HASHES["sha256"]
    label(hash, b"", "x", bytes(255), 32)
    with pytest.raises(OverflowError):
        label(hash, b"", "x", bytes(256), 32)
    with pytest.raises(OverflowError):
        label(hash, b"", "x" * 248, b"", 32)
