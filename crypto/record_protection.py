"""The protection of one direction's events: stream keys, hash chain and seals (docs/protocol.md
section 6).

A nonce is the IV XOR a counter that only increases, so that a key never uses a nonce twice. The
chain covers the bytes on the wire. A seal signs one chain value. It is masked, so that the wire
doesn't reveal the signer.
"""

from typing import Final

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

_LAST_COUNTER: Final = 2**64 - 1


class StreamKey:
    """The AEAD key of one direction, epoch and stream, with its counter.

    Use an object either only to encrypt or only to decrypt (docs/protocol.md section 6).

    Example:

        from parley.protocol import StreamKey

        suite = peer.suite
        secret = bytes(suite.hash_algorithm.size)
        blob = StreamKey(suite, secret, stream=2).encrypt(b"data", b"header")
        assert StreamKey(suite, secret, stream=2).decrypt(blob, b"header") == b"data"
    """

    __slots__ = ("_decrypt", "_encrypt", "_iv", "_nonce_size", "counter")

    def __init__(self, suite: Suite, secret: bytes, stream: int) -> None:
        """Derive key and IV from `secret`, which is `hs_*` or `ap[epoch]` of the direction."""
        hash = suite.hash_algorithm
        cipher = suite.cipher_algorithm
        context = stream.to_bytes(4, "big")
        self.start(
            cipher,
            label(hash, secret, "stream key", context, cipher.key_size),
            label(hash, secret, "stream iv", context, cipher.nonce_size),
        )

    def start(self, cipher: CipherAlgorithm, key: bytes, iv: bytes) -> None:
        """Set key and IV directly, only for test vectors.

        Raises:
            WrongSizeError: key or IV has a wrong size.
        """
        if len(iv) != cipher.nonce_size:
            raise WrongSizeError(
                f"invalid {cipher.name} nonce of {len(iv)} bytes: expected {cipher.nonce_size}"
            )
        opened = cipher.new(key)
        self._encrypt = opened.encrypt
        self._decrypt = opened.decrypt
        # An integer, so that the XOR is a single operation for each event.
        self._iv = int.from_bytes(iv, "big")
        self._nonce_size = cipher.nonce_size
        self.counter = 0

    def encrypt(self, data: bytes | memoryview, aad: bytes) -> bytes:
        """Encrypt the next event into a blob, which is 16 bytes longer than `data`.

        Raises:
            CounterExhaustedError: 2^64 events were encrypted.
        """
        counter = self.counter
        if counter > _LAST_COUNTER:
            raise CounterExhaustedError("all nonces of this stream key were used; update the keys")
        # Incremented first: if the AEAD fails, the nonce is lost rather than used again.
        self.counter = counter + 1
        return self._encrypt((self._iv ^ counter).to_bytes(self._nonce_size, "big"), data, aad)

    def decrypt(self, blob: bytes | memoryview, aad: bytes) -> bytes:
        """Decrypt the next event.

        Raises:
            DecryptError: it doesn't decrypt; the counter is unchanged.
            CounterExhaustedError: 2^64 events were decrypted.
        """
        counter = self.counter
        if counter > _LAST_COUNTER:
            raise CounterExhaustedError("all nonces of this stream key were used; update the keys")
        try:
            data = self._decrypt((self._iv ^ counter).to_bytes(self._nonce_size, "big"), blob, aad)
        except INVALID_TAG_ERRORS as error:
            raise DecryptError("the event does not decrypt") from error
        self.counter = counter + 1
        return data

    def __repr__(self) -> str:
        return f"<StreamKey counter={self.counter}>"


_SEAL: Final = b"parley1 seal"


class HashChain:
    """The hash chain d[n] = H(d[n-1] || stream u32 || blob) of one direction (section 6).

    `value` is the latest d.

    Example:

        from parley.protocol import HashChain

        hash = peer.suite.hash_algorithm
        chain = HashChain(hash, bytes(hash.size))
        value = chain.advance(bytes(4), b"an encrypted event")
        assert value == chain.value
    """

    __slots__ = ("_hash", "value")

    def __init__(self, hash: HashAlgorithm, value: bytes) -> None:
        """Start from d[-1], see `chain_start_initiator`. After binding and rekeys, assign
        `value`.
        """
        self._hash = hash.new
        self.value = value

    def advance(self, stream4: bytes | memoryview, blob: bytes | memoryview) -> bytes:
        """Add one event and return its d[n]."""
        hash = self._hash(self.value + stream4)
        hash.update(blob)
        self.value = value = hash.digest()
        return value

    def __repr__(self) -> str:
        return f"<HashChain {self.value[:4].hex()}..>"


def seal_mask(hash: HashAlgorithm, commit: bytes, d: bytes, size: int) -> bytes:
    """Return the bytes that mask the signature in a seal over `d`."""
    return label(hash, commit, "seal mask", d, size)


def make_seal(signing_key: SigningKey, hash: HashAlgorithm, commit: bytes, d: bytes) -> bytes:
    """Return the seal of the chain value `d`."""
    signature = signing_key.sign(_SEAL + d)
    return _xor(signature, seal_mask(hash, commit, d, len(signature)))


def check_seal(
    verifier: Verifier, hash: HashAlgorithm, commit: bytes, d: bytes, seal: bytes | memoryview
) -> None:
    """Verify the seal of the chain value `d` (section 6).

    `commit` is the commitment of the handshake or of the latest rekey.

    Raises:
        SignatureError: the seal is not the signer's, or not over `d`.

    Example:

        from parley import Identity
        from parley.errors import CryptoError
        from parley.protocol import check_seal

        signer = Identity.create().public.verifier("ed25519")
        hash = peer.suite.hash_algorithm
        try:
            check_seal(signer, hash, bytes(hash.size), bytes(hash.size), bytes(64))
        except CryptoError as error:
            print(error)
    """
    if len(seal) != verifier.signature_size:
        raise SignatureError(
            f"invalid {verifier.algorithm} seal of {len(seal)} bytes: "
            f"expected {verifier.signature_size}"
        )
    verifier.verify(_xor(seal, seal_mask(hash, commit, d, len(seal))), _SEAL + d)


def _xor(left: bytes | memoryview, right: bytes) -> bytes:
    value = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return value.to_bytes(len(left), "big")
