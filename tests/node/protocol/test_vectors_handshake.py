"""Tests of the core against the vectors of decisions in the handshake.

Each is one decision: of a responder about a Hello, or of an initiator about its answer.
"""

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from parley._crypto.identity import Identity
from parley._crypto.key_exchange import EphemeralKey, KexAlgorithm
from parley._crypto.registry import KEX, Suite
from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.protocol.codes import CONNECTION, REJECT, REPLY, RETRY, SENTENCES, CloseCode
from parley._node.protocol.config import CoreConfig, Plaintext
from parley._node.protocol.event import Event, parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import HandshakeCompleted
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALIVE, START, Side, events_of, raw_frame
from tests.vectors.load import Vector, codes, of_kind, read, unhex, vectors

IDENTITIES = {
    names: Identity.create(names)
    for names in {tuple(v["config"]["signing"]) for v in read("handshake")["vectors"]}
}
MODES: dict[tuple[bool, bool], Plaintext] = {
    (True, False): "never",
    (True, True): "both",
    (False, True): "only",
}


def config_of(vector: Vector) -> CoreConfig:
    given = vector["config"]
    names = {p: tuple(given[p]) for p in ("kex", "signing", "hash", "cipher", "sealing")}
    return CoreConfig(
        identity=IDENTITIES[names["signing"]],
        role=given["role"],
        algorithms=names,
        limits=Limits(**{name: int(value) for name, value in given["limits"].items()}),
        network_key=given["network_key"] and unhex(given["network_key"]),
        plaintext=MODES[given["encrypted"], given["plaintext"]],
    )


def fed(side: Side, event: str) -> list[Event]:
    """Pass one event to a core; return the raw events that answer it, without Proofs."""
    side.core.receive_data(frame(unhex(event)), START)
    side.collect(START)
    answers = events_of(side.take(START))
    proofs = 1 if side.state == "EXPECT_PROOF" and not side.core.initiator else 0
    return [parse_raw(answer) for answer in answers[: len(answers) - proofs]]


def decided(side: Side) -> dict[str, Any]:
    """Return the agreement in the vectors' terms."""
    if side.opened:
        agreed = side.one(HandshakeCompleted).agreed
        suite, limits, role = agreed.suite, agreed.limits, agreed.remote_role
    else:
        handshake = side.handshake
        suite, limits, role = handshake.suite, handshake.agreed_limits(), handshake.remote_role
    names = suite.names() if isinstance(suite, Suite) else None
    return {
        "suite": names,
        "limits": {name: getattr(limits, name) for name in Limits.__slots__},
        "remote_role": role,
    }


def assert_reject(side: Side, answers: list[Event], vector: Vector) -> None:
    (answer,) = answers
    assert answer.head == (0, 0, CONNECTION, REJECT)
    cells = decode(answer.payload)
    text = str(cells[keys.TEXT])
    code = CloseCode(side.code)
    assert cells[keys.CODE] == code
    assert text.startswith(SENTENCES[code])
    assert vector.get("names", "") in text
    assert side.core.state is State.CLOSING


@vectors("handshake", of_kind("respond"))
def test_what_a_responder_decides(vector: Vector) -> None:
    side = Side(config_of(vector), initiator=False)
    if "first_hello" in vector:
        (retry,) = fed(side, vector["first_hello"])
        assert retry.subcategory == RETRY
    answers = fed(side, vector["hello"])
    assert not side.events
    if "fails" not in vector:
        assert_answered(side, answers, vector["expected"])
    elif vector["reject"]:
        assert side.code in codes(vector) or "ambiguous" in vector
        assert_reject(side, answers, vector)
    else:
        # No event is sent; the code is only in the log, so any is valid.
        assert side.code != ALIVE
        assert not answers or "ambiguous" in vector


def assert_answered(side: Side, answers: list[Event], expected: Mapping[str, Any]) -> None:
    assert side.code == ALIVE
    if "retry" in expected:
        (retry,) = answers
        assert retry.head == (0, 0, CONNECTION, RETRY)
        assert decode(retry.payload) == {keys.SUITE: {1: expected["retry"]}}
        return
    (reply,) = answers
    assert reply.head == (0, 0, CONNECTION, REPLY)
    assert decided(side) == expected
    cells = decode(reply.payload)
    if expected["suite"] is None:
        assert cells[keys.PLAINTEXT] is True
        assert side.core.state is State.OPEN
    else:
        assert cells[keys.SUITE] == dict(enumerate(expected["suite"].values(), start=1))
        assert side.core.state is State.EXPECT_PROOF


def known_offers(algorithm: KexAlgorithm) -> EphemeralKey:
    """Use the keys of the file instead of fresh ones."""
    offer = read("handshake")["offers"][algorithm.name]
    return algorithm.from_private(unhex(offer["mlkem768_seed"]) + unhex(offer["x25519_private"]))


@vectors("handshake", of_kind("accept"))
def test_what_an_initiator_decides(vector: Vector) -> None:
    with patch.object(KexAlgorithm, "generate", known_offers):
        side = Side(config_of(vector), initiator=True)
        side.take(START)
        if vector["retried"]:
            (kex,) = vector["shares_sent"]
            side.core.receive_data(raw_frame(RETRY, {keys.SUITE: {1: kex}}), START)
            assert side.take(START)
        answers = fed(side, vector["answer"])
    assert not side.events
    if "fails" in vector:
        assert side.code in codes(vector)
        assert not answers, "an initiator says nothing when it refuses"
        assert side.core.ended
        return
    assert side.code == ALIVE
    expected = vector["expected"]
    if "retry" in expected:
        (hello,) = answers
        shares = decode(hello.payload)[keys.SHARES]
        assert shares == {expected["retry"]: known_offers(KEX[expected["retry"]]).share}
        return
    assert not answers
    assert decided(side) == expected
    agreed_on_keys = expected["suite"] is not None
    assert side.core.state is (State.EXPECT_PROOF if agreed_on_keys else State.OPEN)
