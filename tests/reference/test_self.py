"""The reference implementation against itself, over socket pairs and two threads."""

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import product

import pytest

from tests.reference import acts
from tests.reference.acts import open_stream, send_data
from tests.reference.channel import ConnectionLost
from tests.reference.establish import HONEST, Misbehaviour
from tests.reference.exchange import KEX_NAMES
from tests.reference.handshake import SEALING_NAMES, Config
from tests.reference.identity import Identity
from tests.reference.peer import Closed, ReferencePeer
from tests.reference.primitives import CIPHER_NAMES, HASH_NAMES, SIGNING_NAMES, SigningKey
from tests.reference.recorded import seed
from tests.reference.sealing import Suite
from tests.reference.wire import CELLS, TYPES, Event, Violation, cells_payload

Act = Callable[[ReferencePeer], object]
TIMEOUT = 3.0
ALL_SUITES = [
    Suite(*names)
    for names in product(KEX_NAMES, SIGNING_NAMES, HASH_NAMES, CIPHER_NAMES, SEALING_NAMES)
]


def config(side: str, suite: Suite | None = None, **settings: object) -> Config:
    """A side's settings: one suite only, or all; an ed25519 key, or one of the suite's kind."""
    signing = suite.signing if suite else "ed25519"
    identity = Identity.from_seeds((signing, seed(f"{side} {signing}")))
    if suite is not None:
        names = ("kex", "signing", "hash", "cipher", "sealing")
        settings = {**{name: (getattr(suite, name),) for name in names}, **settings}
    return Config(identity, **settings)  # type: ignore[arg-type]  # settings by name


def run(
    initiator: Act,
    responder: Act = acts.serve,
    *,
    settings: tuple[Config, Config] | None = None,
    wrong: tuple[Misbehaviour, Misbehaviour] = (HONEST, HONEST),
) -> tuple[ReferencePeer, ReferencePeer, BaseException | None]:
    """Both peers after their acts, and what the responder's thread ended with."""
    ours, theirs = settings or (config("initiator"), config("responder"))
    failure: list[BaseException] = []
    with ExitStack() as stack:
        left, right = (stack.enter_context(sock) for sock in socket.socketpair())
        one = ReferencePeer(left, "initiator", ours, wrong=wrong[0], timeout=TIMEOUT)
        two = ReferencePeer(right, "responder", theirs, wrong=wrong[1], timeout=TIMEOUT)

        def other() -> None:
            try:
                responder(two.handshake())
            except (Violation, ConnectionLost, Closed, TimeoutError) as error:
                failure.append(error)
            finally:
                two.channel.finish()

        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        try:
            initiator(one)
        finally:
            one.channel.finish()
            thread.join(2 * TIMEOUT)
        assert not thread.is_alive()
    return one, two, failure[0] if failure else None


def usual(peer: ReferencePeer) -> None:
    """A bit of everything, then Close."""
    peer.handshake()
    assert acts.call(peer, "parley.echo", ["hello", 1, None])[CELLS["data"]] == ["hello", 1, None]
    stream = open_stream(peer, "app/test")
    send_data(peer, stream, b"\x00")
    acts.finish(peer, stream)
    acts.ping(peer)
    if peer.rekeying is not None:
        peer.update_keys()
        acts.rekey(peer)
        assert peer.rekeying.number == 1
    assert acts.call(peer, "no such topic", async_id=2)[CELLS["code"]] == 1
    acts.close(peer)


@pytest.mark.parametrize("suite", ALL_SUITES, ids=lambda s: "-".join(vars(s).values()))
def test_every_suite(suite: Suite) -> None:
    settings = (config("initiator", suite), config("responder", suite))
    one, two, failure = run(usual, settings=settings)
    assert failure is None
    assert one.session.agreement.suite == two.session.agreement.suite == suite
    assert one.session.keys == two.session.keys
    sent, read = one.session.outgoing, two.session.incoming
    assert sent is not None
    assert read is not None
    # The other way a Seal may follow the last answer, which who closes no longer reads.
    assert sent.chain == read.chain
    assert sent.epoch == read.epoch == 2
    assert two.events[-1].event.type == TYPES["Close"]


def test_retry() -> None:
    settings = (config("initiator"), config("responder", kex=("x25519",)))
    one, two, failure = run(usual, settings=settings)
    assert failure is None
    assert len(one.channel.sent) > 2
    assert [event[6:8] for event in one.channel.sent[:2]] == [b"\x01\x01", b"\x01\x01"]
    assert two.channel.sent[0][6:8] == b"\x01\x04"
    assert one.session.keys == two.session.keys


def test_network_key() -> None:
    key = seed("network key")
    settings = (config("initiator", network_key=key), config("responder", network_key=key))
    _, _, failure = run(usual, settings=settings)
    assert failure is None


