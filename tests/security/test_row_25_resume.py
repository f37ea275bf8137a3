"""Row 25, a session resumed by an attacker: replayed, forged or late Resume and Resumed events.

They have no effect except a further cut, even in floods, and reveal nothing to an attacker. See
also tests/node/protocol/test_vectors_resume.py for the reaction to each Resume and Resumed byte for
byte, and tests/interop/test_resume.py for cuts at every byte, and the same with the second
implementation.
"""

from collections.abc import Iterator

import pytest

from parley._crypto.randomness import random_bytes
from parley._lbm import keys
from parley._lbm.codec import decode
from parley._node.protocol.codes import CONNECTION, RECEIVED, REJECT, SIM, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import parse_raw
from parley._node.protocol.resume_attempt import ResumeAttempt
from tests.node.protocol.cut_pair import CutPair, cut_pair
from tests.node.protocol.pair import ALIVE, Side


def say(side: Side, text: bytes) -> None:
    side.core.send(1, 0, SIM, 4, text, lbm=False)


def talk(pair: CutPair, text: bytes) -> None:
    """Send an event from both sides, and check that both receive it."""
    for side in pair.sides:
        say(side, text)
    pair.pump()
    assert pair.a.payloads[-1] == pair.b.payloads[-1] == text


def flipped(data: bytes) -> Iterator[bytes]:
    """Return copies of a frame with each bit of its event flipped, one at a time."""
    for bit in range(32, 8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def rejected(answer: bytes) -> int:
    """Return the code of a Reject, which must be the only answer."""
    length = int.from_bytes(answer[:4])
    event = parse_raw(answer[4:])
    assert len(answer) == 4 + length
    assert event.head[2:] == (CONNECTION, REJECT)
    code = decode(event.payload)[keys.CODE]
    assert isinstance(code, int)
    return code


def resumed_once() -> CutPair:
    pair = cut_pair()
    talk(pair, b"first")
    pair.cut()
    assert pair.come_back().outcome == "resumed"
    talk(pair, b"second")
    return pair


# Replayed.


def test_a_resume_with_any_bit_changed_is_rejected() -> None:
    pair = resumed_once()
    pair.cut()
    resume = pair.a.core.start_attempt(pair.now).data_to_send(pair.now)
    for changed in flipped(resume):
        fresh, asked = pair.listen(changed)
        answer = pair.answer(fresh, asked)
        code = rejected(answer)
        # An unreadable one is a malformed first event.
        assert code in (CloseCode.UNKNOWN_SESSION, CloseCode.PROTOCOL_ERROR)
        assert asked is None or code == CloseCode.UNKNOWN_SESSION
    assert pair.b.core.is_suspended
    assert pair.come_back().outcome == "resumed"
    talk(pair, b"third")


def test_a_resumed_with_any_bit_changed_is_refused() -> None:
    pair = resumed_once()
    pair.cut()
    attempt, fresh, asked = pair.ask()
    answer = pair.answer(fresh, asked)
    resumed = answer[: 4 + int.from_bytes(answer[:4])]
    core = pair.a.core
    assert core.resumption is not None
    accept = attempt.accept
    assert accept is not None
    for changed in flipped(resumed):
        again = ResumeAttempt(b"", accept, pair.now)
        again.receive_data(changed, pair.now)
        assert again.outcome == "failed"
        assert core.is_suspended
    assert pair.come_back().outcome == "resumed"
    talk(pair, b"third")


# Copied, and faster than the legitimate one.


def test_a_reject_that_anybody_can_make_ends_no_session() -> None:
    pair = resumed_once()
    pair.cut()
    for code in (14, 2, 12, 5):
        attempt = pair.a.core.start_attempt(pair.now)
        body = bytes(6) + bytes([CONNECTION, REJECT]) + bytes.fromhex(f"a210{code:02x}116178")
        attempt.receive_data(len(body).to_bytes(4) + body, pair.now)
        assert (attempt.outcome, attempt.code) == ("rejected", code)
        assert pair.a.core.is_suspended
    assert pair.come_back().outcome == "resumed"
    talk(pair, b"third")


# Forged, and what an attacker learns.


def test_all_rejects_are_the_same_to_a_stranger() -> None:
    pair = resumed_once()
    pair.cut()
    right = pair.a.core.start_attempt(pair.now).data_to_send(pair.now)
    answers = set()
    for changed in (
        right[:20] + random_bytes(8) + right[28:],  # another tag
        right[:-8] + random_bytes(8),  # the right tag, another mac
        pair.resumes[0],  # valid once
    ):
        fresh, asked = pair.listen(changed)
        answers.add(pair.answer(fresh, asked))
        assert fresh.state.name in ("CLOSING", "ENDED")
    assert len(answers) == 1


# Late.


# Floods, and false positions.


@pytest.mark.parametrize(
    ("position", "code"), [(2**40, CloseCode.PROTOCOL_ERROR), (0, CloseCode.OVERLOADED)]
)
def test_a_peer_that_tells_too_much_or_too_often_is_closed(position: int, code: int) -> None:
    pair = cut_pair()
    for _ in range(100):
        if pair.b.code == ALIVE:
            pair.inject(pair.b, 0, CONNECTION, RECEIVED, {keys.RECEIVED: position}, sealed=True)
    assert pair.b.code in (ALIVE, code)
    assert pair.a.code in (ALIVE, code)
    assert (pair.a.code, pair.b.code) != (ALIVE, ALIVE)


def test_a_position_that_lies_in_a_right_resume_ends_the_session() -> None:
    """Only the peer itself can send it, because the mac is valid."""
    pair = resumed_once()
    pair.cut()
    resumption = pair.a.core.resumption
    assert resumption is not None
    resumption.received += 10_000
    attempt = pair.come_back()
    assert attempt.outcome == "rejected"
    pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.PROTOCOL_ERROR


# Half-open.


def test_a_new_transport_wins_over_one_that_seems_alive() -> None:
    pair = cut_pair()
    for number in range(200):
        say(pair.a, b"lost on the old one %d" % number)
        pair.a.take(pair.now)  # into a transport that is not read and does not end
        assert pair.come_back().outcome == "resumed"
    assert pair.b.payloads == [b"lost on the old one %d" % number for number in range(200)]
    assert (pair.a.code, pair.b.code) == (ALIVE, ALIVE)
    assert isinstance(pair.b.core, Connection)
