"""Tests of rate limits (section 14): a flood ends the connection with `overloaded`, and a correct
sender stays far below.
"""

from collections.abc import Callable
from typing import Any

import pytest

from parley._crypto.key_schedule import next_secret
from parley._lbm import keys
from parley._lbm.codec import Value
from parley._node.protocol.codes import (
    CHUNK,
    CONNECTION,
    KEY_UPDATE,
    OPEN,
    PING,
    PONG,
    RESET,
    SEAL,
    SIM,
    STREAM,
    WINDOW,
    CloseCode,
)
from parley._node.protocol.errors import LimitReachedError
from parley._node.protocol.limits import (
    DROPPED_EVENTS,
    IDLE_EVENTS,
    KEY_UPDATES,
    OWN_KEY_UPDATES,
    PINGS,
    UPDATES_BETWEEN_REKEYS,
)
from parley._node.protocol.rate_limit import Rate
from parley._node.protocol.rekey import KeyUpdateLimit
from parley._node.protocol.reports import KeysUpdated
from tests.node.protocol.pair import ALIVE, Pair, open_pair
from tests.sweep import sweep

Flood = Callable[[Pair], None]
GONE = 2  # a stream that was opened and closed


def key_update(pair: Pair) -> None:
    """Forge a plain KeyUpdate of b."""
    sender = pair.b.channel.sender
    update: dict[int, Value] = {keys.EPOCH: sender.epoch + 1}
    pair.inject(pair.b, 0, CONNECTION, KEY_UPDATE, update, sealed=True)
    sender.switch(next_secret(sender.suite.hash_algorithm, sender.secret))


def seal(pair: Pair) -> None:
    pair.inject(pair.b, 0, CONNECTION, SEAL, sealed=True)


def pong(pair: Pair) -> None:
    pair.inject(pair.b, 0, CONNECTION, PONG, async_id=7)


def window(pair: Pair) -> None:
    pair.inject(pair.b, 0, STREAM, WINDOW, {keys.STREAM: GONE, keys.CREDIT: 1})


def window_of_chunks(pair: Pair) -> None:
    cells: dict[int, Value] = {keys.STREAM: 1, keys.CREDIT: 1, keys.REQUEST: 9}
    pair.inject(pair.b, 0, STREAM, WINDOW, cells)


def reset(pair: Pair) -> None:
    pair.inject(pair.b, 0, STREAM, RESET, {keys.STREAM: GONE, keys.CODE: 32})


def with_gone_stream(**settings: Any) -> Pair:
    """Return a pair of which b has opened and reset stream 2, with every expected Window and Reset
    used.
    """
    pair = open_pair(seal_events=65_536, **settings)
    stream = pair.b.core.open_stream("x")
    assert stream == GONE
    pair.b.core.reset_stream(stream, CloseCode.CANCELLED)
    pair.pump()
    while pair.a.session.mux.expected:
        window(pair)
    if pair.a.channel.receiver.unsealed:
        seal(pair)
    return pair.forget()


@sweep("sealing", ["chain", "each"])
@sweep(
    ("flood", "rate"),
    [
        (key_update, KEY_UPDATES),
        (seal, IDLE_EVENTS),
        (pong, IDLE_EVENTS),
        (window, IDLE_EVENTS),
        (window_of_chunks, IDLE_EVENTS),
        (reset, IDLE_EVENTS),
    ],
    ids=[
        "rule 6.29",
        "rule 6.20",
        "rule 9.55",
        "rule 8.42",
        "rule 8.42, Chunks",
        "rule 8.42, Reset",
    ],
)
def test_what_is_of_no_use_has_a_rate(flood: Flood, rate: Rate, sealing: str) -> None:
    pair = with_gone_stream(algorithms={"kex": ("x25519",), "sealing": (sealing,)})
    for _ in range(int(rate.burst)):
        flood(pair)
    for _ in range(50):
        pair.now += rate.seconds
        flood(pair)
    assert pair.a.code == ALIVE
    flood(pair)
    assert pair.a.code == CloseCode.OVERLOADED
    assert pair.a.state == "CLOSING"  # Close was sent


