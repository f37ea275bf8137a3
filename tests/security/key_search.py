"""Looks through all that a process still reaches for keys that ought to be gone.

It keeps events and nonces, never a key; what opens one of these events is a key
that was kept, whatever it is called and wherever it lies. Garbage is collected first: what
nobody reaches is gone.
"""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from parley._crypto.ciphers import INVALID_TAG_ERRORS, AeadKey
from parley._crypto.hashing import label
from parley._crypto.key_schedule import HandshakeSecrets, handshake_secrets
from parley._crypto.registry import CIPHERS, Suite
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint
from tests.alone import alive

# What encrypts and decrypts under a key, in any of the ciphers.
AEADS = tuple({type(cipher.new(bytes(cipher.key_size))) for cipher in CIPHERS.values()})
_PLAIN = (int, str, float, type(None), bool)  # which refer to nothing
_CHAIN_HEAD = 4 + 1 + 16  # stream, form, chain value: sealing `chain`


@dataclass(frozen=True)
class Witness:
    """The first event of a stream in an epoch of a direction; `epoch` -1 is the handshake."""

    suite: Suite
    sent: bool
    epoch: int
    stream: int
    nonce: bytes
    aad: bytes
    blob: bytes

    def is_opened_by(self, key: AeadKey) -> bool:
        """Whether the key decrypts it."""
        try:
            key.decrypt(self.nonce, self.blob, self.aad)
        except INVALID_TAG_ERRORS:
            return False
        except ValueError:  # a nonce of another cipher's size
            return False
        return True


class Witnesses:
    """An observer of one connection: of each epoch, the first event of streams 0 and 1.

    `epochs` has the epoch that each direction is in: received, sent. `transcripts` are
    those that handshake secrets go with. Secrets of rekeys are kept as hashes alone.
    """

    def __init__(self) -> None:
        self.found: list[Witness] = []
        self.epochs = [-1, -1]
        self.events = [0, 0]
        self.rekeys: set[bytes] = set()
        self.transcripts: tuple[bytes, bytes] | None = None
        self.unsealed = [0, 0]
        self.longest_unsealed = [0, 0]
        self._suite: Suite | None = None
        self._seen: tuple[set[int], set[int]] = (set(), set())
        self._secrets = [b"", b""]  # of the epochs that are still on

    # As an observer.

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        suite, hs = agreed.suite, agreed.hs
        if suite is None or hs is None:
            raise TypeError("an encrypted session has a suite and a secret")
        self._suite = suite
        hash = suite.hash_algorithm
        th1 = hash.digest(agreed.t1)
        th2 = hash.digest(agreed.t1 + agreed.responder_proof + agreed.initiator_proof)
        self.transcripts = th1, th2
        for name, proof, by_initiator in (
            ("hs initiator", agreed.initiator_proof, True),
            ("hs responder", agreed.responder_proof, False),
        ):
            secret = label(hash, hs, name, th1, hash.size)
            self._keep(by_initiator == initiator, -1, secret, proof)

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        self.epochs[sent] = epoch
        self._secrets[sent] = secret
        self._seen[sent].clear()

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        self.events[sent] += 1
        self.unsealed[sent] = 0 if wire[4] else self.unsealed[sent] + 1
        self.longest_unsealed[sent] = max(self.longest_unsealed[sent], self.unsealed[sent])
        stream = int.from_bytes(wire[:4])
        # Streams 0 and 1 are always there; the others' keys follow from the same secret.
        if stream < 2 and stream not in self._seen[sent]:
            self._seen[sent].add(stream)
            self._keep(sent, self.epochs[sent], self._secrets[sent], wire)

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        self.rekeys.add(sha256(shared_secret).digest())

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        return

    def direction_ended(self, stream: int) -> None:
        return

    def session_suspended(self, reason: str) -> None:
        return

    def session_resumed(self, number: int) -> None:
        return

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        self._secrets = [b"", b""]
        self.epochs = [epoch + 1 for epoch in self.epochs]  # no epoch is on any more

    # For the search.

    @property
    def past(self) -> list[Witness]:
        """Those of epochs that are over, the handshake's among them."""
        return [witness for witness in self.found if witness.epoch < self.epochs[witness.sent]]

    def _keep(self, sent: bool, epoch: int, secret: bytes, wire: bytes) -> None:
        suite = self._suite
        if suite is None or suite.sealing != "chain":
            raise TypeError("this reads events of sealing `chain`")
        start = _CHAIN_HEAD + (suite.signing_algorithm.signature_size if wire[4] else 0)
        stream = int.from_bytes(wire[:4])
        iv = _iv(suite, secret, stream)
        self.found.append(Witness(suite, sent, epoch, stream, iv, wire[:5], wire[start:]))


