"""Tests of crypto/kdf.py: RFC 5869's cases, and Label's edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.errors import WrongSizeError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.kdf import expand, extract, label
from parley._crypto.registry import HASHES

each_hash = pytest.mark.parametrize("hash", HASHES.values(), ids=lambda hash: hash.name)


def test_rfc_5869_case_1() -> None:
    hash = HASHES["sha256"]
    prk = extract(hash, bytes(range(13)), b"\x0b" * 22)
    assert prk.hex() == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
    assert expand(hash, prk, bytes(range(0xF0, 0xFA)), 42).hex() == (
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    )


def test_rfc_5869_case_2() -> None:
    hash = HASHES["sha256"]
    prk = extract(hash, bytes(range(0x60, 0xB0)), bytes(range(0x50)))
    assert expand(hash, prk, bytes(range(0xB0, 0x100)), 82).hex() == (
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
        "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
    )


def test_rfc_5869_case_3() -> None:
    hash = HASHES["sha256"]
    prk = extract(hash, b"", b"\x0b" * 22)
    assert expand(hash, prk, b"", 42).hex() == (
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


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


@given(
    st.tuples(st.text("abc ", max_size=6), st.binary(max_size=6), st.integers(32, 40)),
    st.tuples(st.text("abc ", max_size=6), st.binary(max_size=6), st.integers(32, 40)),
)
def test_no_two_labels_give_the_same_bytes(
    one: tuple[str, bytes, int], other: tuple[str, bytes, int]
) -> None:
    hash = HASHES["sha256"]
    same = label(hash, b"s", *one)[:32] == label(hash, b"s", *other)[:32]
    assert same == (one == other)
