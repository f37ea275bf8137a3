"""Tests of observers: they get every encrypted event of both directions and can verify all of
it.
"""

import pytest

from parley._crypto.key_schedule import chain_bind, chain_rekey, rekey_root, rekey_secrets
from parley._crypto.record_protection import HashChain, StreamKey, check_seal
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.observer import Checkpoint, Observer
from tests.node.protocol.pair import ALICE, BOB, FAST, Pair, events_of, make_config, open_pair


class Recorder:
    """Records its callbacks."""

    def __init__(self) -> None:
        self.agreed: Agreed | None = None
        self.initiator: bool | None = None
        self.events: list[tuple[bool, bytes, bytes]] = []
        self.epochs: list[tuple[int, bool, int, bytes]] = []  # with the number of events before
        self.rekeys: list[
            tuple[int, int, bytes, bytes, bytes]
        ] = []  # with the number of events before
        self.ended: list[int] = []

    def session_started(self, agreed: Agreed, initiator: bool, checkpoint: Checkpoint) -> None:
        assert self.agreed is None
        self.agreed, self.initiator, self.checkpoint = agreed, initiator, checkpoint

    def epoch_began(self, sent: bool, epoch: int, secret: bytes, rekey: int) -> None:
        self.epochs.append((len(self.events), sent, epoch, secret))

    def event(self, sent: bool, wire: bytes, chain: bytes) -> None:
        assert self.agreed is not None
        self.events.append((sent, wire, chain))

    def rekeyed(
        self, number: int, shared_secret: bytes, after_offer: bytes, after_answer: bytes
    ) -> None:
        self.rekeys.append((len(self.events), number, shared_secret, after_offer, after_answer))

    def stream_opened(self, stream: int, payload: bytes | memoryview) -> None:
        """Ignored."""

    def direction_ended(self, stream: int) -> None:
        """Ignored."""

    def session_suspended(self, reason: str) -> None:
        """Ignored."""

    def session_resumed(self, number: int) -> None:
        """Ignored."""

    def session_ended(self, code: int, text: str, remote: bool) -> None:
        self.ended.append(code)


def busy(pair: Pair) -> None:
    """Run a session with some of everything."""
    stream = pair.a.core.open_stream("x")
    for number in range(10):
        pair.a.core.send_data(stream, b"%d" % number)
        pair.b.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        if number == 3:
            pair.a.core.update_keys(pair.now)
        if number == 5:
            pair.b.core.rekey(pair.now)
        pair.pump()
    pair.a.core.finish_stream(stream)
    pair.a.core.ping(pair.now)
    pair.pump()
    pair.b.core.close(pair.now, 64)
    pair.pump()


def observed(sealing: str = "chain") -> tuple[Pair, tuple[Recorder, Recorder]]:
    recorders = Recorder(), Recorder()
    assert protocol_of(recorders[0]) is recorders[0]
    names = {**FAST, "sealing": (sealing,)}
    pair = Pair(
        make_config(ALICE, algorithms=names),
        make_config(BOB, algorithms=names),
        observers=recorders,
    )
    pair.pump()
    busy(pair)
    return pair, recorders


def protocol_of(observer: Observer) -> Observer:
    """Let mypy check that a Recorder is an Observer."""
    return observer


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_it_sees_all_wire_bytes_in_their_order(sealing: str) -> None:
    pair, recorders = observed(sealing)
    for side, recorder, raw in zip(pair.sides, recorders, (1, 1), strict=True):
        # Hello and Reply are not encrypted, and the Proof is passed to `session_started`.
        after_proof = events_of(side.wire)[raw + 1 :]
        assert [wire for sent, wire, _ in recorder.events if sent] == after_proof
    a, b = recorders
    for one, other in ((a, b), (b, a)):
        sent = [told[1:] for told in one.events if told[0]]
        received = [told[1:] for told in other.events if not told[0]]
        assert sent == received


