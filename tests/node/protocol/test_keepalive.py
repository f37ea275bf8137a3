"""Tests of keep-alive: the timers alone, and two idle connections."""

import pytest

from parley._lbm import keys
from parley._node.protocol.codes import PING, PONG, CloseCode
from parley._node.protocol.errors import LimitReachedError
from parley._node.protocol.keepalive import REST, KeepAlive
from parley._node.protocol.reports import PongReceived
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALIVE, Pair, assert_violation, events_of, open_pair


def test_the_clock() -> None:
    keepalive = KeepAlive(0.0, 15.0, 10.0)
    assert keepalive.due == REST
    assert not keepalive.rest_due(REST - 0.1)
    assert keepalive.rest_due(REST)
    assert not keepalive.probe_due(REST)
    keepalive.rests()
    assert not keepalive.rest_due(100.0)
    assert keepalive.due == 15.0
    assert keepalive.silent_for(14.9) == 14.9
    assert not keepalive.probe_due(14.9)
    assert keepalive.probe_due(15.0)
    keepalive.probe_sent(15.0)
    assert not keepalive.probe_due(100.0)
    assert keepalive.due == 25.0
    assert not keepalive.expired(24.9)
    assert keepalive.expired(25.0)
    assert keepalive.silent_for(25.0) == 25.0
    keepalive.received(24.9)
    assert not keepalive.expired(25.0)
    assert keepalive.due == 24.9 + REST


def test_who_pings_sooner_than_it_would_rest_does_both_at_once() -> None:
    keepalive = KeepAlive(0.0, REST / 2, 10.0)
    assert keepalive.due == REST / 2
    keepalive.rests()
    assert keepalive.probe_due(REST / 2)


def lanes(pair: Pair) -> int:
    """Return how many stream keys both sides store."""
    return sum(
        len(direction.ciphers)
        for side in pair.sides
        for direction in (side.channel.sender, side.channel.receiver)
    )


def test_a_connection_that_rests_holds_no_stream_key_and_goes_on_where_it_was() -> None:
    pair = open_pair()
    for at in range(3):
        for side in pair.sides:
            side.core.send(1, 0, 7, 1, b"\xa0" * (at + 1))
        pair.pump()
        pair.run(0.1)
    before = pair.a.session.checkpoint()
    assert lanes(pair) >= 4
    pair.run(REST + 0.1)
    assert lanes(pair) == 0
    assert pair.a.session.checkpoint() == before
    for side in pair.sides:
        side.core.send(1, 0, 7, 1, b"\xa0")
    pair.pump()
    assert lanes(pair) == 4
    assert pair.a.payloads == pair.b.payloads == [b"\xa0", b"\xa0\xa0", b"\xa0\xa0\xa0", b"\xa0"]


def test_64_pings_are_unanswered_at_most() -> None:
    keepalive = KeepAlive(0.0, 15.0, 10.0)
    ids = [keepalive.new_ping(1.0) for _ in range(64)]
    assert ids == list(range(1, 65))
    assert keepalive.new_ping(1.0) is None
    assert keepalive.pong(3, 1.5) == 0.5
    assert keepalive.pong(3, 1.5) is None
    assert keepalive.new_ping(2.0) == 65


def test_ids_come_round_and_pass_over_the_busy() -> None:
    keepalive = KeepAlive(0.0, 15.0, 10.0)
    first = keepalive.new_ping(0.0)
    assert first == 1
    for expected in range(2, 65_536):
        assert keepalive.new_ping(expected) == expected
        keepalive.pong(expected, expected)
    assert keepalive.new_ping(65_536.0) == 2


def test_our_pings_have_half_of_the_other_sides_allowance() -> None:
    keepalive = KeepAlive(0.0, 15.0, 10.0)
    for _ in range(8_192):
        keepalive.pong(keepalive.new_ping(7.0) or 0, 7.0)
    assert keepalive.new_ping(7.0) is None
    assert keepalive.new_ping(7.0 + 1 / 512)


