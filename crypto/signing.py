"""The signature algorithms of the `signing` parameter.

A public key is checked when its verifier is created, and the form of a signature before its
mathematics. Both raise `SignatureError` or its subclass `InvalidKeyError`. The domain prefixes of
signed messages are in `crypto.record_protection` and `crypto.identity`.

Ed25519 uses libsodium, which takes about half the time of OpenSSL and rejects non-canonical S and
small-order R itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

import nacl.bindings
import nacl.exceptions
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey, MLDSA65PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from parley._crypto.errors import InvalidKeyError, SignatureError
from parley._crypto.randomness import random_bytes

Sign = Callable[[bytes], bytes]
Verify = Callable[[bytes, bytes], None]


@dataclass(frozen=True, slots=True, eq=False)
class SigningAlgorithm:
    """A signature algorithm (section 4). All sizes are in bytes."""

    name: str
    public_size: int
    signature_size: int
    private_size: int
    draw_private: Callable[[], bytes]
    open_private: Callable[[bytes], tuple[bytes, Sign]]
    open_public: Callable[[bytes], Verify]

    def generate(self) -> "SigningKey":
        """Generate a new key."""
        return self.load(self.draw_private())

    def load(self, private: bytes) -> "SigningKey":
        """Create a key from its private bytes.

        `ed25519` and `ml-dsa-65`: the 32-byte seed. `ecdsa-p256`: the scalar, big-endian.

        Raises:
            InvalidKeyError: the bytes are not a key.
        """
        if len(private) != self.private_size:
            raise InvalidKeyError(
                f"invalid {self.name} private key of {len(private)} bytes: "
                f"expected {self.private_size}"
            )
        return SigningKey(self.name, private, *self.open_private(private))

    def verifier(self, public: bytes) -> "Verifier":
        """Create the verifier of a public key.

        Raises:
            InvalidKeyError: the key is malformed or weak.
        """
        if len(public) != self.public_size:
            raise InvalidKeyError(
                f"invalid {self.name} public key of {len(public)} bytes: "
                f"expected {self.public_size}"
            )
        return Verifier(self, public, self.open_public(public))


class SigningKey:
    """A private signing key with its public key."""

    __slots__ = ("_private", "_sign", "algorithm", "public")

    def __init__(self, algorithm: str, private: bytes, public: bytes, sign: Sign) -> None:
        self.algorithm = algorithm
        self.public = public
        self._private = private
        self._sign = sign

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`; the caller adds the domain prefix."""
        return self._sign(message)

    def private_bytes(self) -> bytes:
        """Return the secret bytes that `SigningAlgorithm.load` accepts."""
        return self._private

    def __repr__(self) -> str:
        return f"<SigningKey {self.algorithm} {self.public[:4].hex()}..>"


class Verifier:
    """A public signing key that was checked."""

    __slots__ = ("_verify", "algorithm", "public", "signature_size")

    def __init__(self, algorithm: SigningAlgorithm, public: bytes, verify: Verify) -> None:
        self.algorithm = algorithm.name
        self.signature_size = algorithm.signature_size
        self.public = public
        self._verify = verify

    def verify(self, signature: bytes, message: bytes) -> None:
        """Verify the signature of `message`.

        Raises:
            SignatureError: it is not this key's signature of the message.
        """
        if len(signature) != self.signature_size:
            raise SignatureError(
                f"invalid {self.algorithm} signature of {len(signature)} bytes: "
                f"expected {self.signature_size}"
            )
        self._verify(signature, message)

    def __repr__(self) -> str:
        return f"<Verifier {self.algorithm} {self.public[:4].hex()}..>"


def _seed() -> bytes:
    return random_bytes(32)


def _ed25519_open_private(seed: bytes) -> tuple[bytes, Sign]:
    public, secret = nacl.bindings.crypto_sign_seed_keypair(seed)

    def sign(message: bytes) -> bytes:
        return nacl.bindings.crypto_sign(message, secret)[:64]

    return public, sign


