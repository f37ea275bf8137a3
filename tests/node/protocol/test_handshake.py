"""Tests of the handshake of two correct sides: offers, agreement and decision.

Invalid handshakes are in tests/handshake.
"""

from typing import Any

import pytest

from parley._crypto.identity import Identity
from parley._crypto.key_schedule import check_network_mac
from parley._crypto.registry import NAMES
from parley._lbm import keys
from parley._lbm.codec import Value, decode, encode
from parley._node.protocol.codes import HELLO, REJECT, REPLY, RETRY, CloseCode
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import handshake_event, parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import Initiator
from parley._node.protocol.reports import ConnectionEnded, HandshakeCompleted, PeerIdentified
from parley._node.protocol.states import State
from tests.node.protocol.pair import (
    ALICE,
    BOB,
    START,
    Pair,
    Side,
    events_of,
    make_config,
    raw_frame,
)
from tests.node.protocol.test_observer import Recorder
from tests.security.shapes import SHAPES, Shape

HYBRID, CLASSIC = "x25519-mlkem768", "x25519"
BOTH: dict[str, tuple[str, ...]] = {}  # all algorithms


def initiator(**settings: Any) -> tuple[Side, dict[int, Value]]:
    """Return an initiator that has sent its Hello, and the cells of that Hello."""
    side = Side(make_config(ALICE, **{"algorithms": BOTH, **settings}), initiator=True)
    return side, sent_hello(side)


def sent_hello(side: Side) -> dict[int, Value]:
    (event,) = events_of(side.take(START))
    assert parse_raw(event).head == (0, 0, 1, HELLO)
    return decode(parse_raw(event).payload)


def give(side: Side, subcategory: int, cells: dict[int, Value]) -> None:
    side.core.receive_data(raw_frame(subcategory, cells), START)
    side.collect(START)


def cells_from(side: Side) -> dict[int, Value]:
    """Return the cells of the first event that a side sends."""
    return decode(parse_raw(events_of(side.take(START))[0]).payload)


# Hello, Retry, Reply.


def test_hello_offers_what_the_settings_say() -> None:
    _, cells = initiator(
        role="client",
        max_payload=4_096,
        seal_delay_ms=0,
        algorithms={"cipher": ("chacha20-poly1305",), "sealing": ("each", "chain")},
        require={"kex": frozenset({HYBRID})},
    )
    assert cells[keys.OFFER] == {
        1: [HYBRID],
        2: ["ed25519", "ml-dsa-65", "ecdsa-p256"],
        3: list(NAMES["hash"]),
        4: ["chacha20-poly1305"],
        5: ["each", "chain"],
    }
    shares, random = cells[keys.SHARES], cells[keys.RANDOM]
    assert isinstance(shares, dict)
    assert isinstance(random, bytes)
    assert list(shares) == [HYBRID]
    assert len(random) == 32
    assert (cells[keys.VERSION], cells[keys.ROLE], cells[keys.MAX_PAYLOAD]) == (1, "client", 4_096)
    assert keys.NETWORK_MAC not in cells
    assert keys.PLAINTEXT not in cells


def test_reply_and_proof_answer_a_hello() -> None:
    hello, _ = initiator()
    side = Side(
        make_config(BOB, role="server", max_payload=2_048, algorithms=BOTH), initiator=False
    )
    side.core.receive_data(bytes(hello.wire), START)
    reply, proof = events_of(side.take(START))
    assert parse_raw(reply).head == (0, 0, 1, REPLY)
    cells = decode(parse_raw(reply).payload)
    assert (cells[keys.VERSION], cells[keys.ROLE], cells[keys.MAX_PAYLOAD]) == (1, "server", 2_048)
    assert cells[keys.SUITE] == {n: names[0] for n, names in enumerate(NAMES.values(), 1)}
    shares = cells[keys.SHARES]
    assert isinstance(shares, dict)
    assert list(shares) == [HYBRID]
    assert len(proof) > 25
    assert side.core.state is State.EXPECT_PROOF
    assert not side.reports


def test_ephemeral_keys_and_random_are_fresh() -> None:
    hellos = [initiator()[1] for _ in range(2)]
    assert hellos[0][keys.RANDOM] != hellos[1][keys.RANDOM]
    assert hellos[0][keys.SHARES] != hellos[1][keys.SHARES]


