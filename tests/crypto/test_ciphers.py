"""Tests of crypto/ciphers.py: published values, and every way not to open."""

import pytest

from parley._crypto.ciphers import INVALID_TAG_ERRORS, CipherAlgorithm
from parley._crypto.errors import WrongSizeError
from parley._crypto.registry import CIPHERS

each_cipher = pytest.mark.parametrize("cipher", CIPHERS.values(), ids=lambda cipher: cipher.name)

SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
    b"future, sunscreen would be it."
)

# name: key, nonce, data, associated data, ciphertext and tag.
# NIST GCM test case 15; RFC 8439, section 2.8.2; draft-irtf-cfrg-xchacha-03, appendix A.3.1.
PUBLISHED = {
    "aes-256-gcm": (
        bytes.fromhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"),
        bytes.fromhex("cafebabefacedbaddecaf888"),
        bytes.fromhex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
        ),
        b"",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
        "b094dac5d93471bdec1a502270e3cc6c",
    ),
    "chacha20-poly1305": (
        bytes(range(0x80, 0xA0)),
        bytes.fromhex("070000004041424344454647"),
        SUNSCREEN,
        bytes.fromhex("50515253c0c1c2c3c4c5c6c7"),
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691",
    ),
    "xchacha20-poly1305": (
        bytes(range(0x80, 0xA0)),
        bytes(range(0x40, 0x58)),
        SUNSCREEN,
        bytes.fromhex("50515253c0c1c2c3c4c5c6c7"),
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"
        "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"
        "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
        "21f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49",
    ),
}


@each_cipher
def test_published_values(cipher: CipherAlgorithm) -> None:
    key, nonce, data, aad, expected = PUBLISHED[cipher.name]
    blob = cipher.new(key).encrypt(nonce, data, aad)
    assert blob.hex() == expected
    assert cipher.new(key).decrypt(nonce, blob, aad) == data


@each_cipher
def test_sizes(cipher: CipherAlgorithm) -> None:
    key = cipher.new(bytes(cipher.key_size))
    for size in (0, 1, 1000):
        blob = key.encrypt(bytes(cipher.nonce_size), bytes(size), b"")
        assert len(blob) == size + cipher.tag_size


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
