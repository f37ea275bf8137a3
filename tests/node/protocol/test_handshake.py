"""The handshake of two honest sides, and every way to refuse a Proof."""

from typing import Any

import pytest

from parley._crypto.identity import Identity
from parley._crypto.registry import NAMES
from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.protocol.codes import CLOSE, CONNECTION, HELLO, PING, PROOF, SEAL, CloseCode
from parley._node.protocol.event import handshake_event
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import Handshake, known
from parley._node.protocol.limits import HANDSHAKE_EVENT_SIZE
from parley._node.protocol.reports import ConnectionEnded, HandshakeCompleted, PeerIdentified
from parley._node.protocol.states import State
from tests.node.protocol.pair import (
    ALICE,
    ANY_SIZE,
    BOB,
    FAST,
    Pair,
    Side,
    events_of,
    make_config,
    open_pair,
)

MALLORY = Identity.create(("ed25519",))


# Two honest sides.


def test_both_know_each_other_and_agree() -> None:
    pair = Pair(
        make_config(ALICE, role="client", node_info={"name": "alice"}, max_payload=5_000),
        make_config(BOB, role="server", node_info={"name": "bob"}, seal_events=9),
    )
    pair.pump()
    a = pair.a.one(HandshakeCompleted).agreed
    b = pair.b.one(HandshakeCompleted).agreed
    for agreed, other, name in ((a, BOB, "bob"), (b, ALICE, "alice")):
        assert agreed.identity == other.public
        assert agreed.info == {"name": name}
        assert (agreed.limits.max_payload, agreed.limits.seal_events) == (5_000, 9)
    assert (a.local_role, a.remote_role) == (b.remote_role, b.local_role) == ("client", "server")
    assert a.suite == b.suite
    assert a.session_id == b.session_id
    assert a.session_id is not None
    assert len(a.session_id) == 32
    assert a.exporter == b.exporter
    assert a.exporter != a.session_id


def test_each_side_is_asked_once_and_told_what_the_other_showed() -> None:
    pair = Pair(make_config(ALICE, role="client"), make_config(BOB, node_info={"x": 1}))
    pair.pump()
    asked = pair.a.one(PeerIdentified)
    assert asked.identity.node_id == BOB.public.node_id
    assert (asked.role, asked.info) == ("peer", {"x": 1})
    assert pair.b.one(PeerIdentified).role == "client"


def test_what_is_reported_has_no_secret() -> None:
    pair = Pair()
    pair.pump()
    agreed = pair.a.one(HandshakeCompleted).agreed
    assert agreed.hs is agreed.commit is agreed.rekey is None
    assert not agreed.t1
    assert "exporter" not in repr(agreed)


def test_the_secrets_of_the_handshake_are_dropped() -> None:
    pair = open_pair()
    for side in pair.sides:
        assert side.core._opening is None


def test_data_goes_with_the_initiators_proof() -> None:
    pair = Pair()
    pair.carry(pair.a)
    pair.carry(pair.b)
    pair.a.core.send(1, 0, 64, 1, b"early", lbm=False)
    pair.carry(pair.a)
    assert pair.b.payloads == [b"early"]


def test_two_handshakes_share_nothing() -> None:
    pairs = [Pair(), Pair()]
    for pair in pairs:
        pair.pump()
    first, second = (pair.a.one(HandshakeCompleted).agreed for pair in pairs)
    assert first.session_id != second.session_id
    assert not set(events_of(pairs[0].a.wire)) & set(events_of(pairs[1].a.wire))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_handshake_in_pieces(size: int) -> None:
    pair = Pair()
    for _ in range(3):
        for side in pair.sides:
            sent = side.take(pair.now)
            for start in range(0, len(sent), size):
                pair.deliver(pair.other(side), sent[start : start + size])
    assert pair.a.opened
    assert pair.b.opened


# The decision.


def undecided() -> Pair:
    """The responder has the initiator's Proof and has not decided."""
    pair = Pair()
    pair.b.answer = None
    pair.pump()
    assert pair.b.core.state is State.DECIDING
    return pair


def test_nothing_is_read_while_a_peer_is_decided_on() -> None:
    pair = undecided()
    assert not pair.b.core.wants_data
    pair.a.core.send(1, 0, 64, 1, b"one", lbm=False)
    pair.carry(pair.a)  # a transport may have read it already
    pair.a.core.send(1, 0, 64, 1, b"two", lbm=False)
    pair.carry(pair.a)
    assert not pair.b.events
    pair.b.core.accept_peer(pair.now)
    pair.b.core.receive_data(b"", pair.now)  # what came with the Proof
    pair.pump()
    assert pair.b.payloads == [b"one", b"two"]


