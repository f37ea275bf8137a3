"""Tests of SecureChannel: seals, deadlines of a reader, and key updates."""

from typing import Any

import pytest

from parley._crypto.key_schedule import next_secret
from parley._lbm import keys
from parley._lbm.codec import Value
from parley._node.protocol.codes import KEY_UPDATE, SEAL, CloseCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.reports import ConnectionEnded, KeysUpdated
from parley._node.protocol.send_queue import SMALL_PAYLOAD
from tests.node.protocol.pair import (
    ALIVE,
    FAST,
    Pair,
    Side,
    assert_ended,
    assert_violation,
    events_of,
    open_pair,
)


def forms(wire: bytes | bytearray) -> list[int]:
    """Return the form bytes of events with sealing `chain`."""
    return [event[4] for event in events_of(wire)]


# Too long for a Batch, so that the channel gets each event separately.
LONG = bytes(SMALL_PAYLOAD + 1)


def send(side: Side, count: int = 1, **settings: Any) -> None:
    for _ in range(count):
        side.core.send(1, 0, 64, 1, LONG, lbm=False, **settings)


# When a sender seals.


@pytest.mark.parametrize("seal_events", [1, 2, 5, 64])
def test_a_seal_comes_with_every_so_many_events(seal_events: int) -> None:
    pair = open_pair(a={"seal_events": seal_events})
    send(pair.a, 3 * seal_events)
    assert forms(pair.a.take(pair.now)) == ([0] * (seal_events - 1) + [1]) * 3


def test_a_seal_comes_after_seal_delay_with_nothing_else_to_send() -> None:
    pair = open_pair(b={"seal_delay_ms": 50})
    send(pair.a)
    assert forms(pair.carry(pair.a)) == [0]
    assert pair.a.core.next_deadline() == pytest.approx(pair.now + 0.020)
    pair.run(0.019)
    assert pair.b.channel.receiver.unsealed == 1
    pair.run(0.002)
    assert pair.b.channel.receiver.unsealed == 0
    assert forms(pair.a.wire) == [0, 1]


def test_an_event_that_is_due_carries_the_seal_itself() -> None:
    pair = open_pair()
    send(pair.a)
    pair.carry(pair.a)
    pair.now += 0.021
    send(pair.a)
    assert forms(pair.carry(pair.a)) == [1]
    assert pair.a.core.next_deadline() > pair.now + 0.9


def test_the_delay_counts_from_the_first_unsealed_event() -> None:
    pair = open_pair(seal_delay_ms=100)
    for _ in range(3):
        send(pair.a)
        pair.carry(pair.a)
        pair.now += 0.04
    assert pair.a.core.next_deadline() == pytest.approx(pair.now - 0.02)


def test_an_idle_connection_sends_no_seal() -> None:
    pair = open_pair()
    pair.run(14.0)
    assert not pair.a.wire


def test_with_delay_0_every_flush_ends_in_a_seal() -> None:
    pair = open_pair(a={"seal_delay_ms": 0})
    send(pair.a, 3)
    assert forms(pair.carry(pair.a))[-1] == 1
    assert pair.b.channel.receiver.unsealed == 0
    assert not pair.carry(pair.a)
    pair.a.core.ping(pair.now)
    assert forms(pair.carry(pair.a))[-1] == 1
    pair.pump()
    assert pair.a.channel.receiver.unsealed == 0


def test_the_application_may_ask_for_a_seal() -> None:
    pair = open_pair()
    send(pair.a, 2)
    send(pair.a, seal=True)
    send(pair.a)
    assert forms(pair.a.take(pair.now)) == [0, 0, 1, 0]


def test_each_seals_everything_and_never_sends_seal() -> None:
    pair = open_pair(algorithms={**FAST, "sealing": ("each",)}, seal_delay_ms=0)
    send(pair.a, 3)
    pair.run(1.0)
    assert len(events_of(pair.a.wire)) == 3
    assert len(pair.b.events) == 3


# Requirements of a reader.


def test_seal_events_and_one_without_a_seal() -> None:
    pair = open_pair(seal_events=8)
    for _ in range(8):
        pair.inject(pair.a, 1, 64, 1, b"x")
    assert len(pair.b.events) == 8
    pair.b.reports.clear()
    pair.inject(pair.a, 1, 64, 1, b"x")
    assert_violation(pair, pair.b, CloseCode.SEAL_VIOLATION)


@pytest.mark.parametrize("delay_ms", [0, 20, 60_000])
def test_no_seal_for_delay_and_10_seconds(delay_ms: int) -> None:
    pair = open_pair(seal_delay_ms=delay_ms, idle_before_ping=1e6)
    pair.inject(pair.a, 1, 64, 1, b"x")
    pair.b.reports.clear()
    patience = delay_ms / 1000 + 10.0
    pair.now += patience - 0.01
    pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == ALIVE
    assert pair.b.core.next_deadline() == pytest.approx(pair.now + 0.01)
    pair.now += 0.02
    pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert_ended(pair.b, CloseCode.SEAL_VIOLATION)


