"""The AEADs of the `cipher` parameter.

Encryption on the hot path calls the libraries' objects directly. Only XChaCha20, which
`cryptography` lacks, has a wrapper around libsodium. ChaCha20-Poly1305 uses `cryptography`, because
PyNaCl takes four times as long due to the cost of its foreign function calls.
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

# The errors that either library raises if data does not decrypt.
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
        """Create a key object; raises WrongSizeError unless `key` has `key_size` bytes."""
        # The libraries would also accept keys of AES-128 and AES-192, and an XChaCha20 key of any
        # size until its first use.
        if len(key) != self.key_size:
            raise WrongSizeError(
                f"invalid {self.name} key of {len(key)} bytes: expected {self.key_size}"
            )
        return self.open_key(key)


class XChaCha20Poly1305:
    """XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha) of libsodium, for 24-byte nonces."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes) -> bytes:
        """Return ciphertext and tag; `data` is any bytes-like object."""
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            bytes(data), bytes(aad), nonce, self._key
        )

    def decrypt(self, nonce: bytes, data: bytes | memoryview, aad: bytes) -> bytes:
        """Return the plaintext; raises one of `INVALID_TAG_ERRORS` if `data` doesn't decrypt."""
        if len(data) < TAG_SIZE:  # PyNaCl would fail with a ValueError in its own arithmetic
            raise InvalidTag
        return nacl.bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
            bytes(data), bytes(aad), nonce, self._key
        )


AES_256_GCM = CipherAlgorithm("aes-256-gcm", 32, 12, AESGCM)
CHACHA20_POLY1305 = CipherAlgorithm("chacha20-poly1305", 32, 12, ChaCha20Poly1305)
XCHACHA20_POLY1305 = CipherAlgorithm("xchacha20-poly1305", 32, 24, XChaCha20Poly1305)
