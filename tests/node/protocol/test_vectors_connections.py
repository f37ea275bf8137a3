"""Tests of whole connections against vectors: with the same keys, both cores write the same bytes.

All randomness is taken from the vector: private keys, the random of the Hellos, and outputs that a
library can't repeat (answers of ML-KEM, signatures of ML-DSA). The core computes everything else.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest

from parley._crypto.hashing import HashAlgorithm
from parley._crypto.identity import Identity
from parley._crypto.key_exchange import EphemeralKey, KexAlgorithm
from parley._crypto.record_protection import StreamKey
from parley._crypto.registry import PARAMETERS, SIGNING, Suite
from parley._crypto.signing import SigningKey
from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.protocol import codes as wire
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import Agreed, Initiator
from parley._node.protocol.observer import Checkpoint
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    PeerIdentified,
    Report,
)
from tests.compiled import CORE, is_compiled
from tests.node.protocol.pair import START, events_of
from tests.vectors.load import Vector, codes, read, unhex, vectors

SIDES = ("initiator", "responder")
Opened = dict[str, Any]


class Keeper:
    """An observer that records the secrets and the last chain value of each direction."""

    def __init__(self) -> None:
        self.agreed: Agreed | None = None
        self.chain: dict[bool, str] = {}

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        self.agreed = agreed

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        self.chain[sent] = chain.hex()

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        self.rekeys = number

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        self.epoch = epoch

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """Ignored."""

    def direction_ended(self, stream: int) -> None:
        """Ignored."""

    def session_suspended(self, reason: str) -> None:
        """Ignored."""

    def session_resumed(self, number: int) -> None:
        """Ignored."""

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        self.code = code


def share_in(event: bytes) -> tuple[str, bytes]:
    """Return kex and bytes of the only share of a Hello or Reply."""
    shares = decode(event[8:])[keys.SHARES]
    assert isinstance(shares, dict)
    ((kex, share),) = shares.items()
    assert isinstance(kex, str)
    assert isinstance(share, bytes)
    return kex, share


def given(value: bytes) -> Callable[[int], bytes]:
    """Return a random source that returns the given values."""

    def random(size: int) -> bytes:
        assert size == len(value)
        return value

    return random


class Replay:
    """Both sides of a vector's connection, step by step."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.suite = Suite(**vector["suite"])
        self.events = [(event["from"], unhex(event["event"])) for event in vector["events"]]
        self.hello, *self.reply = (event for _, event in self.events if event[4:6] == b"\0\0")
        self.opened: list[Opened] = vector["expected"]["opened"]
        self.rekeying = False
        self.reports: dict[str, list[Report]] = {side: [] for side in SIDES}
        self.observers = {side: Keeper() for side in SIDES}
        self.cores: dict[str, Connection] = {}
        self._seals = {side: iter(self.seals(side)) for side in SIDES}

    # Values of the vector in place of randomness.

    def seals(self, side: str) -> list[bytes]:
        """Return the seals of a side in the order of the wire."""
        size = self.suite.signing_algorithm.signature_size
        encrypted = [e for who, e in self.events if who == side and not self.is_raw(e)]
        if self.suite.sealing == "each":
            return [event[4 : 4 + size] for event in encrypted]
        return [event[21 : 21 + size] for event in encrypted if event[4] == 1]

    def is_raw(self, event: bytes) -> bool:
        """Return whether the event is a Hello, Retry or Reply, which precede the first Proof."""
        return any(event == raw for raw in (self.hello, *self.reply))

    def generate(self, algorithm: KexAlgorithm) -> EphemeralKey:
        if algorithm.name != self.suite.kex:  # answered by Retry, so its private key isn't needed
            return EphemeralKey(algorithm, share_in(self.hello)[1], bytes)
        who = "rekey_offerer" if self.rekeying else "initiator"
        private = unhex(self.vector[f"{who}_x25519_private"])
        if algorithm.private_size > len(private):
            private = unhex(self.vector[f"{who}_mlkem768_seed"]) + private
        return algorithm.from_private(private)

    def respond(self, algorithm: KexAlgorithm, share: bytes) -> tuple[bytes, bytes]:
        key = self.generate(algorithm)
        assert share == key.share
        if self.rekeying:
            answer = next(o for o in self.opened if o["subcategory"] == wire.REKEY_ANSWER)
            answered = decode(unhex(answer["payload"]))[keys.SHARE]
        else:
            _, answered = share_in(self.reply[-1])
        assert isinstance(answered, bytes)
        return answered, key.derive(answered)

    def make_seal(self, key: SigningKey, hash: HashAlgorithm, commit: bytes, d: bytes) -> bytes:
        (side,) = (side for side in SIDES if self.identity(side).keys[0].public == key.public)
        return next(self._seals[side])

    def identity(self, side: str) -> Identity:
        seed = unhex(self.vector["signing_seeds"][side])
        return Identity.from_keys([SIGNING[self.suite.signing].load(seed)])

    def config(self, side: str) -> CoreConfig:
        names = {parameter: (self.suite.names()[parameter],) for parameter in PARAMETERS}
        if side == "initiator":
            offer: Any = decode(self.hello[8:])[keys.OFFER]
            names["kex"] = tuple(offer[1])
        key = self.vector["network_key"]
        return CoreConfig(
            identity=self.identity(side),
            algorithms=names,
            network_key=key and unhex(key),
            node_info=self.node_info(side),
        )

    def node_info(self, side: str) -> dict[str, Any]:
        """Return the node information in the side's Proof, decrypted with the vector's secret."""
        proof = next(e for who, e in self.events if who == side and not self.is_raw(e))
        secret = unhex(self.vector["expected"]["secrets"][f"hs_{side}"])
        size = self.suite.signing_algorithm.signature_size
        start = 4 + size if self.suite.sealing == "each" else 21 + size
        inner = StreamKey(self.suite, secret, 0).decrypt(proof[start:], proof[:4] + b"\x01")
        info: Any = decode(inner[4:])[keys.NODE_INFO]
        return dict(info)

    @contextmanager
    def expect(self) -> Iterator[None]:
        """Replace all randomness by the vector's values."""
        first_kex, _ = share_in(self.hello)
        replaced = (
            self.suite.signing == "ml-dsa-65" or first_kex != self.config(SIDES[0]).names("kex")[0]
        )
        if replaced and is_compiled(CORE[2]):
            pytest.skip("it replaces a part of a compiled core")
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(patch.object(KexAlgorithm, "generate", lambda alg: self.generate(alg)))
            enter(patch.object(KexAlgorithm, "respond", lambda alg, s: self.respond(alg, s)))
            enter(patch.object(Initiator, "hello", lambda core: core._hello(first_kex)))
            if self.suite.signing == "ml-dsa-65":
                enter(patch("parley._node.protocol.record_layer.make_seal", self.make_seal))
            for side, event in zip(SIDES, (self.hello, self.reply[-1]), strict=True):
                random: Any = decode(event[8:])[keys.RANDOM]
                self.cores[side] = Connection(
                    self.config(side),
                    initiator=side == "initiator",
                    now=START,
                    random=given(random),
                    observer=self.observers[side],
                )
            yield

    # The connection.

    def play(self) -> Iterator[tuple[str, bytes]]:
        """Yield each event as its side writes it, and then deliver it to the other side."""
        yield from self.carry()
        for event in self.opened:
            if self.act(event):
                yield from self.carry()

    def carry(self) -> Iterator[tuple[str, bytes]]:
        """Deliver waiting bytes in both directions until all are delivered."""
        quiet = False
        while not quiet:
            quiet = True
            for side in SIDES:
                for event in events_of(self.cores[side].data_to_send(START)):
                    quiet = False
                    yield side, event
                    self.deliver("responder" if side == "initiator" else "initiator", event)

    def deliver(self, side: str, event: bytes) -> None:
        core = self.cores[side]
        core.receive_data(frame(event), START)
        while reports := core.reports():
            self.reports[side] += reports
            if any(isinstance(report, PeerIdentified) for report in reports):
                core.accept_peer(START)
                core.receive_data(b"", START)  # bytes that followed the Proof

    def act(self, event: Opened) -> bool:
        """Perform the application's action for the event; return False if the core does it."""
        core, stream = self.cores[event["from"]], event["stream"]
        payload = unhex(event["payload"])
        kind = event["category"], event["subcategory"]
        if kind == (wire.CONNECTION, wire.KEY_UPDATE) and keys.REKEY_NUMBER not in decode(payload):
            core.update_keys(START)
        elif kind == (wire.CONNECTION, wire.REKEY_OFFER):
            self.rekeying = True
            core.rekey(START)
        elif kind == (wire.CONNECTION, wire.CLOSE):
            core.close(START)
        elif kind == (wire.STREAM, wire.OPEN):
            assert core.open_stream(str(decode(payload)[keys.LABEL])) == stream
        elif kind == (wire.STREAM, wire.FINISH):
            core.finish_stream(stream)
        elif kind[0] > wire.STREAM:
            core.send(stream, event["async_id"], *kind, payload, seal=event["sealed"])
        else:
            return False
        return True

    def end(self, side: str) -> ConnectionEnded:
        (ended,) = (r for r in self.reports[side] if isinstance(r, ConnectionEnded))
        return ended


