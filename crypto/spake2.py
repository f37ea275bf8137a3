"""SPAKE2 (RFC 9382): two sides prove to each other that they know the same weak password.

An attacker who takes part in one exchange can test one guess; an eavesdropper can't test any. The
suite is SPAKE2-edwards25519-SHA256-HKDF-HMAC. libsodium computes points and scalars in constant
time.

A `Spake2` is used for one exchange, successful or not. The shared key isn't returned: both sides
already have keys and only want to authenticate them.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

import nacl.exceptions
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)

from parley._crypto.errors import KeyExchangeError
from parley._crypto.hashing import SHA256, expand, extract
from parley._crypto.randomness import random_bytes

SHARE_SIZE: Final = 32
CONFIRMATION_SIZE: Final = 32
SCALAR_SIZE: Final = 32

# Points with unknown discrete logarithm (RFC 9382, section 6), for side A and side B.
_M: Final = bytes.fromhex("d048032c6ea0b6d697ddc2e86bda85a33adac920f1bf18e1b0c6d166a5cecdaf")
_N: Final = bytes.fromhex("d3bfb518f44f3430f29d0c92af503865a1ed3281dc69b35dd868ba85f886c4ab")
_COFACTOR: Final = (8).to_bytes(SCALAR_SIZE, "little")
_WIDE_SIZE: Final = 64  # bytes to reduce to a scalar with negligible bias
_HALF: Final = 16  # bytes of a digest for each of the two derived keys


def password_scalar(password: bytes) -> bytes:
    """Return the scalar w of a password, 32 bytes, little-endian."""
    return crypto_core_ed25519_scalar_reduce(hashlib.sha512(password).digest())


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The confirmations of both sides: `ours` (32 bytes) is sent, the peer's is passed to
    `check`.
    """

    ours: bytes = field(repr=False)
    _theirs: bytes = field(repr=False)

    def check(self, theirs: bytes) -> bool:
        """Return whether the peer has the same password, identities, shares and context."""
        return hmac.compare_digest(theirs, self._theirs)


class Spake2:
    """One side of one exchange; `share` (32 bytes) is sent first.

    Side A is the side that sends first.
    """

    __slots__ = ("_first", "_private", "_w", "share")

    def __init__(self, password: bytes, *, first: bool, private: bytes | None = None) -> None:
        """Begin an exchange; `first` means side A. Pass `private` (a scalar, 32 bytes,
        little-endian) only for test vectors.
        """
        self._first = first
        self._w = password_scalar(password)
        if private is None:
            private = crypto_core_ed25519_scalar_reduce(random_bytes(_WIDE_SIZE))
        self._private: bytes | None = private
        blinding = crypto_scalarmult_ed25519_noclamp(self._w, _M if first else _N)
        public = crypto_scalarmult_ed25519_base_noclamp(private)
        self.share = crypto_core_ed25519_add(blinding, public)

    def finish(self, theirs: bytes, a: bytes, b: bytes, context: bytes) -> Confirmations:
        """Return the confirmations for the peer's share. Can be called once.

        `a` and `b` are the identities of the sides. `context` is additional data that both must
        have in common (the RFC's AAD).

        Raises:
            KeyExchangeError: the share is not a valid point of the prime-order subgroup, its result
                is the neutral element, or this is the second call.
        """
        private, self._private = self._private, None
        if private is None:
            raise KeyExchangeError("cannot use this side of SPAKE2 again")
        # Canonical, on the curve, in the prime-order subgroup, and not the neutral element.
        if len(theirs) != SHARE_SIZE or not crypto_core_ed25519_is_valid_point(theirs):
            raise KeyExchangeError("invalid SPAKE2 share: not a point of prime order")
        try:
            blinding = crypto_scalarmult_ed25519_noclamp(self._w, _N if self._first else _M)
            unblinded = crypto_core_ed25519_sub(theirs, blinding)
            factor = crypto_core_ed25519_scalar_mul(_COFACTOR, private)
            shared = crypto_scalarmult_ed25519_noclamp(factor, unblinded)
        except nacl.exceptions.RuntimeError as error:
            raise KeyExchangeError(
                "invalid SPAKE2 share: its result is the neutral element"
            ) from error
        shares = (self.share, theirs) if self._first else (theirs, self.share)
        # The RFC encodes w as a big-endian number of fixed length.
        transcript = b"".join(
            len(part).to_bytes(8, "little") + part
            for part in (a, b, *shares, shared, self._w[::-1])
        )
        key = SHA256.digest(transcript)[_HALF:]
        info = b"ConfirmationKeys" + context
        keys = expand(SHA256, extract(SHA256, b"", key), info, 2 * _HALF)
        of_a, of_b = (SHA256.hmac(one, transcript) for one in (keys[:_HALF], keys[_HALF:]))
        return Confirmations(of_a, of_b) if self._first else Confirmations(of_b, of_a)

    def __repr__(self) -> str:
        return f"<Spake2 of side {'A' if self._first else 'B'}>"
