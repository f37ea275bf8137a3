"""One direction of an encrypted connection (section 6): AEAD, hash chain and seals.

A `Direction` processes every event of its direction in wire order. The writer and the reader both
use it, without sockets or event types.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from tests.reference import schedule
from tests.reference.primitives import (
    KEY_SIZE,
    NONCE_SIZES,
    CryptoFailure,
    decrypt,
    derive,
    encrypt,
    nonce_for,
    verify,
)
from tests.reference.wire import Event, Violation, parse_inner, split_encrypted

SEAL_LABEL: Final = b"parley1 seal"


class Signer(Protocol):
    """Whatever signs for a direction; tests put a wrong key in its place."""

    def sign(self, message: bytes, /) -> bytes:
        """A signature over `message`."""


@dataclass(frozen=True)
class Suite:
    """One name for each negotiated parameter."""

    kex: str = "x25519-mlkem768"
    signing: str = "ed25519"
    hash: str = "sha256"
    cipher: str = "aes-256-gcm"
    sealing: str = "chain"


@dataclass(frozen=True)
class Opened:
    """A decrypted event, its form, its chain value, and its signature (mask removed)."""

    event: Event
    form: int
    chain: bytes
    signature: bytes = b""


def stream_key(suite: Suite, secret: bytes, stream: int) -> tuple[bytes, bytes]:
    """(key, iv) of a stream under one epoch's secret."""
    context = stream.to_bytes(4)
    key = derive(suite.hash, secret, "stream key", context, KEY_SIZE)
    return key, derive(suite.hash, secret, "stream iv", context, NONCE_SIZES[suite.cipher])


def associated_data(stream: int, form: int) -> bytes:
    """stream || form."""
    return stream.to_bytes(4) + bytes([form])


def masked(suite: Suite, commit: bytes, chain: bytes, data: bytes) -> bytes:
    """A signature to a seal, or back: XOR with the seal mask of this chain value."""
    mask = derive(suite.hash, commit, "seal mask", chain, len(data))
    return bytes(a ^ b for a, b in zip(data, mask, strict=True))


class Direction:
    """Secret, counters and chain value of one direction."""

    def __init__(self, suite: Suite, secret: bytes, chain: bytes, commit: bytes) -> None:
        self.suite = suite
        self.secret = secret
        self.chain = chain
        self.commit = commit
        self.epoch = 0
        self.counters: dict[int, int] = {}

    def write(
        self, stream: int, inner: bytes, signer: Signer, *, sealed: bool, flip_seal: bool = False
    ) -> bytes:
        """The whole encrypted event; `inner` is encrypted as it is, right or wrong."""
        form = 1 if sealed or self.suite.sealing == "each" else 0
        key, nonce = self._next(stream)
        blob = encrypt(self.suite.cipher, key, nonce, inner, associated_data(stream, form))
        self.chain = schedule.chain_step(self.suite.hash, self.chain, stream, blob)
        signed_hash = b""
        if self.suite.sealing == "chain":
            signed_hash = bytes([form]) + self.chain[:16]
        if form:
            seal = masked(self.suite, self.commit, self.chain, self._sign(signer))
            signed_hash += bytes([seal[0] ^ 1]) + seal[1:] if flip_seal else seal
        return stream.to_bytes(4) + signed_hash + blob

    def read(self, event: bytes) -> Opened:
        """Decrypts and steps the chain; the seal is still to be verified. Raises Violation."""
        stream, form, signed_hash, blob = split_encrypted(
            event, self.suite.sealing, self.suite.signing
        )
        key, nonce = self._next(stream)
        try:
            inner = decrypt(self.suite.cipher, key, nonce, blob, associated_data(stream, form))
        except CryptoFailure as error:
            raise Violation("bad-record", "decryption") from error
        self.chain = schedule.chain_step(self.suite.hash, self.chain, stream, blob)
        if self.suite.sealing == "chain":
            if signed_hash[:16] != self.chain[:16]:
                raise Violation("bad-record", "chain value")
            signed_hash = signed_hash[16:]
        signature = masked(self.suite, self.commit, self.chain, signed_hash) if form else b""
        return Opened(parse_inner(stream, inner), form, self.chain, signature)

    def replace(self, secret: bytes) -> None:
        """A new epoch: all streams restart their counters under the new keys."""
        self.secret = secret
        self.epoch += 1
        self.counters.clear()

    def _next(self, stream: int) -> tuple[bytes, bytes]:
        counter = self.counters.get(stream, 0)
        self.counters[stream] = counter + 1
        key, iv = stream_key(self.suite, self.secret, stream)
        return key, nonce_for(iv, counter)

    def _sign(self, signer: Signer) -> bytes:
        return signer.sign(SEAL_LABEL + self.chain)


def verify_seal(suite: Suite, public: bytes, opened: Opened) -> None:
    """Raises Violation seal-violation unless the signature over the chain value is right."""
    try:
        verify(suite.signing, public, SEAL_LABEL + opened.chain, opened.signature)
    except CryptoFailure as error:
        raise Violation("seal-violation", str(error)) from error
