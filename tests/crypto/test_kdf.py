"""Tests of crypto/kdf.py: RFC 5869's cases, and Label's edges."""

import pytest

from parley._crypto.errors import WrongSizeError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.kdf import expand, label
from parley._crypto.registry import HASHES

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