def test_it_is_told_what_a_proof_of_the_session_needs() -> None:
    pair, (a, b) = observed()
    assert (a.initiator, b.initiator) == (True, False)
    assert a.agreed is not None
    assert b.agreed is not None
    hello, initiator_proof = events_of(pair.a.wire)[:2]
    reply, responder_proof = events_of(pair.b.wire)[:2]
    for agreed in (a.agreed, b.agreed):
        assert agreed.t1 == hello + reply
        assert agreed.initiator_proof == initiator_proof
        assert agreed.responder_proof == responder_proof
        assert (agreed.hs, agreed.commit) == (a.agreed.hs, a.agreed.commit)
        assert agreed.hs is not None
    assert a.rekeys[0][1:] == b.rekeys[0][1:]
    assert a.ended == b.ended == [64]


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_chain_values_and_seals_can_be_recomputed(sealing: str) -> None:
    _, (a, _) = observed(sealing)
    agreed = a.agreed
    assert agreed is not None
    assert agreed.suite is not None
    assert agreed.rekey is not None
    assert agreed.commit is not None
    hash, size = agreed.suite.hash_algorithm, agreed.suite.signing_algorithm.signature_size
    verifiers = {True: ALICE.public.verifier("ed25519"), False: BOB.public.verifier("ed25519")}
    proofs = {True: agreed.initiator_proof, False: agreed.responder_proof}
    start = chain_starts(agreed)
    th2 = hash.digest(agreed.t1 + agreed.responder_proof + agreed.initiator_proof)
    chains = {}
    prefix = 4 if sealing == "each" else 21
    for sent, proof in proofs.items():
        chain = HashChain(hash, start[sent])
        chain.advance(proof[:4], proof[prefix + size :])
        chain.value = chain_bind(hash, chain.value, th2)
        chains[sent] = chain
    offers: dict[bool, bytes] = {}
    for number, (sent, wire, value) in enumerate(a.events):
        chain = chains[sent]
        sealed = sealing == "each" or wire[4] == 1
        chain.advance(wire[:4], wire[prefix + size * sealed :])
        assert chain.value == value
        if sealed:
            seal = wire[prefix : prefix + size]
            check_seal(verifiers[sent], hash, agreed.commit, value, seal)
        # The only rekey: b's offer, a's answer, then a KeyUpdate of each side.
        told = [entry for entry in a.rekeys if entry[0] - 1 == number]
        if told:
            offers = {False: a.events[number - 1][2], True: value}
            assert a.events[number - 1][0] is False
            assert told[0][3:] == (offers[False], offers[True])
        if offers and number in updates(a):
            root = rekey_root(hash, agreed.rekey, a.rekeys[0][2])
            secrets = rekey_secrets(hash, root, offers[False], offers[True])
            chain.value = chain_rekey(hash, chain.value, secrets.commit)


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_a_checkpoint_is_where_both_directions_are(sealing: str) -> None:
    recorder = Recorder()
    names = {**FAST, "sealing": (sealing,)}
    configs = (make_config(ALICE, algorithms=names), make_config(BOB, algorithms=names))
    pair = Pair(*configs, observers=(recorder, None))
    pair.pump()
    pair.a.core.update_keys(pair.now)
    for _ in range(3):
        pair.a.core.send(1, 0, 64, 1, b"x")
    pair.b.core.send(1, 0, 64, 1, b"y")
    pair.pump()
    for state, sent in zip(recorder.checkpoint(), (True, False), strict=True):
        events = [(wire, chain) for way, wire, chain in recorder.events if way is sent]
        epochs = [(after, epoch) for after, way, epoch, _ in recorder.epochs if way is sent]
        assert state.chain == events[-1][1]
        assert state.epoch == epochs[-1][1] == sent
        of_this_epoch = [e[1] for e in recorder.events[epochs[-1][0] :] if e[0] is sent]
        streams = [int.from_bytes(wire[:4]) for wire in of_this_epoch]
        assert state.counters == {stream: streams.count(stream) for stream in streams}
        forms = [wire[4] for wire, _ in events]
        assert state.unsealed == (0 if sealing == "each" else [*reversed(forms), 1].index(1))