def test_more_unsealed_events_do_not_begin_the_time_again() -> None:
    pair = open_pair(idle_before_ping=1e6)
    for _ in range(11):
        pair.inject(pair.a, 1, 64, 1, b"x")
        pair.now += 1.0
        pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.SEAL_VIOLATION


def test_a_seal_ends_the_wait() -> None:
    pair = open_pair(idle_before_ping=1e6)
    for _ in range(3):
        pair.inject(pair.a, 1, 64, 1, b"x")
        pair.now += 9.0
        pair.b.core.handle_deadline(pair.now)
        pair.inject(pair.a, 0, 1, SEAL, sealed=True)
    pair.now += 100.0
    pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == ALIVE


def test_a_reader_that_overslept_looks_first_at_what_waited_for_it() -> None:
    pair = open_pair(idle_before_ping=1e6)
    pair.inject(pair.a, 1, 64, 1, b"x")
    pair.now += 3_600.0  # the process was suspended, and its timer with it
    pair.inject(pair.a, 1, 64, 1, b"x")
    pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == ALIVE
    pair.now += 1.1
    pair.b.core.handle_deadline(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.SEAL_VIOLATION


def test_the_time_stands_still_while_there_is_something_to_read() -> None:
    pair = open_pair(idle_before_ping=1e6)
    pair.inject(pair.a, 1, 64, 1, b"x")
    channel = pair.b.channel
    pair.now += 4.0
    channel.was_read(pair.now, more=True)
    assert channel.patience_ends > pair.now + 100.0
    channel.handle_deadline(pair.now + 99.0)  # bytes arrived all the time, so this is no violation
    pair.now += 99.0
    channel.was_read(pair.now, more=False)
    assert channel.patience_ends == pytest.approx(pair.now + 6.02)


@pytest.mark.parametrize("payload", [b"\xa0", b"\x01", b"\x00\x00"])
def test_seal_has_no_payload(payload: bytes) -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, SEAL, payload, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


# Key updates.


def epochs(side: Side) -> list[tuple[bool, int]]:
    return [(report.sent, report.epoch) for report in side.all(KeysUpdated)]


def assert_flows(pair: Pair) -> None:
    for side in pair.sides:
        before = len(pair.other(side).events)
        send(side, 3)
        pair.pump()
        assert len(pair.other(side).events) == before + 3


def test_an_update_on_request_changes_one_direction() -> None:
    pair = open_pair()
    sender = pair.a.channel.sender
    old, back = sender.secret, pair.b.channel.sender.secret
    pair.a.core.update_keys(pair.now)
    assert sender.secret == next_secret(sender.suite.hash_algorithm, old)
    pair.pump()
    assert epochs(pair.a) == [(True, 1)]
    assert epochs(pair.b) == [(False, 1)]
    assert pair.b.channel.receiver.secret == sender.secret
    assert pair.b.channel.sender.secret == back
    assert_flows(pair)


def test_the_chain_goes_on_and_counters_restart() -> None:
    pair = open_pair()
    send(pair.a, 3)
    pair.pump()
    wire = pair.a.channel.update_keys(pair.now)
    (event,) = events_of(wire)
    assert event[4] == 1
    assert event[5:21] == pair.a.channel.sender.chain[:16]
    assert pair.a.channel.sender.counters() == {}
    pair.deliver(pair.b, wire)
    assert pair.b.channel.receiver.counters() == {}
    assert_flows(pair)


def test_updates_that_cross() -> None:
    pair = open_pair()
    for _ in range(3):
        for side in pair.sides:
            send(side)
            side.core.update_keys(pair.now)
            send(side)
        from_a, from_b = pair.a.take(pair.now), pair.b.take(pair.now)
        pair.deliver(pair.a, from_b)
        pair.deliver(pair.b, from_a)
    for side in pair.sides:
        assert len(side.events) == 6
        assert epochs(side)[-1][1] == 3
    assert_flows(pair)


def test_streams_go_on_under_the_new_keys() -> None:
    pair = open_pair()
    stream = pair.a.core.open_stream("x")
    for number in range(6):
        pair.a.core.send_data(stream, b"%d" % number)
        pair.a.core.update_keys(pair.now)
        pair.pump()
    pair.a.core.finish_stream(stream)
    pair.pump()
    assert pair.b.payloads == [b"%d" % number for number in range(6)]
    assert len(epochs(pair.b)) == 6


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_an_update_after_so_many_events(limit: int) -> None:
    pair = open_pair(a={"update_after_events": limit})
    send(pair.a, 3 * limit)
    pair.pump()
    assert epochs(pair.a) == [(True, n) for n in (1, 2, 3)]
    assert epochs(pair.b) == [(False, n) for n in (1, 2, 3)]
    assert len(pair.b.events) == 3 * limit


def test_an_update_after_so_many_bytes() -> None:
    pair = open_pair(a={"update_after_bytes": 10 * len(LONG)})
    send(pair.a, 25)
    pair.pump()
    assert epochs(pair.b) == [(False, 1), (False, 2)]
    assert len(pair.b.events) == 25


def test_all_streams_count_together() -> None:
    pair = open_pair(a={"update_after_events": 6})
    stream = pair.a.core.open_stream("x")  # the first
    for _ in range(2):
        send(pair.a)
        pair.a.core.send_data(stream, b"x")
    pair.a.core.ping(pair.now)
    pair.pump()
    assert epochs(pair.a) == [(True, 1)]
    assert pair.a.code == pair.b.code == ALIVE


def test_an_update_after_an_hour_if_an_event_was_sent() -> None:
    pair = open_pair(rekey_interval=1e9, idle_before_ping=1e9)
    send(pair.a)
    pair.run(3_599.9)
    assert epochs(pair.a) == []
    pair.run(0.2)
    assert epochs(pair.a) == [(True, 1)]
    pair.run(7_300.0)
    assert epochs(pair.a) == [(True, 1)]
    assert epochs(pair.b) == [(False, 1)]
    assert_flows(pair)


def test_limits_crossed_under_load_on_both_sides() -> None:
    pair = open_pair(update_after_events=11, rekey_allowance=100)
    for number in range(300):
        for side in pair.sides:
            side.core.send(1, 0, 64, 1, LONG + b"%d" % number, lbm=False)
        if number % 50 == 20:
            pair.a.core.rekey(pair.now)
        if number % 50 == 22:
            pair.b.core.rekey(pair.now)
        if number % 3 == 0:
            pair.carry(pair.a)
        if number % 4 == 0:
            pair.carry(pair.b)
    pair.pump()
    for side in pair.sides:
        assert side.payloads == [LONG + b"%d" % number for number in range(300)]
        assert len(side.all(KeysUpdated)) > 50
    assert_flows(pair)


def test_no_update_follows_a_close() -> None:
    pair = open_pair(a={"update_after_events": 1})
    pair.a.core.close(pair.now)
    assert len(events_of(pair.a.take(pair.now))) == 1


WRONG: list[bytes | dict[int, Value]] = [
    {keys.EPOCH: 0},
    {keys.EPOCH: 2},
    {keys.EPOCH: 2**64 - 1},
    {keys.EPOCH: -1},
    {keys.EPOCH: "1"},
    {keys.EPOCH: True},
    {},
    b"\x00",
    b"\xff",
]


@pytest.mark.parametrize("payload", WRONG)
def test_a_wrong_epoch(payload: bytes | dict[int, Value]) -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, KEY_UPDATE, payload, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_the_same_epoch_twice() -> None:
    pair = open_pair()
    pair.a.core.update_keys(pair.now)
    pair.pump()
    pair.inject(pair.a, 0, 1, KEY_UPDATE, {keys.EPOCH: 1}, sealed=True)
    assert_ended(pair.b, CloseCode.PROTOCOL_ERROR)


def test_an_event_under_the_old_keys_is_a_bad_record() -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, KEY_UPDATE, {keys.EPOCH: 1}, sealed=True)
    pair.inject(pair.a, 1, 64, 1, b"x")  # its sender didn't switch keys
    assert_ended(pair.b, CloseCode.BAD_RECORD)


# Checkpoints.


def test_a_checkpoint_is_the_same_on_both_sides() -> None:
    pair = open_pair()
    stream = pair.a.core.open_stream("x")
    pair.a.core.send_data(stream, b"x")
    send(pair.a, 2)
    pair.pump()
    sent, received = pair.a.core.checkpoint()
    theirs = pair.b.core.checkpoint()
    assert (sent, received) == (theirs[1], theirs[0])
    assert sent.counters == {stream: 2, 1: 2}
    assert (sent.epoch, sent.unsealed) == (0, 4)
    pair.a.core.update_keys(pair.now)
    sent, _ = pair.a.core.checkpoint()
    assert (sent.epoch, sent.counters, sent.unsealed) == (1, {}, 0)


def test_there_is_no_checkpoint_without_a_chain() -> None:
    pair = open_pair(plaintext="only")
    with pytest.raises(LocalProtocolError):
        pair.a.core.checkpoint()
    assert not pair.a.all(ConnectionEnded)
