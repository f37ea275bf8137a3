"""An attacker who recorded a session and tries to decrypt it with whatever keys are known.

Keys are derived with the reference implementation's key schedule. The same code opens everything
with the right secrets, and must fail without them.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from parley._crypto.registry import Suite as OurSuite
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint
from tests.reference import schedule
from tests.reference.exchange import (
    MLKEM_CIPHERTEXT,
    MLKEM_KEY,
    Offer,
    x25519_public,
    x25519_secret,
)
from tests.reference.handshake import PARAMETERS, handshake_cells
from tests.reference.primitives import CryptoFailure, decrypt, nonce_for
from tests.reference.sealing import Suite, associated_data, stream_key
from tests.reference.wire import CELLS, split_encrypted
from tests.security.exchanges import veiled

_ANY_SCALAR: Final = bytes(31) + b"\1"

Epoch = tuple[bool, int]  # direction: True for the initiator's; epoch: -1 for the Proof's
Secrets = dict[Epoch, bytes]


@dataclass(frozen=True)
class Sighting:
    """An encrypted event as recorded, with its position among the events under its key."""

    epoch: Epoch
    stream: int
    counter: int
    wire: bytes
    chain: bytes


@dataclass
class Tape:
    """An observer at the initiator; it stores secrets only veiled.

    `rekeys` contains, for each rekey, the chain values right after offer and answer. They are
    correct if the responder offers.
    """

    t1: bytes = b""
    proofs: tuple[bytes, bytes] = (b"", b"")  # of the initiator and the responder
    events: list[Sighting] = field(default_factory=list)
    secrets: Secrets = field(default_factory=dict)
    commit: bytes = b""
    rekey: bytes = b""
    rekeys: list[tuple[bytes, bytes]] = field(default_factory=list)
    rekeyed_epochs: dict[Epoch, int] = field(default_factory=dict)
    _epochs: dict[bool, int] = field(default_factory=dict)
    _counters: dict[tuple[Epoch, int], int] = field(default_factory=dict)

    @property
    def suite(self) -> Suite:
        """The suite that the Reply chose."""
        length = len(self.t1) - self.t1.rindex(b"\0\0\0\0\0\0\1\2")
        names = handshake_cells(self.t1[-length:])[1][CELLS["suite"]]
        return Suite(**{name: names[number] for name, number in PARAMETERS.items()})

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        assert initiator
        assert isinstance(agreed.suite, OurSuite)
        self.t1 = agreed.t1
        self.proofs = agreed.initiator_proof, agreed.responder_proof
        self.commit = veiled(agreed.commit or b"")
        self.rekey = veiled(agreed.rekey or b"")

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        self._epochs[sent] = epoch
        self.secrets[sent, epoch] = veiled(secret)

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        epoch, stream = (sent, self._epochs[sent]), int.from_bytes(wire[:4])
        counter = self._counters.get((epoch, stream), 0)
        self._counters[epoch, stream] = counter + 1
        self.events.append(Sighting(epoch, stream, counter, wire, chain))

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        offer = next(seen for seen in reversed(self.events) if not seen.epoch[0])
        answer = self.events[-1]
        assert answer.epoch[0]
        assert number == len(self.rekeys) + 1
        self.rekeys.append((offer.chain, answer.chain))
        for sent in (True, False):
            self.rekeyed_epochs[sent, self._epochs[sent] + 1] = number

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None: ...

    def direction_ended(self, stream: int) -> None: ...

    def session_suspended(self, reason: str) -> None:
        return

    def session_resumed(self, number: int) -> None:
        return

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        return

    @property
    def everything(self) -> list[Sighting]:
        """Both Proofs and all events."""
        initiator, responder = self.proofs
        return [
            Sighting((True, -1), 0, 0, initiator, b""),
            Sighting((False, -1), 0, 0, responder, b""),
            *self.events,
        ]


def opened(tape: Tape, secrets: Secrets) -> list[Sighting]:
    """Return the events that these epoch secrets decrypt."""
    suite, keys, found = tape.suite, dict[tuple[Epoch, int], tuple[bytes, bytes]](), []
    for seen in tape.everything:
        if seen.epoch not in secrets:
            continue
        place = seen.epoch, seen.stream
        if place not in keys:
            keys[place] = stream_key(suite, secrets[seen.epoch], seen.stream)
        key, iv = keys[place]
        _, form, _, blob = split_encrypted(seen.wire, suite.sealing, suite.signing)
        try:
            data = associated_data(seen.stream, form)
            decrypt(suite.cipher, key, nonce_for(iv, seen.counter), blob, data)
        except CryptoFailure:
            continue
        found.append(seen)
    return found


def derived(
    tape: Tape, shared: bytes, network_key: bytes | None = None, again: Mapping[int, bytes] = {}
) -> Secrets:
    """Derive the secrets of all epochs from the shared secrets of the handshake and of each rekey.

    The shared secrets of rekeys are in `again`; their chain values are the true ones.
    """
    suite = tape.suite
    initiator, responder = tape.proofs
    keys = schedule.handshake_keys(suite.hash, tape.t1, shared, network_key)
    application = schedule.application_keys(keys, responder, initiator)
    secrets: Secrets = {
        (True, -1): keys.hs_initiator,
        (False, -1): keys.hs_responder,
        (True, 0): application.ap_initiator,
        (False, 0): application.ap_responder,
    }
    return followed(tape, secrets, application.rekey, again)


def followed(
    tape: Tape, secrets: Secrets, rekey: bytes, again: Mapping[int, bytes] = {}
) -> Secrets:
    """Return the given secrets and those of all later epochs that follow from them."""
    suite, secrets = tape.suite, dict(secrets)
    following: Secrets = {}
    for number, (a, b) in enumerate(tape.rekeys, 1):
        if number not in again:
            break
        next_keys = schedule.rekey_keys(suite.hash, rekey, again[number], a, b)
        rekey = next_keys.rekey
        for epoch in (epoch for epoch, n in tape.rekeyed_epochs.items() if n == number):
            following[epoch] = next_keys.next_initiator if epoch[0] else next_keys.next_responder
    for sent, number in sorted(tape.secrets):
        before = secrets.get((sent, number - 1))
        if (sent, number) in following:
            secrets[sent, number] = following[sent, number]
        elif (sent, number) in tape.rekeyed_epochs or (sent, number) in secrets:
            continue
        elif before is not None:
            secrets[sent, number] = schedule.updated(suite.hash, before)
    return secrets


# Guesses that are possible with both sides' private signing keys.


def guesses(kex: str, offer: bytes, answer: bytes, seeds: list[bytes]) -> Iterator[bytes]:
    """Return the shared secrets that a careless design might have.

    These are constants, public bytes, the static keys themselves, and every exchange that involves
    a static key.
    """
    size = {"x25519": 32, "x25519-mlkem768": 64}[kex]
    yield from (b"", bytes(size), offer, answer, offer + answer)
    yield from (hashlib.sha256(part).digest() for part in (offer, answer, offer + answer))
    classical = list(_classical(offer[-32:], answer[-32:], seeds))
    if kex == "x25519":
        yield from classical
        return
    for post_quantum in _post_quantum(offer, answer, seeds):
        yield post_quantum
        yield from (post_quantum + secret for secret in classical)


def _classical(offer: bytes, answer: bytes, seeds: list[bytes]) -> Iterator[bytes]:
    yield from (bytes(32), offer, answer, *seeds)
    # A signing key's seed as a scalar, or hashed to one as in Ed25519.
    scalars = [*seeds, *(hashlib.sha512(seed).digest()[:32] for seed in seeds)]
    for number, scalar in enumerate(scalars):
        yield x25519_secret(scalar, offer)
        yield x25519_secret(scalar, answer)
        yield from (x25519_secret(scalar, x25519_public(other)) for other in scalars[:number])


def _post_quantum(offer: bytes, answer: bytes, seeds: list[bytes]) -> Iterator[bytes]:
    yield from (bytes(32), offer[:32], offer[MLKEM_KEY - 32 : MLKEM_KEY], answer[:32], *seeds)
    for seed in seeds:
        for whole in (seed + seed, seed + bytes(32), hashlib.sha512(seed).digest()):
            key = Offer("x25519-mlkem768", _ANY_SCALAR, whole)
            share = answer[:MLKEM_CIPHERTEXT] + x25519_public(_ANY_SCALAR)
            yield key.complete(share)[:32]
