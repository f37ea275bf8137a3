"""Tests of crypto/ciphers.py: published values, and every reason not to decrypt."""

import pytest

from parley._crypto.ciphers import INVALID_TAG_ERRORS, CipherAlgorithm
from parley._crypto.errors import WrongSizeError
from parley._crypto.registry import CIPHERS

each_cipher = pytest.mark.parametrize("cipher", CIPHERS.values(), ids=lambda cipher: cipher.name)


@each_cipher
def test_a_key_has_one_size(cipher: CipherAlgorithm) -> None:
    # 16 and 24 bytes would be keys of AES-128 and AES-192.
    for size in (0, 16, 24, cipher.key_size - 1, cipher.key_size + 1, 64):
        with pytest.raises(WrongSizeError):
            cipher.new(bytes(size))


@each_cipher
def test_views_are_taken(cipher: CipherAlgorithm) -> None:
    key = cipher.new(bytes(cipher.key_size))
    nonce = bytes(cipher.nonce_size)
    blob = key.encrypt(nonce, memoryview(b"xdata")[1:], b"aad")
    assert blob == key.encrypt(nonce, b"data", b"aad")
    assert key.decrypt(nonce, memoryview(blob), b"aad") == b"data"


@each_cipher
def test_what_was_altered_does_not_decrypt(cipher: CipherAlgorithm) -> None:
    key = cipher.new(bytes(cipher.key_size))
    nonce = bytes(cipher.nonce_size)
    blob = key.encrypt(nonce, b"data", b"aad")
    other = cipher.new(b"\x01" * cipher.key_size)
    flipped = [
        bytes(b ^ (index == position) for index, b in enumerate(blob))
        for position in range(len(blob))
    ]
    for bad in (*flipped, blob + b"\0", *(blob[:size] for size in range(len(blob)))):
        with pytest.raises(INVALID_TAG_ERRORS):
            key.decrypt(nonce, bad, b"aad")
    with pytest.raises(INVALID_TAG_ERRORS):
        key.decrypt(nonce, blob, b"")
    with pytest.raises(INVALID_TAG_ERRORS):
        key.decrypt(b"\x01" * cipher.nonce_size, blob, b"aad")
    with pytest.raises(INVALID_TAG_ERRORS):
        other.decrypt(nonce, blob, b"aad")


@each_cipher
def test_no_key_in_repr(cipher: CipherAlgorithm) -> None:
    shown = repr(cipher.new(b"K" * cipher.key_size))
    assert "KKKK" not in shown
    assert (b"K" * 4).hex() not in shown
