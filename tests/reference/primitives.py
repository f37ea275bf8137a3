"""Hashes, HKDF, AEADs, signatures and key exchanges of the registry, by name.

Every function takes the algorithm's name of section 5 and plain bytes.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from nacl import bindings
from nacl.exceptions import CryptoError

# As a node offers them that has no package for blake3, which is in HASH_SIZES too.
HASH_NAMES: Final = ("sha256", "blake2b-256", "sha512")
CIPHER_NAMES: Final = ("aes-256-gcm", "chacha20-poly1305", "xchacha20-poly1305")
SIGNING_NAMES: Final = ("ed25519", "ml-dsa-65", "ecdsa-p256")

HASH_SIZES: Final = {"sha256": 32, "blake2b-256": 32, "sha512": 64, "blake3": 32}
NONCE_SIZES: Final = {"aes-256-gcm": 12, "chacha20-poly1305": 12, "xchacha20-poly1305": 24}
PUBLIC_SIZES: Final = {"ed25519": 32, "ml-dsa-65": 1952, "ecdsa-p256": 65}
SIGNATURE_SIZES: Final = {"ed25519": 64, "ml-dsa-65": 3309, "ecdsa-p256": 64}
KEY_SIZE: Final = 32
TAG_SIZE: Final = 16
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


class CryptoFailure(Exception):
    """A tag, signature, key or share was refused."""


def _hasher(name: str) -> Callable[..., Any]:
    if name == "blake2b-256":
        return lambda data=b"": hashlib.blake2b(data, digest_size=32)
    if name == "blake3":
        return blake3
    return {"sha256": hashlib.sha256, "sha512": hashlib.sha512}[name]


def digest(name: str, data: bytes) -> bytes:
    """H of section 5."""
    return bytes(_hasher(name)(data).digest())


def hmac_of(name: str, key: bytes, data: bytes) -> bytes:
    """HMAC with the named hash."""
    return hmac.new(key, data, _hasher(name)).digest()


def extract(name: str, salt: bytes, ikm: bytes) -> bytes:
    """HKDF-Extract (RFC 5869, section 2.2)."""
    return hmac_of(name, salt, ikm)


def expand(name: str, secret: bytes, info: bytes, size: int) -> bytes:
    """HKDF-Expand (RFC 5869, section 2.3), at most 255 blocks."""
    blocks, block = b"", b""
    for number in range(1, -(-size // HASH_SIZES[name]) + 1):
        block = hmac.new(secret, block + info + bytes([number]), _hasher(name)).digest()
        blocks += block
    return blocks[:size]


def label_info(label: str, context: bytes, size: int) -> bytes:
    """The info that Label hands to Expand."""
    name = b"parley1 " + label.encode()
    return size.to_bytes(2) + bytes([len(name)]) + name + bytes([len(context)]) + context


def derive(name: str, secret: bytes, label: str, context: bytes, size: int) -> bytes:
    """Label(secret, label, context, size) of section 5."""
    return expand(name, secret, label_info(label, context, size), size)


def encrypt(cipher: str, key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Ciphertext with its 16-byte tag."""
    if cipher == "aes-256-gcm":
        return AESGCM(key).encrypt(nonce, plaintext, associated)
    if cipher == "chacha20-poly1305":
        return ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated)
    return bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, associated, nonce, key)


def decrypt(cipher: str, key: bytes, nonce: bytes, blob: bytes, associated: bytes) -> bytes:
    """The plaintext; raises CryptoFailure for any failure."""
    try:
        if cipher == "aes-256-gcm":
            return AESGCM(key).decrypt(nonce, blob, associated)
        if cipher == "chacha20-poly1305":
            return ChaCha20Poly1305(key).decrypt(nonce, blob, associated)
        return bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(blob, associated, nonce, key)
    except (InvalidTag, CryptoError, ValueError) as error:
        raise CryptoFailure("aead") from error


def nonce_for(iv: bytes, counter: int) -> bytes:
    """iv XOR counter, the counter big-endian and right-aligned (section 6)."""
    return bytes(a ^ b for a, b in zip(iv, counter.to_bytes(len(iv)), strict=True))


@dataclass(frozen=True)
class SigningKey:
    """A private key, made from a 32-byte seed (for P-256: the scalar)."""

    algorithm: str
    seed: bytes = field(repr=False)

    @property
    def public(self) -> bytes:
        """The encoding of the table in section 4."""
        if self.algorithm == "ed25519":
            return (
                ed25519.Ed25519PrivateKey.from_private_bytes(self.seed)
                .public_key()
                .public_bytes_raw()
            )
        if self.algorithm == "ml-dsa-65":
            return (
                mldsa.MLDSA65PrivateKey.from_seed_bytes(self.seed).public_key().public_bytes_raw()
            )
        return (
            self._scalar().public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        )

    def _scalar(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(int.from_bytes(self.seed), ec.SECP256R1())

    def sign(self, message: bytes) -> bytes:
        """Return a signature; it is deterministic except for ML-DSA, which OpenSSL randomises."""
        if self.algorithm == "ed25519":
            return ed25519.Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)
        if self.algorithm == "ml-dsa-65":
            return mldsa.MLDSA65PrivateKey.from_seed_bytes(self.seed).sign(message)
        scheme = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        r, s = decode_dss_signature(self._scalar().sign(message, scheme))
        return r.to_bytes(32) + min(s, P256_ORDER - s).to_bytes(32)


def check_public(algorithm: str, public: bytes) -> None:
    """Raises CryptoFailure for a key of the wrong size or shape (section 4)."""
    if len(public) != PUBLIC_SIZES[algorithm]:
        raise CryptoFailure("key size")
    if algorithm == "ed25519" and small_order(public):
        raise CryptoFailure("small order")
    if algorithm == "ecdsa-p256":
        if public[0] != 4:
            raise CryptoFailure("not uncompressed")
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
        except ValueError as error:
            raise CryptoFailure("not on the curve") from error


def verify(algorithm: str, public: bytes, message: bytes, signature: bytes) -> None:
    """Raises CryptoFailure unless the signature is right, of the right size and low s."""
    check_public(algorithm, public)
    if len(signature) != SIGNATURE_SIZES[algorithm]:
        raise CryptoFailure("signature size")
    try:
        if algorithm == "ed25519":
            ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        elif algorithm == "ml-dsa-65":
            mldsa.MLDSA65PublicKey.from_public_bytes(public).verify(signature, message)
        else:
            r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
            if not (0 < r < P256_ORDER and 0 < s <= P256_ORDER // 2):
                raise CryptoFailure("not low s")
            point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
            point.verify(encode_dss_signature(r, s), message, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise CryptoFailure("signature") from error


FIELD: Final = 2**255 - 19
CURVE_D: Final = -121665 * pow(121666, -1, FIELD) % FIELD


def small_order(public: bytes) -> bool:
    """Whether an encoded Edwards point has an order that divides 8 (or is no point at all).

    The curve's points of order 1, 2, 4 and 8 are those whose y is one of five values:
    1, -1, 0 and the two roots y of the points of order 8; y is reduced first, so
    encodings that are not canonical count too.
    """
    y = (int.from_bytes(public, "little") & (1 << 255) - 1) % FIELD
    y2 = y * y % FIELD
    if y2 in (0, 1):
        return True
    # Doubling a point of order 8 gives one of order 4 (y = 0): y^2 = -x^2, and then the curve -x^2
    # + y^2 = 1 + d x^2 y^2 becomes 2 y^2 = 1 - d y^4.
    return (2 * y2 - 1 + CURVE_D * y2 * y2) % FIELD == 0
