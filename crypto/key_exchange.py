"""The key exchanges of the `kex` parameter: two shares in, one secret out.

An ephemeral key serves one exchange. Anything wrong with a peer's share is a KeyExchangeError.
X25519 uses libsodium, which multiplies the base point in half the time of OpenSSL; ML-KEM is
OpenSSL's.
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
    """One key exchange; all sizes in bytes (section 5)."""

    name: str
    initiator_share_size: int
    responder_share_size: int
    secret_size: int
    private_size: int
    open_private: Callable[[bytes], tuple[bytes, Derive]]
    answer: Callable[[bytes], tuple[bytes, bytes]]

    def generate(self) -> "EphemeralKey":
        """Make a fresh key for the initiator's part of one exchange."""
        return self.from_private(random_bytes(self.private_size))

    def from_private(self, private: bytes) -> "EphemeralKey":
        """Make the key of given private bytes: for test vectors only.

        `x25519`: the 32-byte scalar; `x25519-mlkem768`: ML-KEM seed d || z (64), then the
        scalar (32), in the order of the share. KeyExchangeError on a wrong size.
        """
        _require_size(private, self.private_size, "private key", self.name)
        return EphemeralKey(self, *self.open_private(private))

    def respond(self, initiator_share: bytes) -> tuple[bytes, bytes]:
        """Answer an initiator's share: return the responder's share and the shared secret.

        KeyExchangeError on a wrong size, an ML-KEM coefficient out of range, or an all-zero
        X25519 result.
        """
        _require_size(initiator_share, self.initiator_share_size, "initiator's share", self.name)
        return self.answer(initiator_share)


class EphemeralKey:
    """The initiator's private part of one exchange; `share` is what it sends."""

    __slots__ = ("_derive", "algorithm", "share")

    def __init__(self, algorithm: KexAlgorithm, share: bytes, derive: Derive) -> None:
        self.algorithm = algorithm.name
        self.share = share
        self._derive: tuple[int, Derive] | None = (algorithm.responder_share_size, derive)

    def derive(self, responder_share: bytes) -> bytes:
        """Return the shared secret, once; the private key is dropped even on failure.

        KeyExchangeError on a malformed share or a second call.
        """
        if self._derive is None:
            raise KeyExchangeError(f"this {self.algorithm} key has been used")
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
            # libsodium refuses the all-zero result of a small-order share (RFC 7748, 6.1).
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
        # A wrong ciphertext of the right size is not an error: FIPS 203 then gives an unrelated
        # secret (implicit rejection) and the Proof does not open.
        secret = mlkem.decapsulate(share[:MLKEM768_CIPHERTEXT_SIZE])
        return secret + agree(share[MLKEM768_CIPHERTEXT_SIZE:])

    return mlkem.public_key().public_bytes_raw() + public, derive


def _hybrid_answer(share: bytes) -> tuple[bytes, bytes]:
    # X25519 first: it is the cheaper of the two refusals.
    public, agreed = _x25519_answer(share[MLKEM768_PUBLIC_SIZE:])
    try:
        # Refuses coefficients >= q: the modulus check of FIPS 203, section 7.2.
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