def test_with_a_network_key_both_hellos_carry_their_mac() -> None:
    key = bytes(range(32))
    side, first = initiator(network_key=key)
    give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
    for cells in (first, sent_hello(side)):
        mac = cells.pop(keys.NETWORK_MAC)
        assert isinstance(mac, bytes)
        assert check_network_mac(key, encode(cells), mac)


def test_the_second_hello_equals_the_first_except_for_its_share() -> None:
    side, first = initiator()
    give(side, RETRY, {keys.SUITE: {1: CLASSIC}})
    second = sent_hello(side)
    assert side.state == "EXPECT_REPLY"
    shares = second.pop(keys.SHARES)
    first.pop(keys.SHARES)
    assert second == first
    assert isinstance(shares, dict)
    assert list(shares) == [CLASSIC]


def test_a_handshake_with_retry() -> None:
    pair = Pair(make_config(ALICE, algorithms=BOTH), make_config(BOB))
    pair.pump()
    for side in pair.sides:
        suite = side.one(HandshakeCompleted).agreed.suite
        assert suite is not None
        assert suite.kex == CLASSIC


def test_a_hello_without_a_share_is_answered_by_retry() -> None:
    _, cells = initiator()
    absent: list[Value] = [{}, None]
    for shares in absent:
        side = Side(make_config(BOB, algorithms=BOTH), initiator=False)
        hello = {**cells, keys.SHARES: shares}
        give(side, HELLO, {key: value for key, value in hello.items() if value is not None})
        assert cells_from(side) == {keys.SUITE: {1: HYBRID}}


def test_bytes_behind_a_rejected_hello_are_dropped() -> None:
    hello, _ = initiator()
    side = Side(make_config(BOB, algorithms=BOTH), initiator=False)
    side.core.receive_data(frame(bytes(3)) + bytes(hello.wire), START)
    side.core.receive_data(bytes(hello.wire), START)
    side.collect(START)
    (reject,) = events_of(side.take(START))
    assert parse_raw(reject).subcategory == REJECT
    assert side.code == CloseCode.PROTOCOL_ERROR
    assert len(side.reports) == 1


@pytest.mark.parametrize("plaintext", ["never", "only"])
@pytest.mark.parametrize(
    ("subcategory", "cells"),
    [
        (
            REPLY,
            {keys.VERSION: 1, keys.RANDOM: bytes(32), keys.ROLE: "peer", keys.PLAINTEXT: True},
        ),
        (RETRY, {keys.SUITE: {1: CLASSIC}}),
        (REJECT, {keys.CODE: 2}),
    ],
)
def test_an_answer_before_the_hello_is_refused(
    subcategory: int, cells: dict[int, Value], plaintext: Any
) -> None:
    # Otherwise a node without plaintext would accept a plaintext Reply.
    early = Initiator(make_config(ALICE, plaintext=plaintext), bytes(32))
    with pytest.raises(RemoteProtocolError, match="before our Hello"):
        early.receive(handshake_event(subcategory, encode(cells)))


# Plaintext.


def test_plaintext_hello_and_reply() -> None:
    for plaintext in ("only", "both"):
        pair = Pair(
            make_config(ALICE, plaintext="only", role="client"),
            make_config(BOB, plaintext=plaintext, max_payload=2_000),
        )
        pair.pump()
        hello, reply = (decode(parse_raw(events_of(s.wire)[0]).payload) for s in pair.sides)
        for cells in (hello, reply):
            assert cells[keys.PLAINTEXT] is True
            assert not {keys.OFFER, keys.SUITE, keys.SHARES, keys.NETWORK_MAC} & set(cells)
        agreed = pair.a.one(HandshakeCompleted).agreed
        assert [agreed.identity, agreed.suite, agreed.session_id, agreed.exporter] == [None] * 4
        assert (agreed.remote_role, agreed.limits.max_payload) == ("peer", 2_000)
        assert pair.b.one(HandshakeCompleted).agreed.remote_role == "client"


def test_a_side_that_accepts_both_dials_encrypted_and_does_not_fall_back() -> None:
    side, cells = initiator(plaintext="both")
    assert keys.OFFER in cells
    give(side, REPLY, {1: 1, 2: bytes(32), 6: "server", 13: True})
    assert side.code == CloseCode.PROTOCOL_ERROR
    hello, _ = initiator()
    listener = Side(make_config(BOB, algorithms=BOTH, plaintext="both"), initiator=False)
    listener.core.receive_data(bytes(hello.wire), START)
    assert len(events_of(listener.take(START))) == 2