def chain_starts(agreed: Agreed) -> dict[bool, bytes]:
    """Return d[-1] of the local and the remote direction, computed as documented."""
    assert agreed.suite is not None
    assert agreed.commit is not None
    digest = agreed.suite.hash_algorithm.digest
    both = digest(agreed.t1 + agreed.responder_proof)
    return {
        True: digest(b"parley1 chain\x00" + both + agreed.commit),
        False: digest(b"parley1 chain\x01" + digest(agreed.t1) + agreed.commit),
    }


def updates(recorder: Recorder) -> set[int]:
    """Return the numbers of the rekey's two KeyUpdates; each began its direction's last epoch."""
    last = {sent: after for after, sent, _, _ in recorder.epochs}
    return {after - 1 for after in last.values()}


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_the_secrets_of_the_epochs_open_every_event(sealing: str) -> None:
    pair, (a, b) = observed(sealing)
    assert [entry[1:] for entry in a.epochs if entry[1]] == [
        (True, *entry[2:]) for entry in b.epochs if not entry[1]
    ]
    agreed = a.agreed
    assert agreed is not None
    assert agreed.suite is not None
    size = agreed.suite.signing_algorithm.signature_size
    secrets: dict[bool, bytes] = {}
    lanes: dict[tuple[bool, int], StreamKey] = {}
    opened: dict[bool, list[bytes]] = {True: [], False: []}
    epochs = list(a.epochs)
    for number, (sent, wire, _) in enumerate(a.events):
        while epochs and epochs[0][0] <= number:
            _, direction, _, secrets[direction] = epochs.pop(0)
            lanes = {key: lane for key, lane in lanes.items() if key[0] != direction}
        stream = int.from_bytes(wire[:4], "big")
        if (sent, stream) not in lanes:
            lanes[sent, stream] = StreamKey(agreed.suite, secrets[sent], stream)
        aad = wire[:4] + b"\x01" if sealing == "each" else wire[:5]
        sealed = aad[4] == 1
        blob = wire[(4 if sealing == "each" else 21) + size * sealed :]
        inner = lanes[sent, stream].decrypt(blob, aad)
        if stream and inner[2:4] not in (b"\x02\x01", b"\x02\x03"):
            opened[sent].append(inner[4:])
    assert opened[True] == pair.b.payloads
    assert opened[False] == pair.a.payloads


@pytest.mark.parametrize("code", [CloseCode.CONNECTION_LOST, CloseCode.PROTOCOL_ERROR])
def test_it_is_told_of_every_end_once(code: CloseCode) -> None:
    recorder = Recorder()
    pair = open_pair(observers=(recorder, None))
    if code == CloseCode.CONNECTION_LOST:
        pair.a.core.receive_eof(pair.now)
    else:
        pair.inject(pair.b, 1, 1, 6)
        pair.a.core.receive_eof(pair.now)
    assert recorder.ended == [code]


def test_an_event_that_was_refused_is_not_shown() -> None:
    recorder = Recorder()
    pair = open_pair(observers=(recorder, None))
    frame = bytearray(pair.b.forge(1, 64, 1, b"x"))
    frame[-1] ^= 1
    pair.deliver(pair.a, bytes(frame))
    assert not [told for told in recorder.events if not told[0]]


def test_a_handshake_that_fails_is_no_session() -> None:
    recorder = Recorder()
    pair = Pair(observers=(recorder, None))
    pair.a.answer = False
    pair.pump()
    assert recorder.agreed is None
    assert not recorder.ended


def test_an_unencrypted_connection_shows_nothing() -> None:
    recorder = Recorder()
    pair = open_pair(plaintext="only", observers=(recorder, None))
    pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
    pair.a.core.close(pair.now)
    pair.pump()
    assert pair.b.payloads == [b"x"]
    assert recorder.agreed is None
    assert not recorder.events
    assert not recorder.ended
