"""Key exchanges of section 5: x25519 and x25519-mlkem768.

The offering side keeps an `Offer` (the share of Hello or RekeyOffer); the other side calls `answer`
once.
"""

from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric import mlkem, x25519
from nacl.utils import random as random_bytes

from tests.reference.primitives import CryptoFailure

KEX_NAMES: Final = ("x25519-mlkem768", "x25519")
OFFER_SIZES: Final = {"x25519-mlkem768": 1216, "x25519": 32}
ANSWER_SIZES: Final = {"x25519-mlkem768": 1120, "x25519": 32}
MLKEM_KEY: Final = 1184
MLKEM_CIPHERTEXT: Final = 1088
MLKEM_MODULUS: Final = 3329


@dataclass(frozen=True)
class Offer:
    """The offering side's ephemeral keys: an X25519 scalar and a 64-byte ML-KEM seed."""

    kex: str
    scalar: bytes = field(repr=False)
    seed: bytes = field(repr=False, default=b"")

    @classmethod
    def fresh(cls, kex: str) -> "Offer":
        """New random keys."""
        return cls(kex, random_bytes(32), random_bytes(64))

    @property
    def share(self) -> bytes:
        """What the initiator (or offerer) sends."""
        classical = x25519_public(self.scalar)
        if self.kex == "x25519":
            return classical
        key = mlkem.MLKEM768PrivateKey.from_seed_bytes(self.seed)
        return key.public_key().public_bytes_raw() + classical

    def complete(self, share: bytes) -> bytes:
        """The shared secret from the other side's answer; raises CryptoFailure."""
        if len(share) != ANSWER_SIZES[self.kex]:
            raise CryptoFailure("share size")
        if self.kex == "x25519":
            return x25519_secret(self.scalar, share)
        key = mlkem.MLKEM768PrivateKey.from_seed_bytes(self.seed)
        secret = key.decapsulate(share[:MLKEM_CIPHERTEXT])
        return secret + x25519_secret(self.scalar, share[MLKEM_CIPHERTEXT:])


def answer(kex: str, share: bytes, scalar: bytes | None = None) -> tuple[bytes, bytes]:
    """(share to send back, shared secret) for an offered share; raises CryptoFailure."""
    if len(share) != OFFER_SIZES[kex]:
        raise CryptoFailure("share size")
    scalar = random_bytes(32) if scalar is None else scalar
    if kex == "x25519":
        return x25519_public(scalar), x25519_secret(scalar, share)
    check_mlkem_key(share[:MLKEM_KEY])
    secret, ciphertext = mlkem.MLKEM768PublicKey.from_public_bytes(share[:MLKEM_KEY]).encapsulate()
    classical = x25519_secret(scalar, share[MLKEM_KEY:])
    return ciphertext + x25519_public(scalar), secret + classical


def x25519_public(scalar: bytes) -> bytes:
    """The public key of a scalar."""
    return x25519.X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes_raw()


def x25519_secret(scalar: bytes, public: bytes) -> bytes:
    """The X25519 result; all zero is refused with CryptoFailure."""
    key = x25519.X25519PrivateKey.from_private_bytes(scalar)
    try:
        secret = key.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise CryptoFailure("all-zero x25519") from error
    if not any(secret):
        raise CryptoFailure("all-zero x25519")
    return secret


def check_mlkem_key(key: bytes) -> None:
    """The modulus check of FIPS 203, section 7.2: every 12-bit coefficient is below q."""
    for at in range(0, MLKEM_KEY - 32, 3):
        pair = int.from_bytes(key[at : at + 3], "little")
        if pair & 0xFFF >= MLKEM_MODULUS or pair >> 12 >= MLKEM_MODULUS:
            raise CryptoFailure("ml-kem modulus")
