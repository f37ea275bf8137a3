"""Tests of resuming a session between two cores: negotiation, suspension, attempt, acceptance."""

from parley._node.protocol.codes import SIM, CloseCode
from parley._node.protocol.reports import HandshakeCompleted
from tests.node.protocol.cut_pair import CutPair, cut_pair, parted, resumed
from tests.node.protocol.pair import ALICE, ALIVE, BOB, Side, make_config, open_pair


def say(side: Side, text: str) -> None:
    side.core.send(1, 0, SIM, 4, text.encode(), lbm=False)


def test_the_shorter_of_both_is_agreed() -> None:
    pair = CutPair(make_config(ALICE, resume=7.5), make_config(BOB, resume=600.0))
    pair.pump()
    for side in pair.sides:
        assert side.one(HandshakeCompleted).agreed.resume == 7.5
        assert side.core.resumption is not None


def test_without_agreement_nothing_is_different() -> None:
    pair = open_pair({"resume": 30.0})
    for side in pair.sides:
        assert side.core.resumption is None
        side.core.receive_eof(pair.now)
        assert side.core.state.name == "ENDED"
        side.collect(pair.now)
        assert side.code == CloseCode.CONNECTION_LOST


def test_a_session_goes_on_over_another_transport() -> None:
    pair = cut_pair()
    say(pair.a, "before")
    pair.pump()
    say(pair.a, "lost on its way")
    say(pair.b, "this too")
    pair.cut()
    assert [side.core.is_suspended for side in pair.sides] == [True, True]
    assert (parted(pair.a), parted(pair.b)) == (1, 1)
    say(pair.a, "said meanwhile")
    say(pair.b, "also meanwhile")
    assert pair.a.core.data_to_send(pair.now) == b""
    pair.now += 3
    assert pair.come_back().outcome == "resumed"
    assert [side.core.is_suspended for side in pair.sides] == [False, False]
    assert (resumed(pair.a), resumed(pair.b)) == ([1], [1])
    say(pair.a, "after")
    pair.pump()
    assert pair.b.payloads == [b"before", b"lost on its way", b"said meanwhile", b"after"]
    assert pair.a.payloads == [b"this too", b"also meanwhile"]
    assert (pair.a.code, pair.b.code) == (ALIVE, ALIVE)


def test_a_session_goes_on_again_and_again() -> None:
    pair = cut_pair()
    wanted = []
    for number in range(20):
        text = f"number {number}"
        wanted.append(text.encode())
        say(pair.a, text)
        say(pair.b, text)
        pair.cut()
        pair.now += 1
        assert pair.come_back().outcome == "resumed"
    assert pair.a.payloads == pair.b.payloads == wanted
    assert resumed(pair.a) == resumed(pair.b) == list(range(1, 21))
