"""Tests of a peer that is no longer trusted: it learns as little as in a handshake and cannot
resume.
"""

import pytest

from parley._crypto.identity import Identity
from parley._node.protocol.codes import SIM, CloseCode
from parley._node.protocol.connection import REFUSED_ID
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.reports import ConnectionEnded
from tests.node.protocol.cut_pair import CutPair, cut_pair
from tests.node.protocol.pair import Pair, Side, make_config, open_pair
from tests.node.protocol.test_observer import Recorder

REASON = "what only the log may know"
EITHER = pytest.mark.parametrize("refusing", [0, 1], ids=["initiator", "responder"])


def refuse(pair: Pair, side: Side) -> None:
    """Refuse the peer; the local side ends immediately with a local reason."""
    side.core.refuse_peer(REASON, pair.now)
    side.collect(pair.now)
    ended = side.one(ConnectionEnded)
    assert (ended.code, ended.text, ended.remote) == (CloseCode.PEER_NOT_TRUSTED, "", False)
    assert ended.reason == REASON


def assert_told_little(side: Side) -> None:
    ended = side.one(ConnectionEnded)
    assert (ended.code, ended.text, ended.remote) == (CloseCode.AUTHENTICATION_FAILED, "", True)


def talking() -> CutPair:
    pair = cut_pair()
    for side in pair.sides:
        side.core.send(1, 0, SIM, 4, b"before", lbm=False)
    pair.pump()
    return pair


@EITHER
@pytest.mark.parametrize("plaintext", ["never", "only"])
def test_an_open_one_is_told_that_authentication_failed(refusing: int, plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    side = pair.sides[refusing]
    side.core.send(1, 0, SIM, 4, b"what waits is not for it", lbm=False)
    refuse(pair, side)
    pair.pump()
    assert_told_little(pair.other(side))
    assert pair.other(side).payloads == []


@EITHER
def test_one_that_is_being_closed_hears_nothing_more_either(refusing: int) -> None:
    pair = talking()
    side = pair.sides[refusing]
    side.core.send(1, 0, SIM, 4, b"queued", lbm=False)
    side.core.close(pair.now, 70, "goodbye")
    refuse(pair, side)
    pair.pump()
    assert_told_little(pair.other(side))
    assert pair.other(side).payloads == [b"before"]


def test_whoever_lost_the_close_does_not_get_it_by_coming_back() -> None:
    pair = talking()
    refuse(pair, pair.b)
    assert pair.b.core.take_closed_session() is None
    pair.cut()  # the Close is lost as well
    assert pair.come_back().outcome == "rejected"
    assert pair.a.core.is_suspended


def test_a_close_is_right_also_where_bytes_were_to_be_sent_again() -> None:
    pair = talking()
    pair.b.core.send(1, 0, SIM, 4, b"lost on its way", lbm=False)
    pair.cut()
    attempt, fresh, asked = pair.ask()
    assert asked is not None
    assert pair.b.core.accept_resume(asked.resume, pair.now)
    fresh.hand_over()
    pair.b.collect(pair.now)
    refuse(pair, pair.b)
    attempt.receive_data(pair.b.take(pair.now), pair.now)
    pair.deliver(pair.a, attempt.unread_bytes)
    assert pair.a.payloads == [b"before", b"lost on its way"]
    assert_told_little(pair.a)


@EITHER
def test_a_parted_one_ends_at_once_and_nobody_is_told(refusing: int) -> None:
    pair = talking()
    pair.cut()
    side = pair.sides[refusing]
    refuse(pair, side)
    assert side.take(pair.now) == b""
    assert side.core.state.name == "ENDED"
    assert side.core.take_closed_session() is None
    if refusing:
        assert pair.come_back().outcome == "rejected"
    else:
        with pytest.raises(ConnectionClosedError):
            pair.a.core.start_attempt(pair.now)


def test_an_attempt_that_is_under_way_is_void() -> None:
    pair = talking()
    pair.cut()
    attempt, fresh, asked = pair.ask()
    refuse(pair, pair.a)
    attempt.receive_data(pair.answer(fresh, asked), pair.now)
    assert attempt.outcome == "failed"


@EITHER
@pytest.mark.parametrize("parted", [False, True])
def test_what_observes_it_is_told_of_the_close_that_was_said(refusing: int, parted: bool) -> None:
    recorders = Recorder(), Recorder()
    pair = cut_pair(observers=recorders)
    if parted:
        pair.a.core.send(1, 0, SIM, 4, b"x", lbm=False)
        pair.pump()
        pair.cut()
    refuse(pair, pair.sides[refusing])
    pair.pump()
    said = CloseCode.PEER_NOT_TRUSTED if parted else CloseCode.AUTHENTICATION_FAILED
    assert recorders[refusing].ended == [said]
    assert recorders[1 - refusing].ended == ([] if parted else [said])


def test_a_refused_node_with_a_recovery_key_hints_at_an_older_peer() -> None:
    identity, _ = Identity.create_recoverable()
    pair = Pair(make_config(identity), make_config())
    pair.b.answer = False
    pair.pump()
    ended = pair.a.one(ConnectionEnded)
    assert (ended.code, ended.text) == (CloseCode.AUTHENTICATION_FAILED, REFUSED_ID)


def test_an_unencrypted_connection_gets_no_hint() -> None:
    identity, _ = Identity.create_recoverable()
    pair = Pair(make_config(identity, plaintext="only"), make_config(plaintext="only"))
    pair.pump()
    refuse(pair, pair.b)
    pair.pump()
    assert_told_little(pair.a)