# The result.


def test_both_sides_know_each_other_and_agree() -> None:
    pair = Pair(
        make_config(ALICE, role="client", node_info={"name": "alice"}, max_payload=5_000),
        make_config(BOB, role="server", node_info={"name": "bob"}, seal_events=9),
    )
    pair.pump()
    asked = pair.a.one(PeerIdentified)
    assert asked.identity.node_id == BOB.public.node_id
    assert (asked.role, asked.info) == ("server", {"name": "bob"})
    assert pair.b.one(PeerIdentified).role == "client"
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


def test_the_reported_result_has_no_secret() -> None:
    pair = Pair()
    pair.pump()
    agreed = pair.a.one(HandshakeCompleted).agreed
    assert agreed.hs is agreed.commit is agreed.rekey is None
    assert not agreed.t1
    assert "exporter" not in repr(agreed)
    assert pair.a.core.handshake is pair.b.core.handshake is None  # which drops its secrets


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_the_transcript_is_what_passed(shape: Shape) -> None:
    """Both sides hash and store the received bytes, not a re-encoding."""
    recorders = Recorder(), Recorder()
    pair = Pair(shape.config("initiator"), shape.config("responder"), observers=recorders)
    pair.pump()
    sent = [events_of(side.wire) for side in pair.sides]
    raw = [event for both in zip(*[e[:-1] for e in sent], strict=True) for event in both]
    for recorder in recorders:
        agreed = recorder.agreed
        assert agreed is not None
        assert agreed.t1 == b"".join(raw)
        assert agreed.initiator_proof == sent[0][-1]
        assert agreed.responder_proof == sent[1][-1]


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


def test_the_longest_proof_passes() -> None:
    info = {"x": bytes(1_024 - len(encode({})) - 5)}
    identity = Identity.create(("ml-dsa-65", "ed25519", "ecdsa-p256"))
    settings = {"node_info": info, "algorithms": {"kex": (CLASSIC,), "signing": ("ml-dsa-65",)}}
    pair = Pair(make_config(identity, **settings), make_config(BOB, **settings))
    pair.pump()
    assert pair.b.one(HandshakeCompleted).agreed.info == info


# The decision about the peer.


def undecided() -> Pair:
    """Return a pair whose responder has the initiator's Proof and has not decided."""
    pair = Pair()
    pair.b.answer = None
    pair.pump()
    assert pair.b.core.state is State.DECIDING
    return pair


@pytest.mark.parametrize("trusted", [True, False])
def test_data_waits_for_the_decision(trusted: bool) -> None:
    pair = undecided()
    assert not pair.b.core.wants_data
    for data in (b"one", b"two"):  # a transport can have read them already
        pair.a.core.send(1, 0, 64, 1, data, lbm=False, seal=True)
        pair.carry(pair.a)
    assert [type(report) for report in pair.b.reports] == [PeerIdentified]
    if trusted:
        pair.b.core.accept_peer(pair.now)
        pair.b.core.receive_data(b"", pair.now)  # bytes that followed the Proof
        pair.pump()
        assert pair.b.payloads == [b"one", b"two"]
        return
    pair.b.core.refuse_peer("a secret reason", pair.now)
    pair.pump()
    assert not pair.b.events
    assert not pair.b.opened
    assert pair.b.code == CloseCode.PEER_NOT_TRUSTED
    assert pair.b.one(ConnectionEnded).reason == "a secret reason"
    told = pair.a.one(ConnectionEnded)
    assert (told.code, told.text, told.remote) == (CloseCode.AUTHENTICATION_FAILED, "", True)


def test_the_initiator_refuses_without_a_word() -> None:
    pair = Pair()
    pair.a.answer = False
    pair.carry(pair.a)
    pair.carry(pair.b)
    assert pair.a.code == CloseCode.PEER_NOT_TRUSTED
    assert pair.a.core.ended
    assert not pair.a.take(pair.now)
    assert not pair.b.opened


def test_two_sides_with_one_identity_refuse_each_other() -> None:
    pair = Pair(make_config(ALICE), make_config(ALICE))
    pair.pump()
    assert pair.a.code == CloseCode.AUTHENTICATION_FAILED
    assert "this node's own ID" in pair.a.one(ConnectionEnded).reason
    pair.run(60.0)
    assert pair.b.code == CloseCode.TIMEOUT
    assert not pair.b.opened