def test_who_is_refused_gets_nothing_it_sent_delivered() -> None:
    pair = undecided()
    pair.a.core.send(1, 0, 64, 1, b"one", lbm=False)
    pair.carry(pair.a)
    pair.b.core.refuse_peer("a stranger", pair.now)
    pair.pump()
    assert not pair.b.events
    assert pair.b.code == CloseCode.PEER_NOT_TRUSTED
    assert pair.b.one(ConnectionEnded).reason == "a stranger"
    assert not pair.b.opened


def test_the_responder_tells_a_stranger_no_more_than_authentication_failed() -> None:
    pair = undecided()
    pair.b.core.refuse_peer("secret reason", pair.now)
    pair.pump()
    told = pair.a.one(ConnectionEnded)
    assert (told.code, told.text, told.remote) == (CloseCode.AUTHENTICATION_FAILED, "", True)


def test_the_initiator_leaves_without_a_word() -> None:
    pair = Pair()
    pair.a.answer = False
    pair.carry(pair.a)
    pair.carry(pair.b)
    assert pair.a.code == CloseCode.PEER_NOT_TRUSTED
    assert pair.a.core.ended
    assert not pair.a.take(pair.now)
    assert not pair.b.opened


# Refusing a Proof.


def forge_proof(
    side: Side,
    payload: bytes | dict[int, Value] | None = None,
    *,
    signer: Identity | None = None,
    sealed: bool = True,
    stream: int = 0,
    async_id: int = 0,
    category: int = CONNECTION,
    subcategory: int = PROOF,
) -> bytes:
    """The frame that takes the place of a side's Proof, under the right keys."""
    handshake = side.handshake
    secrets = known(handshake.secrets)
    if side.core.initiator:
        sender = handshake.make_sender(secrets.hs_initiator, handshake.initiator_chain())
    else:
        sender = handshake.make_sender(secrets.hs_responder, handshake.responder_chain())
    if signer is not None:
        sender._signing_key = signer.key(sender.suite.signing)
    if payload is None:
        payload = proof_cells(handshake)
    data = payload if isinstance(payload, bytes) else encode(payload)
    return sender.protect(stream, async_id, category, subcategory, data, sealed)


def proof_cells(handshake: Handshake, **info: Value) -> dict[int, Value]:
    return {
        keys.IDENTITY_KEYS: list(handshake.config.identity.cells()),
        keys.NODE_INFO: dict(info),
    }


def before_responders_proof(**settings: Any) -> tuple[Pair, bytes]:
    """The initiator has the Reply; returns the responder's honest Proof too."""
    pair = Pair(make_config(ALICE, **settings), make_config(BOB, **settings))
    pair.carry(pair.a)
    reply, proof = events_of(pair.b.take(pair.now))
    pair.deliver(pair.a, frame(reply))
    assert pair.a.core.state is State.EXPECT_PROOF
    return pair, frame(proof)


def before_initiators_proof(**settings: Any) -> Pair:
    """The initiator has verified the responder and says nothing yet."""
    pair = Pair(make_config(ALICE, **settings), make_config(BOB, **settings))
    pair.a.answer = None
    pair.carry(pair.a)
    pair.carry(pair.b)
    assert pair.a.core.state is State.DECIDING
    assert pair.b.core.state is State.EXPECT_PROOF
    return pair


def further(identity: Identity) -> list[Value]:
    return list(identity.cells())


def wrong_binding() -> list[Value]:
    entries = further(ALICE)
    algorithm, public, _ = ALICE.cells()[1]
    entries[1] = [algorithm, public, bytes(64)]
    return entries