@pytest.mark.parametrize("key", [None, seed("another network key")])
def test_a_wrong_network_key_is_met_with_silence(key: bytes | None) -> None:
    settings = (
        config("initiator", network_key=key),
        config("responder", network_key=seed("network key")),
    )

    def lost(peer: ReferencePeer) -> None:
        with pytest.raises(ConnectionLost):
            peer.handshake()

    _, two, failure = run(lost, settings=settings)
    assert isinstance(failure, Violation)
    assert two.channel.sent == []


def test_plaintext() -> None:
    settings = (
        config("initiator", encrypted=False, plaintext=True),
        config("responder", plaintext=True),
    )
    one, two, failure = run(usual, settings=settings)
    assert failure is None
    assert one.session.agreement.suite is two.session.agreement.suite is None


def test_plaintext_refused() -> None:
    def refused(peer: ReferencePeer) -> None:
        with pytest.raises(Violation, match="plaintext-refused"):
            peer.handshake()

    settings = (config("initiator", encrypted=False, plaintext=True), config("responder"))
    _, _, failure = run(refused, settings=settings)
    assert isinstance(failure, Violation)


def test_streams_wait_for_credit() -> None:
    limits = {"stream_window": 1_024}
    received: list[bytes] = []

    def send(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = open_stream(peer, "bulk")
        for number in range(40):
            send_data(peer, stream, bytes([number]) * 500)
        acts.finish(peer, stream)
        acts.close(peer)

    def read(peer: ReferencePeer) -> None:
        while True:
            event = peer.recv_event()
            if event.type == TYPES["Data"]:
                received.append(event.payload)

    settings = (config("initiator", limits=limits), config("responder", limits=limits))
    one, _, failure = run(send, read, settings=settings)
    assert isinstance(failure, Closed)
    assert [payload[0] for payload in received] == list(range(40))
    assert acts.received(one, "Window")


def test_more_data_than_credit() -> None:
    def flood(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = open_stream(peer, "flood", None)
        for _ in range(4):
            peer.send_event(stream, 0, *TYPES["Data"], bytes(1_000))
        assert acts.closed_with(peer) == "protocol-error"

    def hold(peer: ReferencePeer) -> None:
        peer.automatic = False
        acts.serve(peer)

    limits = {"stream_window": 1_024}
    settings = (config("initiator", limits=limits), config("responder", limits=limits))
    _, _, failure = run(flood, hold, settings=settings)
    assert isinstance(failure, Violation)


def test_a_batch_is_its_events() -> None:
    limits = {"stream_window": 1_024}
    topic = cells_payload(topic="parley.echo", data="hello")

    def send(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = open_stream(peer, "app/test")
        for number in (1, stream):
            asked = [Event(number, async_id, *TYPES["Call"], topic) for async_id in (7, 8, 0)]
            acts.send_batch(peer, *asked)
            for async_id in (8, 7):
                assert acts.result(peer, async_id, number)[CELLS["data"]] == "hello"
        spent = 3 * (len(topic) + 64)
        assert peer.streams.streams[stream].send_credit == 1_024 - spent
        acts.send_batch(peer, *[Event(stream, 0, 64, 1, bytes(400))] * 3)
        acts.wait_for(peer, lambda event: event.type == TYPES["Result"])
        acts.close(peer)

    def read(peer: ReferencePeer) -> None:
        while len([o for o in peer.events if o.event.category == 64]) < 3:
            peer.next_event()
        peer.send("Result", 1, 9, code=0)
        acts.serve(peer)

    settings = (config("initiator", limits=limits), config("responder", limits=limits))
    one, two, failure = run(send, read, settings=settings)
    assert failure is None
    assert acts.received(one, "Window")
    kinds = [opened.event.type for opened in two.events]
    assert kinds.count(TYPES["Batch"]) == 3
    assert kinds.count(TYPES["Call"]) == 6


def test_reset_is_answered() -> None:
    def cancel(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = open_stream(peer, "app/test")
        acts.reset(peer, stream, 32)
        acts.wait_for(peer, lambda event: event.type == TYPES["Reset"])
        acts.close(peer)

    _, two, failure = run(cancel)
    assert failure is None
    assert all(stream.gone for stream in two.streams.streams.values())


@pytest.mark.parametrize("sealing", SEALING_NAMES)
def test_rekeys_that_cross_each_other_and_plain_updates(sealing: str) -> None:
    both = threading.Barrier(2)

    def cross(peer: ReferencePeer) -> None:
        acts.offer_rekey(peer)
        peer.update_keys()
        both.wait(TIMEOUT)  # each has offered before it reads the other's offer
        acts.settle(peer)
        both.wait(TIMEOUT)
        assert peer.rekeying is not None
        assert peer.rekeying.number == 1

    def one(peer: ReferencePeer) -> None:
        peer.handshake()
        cross(peer)
        acts.rekey(peer)
        peer.update_keys()
        assert acts.call(peer, "parley.echo", "still here")[CELLS["data"]] == "still here"
        acts.close(peer)

    def two(peer: ReferencePeer) -> None:
        cross(peer)
        acts.serve(peer)

    suite = Suite(sealing=sealing)
    settings = (config("initiator", suite), config("responder", suite))
    left, right, failure = run(one, two, settings=settings)
    assert failure is None
    assert left.rekeying is not None
    assert right.rekeying is not None
    assert left.rekeying.rekey == right.rekeying.rekey
    assert left.rekeying.number == 2


def flip(at: int) -> Callable[[bytes], bytes]:
    """A change of one bit."""
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at:][1:]


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda p: p.send_event(1, 0, 64, 1, b"x", corrupt=flip(-1)), "bad-record"),
        (lambda p: p.send_event(1, 0, 64, 1, b"x", corrupt=flip(5)), "bad-record"),
        (lambda p: p.send_event(1, 0, 64, 1, b"x", corrupt=lambda e: e[:4] + b"\2" + e[5:]),
         "bad-record"),
        (lambda p: p.send_frame(b"short"), "bad-record"),
        (lambda p: p.send_raw(b"\xff\xff\xff\xff"), "frame-too-large"),
        (lambda p: p.send_event(1, 0, 64, 1, b"x", sealed=True, flip_seal=True), "seal-violation"),
        (lambda p: p.send_event(0, 0, 1, 8, sealed=False), "seal-violation"),
        (lambda p: [p.send_event(1, 0, 64, 1, b"x", sealed=False) for _ in range(65)],
         "seal-violation"),
        (lambda p: p.send_event(1, 0, 0, 1, b"x"), "protocol-error"),
        (lambda p: p.send_event(0, 0, 1, 13), "protocol-error"),
        (lambda p: p.send_event(1, 0, 2, 3), "protocol-error"),
        (lambda p: p.send("Data", 5), "protocol-error"),
        (lambda p: acts.send_batch(p, Event(1, 0, 64, 1)), "protocol-error"),
        (lambda p: acts.send_batch(p, *[Event(3, 0, 64, 1)] * 2), "protocol-error"),
        (lambda p: p.send("Open", 4, label="even"), "protocol-error"),
        (lambda p: p.send("Ping", 1, 1), "protocol-error"),
        (lambda p: p.send("KeyUpdate", 0, epoch=2), "protocol-error"),
        (lambda p: p.send("KeyUpdate", 0, epoch=1, rekey=1), "protocol-error"),
        (lambda p: p.send("RekeyAnswer", 0, share=bytes(32)), "protocol-error"),
        (lambda p: p.send("Hello", 0, version=1), "protocol-error"),
    ],
)  # fmt: skip
def test_misbehaviour_ends_the_connection(act: Act, code: str) -> None:
    def misbehave(peer: ReferencePeer) -> None:
        peer.handshake()
        act(peer)
        assert acts.closed_with(peer) == code

    _, _, failure = run(misbehave)
    assert isinstance(failure, Violation)
    assert failure.code == code