def _ed25519_open_public(public: bytes) -> Verify:
    # Rejects keys that are not canonical, not on the curve, or of small or mixed order. An honest
    # key has no torsion part, and verifiers disagree about keys that do.
    if not nacl.bindings.crypto_core_ed25519_is_valid_point(public):
        raise InvalidKeyError("the Ed25519 public key is not a point of the prime-order group")

    def verify(signature: bytes, message: bytes) -> None:
        try:
            nacl.bindings.crypto_sign_open(signature + message, public)
        except nacl.exceptions.BadSignatureError as error:
            raise SignatureError("the Ed25519 signature does not verify") from error

    return verify


def _mldsa_open_private(seed: bytes) -> tuple[bytes, Sign]:
    private = MLDSA65PrivateKey.from_seed_bytes(seed)
    return private.public_key().public_bytes_raw(), private.sign


def _mldsa_open_public(public: bytes) -> Verify:
    # pkDecode of FIPS 204 can't fail: any 1,952 bytes are a key.
    key = MLDSA65PublicKey.from_public_bytes(public)

    def verify(signature: bytes, message: bytes) -> None:
        try:
            key.verify(signature, message)
        except InvalidSignature as error:
            raise SignatureError("the ML-DSA signature does not verify") from error

    return verify


# The order of the P-256 group (SEC 2, section 2.4.2).
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# Deterministic nonces (RFC 6979), so that signatures don't depend on random state shared by a fork.
_ECDSA_SIGN = ec.ECDSA(SHA256(), deterministic_signing=True)
_ECDSA_VERIFY = ec.ECDSA(SHA256())


def _p256_scalar() -> bytes:
    scalar = random_bytes(32)
    while not 0 < int.from_bytes(scalar, "big") < _P256_ORDER:  # true once in 2^32
        scalar = random_bytes(32)
    return scalar


def _p256_open_private(scalar: bytes) -> tuple[bytes, Sign]:
    value = int.from_bytes(scalar, "big")
    if not 0 < value < _P256_ORDER:
        raise InvalidKeyError("the P-256 private key is out of range")
    private = ec.derive_private_key(value, ec.SECP256R1())

    def sign(message: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(message, _ECDSA_SIGN))
        # (r, s) and (r, n - s) both verify. Only the lower one is valid, so that nobody can derive
        # a second valid signature from the first.
        return r.to_bytes(32, "big") + min(s, _P256_ORDER - s).to_bytes(32, "big")

    public = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return public, sign


def _p256_open_public(public: bytes) -> Verify:
    try:
        # For keys of this length, the library accepts only the uncompressed form 4, not the hybrid
        # 6 and 7.
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public)
    except ValueError as error:
        raise InvalidKeyError("the P-256 public key is not on the curve") from error

    def verify(signature: bytes, message: bytes) -> None:
        r = int.from_bytes(signature[:32], "big")
        s = int.from_bytes(signature[32:], "big")
        if not 0 < r < _P256_ORDER or not 0 < s <= _P256_ORDER // 2:
            raise SignatureError("the ECDSA signature's r or s is out of range, or s is high")
        try:
            key.verify(encode_dss_signature(r, s), message, _ECDSA_VERIFY)
        except InvalidSignature as invalid:
            raise SignatureError("the ECDSA signature does not verify") from invalid

    return verify


ED25519 = SigningAlgorithm(
    "ed25519", 32, 64, 32, _seed, _ed25519_open_private, _ed25519_open_public
)
ML_DSA_65 = SigningAlgorithm(
    "ml-dsa-65", 1952, 3309, 32, _seed, _mldsa_open_private, _mldsa_open_public
)
ECDSA_P256 = SigningAlgorithm(
    "ecdsa-p256", 65, 64, 32, _p256_scalar, _p256_open_private, _p256_open_public
)