def kept_keys(observers: Iterable[Witnesses]) -> list[str]:
    """What is still reached and opens an event of an epoch that is over, in words.

    Raises:
        ValueError: no epoch is over, so that there is nothing to look for.
    """
    every = list(observers)
    # Both sides see the same events: the nonce tells them apart.
    past = {(w.stream, w.nonce): w for observer in every for w in observer.past}
    if not past:
        raise ValueError("no epoch is over")
    suite = next(iter(past.values())).suite
    transcripts = {observer.transcripts for observer in every if observer.transcripts}
    rekeys = set().union(*(observer.rekeys for observer in every))
    streams = {stream for stream, _ in past}
    found = []
    secrets, aeads = _reached()
    for secret in secrets:
        if sha256(secret).digest() in rekeys:
            found.append("the shared secret of a rekey")
        for derived in (secret, *_of_the_handshake(secret, transcripts, suite)):
            for stream in streams:
                # An epoch's secret gives the nonce as well as the key, which needs no trying.
                witness = past.get((stream, _iv(suite, derived, stream)))
                if witness is not None:
                    found.append(_said(witness, "a secret"))
        if len(secret) == 32:
            key = suite.cipher_algorithm.new(secret)
            found += [_said(w, "a key's bytes") for w in past.values() if w.is_opened_by(key)]
    for aead in aeads:
        found += [_said(w, "a key") for w in past.values() if w.is_opened_by(aead)]
    return found


def _iv(suite: Suite, secret: bytes, stream: int) -> bytes:
    size = suite.cipher_algorithm.nonce_size
    return label(suite.hash_algorithm, secret, "stream iv", stream.to_bytes(4), size)


def _said(witness: Witness, what: str) -> str:
    way = "sent" if witness.sent else "received"
    return f"{what} of epoch {witness.epoch} ({way}, stream {witness.stream})"


def _of_the_handshake(
    secret: bytes, transcripts: Iterable[tuple[bytes, bytes]], suite: Suite
) -> Iterator[bytes]:
    """What would follow, were it the `hs` or the shared secret of a handshake."""
    hash = suite.hash_algorithm
    for th1, th2 in transcripts:
        as_hs = HandshakeSecrets(hash, secret, b"", b"", b"")
        from_shared = handshake_secrets(hash, th1, secret, None)
        for name in ("hs initiator", "hs responder"):
            yield label(hash, secret, name, th1, hash.size)
        yield from_shared.hs_initiator
        for of_either in (as_hs, from_shared):
            application = of_either.application(th2)
            yield application.ap_initiator
            yield application.ap_responder


def _looks_random(string: bytes | bytearray) -> bool:
    """Whether it may be a secret: not so texts and tables, which repeat bytes. Of 32 random
    ones fewer than 20 differ once in 2^60 times."""
    return len(string) in (32, 64) and len(set(string)) >= 20 and not string.isascii()


def _reached() -> tuple[set[bytes], list[AeadKey]]:
    """Every byte string that may be a secret, and every key object, that anything refers to."""
    secrets: set[bytes] = set()
    aeads: list[AeadKey] = []
    # What the collector does not track (byte strings, foreign objects, tuples of them) is
    # referred to by something that it does, or by something untracked in between.
    waiting = alive()
    aeads += [thing for thing in waiting if type(thing) in AEADS]
    seen: set[int] = set()
    while waiting:
        untracked = {
            id(thing): thing
            for thing in gc.get_referents(*waiting)
            if type(thing) not in _PLAIN and not gc.is_tracked(thing)
        }
        waiting = [thing for at, thing in untracked.items() if at not in seen]
        seen.update(untracked)
        strings = [thing for thing in waiting if isinstance(thing, bytes | bytearray)]
        secrets.update(bytes(string) for string in strings if _looks_random(string))
        aeads += [thing for thing in waiting if type(thing) in AEADS]
    return secrets, aeads
