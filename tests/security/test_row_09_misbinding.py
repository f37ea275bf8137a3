"""Row 9. Mistake: identity misbinding, where a middle node signs one side's exchange as its own.

The two ends would then have the same keys and disagree on the owner of the other end. Promise: that
is refused, even if the middle node knows every key of the handshake.
"""

import pytest

from parley._crypto.identity import Identity
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import PeerIdentified
from tests.node.protocol.pair import ALIVE, Pair, Side, events_of
from tests.security.insider import ALGORITHMS, Insider, Stolen, meeting
from tests.security.shapes import identity

each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def middle_node(algorithm: str) -> Identity:
    return identity("middle", algorithm)


def to_the_responders_flight(pair: Pair) -> tuple[bytes, bytes, Insider]:
    """Return the Reply, the responder's Proof, and an attacker with the responder's handshake
    keys.
    """
    pair.carry(pair.a)
    insider = Insider(pair.b.handshake)
    reply, proof = events_of(pair.b.take(pair.now))
    return reply, proof, insider


def to_the_initiators_proof(pair: Pair) -> tuple[bytes, Insider]:
    """Return the initiator's Proof, and an attacker with the responder's handshake keys."""
    pair.carry(pair.a)
    pair.carry(pair.b)
    insider = Insider(pair.b.handshake)
    pair.a.core.send(1, 0, 64, 1, b"from the initiator", lbm=False)
    proof, *_ = events_of(pair.a.take(pair.now))
    return proof, insider


def assert_authentication_failed(side: Side) -> None:
    assert side.code == CloseCode.AUTHENTICATION_FAILED
    assert not side.all(PeerIdentified)
    assert not side.events


@each_algorithm
def test_the_initiators_exchange_signed_by_another(algorithm: str) -> None:
    """The initiator's events stay unchanged; the signature is the middle node's."""
    pair = meeting(algorithm)
    _, insider = to_the_initiators_proof(pair)
    shown = pair.a.core.config.identity.cells()
    key = middle_node(algorithm).key(algorithm)
    pair.deliver(pair.b, insider.proof(shown, key, initiators=True))
    assert_authentication_failed(pair.b)


@each_algorithm
def test_the_responders_exchange_signed_by_another(algorithm: str) -> None:
    pair = meeting(algorithm)
    reply, _, insider = to_the_responders_flight(pair)
    shown = pair.b.core.config.identity.cells()
    key = middle_node(algorithm).key(algorithm)
    pair.deliver(pair.a, frame(reply) + insider.proof(shown, key, initiators=False))
    assert_authentication_failed(pair.a)
    assert pair.a.take(pair.now) == b""


@each_algorithm
def test_an_identity_under_anothers_signature(algorithm: str) -> None:
    """The middle node shows its own identity with the signature that the other side made."""
    pair = meeting(algorithm)
    proof, insider = to_the_initiators_proof(pair)
    _, signature = insider.open_proof(proof, initiators=True)
    shown = middle_node(algorithm).cells()
    pair.deliver(pair.b, insider.proof(shown, Stolen(signature), initiators=True))
    assert_authentication_failed(pair.b)

    pair = meeting(algorithm)
    reply, proof, insider = to_the_responders_flight(pair)
    _, signature = insider.open_proof(proof, initiators=False)
    forged = insider.proof(shown, Stolen(signature), initiators=False)
    pair.deliver(pair.a, frame(reply) + forged)
    assert_authentication_failed(pair.a)


@pytest.mark.parametrize("algorithm", ["ecdsa-p256", "ml-dsa-65"])
def test_anothers_key_claimed_as_a_further_key(algorithm: str) -> None:
    """The owner of a bound key need not consent to the binding; a Proof requires the key."""
    pair = meeting(algorithm)
    proof, insider = to_the_initiators_proof(pair)
    _, signature = insider.open_proof(proof, initiators=True)
    victim = pair.a.core.config.identity.key(algorithm)
    primary = identity("middle").keys[0]
    thief = Identity.from_keys([primary, victim])  # only the primary key signs the binding
    assert thief.public.verifier(algorithm).public == victim.public
    forged = insider.proof(thief.cells(), Stolen(signature), initiators=True)
    pair.deliver(pair.b, forged)
    assert_authentication_failed(pair.b)


@each_algorithm
def test_a_whole_proof_of_the_middle_node_to_the_responder(algorithm: str) -> None:
    """The responder correctly identifies the middle node.

    But the responder's keys cover that Proof, and the initiator's keys cover its own, so the two
    never share a connection.
    """
    pair = meeting(algorithm)
    _, insider = to_the_initiators_proof(pair)
    middle = middle_node(algorithm)
    forged = insider.proof(middle.cells(), middle.key(algorithm), initiators=True)
    pair.deliver(pair.b, forged)
    assert pair.b.one(PeerIdentified).identity.node_id == middle.node_id
    pair.b.core.send(1, 0, 64, 1, b"from the responder", lbm=False)
    from_responder = pair.b.take(pair.now)
    pair.a.core.send(1, 0, 64, 1, b"from the initiator", lbm=False)
    from_initiator = pair.a.take(pair.now)
    pair.deliver(pair.a, from_responder)
    pair.deliver(pair.b, from_initiator)
    for side in pair.sides:
        assert side.code == CloseCode.BAD_RECORD
        assert not side.events


@each_algorithm
@pytest.mark.parametrize("trusting", [True, False], ids=["anybody", "the responder only"])
def test_a_whole_proof_of_the_middle_node_to_the_initiator(algorithm: str, trusting: bool) -> None:
    """An initiator that expects the responder refuses it.

    An initiator that accepts any node signs for the node that it accepted, which differs from the
    responder's view.
    """
    pair = meeting(algorithm)
    pair.a.answer = trusting
    reply, _, insider = to_the_responders_flight(pair)
    middle = middle_node(algorithm)
    forged = insider.proof(middle.cells(), middle.key(algorithm), initiators=False)
    pair.deliver(pair.a, frame(reply) + forged)
    assert pair.a.one(PeerIdentified).identity.node_id == middle.node_id
    sent = pair.a.take(pair.now)
    if not trusting:
        assert pair.a.code == CloseCode.PEER_NOT_TRUSTED
        assert sent == b""
        return
    pair.deliver(pair.b, sent)
    assert pair.b.code == CloseCode.BAD_RECORD
    assert not pair.b.all(PeerIdentified)


@each_algorithm
def test_a_middle_node_without_the_keys(algorithm: str) -> None:
    """The middle node connects to the responder itself, and inserts its own Proof from that
    exchange.
    """
    pair = meeting(algorithm)
    to_the_initiators_proof(pair)
    own = meeting(algorithm, initiator=middle_node(algorithm))
    own.carry(own.a)
    own.carry(own.b)
    pair.deliver(pair.b, own.a.take(own.now))
    assert pair.b.code == CloseCode.BAD_RECORD
    assert not pair.b.all(PeerIdentified)


def test_the_insider_writes_proofs_that_are_taken() -> None:
    """Without an error, the insider's Proofs are accepted: each rejection above has exactly one
    cause.
    """
    for algorithm in ALGORITHMS:
        pair = meeting(algorithm)
        _, insider = to_the_initiators_proof(pair)
        honest = pair.a.core.config.identity
        proof = insider.proof(honest.cells(), honest.key(algorithm), initiators=True)
        pair.deliver(pair.b, proof)
        assert pair.b.one(PeerIdentified).identity.node_id == honest.node_id
        assert pair.b.code == ALIVE