@pytest.mark.parametrize("plaintext", ["never", "only"])
def test_an_idle_connection_is_pinged_and_lives(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.run(14.9)
    assert not pair.a.wire
    assert not pair.b.wire
    pair.run(100.0)
    assert pair.a.wire
    assert pair.b.wire
    assert pair.a.code == ALIVE
    assert pair.b.code == ALIVE


def test_without_an_answer_it_is_over_after_15_and_10_seconds() -> None:
    pair = open_pair(b={"idle_before_ping": 1e6})
    pair.advance(24.9)
    assert pair.a.code == ALIVE
    assert len(events_of(pair.a.wire)) == 1  # a Ping, which is sealed
    pair.advance(0.2)
    assert pair.a.code == CloseCode.TIMEOUT
    assert pair.a.core.state is State.CLOSING
    assert pair.b.code == ALIVE


def test_a_ping_of_keep_alive_and_its_pong_bring_their_seals() -> None:
    """Idle connections then cost two thirds of the cost with separate Seals."""
    pair = open_pair(b={"idle_before_ping": 1e6})
    pair.run(29.0)
    for side in pair.sides:
        (event,) = events_of(side.wire)
        assert event[4] == 1  # form 1: an event with a seal


def test_a_ping_without_a_seal_has_a_pong_without_one() -> None:
    """A peer that sends no seal gets none, because a signature would cost us more than the Ping
    cost the peer.
    """
    pair = open_pair()
    pair.a.core.ping(pair.now)
    pair.run(1.0)
    for side in pair.sides:
        event, seal = events_of(side.wire)
        assert (event[4], seal[4]) == (0, 1)


@pytest.mark.parametrize("cut", [1, 3])
def test_any_byte_counts_as_an_answer(cut: int) -> None:
    pair = open_pair()
    piece = pair.b.forge(1, 64, 1, b"x")
    pair.advance(20.0)
    pair.deliver(pair.a, piece[:cut])
    pair.advance(14.9)
    assert pair.a.code == ALIVE


def test_ping_reports_the_round_trip() -> None:
    pair = open_pair()
    async_id = pair.a.core.ping(pair.now)
    pair.carry(pair.a)
    pair.now += 0.25
    pair.pump()
    assert pair.a.all(PongReceived) == [PongReceived(async_id, 0.25)]


def test_a_pong_that_nobody_waits_for_is_ignored() -> None:
    pair = open_pair()
    pair.inject(pair.b, 0, 1, PONG, async_id=9)
    pair.inject(pair.b, 0, 1, PONG, async_id=0)
    assert not pair.a.reports


def test_a_ping_without_async_id_wants_no_answer() -> None:
    pair = open_pair()
    pair.inject(pair.b, 0, 1, PING, async_id=0)
    assert not pair.a.take(pair.now)
    assert pair.a.code == ALIVE


@pytest.mark.parametrize("subcategory", [PING, PONG])
@pytest.mark.parametrize("payload", [b"\xa0", b"\x01", b"\x00\x00"])
def test_ping_and_pong_have_no_payload(subcategory: int, payload: bytes) -> None:
    pair = open_pair()
    pair.inject(pair.b, 0, 1, subcategory, payload, async_id=1)
    assert_violation(pair, pair.a, CloseCode.PROTOCOL_ERROR)


def test_more_than_64_pongs_waiting_is_overloaded() -> None:
    pair = open_pair(seal_events=1_000)
    for _ in range(64):
        pair.b.core.ping(pair.now)
    pair.deliver(pair.a, pair.b.core.data_to_send(pair.now))
    assert pair.a.code == ALIVE
    pair.inject(pair.b, 0, 1, PING, async_id=65)
    assert_violation(pair, pair.a, CloseCode.OVERLOADED)


def test_pongs_that_were_sent_no_longer_count() -> None:
    pair = open_pair(seal_events=1_000)
    for _ in range(3):
        for _ in range(64):
            pair.b.core.ping(pair.now)
        pair.pump()
    assert pair.a.code == ALIVE


def test_our_65th_ping_is_refused_and_changes_nothing() -> None:
    pair = open_pair(seal_events=1_000)
    for _ in range(64):
        pair.a.core.ping(pair.now)
    with pytest.raises(LimitReachedError):
        pair.a.core.ping(pair.now)
    pair.pump()
    assert len(pair.a.all(PongReceived)) == 64
    assert pair.a.core.ping(pair.now)


def test_probing_goes_on_while_64_pings_are_unanswered() -> None:
    pair = open_pair(seal_events=1_000)
    for _ in range(64):
        pair.a.core.ping(pair.now)
    pair.advance(25.1)
    assert pair.a.code == CloseCode.TIMEOUT


def test_cancel_does_not_belong_on_stream_0() -> None:
    pair = open_pair()
    pair.inject(pair.b, 0, 3, 6, {keys.REQUEST: 1})
    assert_violation(pair, pair.a, CloseCode.PROTOCOL_ERROR)