STRANGER = SigningKey("ed25519", seed("stranger"))
BAD_PROOFS = {
    "signed by a stranger": Misbehaviour(proof_signer=STRANGER),
    "unsealed": Misbehaviour(proof_form=False),
    "no cells": Misbehaviour({"Proof inner": lambda inner: inner[:4] + b"\xa0"}),
    "another event": Misbehaviour({"Proof inner": lambda inner: b"\0\0\1\x08\0"}),
    "a changed bit": Misbehaviour({"Proof": flip(-1)}),
}


@pytest.mark.parametrize("name", BAD_PROOFS)
def test_a_bad_proof_of_the_responder_is_met_with_silence(name: str) -> None:
    def refuse(peer: ReferencePeer) -> None:
        with pytest.raises(Violation):
            peer.handshake()
        assert len(peer.channel.sent) == 1

    _, _, failure = run(refuse, wrong=(HONEST, BAD_PROOFS[name]))
    assert isinstance(failure, ConnectionLost)


@pytest.mark.parametrize("name", BAD_PROOFS)
def test_a_bad_proof_of_the_initiator_is_answered_by_close(name: str) -> None:
    def refused(peer: ReferencePeer) -> None:
        peer.handshake()
        if name in ("a changed bit", "another event"):
            with pytest.raises(ConnectionLost):
                peer.recv_close()
        else:
            assert acts.closed_with(peer) == "authentication-failed"

    _, _, failure = run(refused, wrong=(BAD_PROOFS[name], HONEST))
    assert isinstance(failure, Violation)


def test_an_identity_does_not_talk_to_itself() -> None:
    def refuse(peer: ReferencePeer) -> None:
        with pytest.raises(Violation, match="own node id"):
            peer.handshake()

    settings = (config("initiator"), config("initiator"))
    _, _, failure = run(refuse, settings=settings)
    assert isinstance(failure, ConnectionLost)
