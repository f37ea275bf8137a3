"""A search through all reachable objects of a process for keys that should have been deleted.

It stores events and nonces, never a key. An object that decrypts one of these events is a key that
was not deleted, whatever its name and location. Unreachable objects are collected first.
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

# Types that encrypt and decrypt under a key, for each cipher.
AEADS = tuple({type(cipher.new(bytes(cipher.key_size))) for cipher in CIPHERS.values()})
_PLAIN = (int, str, float, type(None), bool)  # these types refer to no other objects
_CHAIN_HEAD = 4 + 1 + 16  # stream, form, chain value: with sealing `chain`


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
        """Return whether the key decrypts it."""
        try:
            key.decrypt(self.nonce, self.blob, self.aad)
        except INVALID_TAG_ERRORS:
            return False
        except ValueError:  # a nonce of another cipher's size
            return False
        return True


class Witnesses:
    """An observer of one connection that stores, for each epoch, the first event of streams 0 and
    1.

    `epochs` contains the current epoch of each direction: received, sent. `transcripts` belong to
    the handshake secrets. Secrets of rekeys are stored only as hashes.
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
        self._secrets = [b"", b""]  # of the current epochs

    # Observer methods.

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
        # Streams 0 and 1 always exist; the keys of other streams follow from the same secret.
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
        self.epochs = [epoch + 1 for epoch in self.epochs]  # no epoch is active any longer

    # For the search.

    @property
    def past(self) -> list[Witness]:
        """The witnesses of past epochs, including the handshake's."""
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
    """Describe each reachable object that decrypts an event of a past epoch.

    Raises:
        ValueError: no epoch has ended, so there is no key to search for.
    """
    every = list(observers)
    # Both sides see the same events; the nonce distinguishes them.
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
                # An epoch's secret yields the nonce and the key, so it can be checked without
                # decryption.
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
    """Derive the keys that follow if this is the `hs` or the shared secret of a handshake."""
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
    """Return whether it may be a secret, unlike texts and tables, which repeat bytes.

    Fewer than 20 different bytes among 32 random ones occur once in 2^60 cases.
    """
    return len(string) in (32, 64) and len(set(string)) >= 20 and not string.isascii()


def _reached() -> tuple[set[bytes], list[AeadKey]]:
    """Yield every reachable byte string that may be a secret, and every key object."""
    secrets: set[bytes] = set()
    aeads: list[AeadKey] = []
    # Objects that the collector doesn't track (byte strings, foreign objects, tuples of them) are
    # referred to by a tracked object, or by an untracked one in between.
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
