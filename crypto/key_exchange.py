"""The key exchanges of the `kex` parameter: two shares in, one shared secret out.

An ephemeral key is used for one exchange. Any invalid share of a peer raises KeyExchangeError.
X25519 uses libsodium, whose base point multiplication takes half the time of OpenSSL's; ML-KEM uses
OpenSSL.
"""

from collections.abc import Callable
from dataclasses import dataclass

import nacl.bindings
import nacl.exceptions
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from parley._crypto.errors import KeyExchangeError
from parley._crypto.randomness import random_bytes

X25519_SIZE = 32
MLKEM768_PUBLIC_SIZE = 1184
MLKEM768_CIPHERTEXT_SIZE = 1088
MLKEM768_SEED_SIZE = 64

Derive = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class KexAlgorithm:
    """A key exchange (section 5). All sizes are in bytes."""

    name: str
    initiator_share_size: int
    responder_share_size: int
    secret_size: int
    private_size: int
    open_private: Callable[[bytes], tuple[bytes, Derive]]
    answer: Callable[[bytes], tuple[bytes, bytes]]

    def generate(self) -> "EphemeralKey":
        """Generate the initiator's key for one exchange."""
        return self.from_private(random_bytes(self.private_size))

    def from_private(self, private: bytes) -> "EphemeralKey":
        """Create a key from private bytes, only for test vectors.

        `x25519`: the 32-byte scalar. `x25519-mlkem768`: the ML-KEM seed d || z (64 bytes), then the
        scalar (32 bytes), in the order of the share.

        Raises:
            KeyExchangeError: wrong size.
        """
        _require_size(private, self.private_size, "private key", self.name)
        return EphemeralKey(self, *self.open_private(private))

    def respond(self, initiator_share: bytes) -> tuple[bytes, bytes]:
        """Return the responder's share and the shared secret for an initiator's share.

        Raises:
            KeyExchangeError: wrong size, an ML-KEM coefficient out of range, or an all-zero X25519
                result.
        """
        _require_size(initiator_share, self.initiator_share_size, "initiator's share", self.name)
        return self.answer(initiator_share)


class EphemeralKey:
    """The initiator's private key for one exchange; `share` is sent to the responder."""

    __slots__ = ("_derive", "algorithm", "share")

    def __init__(self, algorithm: KexAlgorithm, share: bytes, derive: Derive) -> None:
        self.algorithm = algorithm.name
        self.share = share
        self._derive: tuple[int, Derive] | None = (algorithm.responder_share_size, derive)

    def derive(self, responder_share: bytes) -> bytes:
        """Return the shared secret. Can be called once; the private key is deleted even on failure.

        Raises:
            KeyExchangeError: the share is malformed, or this is the second call.
        """
        if self._derive is None:
            raise KeyExchangeError(f"cannot use this {self.algorithm} key again")
        (size, derive), self._derive = self._derive, None
        _require_size(responder_share, size, "responder's share", self.algorithm)
        return derive(responder_share)

    def __repr__(self) -> str:
        return f"<EphemeralKey {self.algorithm}>"


def _require_size(value: bytes, size: int, what: str, name: str) -> None:
    if len(value) != size:
        raise KeyExchangeError(f"the {what} of {name} has {size} bytes")


def _x25519_open(scalar: bytes) -> tuple[bytes, Derive]:
    def derive(peer: bytes) -> bytes:
        try:
            # libsodium rejects the all-zero result of a small-order share (RFC 7748, section 6.1).
            return nacl.bindings.crypto_scalarmult(scalar, peer)
        except nacl.exceptions.RuntimeError as error:
            raise KeyExchangeError("the X25519 share is of small order") from error

    return nacl.bindings.crypto_scalarmult_base(scalar), derive


def _x25519_answer(share: bytes) -> tuple[bytes, bytes]:
    public, derive = _x25519_open(random_bytes(X25519_SIZE))
    return public, derive(share)


def _hybrid_open(private: bytes) -> tuple[bytes, Derive]:
    mlkem = MLKEM768PrivateKey.from_seed_bytes(private[:MLKEM768_SEED_SIZE])
    public, agree = _x25519_open(private[MLKEM768_SEED_SIZE:])

    def derive(share: bytes) -> bytes:
        # A wrong ciphertext of the right size isn't an error: with FIPS 203 it results in an
        # unrelated secret (implicit rejection), and then the Proof doesn't decrypt.
        secret = mlkem.decapsulate(share[:MLKEM768_CIPHERTEXT_SIZE])
        return secret + agree(share[MLKEM768_CIPHERTEXT_SIZE:])

    return mlkem.public_key().public_bytes_raw() + public, derive


def _hybrid_answer(share: bytes) -> tuple[bytes, bytes]:
    # X25519 first, because rejecting an invalid share costs less there.
    public, agreed = _x25519_answer(share[MLKEM768_PUBLIC_SIZE:])
    try:
        # Rejects coefficients >= q: the modulus check of FIPS 203, section 7.2.
        peer = MLKEM768PublicKey.from_public_bytes(share[:MLKEM768_PUBLIC_SIZE])
    except ValueError as error:
        raise KeyExchangeError("the ML-KEM encapsulation key is malformed") from error
    secret, ciphertext = peer.encapsulate()
    return ciphertext + public, secret + agreed


X25519 = KexAlgorithm("x25519", 32, 32, 32, X25519_SIZE, _x25519_open, _x25519_answer)
X25519_MLKEM768 = KexAlgorithm(
    "x25519-mlkem768",
    MLKEM768_PUBLIC_SIZE + X25519_SIZE,
    MLKEM768_CIPHERTEXT_SIZE + X25519_SIZE,
    64,
    MLKEM768_SEED_SIZE + X25519_SIZE,
    _hybrid_open,
    _hybrid_answer,
)
