"""Tests of the core against the vectors of resumption: keys, events, decisions, positions."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parley._crypto.hashing import HashAlgorithm
from parley._crypto.identity import Identity
from parley._crypto.registry import HASHES
from parley._lbm import keys
from parley._lbm.codec import decode
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import CONNECTION, REJECT, SENTENCES, SIM, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import RemoteProtocolError, violation
from parley._node.protocol.event import parse_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.handshake import raw_handshake_event
from parley._node.protocol.handshake_messages import decode_handshake
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.replay_buffer import ReplayBuffer
from parley._node.protocol.reports import HandshakeCompleted, ResumeRequested
from parley._node.protocol.resumption import (
    ResumeKey,
    ResumeRequest,
    Resumption,
    read_resume,
    read_resumed,
)
from tests.node.protocol.cut_pair import CutPair, cut_pair
from tests.node.protocol.pair import ALICE, ALIVE, BOB, START, make_config
from tests.vectors.load import Vector, codes, of_kind, unhex, vectors

BIG = 1 << 40
EVER = Identity.create(("ed25519",))


def known_key(hash: HashAlgorithm, key: bytes) -> ResumeKey:
    """Return a ResumeKey with a known K."""
    made = ResumeKey(hash, bytes(hash.size), bytes(32))
    made.key = key
    return made


def sent(vector: Vector) -> ReplayBuffer:
    kept = ReplayBuffer(BIG, BIG, 0, MemoryBudget(BIG))
    kept.chunks.append(bytes(vector["sent"]))
    kept.sent = vector["sent"]
    return kept


def resumption(vector: Vector, *, initiator: bool) -> Resumption:
    key = known_key(HASHES[vector["hash"]], unhex(vector["key"]))
    kept = sent(vector)
    kept.release(vector["told"])
    made = Resumption(key, 30.0, initiator=initiator, kept=kept, now=START)
    made.count, made.attempt, made.received = (
        vector["count"],
        vector["attempt"],
        vector["received"],
    )
    return made


def resume_of(event: bytes) -> ResumeRequest:
    return read_resume(decode_handshake(raw_handshake_event(event).payload))


@vectors("resume", of_kind("key"))
def test_k_and_its_tags(vector: Vector) -> None:
    key = ResumeKey(HASHES[vector["hash"]], unhex(vector["exporter"]), unhex(vector["session_id"]))
    if "fails" in vector:
        assert key.key != unhex(vector["claimed"])
        return
    assert key.key == unhex(vector["expected"]["key"])
    for count, tag in vector["expected"]["tags"].items():
        assert key.tag(int(count)) == unhex(tag)


@vectors("resume", of_kind("events"))
def test_what_is_written(vector: Vector) -> None:
    key = known_key(HASHES[vector["hash"]], unhex(vector["key"]))
    count, attempt, received = vector["count"], vector["attempt"], int(vector["received"])
    network_key = vector["network_key"] and unhex(vector["network_key"])
    expected = vector["expected"]
    asked = key.resume_frame(count, attempt, received, network_key)
    assert asked == frame(unhex(expected["resume"]))
    assert key.resumed_frame(count, attempt, received) == frame(unhex(expected["resumed"]))


@vectors("resume", of_kind("agreement"))
def test_what_is_agreed(vector: Vector) -> None:
    ours, theirs = vector["ours"], int(vector["theirs"] or 0)
    if theirs > 600_000:  # a core doesn't send such values; the byte vectors cover them
        theirs = 600_000
    pair = CutPair(make_config(ALICE, resume=ours / 1000), make_config(BOB, resume=theirs / 1000))
    pair.pump()
    for side in pair.sides:
        assert side.one(HandshakeCompleted).agreed.resume == vector["expected"] / 1000


@vectors("resume", of_kind("stranger"))
@pytest.mark.parametrize("resume", [0.0, 30.0])
def test_a_resume_that_nobody_knows(vector: Vector, resume: float) -> None:
    network_key = vector["network_key"] and unhex(vector["network_key"])
    config = CoreConfig(identity=EVER, network_key=network_key, resume=resume)
    core = Connection(config, initiator=False, now=START)
    core.receive_data(frame(unhex(vector["input"])), START)
    if any(isinstance(report, ResumeRequested) for report in core.reports()):
        assert vector["fails"] == "unknown-session"
        core.refuse_resume(START)
    answer = core.data_to_send(START)
    if not vector["reject"]:
        assert answer == b""
        assert core.ended
        return
    event = parse_raw(answer[4:])
    assert event.head == (0, 0, CONNECTION, REJECT)
    cells = decode(event.payload)
    (code,) = codes(vector)
    assert cells == {keys.CODE: code, keys.TEXT: SENTENCES[CloseCode(code)]}


@vectors("resume", of_kind("accept"))
def test_what_a_responder_makes_of_a_resume(vector: Vector) -> None:
    session = resumption(vector, initiator=False)
    resume = resume_of(unhex(vector["input"]))
    count = session.find_count(resume) if resume.tag in session.tags else None
    if count is None:
        assert vector["fails"] == "unknown-session"
        assert not vector["ends"]
        return
    if not session.could_have(resume.received):
        assert vector["fails"] == "unknown-session"
        assert vector["ends"]
        return
    expected = vector["expected"]
    assert session.accept(resume, count) == frame(unhex(expected["resumed"]))
    session.kept.release(resume.received)
    assert session.count == expected["count"]
    assert session.kept.told == expected["told"]
    assert [tag.hex() for tag in session.tags] == expected["tags"]


@vectors("resume", of_kind("complete"))
def test_what_an_initiator_makes_of_a_resumed(vector: Vector) -> None:
    session = resumption(vector, initiator=True)
    try:
        event = raw_handshake_event(unhex(vector["input"]))
        if event.subcategory != 14:
            raise violation("not Resumed")
        resumed = read_resumed(event.payload)
    except (RemoteProtocolError, LbmDecodeError):
        assert vector["fails"] == "refused"
        return
    assert session.is_resumed(*resumed) == ("expected" in vector)
    if "expected" in vector:
        session.kept.release(resumed[1])
        assert session.kept.told == vector["expected"]["told"]


@contextmanager
def refusal(vector: Vector) -> Iterator[None]:
    if "fails" not in vector:
        yield
        return
    with pytest.raises(RemoteProtocolError) as raised:
        yield
    assert raised.value.code in codes(vector)


@vectors("resume", of_kind("positions"))
def test_positions_that_are_told(vector: Vector) -> None:
    kept = sent(vector)
    with refusal(vector):
        for what, position in vector["steps"]:
            if what == "received":
                kept.told_more(position)
            else:
                kept.release(position)
    if "expected" in vector:
        assert kept.told == vector["expected"]


def test_a_received_that_comes_again_tells_less_than_resumed() -> None:
    """The responder's Received is lost, and it receives more before the cut."""
    pair = cut_pair()
    pair.b.core.send(1, 0, SIM, 4, b"something", lbm=False)
    pair.pump()
    for _ in range(6):
        pair.a.core.send(1, 0, SIM, 4, bytes(60_000), lbm=False)
    pair.deliver(pair.b, pair.a.take(pair.now))
    assert pair.b.take(pair.now)
    pair.a.core.send(1, 0, SIM, 4, b"more", lbm=False)
    pair.deliver(pair.b, pair.a.take(pair.now))
    pair.cut()
    assert pair.come_back().outcome == "resumed"
    assert (pair.a.code, pair.b.code) == (ALIVE, ALIVE)
    assert pair.b.payloads[-1] == b"more"


def test_many_transports_that_carried_nothing_do_not_make_the_next_one_overloaded() -> None:
    pair = cut_pair()
    pair.b.core.send(1, 0, SIM, 4, b"something", lbm=False)
    pair.pump()
    for _ in range(100):
        pair.cut()
        attempt, fresh, asked = pair.ask()
        answer = pair.answer(fresh, asked)
        attempt.receive_data(answer[: 4 + int.from_bytes(answer[:4])], pair.now)  # only Resumed
        assert attempt.outcome == "resumed"
        pair.a.take(pair.now)  # in transit, and lost
        pair.b.take(pair.now)
    pair.cut()
    assert pair.come_back().outcome == "resumed"
    assert (pair.a.code, pair.b.code) == (ALIVE, ALIVE)