def test_pings_have_a_rate() -> None:
    """Each Ping was answered before the next one."""
    pair = open_pair(plaintext="only")
    for _ in range(int(PINGS.burst)):
        pair.b.session.keepalive.waiting[9] = 0.0  # so that b expects it
        pair.inject(pair.b, 0, CONNECTION, PING, async_id=9)
        pair.carry(pair.a)
    assert pair.a.code == ALIVE
    pair.inject(pair.b, 0, CONNECTION, PING, async_id=9)
    assert pair.a.code == CloseCode.OVERLOADED


def test_events_that_nobody_takes_have_a_rate() -> None:
    pair = open_pair(plaintext="only")
    core = pair.a.core
    for number in range(int(DROPPED_EVENTS.burst)):
        core.count_dropped()
        core.count_dropped(charged=False)
        assert core.dropped == 2 * number + 2
    pair.inject(pair.b, 1, 64, 1, b"x")
    assert pair.a.code == ALIVE
    core.count_dropped()
    pair.inject(pair.b, 1, 64, 1, b"x")
    assert pair.a.code == CloseCode.OVERLOADED
    assert len(pair.a.events) == 1


def test_what_no_credit_bounds_after_our_reset_is_an_event_that_nobody_takes() -> None:
    pair = open_pair()
    pair.inject(pair.b, 2, STREAM, OPEN, {keys.LABEL: "x"})
    pair.a.core.reset_stream(2, CloseCode.REFUSED)
    pair.a.session.drops._full_at = pair.now + 16.0  # almost all are used
    for _ in range(1_000):
        if pair.a.code != ALIVE:
            break
        pair.inject(pair.b, 2, SIM, CHUNK, b"x", sealed=True)
    assert pair.a.code == CloseCode.OVERLOADED


# Correct senders.


@pytest.mark.parametrize("settings", [{"seal_events": 1}, {"seal_delay_ms": 0}, {}])
def test_a_busy_sender_seals_as_often_as_it_has_to(settings: dict[str, Any]) -> None:
    """Including a sender that adds a Seal after each event."""
    pair = open_pair(**settings)
    for _ in range(500):
        pair.inject(pair.b, 1, 64, 1, b"x")
        seal(pair)
        pair.b.core.send(1, 0, 64, 1, b"y", lbm=False)
        pair.carry(pair.b)
    assert pair.a.code == ALIVE
    assert len(pair.a.events) == 1_000


def test_a_reader_may_grant_for_each_event_and_reset_each_stream() -> None:
    """A Window for each event and a Reset for each stream, all at the same time."""
    pair = open_pair(seal_events=65_536)
    for _ in range(60):
        stream = pair.a.core.open_stream("x")
        for _ in range(10):
            pair.a.core.send_data(stream, b"x")
        pair.carry(pair.a)
        for _ in range(10):
            cells: dict[int, Value] = {keys.STREAM: stream, keys.CREDIT: 65}
            pair.inject(pair.b, 0, STREAM, WINDOW, cells)
        pair.b.core.reset_stream(stream, CloseCode.CANCELLED)
        pair.pump()
    assert pair.a.code == pair.b.code == ALIVE


def test_a_reader_may_grant_as_it_reads_on_within_an_event() -> None:
    """Section 8 allows it once half of the window is consumed; an event can be much larger."""
    pair = open_pair(seal_events=65_536, stream_window=1_024)
    stream = pair.a.core.open_stream("x")
    for number in range(4):
        pair.a.core.send_data(stream, bytes(65_536))
        pair.carry(pair.a)
        assert len(pair.b.events) == number + 1
        for part in [512] * 128 + [64]:
            pair.b.core.consume(stream, part, part == 64)
            pair.carry(pair.b)
        assert pair.a.code == ALIVE
    assert pair.a.core.flow().streams[stream].credit == 1_024 - 64