@vectors("connections", fails=False)
def test_a_whole_connection(vector: Vector) -> None:
    replay, expected = Replay(vector), vector["expected"]
    with replay.expect():
        written = list(replay.play())
    assert len(written) == len(replay.events)
    for number, (got, recorded) in enumerate(zip(written, replay.events, strict=True)):
        assert got == recorded, f"event {number}"
    assert replay.end("responder").code == CloseCode.NORMAL
    for side in SIDES:
        (completed,) = (r for r in replay.reports[side] if isinstance(r, HandshakeCompleted))
        agreed, observer = completed.agreed, replay.observers[side]
        peer = "responder" if side == "initiator" else "initiator"
        assert agreed.identity is not None
        assert agreed.identity.node_id.hex() == expected["node_ids"][peer]
        assert observer.chain == {
            True: expected["final_chain"][side],
            False: expected["final_chain"][peer],
        }
        assert observer.agreed is not None
        for name in ("session_id", "exporter", "hs", "commit", "rekey"):
            assert getattr(observer.agreed, name).hex() == expected["secrets"][name]


@vectors("connections", fails=True)
def test_a_connection_with_one_wrong_event(vector: Vector) -> None:
    of = next(v for v in read("connections")["vectors"] if v["name"] == vector["of"])
    replay = Replay(of)
    refused_by = "responder" if vector["from"] == "initiator" else "initiator"
    with replay.expect():
        side, _ = next(islice(replay.play(), vector["at"], None))
        assert side == vector["from"]
        before = len(replay.reports[refused_by])
        replay.deliver(refused_by, unhex(vector["event"]))
    allowed = codes(vector)
    if not any(isinstance(r, HandshakeCompleted) for r in replay.reports[refused_by]):
        # A refused Proof always has the same code, whatever is wrong with its signature.
        allowed = allowed | {CloseCode.AUTHENTICATION_FAILED}
    assert replay.end(refused_by).code in allowed
    assert len(replay.reports[refused_by]) == before + 1
