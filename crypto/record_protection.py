"""The protection of a direction's events: stream keys, the hash chain, and seals (docs/protocol.md
section 6).

A nonce is the iv XOR a counter that only rises, so no key is used with a nonce twice. The chain
covers the bytes on the wire. A seal signs one chain value and is masked, so that the wire doesn't
show the signer.
"""

from parley._crypto.ciphers import INVALID_TAG_ERRORS, CipherAlgorithm
from parley._crypto.errors import (
    CounterExhaustedError,
    DecryptError,
    SignatureError,
    WrongSizeError,
)
from parley._crypto.hashing import HashAlgorithm, label
from parley._crypto.registry import Suite
from parley._crypto.signing import SigningKey, Verifier

_LAST_COUNTER = 2**64 - 1


class StreamKey:
    """The key of one direction, epoch and stream, and its counter. Either only `encrypt` or only
    `decrypt` is called."""

    __slots__ = ("_decrypt", "_encrypt", "_iv", "_nonce_size", "counter")

    def __init__(self, suite: Suite, secret: bytes, stream: int) -> None:
        """Derive key and iv from `secret`: `hs_*`, or `ap[epoch]` of the direction."""
        hash = suite.hash_algorithm
        cipher = suite.cipher_algorithm
        context = stream.to_bytes(4, "big")
        self.start(
            cipher,
            label(hash, secret, "stream key", context, cipher.key_size),
            label(hash, secret, "stream iv", context, cipher.nonce_size),
        )

    def start(self, cipher: CipherAlgorithm, key: bytes, iv: bytes) -> None:
        """Begin with a given key and iv, for test vectors only. WrongSizeError on a wrong size."""
        if len(iv) != cipher.nonce_size:
            raise WrongSizeError(f"a nonce of {cipher.name} has {cipher.nonce_size} bytes")
        opened = cipher.new(key)
        self._encrypt = opened.encrypt
        self._decrypt = opened.decrypt
        # As an integer, since that makes the XOR a single operation for each event.
        self._iv = int.from_bytes(iv, "big")
        self._nonce_size = cipher.nonce_size
        self.counter = 0

    def encrypt(self, data: bytes | memoryview, aad: bytes) -> bytes:
        """Return the blob (`data` plus 16 bytes) of the next event. CounterExhaustedError after
        2^64."""
        counter = self.counter
        if counter > _LAST_COUNTER:
            raise CounterExhaustedError("this stream key has no nonce left")
        # Raised first: should the AEAD fail, the nonce is spent rather than used again.
        self.counter = counter + 1
        return self._encrypt((self._iv ^ counter).to_bytes(self._nonce_size, "big"), data, aad)

    def decrypt(self, blob: bytes | memoryview, aad: bytes) -> bytes:
        """Return the content of the next event.

        DecryptError if it doesn't open, and the counter stays; CounterExhaustedError after 2^64
        events.
        """
        counter = self.counter
        if counter > _LAST_COUNTER:
            raise CounterExhaustedError("this stream key has no nonce left")
        try:
            data = self._decrypt((self._iv ^ counter).to_bytes(self._nonce_size, "big"), blob, aad)
        except INVALID_TAG_ERRORS as error:
            raise DecryptError("the event does not decrypt") from error
        self.counter = counter + 1
        return data

    def __repr__(self) -> str:
        return f"<StreamKey counter={self.counter}>"


_SEAL = b"parley1 seal"


class HashChain:
    """d[n] = H(d[n-1] || stream u32 || blob); `value` is the latest d."""

    __slots__ = ("_hash", "value")

    def __init__(self, hash: HashAlgorithm, value: bytes) -> None:
        """Start from d[-1] of `crypto.key_schedule`. Binding and rekeys replace `value`."""
        self._hash = hash.new
        self.value = value

    def advance(self, stream4: bytes | memoryview, blob: bytes | memoryview) -> bytes:
        """Add one event, and return its d[n]."""
        hash = self._hash(self.value + stream4)
        hash.update(blob)
        self.value = value = hash.digest()
        return value

    def __repr__(self) -> str:
        return f"<HashChain {self.value[:4].hex()}..>"


def seal_mask(hash: HashAlgorithm, commit: bytes, d: bytes, size: int) -> bytes:
    """Return the bytes that hide a seal's signature over `d`."""
    return label(hash, commit, "seal mask", d, size)


def make_seal(signing_key: SigningKey, hash: HashAlgorithm, commit: bytes, d: bytes) -> bytes:
    """Return the seal of the chain value `d`."""
    signature = signing_key.sign(_SEAL + d)
    return _xor(signature, seal_mask(hash, commit, d, len(signature)))


def check_seal(
    verifier: Verifier, hash: HashAlgorithm, commit: bytes, d: bytes, seal: bytes | memoryview
) -> None:
    """Raise SignatureError unless `seal` is the signer's over `d`."""
    if len(seal) != verifier.signature_size:
        raise SignatureError(f"a seal of {verifier.algorithm} has {verifier.signature_size} bytes")
    verifier.verify(_xor(seal, seal_mask(hash, commit, d, len(seal))), _SEAL + d)


def _xor(left: bytes | memoryview, right: bytes) -> bytes:
    value = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return value.to_bytes(len(left), "big")