@pytest.mark.parametrize("window", [1, 100, 1_024])
@pytest.mark.parametrize("part", [1, 50, 512])
def test_a_reader_of_bytes_grants_no_more_often_than_it_may(window: int, part: int) -> None:
    """With any window, and events whose cost is above a multiple of 512 and whose size is below
    it.
    """
    pair = open_pair(seal_events=65_536, stream_window=1_024)
    opened = pair.b.core.open_stream("x", window)
    pair.pump()
    for number in range(700):
        pair.a.core.send_data(opened, bytes(500))
        pair.carry(pair.a)
        assert len(pair.b.events) == number + 1
        for place in range(0, 564, part):
            pair.b.core.consume(opened, min(part, 564 - place), place + part >= 564)
        pair.carry(pair.b)
        assert pair.a.code == ALIVE


def test_rekeys_are_no_plain_updates() -> None:
    pair = open_pair(rekey_allowance=1_000)
    for _ in range(70):
        pair.a.core.rekey(pair.now)
        pair.pump()
    assert pair.b.all(KeysUpdated)[-1].rekey == 70


# Local limits.


def test_our_key_updates_have_half_of_their_allowance() -> None:
    pair = open_pair()
    for _ in range(32):
        pair.a.core.update_keys(pair.now)
    with pytest.raises(LimitReachedError):
        pair.a.core.update_keys(pair.now)
    pair.now += OWN_KEY_UPDATES.seconds
    pair.a.core.update_keys(pair.now)
    pair.pump()
    assert len(pair.b.all(KeysUpdated)) == 33
    assert pair.a.code == pair.b.code == ALIVE


def test_updates_that_are_due_too_often_wait_and_nothing_is_lost() -> None:
    pair = open_pair(update_after_events=1)
    for number in range(200):
        pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        pair.carry(pair.a)
    assert len(pair.b.all(KeysUpdated)) == 32
    pair.now += 100.0
    pair.a.core.send(1, 0, 64, 1, b"200", lbm=False)
    pair.pump()
    assert len(pair.b.all(KeysUpdated)) == 33
    assert pair.b.payloads == [b"%d" % number for number in range(201)]


def test_updates_are_counted_until_a_rekey() -> None:
    """An auditor that follows the keys needn't compute more steps, even after months."""
    updates = KeyUpdateLimit(KEY_UPDATES, UPDATES_BETWEEN_REKEYS)
    assert all(updates.take(float(now)) for now in range(2**14))
    assert not updates.take(1e9)
    updates.renew()
    assert updates.take(1e9)


def test_where_many_updates_were_plain_a_rekey_comes_instead() -> None:
    pair = open_pair(update_after_events=1)
    pair.a.channel.rekeying.own_updates.left = 1
    for _ in range(3):
        pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
        pair.pump()
    assert [told.rekey for told in pair.b.all(KeysUpdated) if not told.sent][:2] == [0, 1]
    assert pair.a.code == pair.b.code == ALIVE


def test_a_reader_may_grant_as_it_reads_what_was_joined() -> None:
    """Data in tiny pieces explains as many Windows as if it had been sent as a whole."""
    pair = open_pair(stream_window=1_024)
    stream = pair.a.core.open_stream("x")
    pair.a.core.send_data(
        stream, bytes(960)
    )  # uses all the credit, so the following data waits and is joined
    pair.pump()
    for _ in range(1_000):
        pair.a.core.send_data(stream, bytes(100), 256 * 1024)
    pair.b.core.consume(stream, 1_024)
    pair.pump()
    assert [len(data) for data in pair.b.payloads] == [960, 100_000]
    for _ in range(100_064 // 512):
        pair.b.core.consume(stream, 512, 0)
        pair.pump()
    assert (pair.a.code, pair.a.core.has_credit(stream)) == (ALIVE, True)
