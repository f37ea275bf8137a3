"""The AEADs of the `cipher` parameter.

The library's own objects go straight to the hot path; only XChaCha20, which
`cryptography` lacks, gets a wrapper over libsodium.

ChaCha20-Poly1305 through `cryptography` takes a quarter of the time that it takes
through PyNaCl, whose cost is the foreign call, so the former is used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import nacl.bindings
import nacl.exceptions
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from parley._crypto.errors import WrongSizeError

TAG_SIZE = 16

# What 'does not decrypt' looks like in either library.
INVALID_TAG_ERRORS: tuple[type[Exception], ...] = (InvalidTag, nacl.exceptions.CryptoError)


class AeadKey(Protocol):
    """A key that encrypts and decrypts; `decrypt` raises one of `INVALID_TAG_ERRORS`."""

    def encrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes, /) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes, /) -> bytes: ...


@dataclass(frozen=True, slots=True, eq=False)
class CipherAlgorithm:
    """One AEAD; all sizes in bytes."""

    name: str
    key_size: int
    nonce_size: int
    open_key: Callable[[bytes], AeadKey]
    tag_size: int = TAG_SIZE

    def new(self, key: bytes) -> AeadKey:
        """Make the key object of `key`; WrongSizeError unless it has `key_size` bytes."""
        # The libraries would take the keys of AES-128 and AES-192 here too, and a XChaCha20
        # key of any size until it is first used.
        if len(key) != self.key_size:
            raise WrongSizeError(f"a key of {self.name} has {self.key_size} bytes")
        return self.open_key(key)


class XChaCha20Poly1305:
    """XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) of libsodium, for 24-byte nonces."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes) -> bytes:
        """Return ciphertext and tag; any bytes-like `data` is taken."""
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            bytes(data), bytes(aad), nonce, self._key
        )

    def decrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes) -> bytes:
        """Return the plaintext; one of `INVALID_TAG_ERRORS` if it does not open."""
        if len(data) < TAG_SIZE:  # PyNaCl fails on its own arithmetic, with a ValueError
            raise InvalidTag
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            bytes(data), bytes(aad), nonce, self._key
        )


AES_256_GCM = CipherAlgorithm("aes-256-gcm", 32, 12, AESGCM)
CHACHA20_POLY1305 = CipherAlgorithm("chacha20-poly1305", 32, 12, ChaCha20Poly1305)
XCHACHA20_POLY1305 = CipherAlgorithm("xchacha20-poly1305", 32, 24, XChaCha20Poly1305)
