"""The hash chain over a direction's encrypted events, and the seals over it (section 6).

The chain covers the bytes of the wire and nothing re-encoded; a seal signs one
chain value under its own domain prefix and is masked, so that the wire does not show
the signer.
"""

from parley._crypto.errors import SignatureError
from parley._crypto.hashing import HashAlgorithm
from parley._crypto.kdf import label
from parley._crypto.signing import SigningKey, Verifier

_SEAL = b"parley1 seal"
# Longer blobs are hashed where they are: copying them costs more than a second call.
LARGE_BLOB = 2_048


class HashChain:
    """d[n] = H(d[n-1] || stream u32 || blob); `value` is the latest d, `hash` the hash's
    constructor."""

    __slots__ = ("hash", "value")

    def __init__(self, hash: HashAlgorithm, value: bytes) -> None:
        """Start from d[-1], which `crypto.schedule` makes.

        `value` may be set anew: binding and rekey replace it (`chain_bind`, `chain_rekey`).
        """
        self.hash = hash.new
        self.value = value

    def advance(self, stream4: bytes | memoryview, blob: bytes | memoryview) -> bytes:
        """Take one event in the order of the wire and return its d[n]."""
        if len(blob) < LARGE_BLOB:
            hash = self.hash(b"".join((self.value, stream4, blob)))
        else:
            hash = self.hash(self.value + stream4)
            hash.update(blob)
        self.value = value = hash.digest()
        return value

    def __repr__(self) -> str:
        return f"<HashChain {self.value[:4].hex()}..>"


def seal_mask(hash: HashAlgorithm, commit: bytes, d: bytes, size: int) -> bytes:
    """Return the `size` bytes that hide a seal's signature over `d`."""
    return label(hash, commit, "seal mask", d, size)


def make_seal(signing_key: SigningKey, hash: HashAlgorithm, commit: bytes, d: bytes) -> bytes:
    """Return seal(n) for the chain value `d`, of the algorithm's signature size."""
    signature = signing_key.sign(_SEAL + d)
    return _xor(signature, seal_mask(hash, commit, d, len(signature)))


def check_seal(
    verifier: Verifier, hash: HashAlgorithm, commit: bytes, d: bytes, seal: bytes | memoryview
) -> None:
    """Return if `seal` is the signer's over `d`, else raise SignatureError."""
    if len(seal) != verifier.signature_size:
        raise SignatureError(f"a seal of {verifier.algorithm} has {verifier.signature_size} bytes")
    verifier.verify(_xor(seal, seal_mask(hash, commit, d, len(seal))), _SEAL + d)


def _xor(left: bytes | memoryview, right: bytes) -> bytes:
    value = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return value.to_bytes(len(left), "big")
