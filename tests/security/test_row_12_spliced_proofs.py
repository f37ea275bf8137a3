"""Row 12. Mistake: a proof of one session spliced into another.

Promise: a Proof or a seal is invalid outside the session, direction and position that it was made
for, even for an attacker who knows the keys of both sessions.
"""

import pytest

from parley._crypto.identity import Identity
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import PeerIdentified
from tests.node.protocol.pair import Pair, Side, events_of
from tests.security.insider import ALGORITHMS, Insider, Stolen, meeting, signing_as
from tests.security.shapes import (
    identity,
)

each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
each_side = pytest.mark.parametrize("who", [0, 1], ids=["initiator", "responder"])
NAMES = ("initiator", "responder")


class Recorder:
    """A key that records its signatures, and can return them again."""

    def __init__(self, name: str, algorithm: str) -> None:
        self._key = identity(name, algorithm).key(algorithm)
        self.made: list[bytes] = []
        self.again: list[bytes] = []

    def identity(self) -> Identity:
        return Identity.from_keys([signing_as(self._key, self._sign)])

    def _sign(self, message: bytes) -> bytes:
        signature = self.again.pop(0) if self.again else self._key.sign(message)
        self.made.append(signature)
        return signature


def recorded(algorithm: str, who: int) -> tuple[Pair, Recorder]:
    """Return a pair, one side of which signs through a recorder."""
    recorder = Recorder(NAMES[who], algorithm)
    owns = [recorder.identity() if who == number else None for number in (0, 1)]
    return meeting(algorithm, *owns), recorder


def assert_not_identified(side: Side, code: CloseCode) -> None:
    assert side.code == code
    assert not side.all(PeerIdentified)
    assert not side.opened
    assert not side.events


@each_side
@each_algorithm
def test_a_signature_of_another_session(algorithm: str, who: int) -> None:
    """The attacker knows both sessions' keys: the Proof has this session's encryption and masking,
    and the signature of the last session.
    """
    first, old = recorded(algorithm, who)
    first.pump()
    assert first.a.opened
    assert first.b.opened
    second, new = recorded(algorithm, who)
    new.again = old.made[:1]
    second.pump()
    assert new.made == old.made[:1]
    assert_not_identified(second.sides[1 - who], CloseCode.AUTHENTICATION_FAILED)


@each_algorithm
def test_a_proof_made_for_one_shown_to_another(algorithm: str) -> None:
    """The initiator proves itself to the middle node, which reuses the signature with another node.

    The keys of the second connection are the middle node's own.
    """
    middle = identity("middle", algorithm)
    honest = meeting(algorithm, None, middle)
    honest.carry(honest.a)
    honest.carry(honest.b)
    insider = Insider(honest.b.handshake)
    proof, *_ = events_of(honest.a.take(honest.now))
    shown, signature = insider.open_proof(proof, initiators=True)
    assert shown.payload

    dialled = meeting(algorithm, middle)
    dialled.carry(dialled.a)
    dialled.carry(dialled.b)
    victim = identity("initiator", algorithm)
    forged = Insider(dialled.b.handshake).proof(
        victim.cells(), Stolen(signature), initiators=True
    )  # fmt: skip
    dialled.deliver(dialled.b, forged)
    assert_not_identified(dialled.b, CloseCode.AUTHENTICATION_FAILED)


@each_algorithm
def test_a_responders_signature_as_an_initiators(algorithm: str) -> None:
    """Within one session, the responder's signature is not accepted as an initiator's."""
    pair = meeting(algorithm)
    pair.carry(pair.a)
    insider = Insider(pair.b.handshake)
    _, proof = events_of(pair.b.take(pair.now))
    _, signature = insider.open_proof(proof, initiators=False)
    shown = identity("responder", algorithm).cells()
    pair.deliver(pair.b, insider.proof(shown, Stolen(signature), initiators=True))
    assert_not_identified(pair.b, CloseCode.AUTHENTICATION_FAILED)


@each_side
@each_algorithm
def test_a_seal_of_another_session_or_another_place(algorithm: str, who: int) -> None:
    """The same event at the same position of another session, or repeated in this one."""
    first, old = recorded(algorithm, who)
    first.pump()
    for pair, recorder in ((first, old), recorded(algorithm, who)):
        pair.pump()
        writer, reader = pair.sides[who], pair.sides[1 - who]
        if recorder is old:
            writer.core.send(1, 0, 64, 1, b"data", lbm=False, seal=True)
            pair.pump()
            assert reader.payloads == [b"data"]
        recorder.again = old.made[-1:]
        writer.core.send(1, 0, 64, 1, b"data", lbm=False, seal=True)
        pair.pump()
        assert reader.code == CloseCode.SEAL_VIOLATION
        assert len(reader.events) == (recorder is old)
