"""Tests whether every algorithm of the registry works on this machine.

Each is tested as the protocol uses it, and must reject altered data. The installed libraries may
lack an algorithm (an old OpenSSL doesn't have ML-KEM), which only this test detects.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import cryptography
import nacl
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.backends.openssl import backend

from parley._crypto.ciphers import INVALID_TAG_ERRORS, CipherAlgorithm
from parley._crypto.errors import CryptoError, SignatureError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.key_exchange import KexAlgorithm
from parley._crypto.randomness import random_bytes
from parley._crypto.registry import CIPHERS, HASHES, KEX, SIGNING
from parley._crypto.signing import SigningAlgorithm

Algorithm = TypeVar("Algorithm")

_FAILURES: Final[tuple[type[Exception], ...]] = (
    CryptoError,
    ValueError,
    TypeError,
    *INVALID_TAG_ERRORS,
)

# Digests of the bytes abc: examples of FIPS 180-4, RFC 7693's function with 32 bytes, and BLAKE3.
KNOWN_DIGESTS: Final[Mapping[str, str]] = {
    "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    "blake2b-256": "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
    "blake3": "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    "sha512": "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
    "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
}


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries: the bindings, and the library behind them if known."""
    return {
        "cryptography": cryptography.__version__,
        "openssl": backend.openssl_version_text(),
        "pynacl": nacl.__version__,  # bundles a libsodium without exposing its version
    }


def self_test() -> Iterator[tuple[str, str, str | None]]:
    """Yield parameter, name and error (None if it works) of each algorithm."""
    for kex in KEX.values():
        yield "kex", kex.name, _outcome(_try_kex, kex)
    for signing in SIGNING.values():
        yield "signing", signing.name, _outcome(_try_signing, signing)
    for hashing in HASHES.values():
        yield "hash", hashing.name, _outcome(_try_hash, hashing)
    for cipher in CIPHERS.values():
        yield "cipher", cipher.name, _outcome(_try_cipher, cipher)


def _outcome(attempt: Callable[[Algorithm], str | None], algorithm: Algorithm) -> str | None:
    try:
        return attempt(algorithm)
    except UnsupportedAlgorithm as error:
        return f"not supported by the installed libraries: {error}"
    except _FAILURES as error:
        return f"failed: {error!r}"


def _try_kex(kex: KexAlgorithm) -> str | None:
    ours = kex.generate()
    share, secret = kex.respond(ours.share)
    return None if ours.derive(share) == secret else "the two sides derived different secrets"


def _try_signing(signing: SigningAlgorithm) -> str | None:
    key = signing.generate()
    signature = key.sign(b"message")
    verifier = signing.verifier(key.public)
    verifier.verify(signature, b"message")
    try:
        verifier.verify(signature, b"massage")
    except SignatureError:
        return None
    return "it accepts a signature of another message"


def _try_hash(hashing: HashAlgorithm) -> str | None:
    expected = KNOWN_DIGESTS.get(hashing.name)
    if expected is not None and hashing.digest(b"abc").hex() != expected:
        return "it computes a wrong digest"
    return None


def _try_cipher(cipher: CipherAlgorithm) -> str | None:
    key = cipher.new(random_bytes(cipher.key_size))
    nonce = random_bytes(cipher.nonce_size)
    encrypted = key.encrypt(nonce, b"message", b"data")
    if key.decrypt(nonce, encrypted, b"data") != b"message":
        return "decryption does not return the plaintext"
    try:
        key.decrypt(nonce, encrypted, b"date")
    except INVALID_TAG_ERRORS:
        return None
    return "it accepts altered data"