# What is wrong with each: cells or bytes of the payload, and other fields of the event.
REFUSED: dict[str, tuple[dict[int, Value] | bytes | None, dict[str, Any]]] = {
    "foreign seal": (None, {"signer": MALLORY}),
    "no seal": (None, {"sealed": False}),
    "foreign identity": ({14: list(MALLORY.cells()), 15: {}}, {}),
    "no identity": ({15: {}}, {}),
    "no keys": ({14: [], 15: {}}, {}),
    "keys of a wrong type": ({14: b"", 15: {}}, {}),
    "a key of a wrong shape": ({14: [["ed25519", b"x"]], 15: {}}, {}),
    "a primary with a binding": ({14: [["ed25519", bytes(32), bytes(64)]], 15: {}}, {}),
    "a small-order key": ({14: [["ed25519", bytes(32), None]], 15: {}}, {}),
    "an unknown primary": ({14: [["rot13", bytes(32), None]], 15: {}}, {}),
    "two keys of one algorithm": ({14: further(MALLORY) * 2, 15: {}}, {}),
    "nine keys": ({14: further(MALLORY) * 9, 15: {}}, {}),
    "a wrong binding": ({14: wrong_binding(), 15: {}}, {}),
    "no key of the negotiated algorithm": (
        {14: list(Identity.create(("ecdsa-p256",)).cells()), 15: {}},
        {},
    ),
    "node information of a wrong type": ({14: further(ALICE), 15: b""}, {}),
    "node information with other keys": ({14: further(ALICE), 15: {1: 1}}, {}),
    "too much node information": ({14: further(ALICE), 15: {"x": bytes(1_024)}}, {}),
    "no payload": (b"\x00", {}),
    "not LBM": (b"\xff", {}),
    "trailing bytes": (encode({14: further(ALICE), 15: {}}) + b"\x00", {}),
    "too many items": ({14: further(ALICE), 256: list(range(300))}, {}),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_the_responder_refuses_a_proof_with_close(fault: str) -> None:
    payload, settings = REFUSED[fault]
    pair = before_initiators_proof()
    pair.deliver(pair.b, forge_proof(pair.a, payload, **settings))
    assert pair.b.code == CloseCode.AUTHENTICATION_FAILED
    assert not pair.b.all(PeerIdentified)
    assert not pair.b.opened
    assert pair.b.core.state is State.FAREWELL
    # All of these look alike: one Close of always the same length, and no reason in it.
    (close,) = events_of(pair.b.take(pair.now))
    assert len(close) == 4 + 1 + 16 + 64 + 4 + len(encode({16: 5})) + 16


@pytest.mark.parametrize("fault", REFUSED)
def test_the_initiator_refuses_a_proof_in_silence(fault: str) -> None:
    payload, settings = REFUSED[fault]
    pair, _ = before_responders_proof()
    pair.deliver(pair.a, forge_proof(pair.b, payload, **settings))
    assert pair.a.code == CloseCode.AUTHENTICATION_FAILED
    assert not pair.a.all(PeerIdentified)
    assert not pair.a.opened
    assert pair.a.core.ended
    assert not pair.a.take(pair.now)


def test_close_after_a_refused_proof_opens_for_its_sender() -> None:
    # A side that believes it is established reads it: the chain was replaced on both sides.
    pair = Pair()
    pair.b.answer = False
    pair.pump()
    told = pair.a.one(ConnectionEnded)
    assert (told.code, told.remote) == (CloseCode.AUTHENTICATION_FAILED, True)
    assert pair.a.opened


@pytest.mark.parametrize(
    ("category", "subcategory"),
    [(CONNECTION, PING), (CONNECTION, SEAL), (CONNECTION, CLOSE), (3, 1)],
)
def test_an_encrypted_event_that_is_no_proof_is_met_with_silence(
    category: int, subcategory: int
) -> None:
    pair = before_initiators_proof()
    wire = forge_proof(pair.a, category=category, subcategory=subcategory)
    pair.deliver(pair.b, wire)
    pair2, _ = before_responders_proof()
    pair2.deliver(pair2.a, forge_proof(pair2.b, category=category, subcategory=subcategory))
    for side in (pair.b, pair2.a):
        assert side.code == CloseCode.AUTHENTICATION_FAILED
        assert side.core.ended
        assert not side.take(pair.now)
        assert not side.events


@pytest.mark.parametrize("changes", [{"stream": 1}, {"stream": 3}, {"async_id": 1}])
def test_a_proof_stands_on_stream_0_without_async_id(changes: dict[str, Any]) -> None:
    pair = before_initiators_proof()
    pair.deliver(pair.b, forge_proof(pair.a, **changes))
    assert pair.b.code in (CloseCode.AUTHENTICATION_FAILED, CloseCode.BAD_RECORD)
    assert pair.b.core.ended
    assert not pair.b.take(pair.now)


def raw_events() -> list[bytes]:
    return [handshake_event(n, encode({16: 0, 17: ""})) for n in (HELLO, 2, PROOF, 4, 5, CLOSE)]


@pytest.mark.parametrize("number", range(6))
def test_a_raw_event_in_place_of_a_proof_is_a_bad_record(number: int) -> None:
    pair = before_initiators_proof()
    pair.deliver(pair.b, frame(raw_events()[number]))
    pair2, _ = before_responders_proof()
    pair2.deliver(pair2.a, frame(raw_events()[number]))
    for side in (pair.b, pair2.a):
        assert side.code == CloseCode.BAD_RECORD
        assert side.core.ended
        assert not side.take(pair.now)


@pytest.mark.slow
def test_every_flipped_bit_of_a_proof_is_refused() -> None:
    honest = forge_proof(before_initiators_proof().a)
    for index in range(4, len(honest)):
        pair = before_initiators_proof()
        wire = bytearray(forge_proof(pair.a))
        wire[index] ^= 1 << (index % 8)
        pair.deliver(pair.b, bytes(wire))
        assert pair.b.code in (CloseCode.BAD_RECORD, CloseCode.AUTHENTICATION_FAILED)
        assert not pair.b.all(PeerIdentified)
        assert pair.b.core.ended == (pair.b.code == CloseCode.BAD_RECORD)


def test_a_proof_of_another_session_is_refused() -> None:
    pair, _ = before_responders_proof()
    _, foreign = before_responders_proof()
    pair.deliver(pair.a, foreign)
    assert pair.a.code == CloseCode.BAD_RECORD
    assert not pair.a.all(PeerIdentified)


def test_ones_own_proof_reflected_is_refused() -> None:
    pair = Pair()
    pair.carry(pair.a)
    _, proof = events_of(pair.b.take(pair.now))
    pair.deliver(pair.b, frame(proof))
    assert pair.b.code == CloseCode.BAD_RECORD


def test_ones_own_node_id_is_refused_by_the_initiator() -> None:
    pair = Pair(make_config(ALICE), make_config(ALICE))
    pair.pump()
    assert pair.a.code == CloseCode.AUTHENTICATION_FAILED
    assert "own node id" in pair.a.one(ConnectionEnded).reason
    assert not pair.a.opened
    assert not pair.b.opened


def test_ones_own_node_id_is_refused_by_the_responder() -> None:
    pair = before_initiators_proof()
    pair.deliver(pair.b, forge_proof(pair.a, {14: list(BOB.cells()), 15: {}}, signer=BOB))
    assert pair.b.code == CloseCode.AUTHENTICATION_FAILED
    assert "own node id" in pair.b.one(ConnectionEnded).reason
    assert not pair.b.all(PeerIdentified)


@pytest.mark.parametrize("signing", NAMES["signing"])
@pytest.mark.parametrize("sealing", NAMES["sealing"])
def test_foreign_unsealed_and_moved_proofs_in_every_signing(signing: str, sealing: str) -> None:
    settings = {"algorithms": {**FAST, "signing": (signing,), "sealing": (sealing,)}}
    stranger = Identity.create((signing,))
    for fault in ("foreign seal", "no seal", "zero seal"):
        pair = before_initiators_proof(**settings)
        signer = stranger if fault == "foreign seal" else None
        wire = bytearray(forge_proof(pair.a, signer=signer, sealed=fault != "no seal"))
        if fault == "no seal" and sealing == "each":
            size = known(pair.a.handshake.suite).signing_algorithm.signature_size
            del wire[8 : 8 + size]
            wire[:4] = (len(wire) - 4).to_bytes(4, "big")
        elif fault == "zero seal":
            start = 8 if sealing == "each" else 25
            size = known(pair.a.handshake.suite).signing_algorithm.signature_size
            wire[start : start + size] = bytes(size)
        pair.deliver(pair.b, bytes(wire))
        assert pair.b.code in (CloseCode.AUTHENTICATION_FAILED, CloseCode.BAD_RECORD), fault
        assert not pair.b.all(PeerIdentified)


def test_a_longer_frame_in_place_of_a_proof_is_met_with_silence() -> None:
    assert HANDSHAKE_EVENT_SIZE < ANY_SIZE
    too_long = (HANDSHAKE_EVENT_SIZE + 1).to_bytes(4, "big")
    pair = before_initiators_proof()
    pair.deliver(pair.b, too_long)
    pair2, _ = before_responders_proof()
    pair2.deliver(pair2.a, too_long)
    for side in (pair.b, pair2.a):
        assert side.code == CloseCode.FRAME_TOO_LARGE
        assert side.core.ended
        assert not side.take(pair.now)


def test_the_greatest_proof_passes() -> None:
    info = {"x": bytes(1_024 - len(encode({})) - 5)}
    identity = Identity.create(("ml-dsa-65", "ed25519", "ecdsa-p256"))
    settings = {"node_info": info, "algorithms": {**FAST, "signing": ("ml-dsa-65",)}}
    pair = Pair(make_config(identity, **settings), make_config(BOB, **settings))
    pair.pump()
    assert pair.b.one(HandshakeCompleted).agreed.info == info
