"""Tests of Connection as its caller uses it: sending, flushing, ending, and invalid calls."""

from collections.abc import Callable
from typing import Any

import pytest

from parley._lbm.codec import encode
from parley._lbm.padding import parse_padding
from parley._node.protocol.codes import CLOSE, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
)
from parley._node.protocol.event import Event
from parley._node.protocol.flow_control import LARGEST_TUNNEL_DATA
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from tests.node.protocol.pair import (
    ALICE,
    ALIVE,
    START,
    Side,
    assert_ended,
    events_of,
    make_config,
    open_pair,
)
from tests.sweep import sweep

EACH_KIND = pytest.mark.parametrize("plaintext", ["never", "only"])


def send(side: Side, payload: bytes = b"x", **settings: Any) -> None:
    side.core.send(1, 0, 64, 1, payload, lbm=False, **settings)


# Sending.


@EACH_KIND
def test_all_fields_arrive(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.a.core.send(1, 65_535, 255, 254, encode({256: "x"}))
    pair.a.core.send(1, 1, 3, 1, b"", lbm=False)
    pair.a.core.send(1, 0, 64, 1, b"")
    pair.pump()
    assert pair.b.events == [
        Event(1, 65_535, 255, 254, encode({256: "x"})),
        Event(1, 1, 3, 1, b""),
        Event(1, 0, 64, 1, b""),
    ]


@pytest.mark.parametrize("lbm", [False, True])
def test_the_single_byte_0_is_refused(lbm: bool) -> None:
    pair = open_pair(padding=parse_padding("padme"))
    with pytest.raises(LocalProtocolError, match="0x00"):
        pair.a.core.send(1, 0, 64, 1, b"\x00", lbm=lbm)
    pair.pump()
    assert not pair.b.events


@pytest.mark.parametrize(
    ("stream", "async_id", "category", "subcategory"),
    [
        (0, 0, 64, 1),
        (1, 0, 0, 1),
        (1, 0, 1, 6),
        (1, 0, 2, 5),
        (1, 0, 256, 1),
        (1, 0, 64, 0),
        (1, 0, 64, 256),
        (1, -1, 64, 1),
        (1, 65_536, 64, 1),
        (-1, 0, 64, 1),
    ],
)
def test_numbers_that_cannot_be_sent(
    stream: int, async_id: int, category: int, subcategory: int
) -> None:
    pair = open_pair()
    with pytest.raises(LocalProtocolError):
        pair.a.core.send(stream, async_id, category, subcategory, b"x", lbm=False)
    assert not pair.a.core.queued_bytes
    pair.pump()
    assert pair.b.code == ALIVE


@pytest.mark.parametrize("stream", [1, 3])
def test_max_payload_holds_for_us(stream: int) -> None:
    pair = open_pair(b={"max_payload": 2_000})
    assert pair.a.core.open_stream("x") == 3
    pair.a.core.send(stream, 0, 64, 1, bytes(2_000), lbm=False)
    with pytest.raises(PayloadTooLargeError):
        pair.a.core.send(stream, 0, 64, 1, bytes(2_001), lbm=False)
    with pytest.raises(PayloadTooLargeError):
        pair.a.core.send_data(3, bytes(2_001))
    pair.pump()
    assert pair.b.payloads == [bytes(2_000)]


def test_padding_is_for_lbm_alone_and_never_lifts_over_the_limit() -> None:
    pair = open_pair(a={"padding": parse_padding("bucket:512")}, max_payload=1_100)
    small, great = encode({256: b"x"}), encode({256: bytes(1_050)})
    pair.a.core.send(1, 0, 64, 1, small)
    pair.a.core.send(1, 0, 64, 1, great)
    pair.a.core.send(1, 0, 64, 1, b"raw", lbm=False)
    pair.pump()
    assert [len(payload) for payload in pair.b.payloads] == [512, len(great), 3]


def test_a_flush_is_bounded_and_the_next_one_goes_on() -> None:
    pair = open_pair()
    for _ in range(10):
        send(pair.a, bytes(1_000))
    first = pair.a.core.data_to_send(pair.now, limit=2_500)
    assert 2_500 <= len(first) < 4_000
    assert pair.a.core.outbox.waiting(1) == 7
    assert pair.a.core.queued_bytes == 7 * (1_000 + EVENT_COST)
    pair.deliver(pair.b, first)
    pair.pump()
    assert len(pair.b.events) == 10
    assert pair.a.core.queued_bytes == 0


def test_the_frame_of_a_full_piece_is_written_alone() -> None:
    pair = open_pair()
    stream = pair.a.core.open_stream("bulk")
    pair.pump()
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(1 << 16))
    first = pair.a.core.data_to_send(pair.now)
    assert 1 << 16 < len(first) <= LARGEST_TUNNEL_DATA
    assert pair.a.core.outbox.waiting(stream) == 1
    pair.deliver(pair.b, first)
    pair.pump()
    assert pair.b.payloads == 2 * [bytes(1 << 16)]


@EACH_KIND
@pytest.mark.parametrize("size", [1, 3, 50])
def test_bytes_may_come_in_any_pieces(plaintext: str, size: int) -> None:
    pair = open_pair(plaintext=plaintext)
    for number in range(20):
        send(pair.a, b"%d" % number)
    sent = pair.a.take(pair.now)
    for start in range(0, len(sent), size):
        pair.deliver(pair.b, sent[start : start + size])
    assert pair.b.payloads == [b"%d" % number for number in range(20)]


def test_two_connections_at_different_times_do_not_meet() -> None:
    first, second = open_pair(), open_pair()
    second.deliver(second.b, first.a.forge(1, 64, 1, b"x"))
    assert_ended(second.b, CloseCode.BAD_RECORD)


@EACH_KIND
def test_a_raw_event_on_an_open_connection(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    raw = bytes.fromhex("00000009 00000001 0000 40 01 41")
    pair.deliver(pair.b, raw)
    if plaintext == "only":
        assert pair.b.payloads == [b"A"]
    else:
        assert_ended(pair.b, CloseCode.BAD_RECORD)


@EACH_KIND
@sweep("size", range(9))
def test_an_event_shorter_than_any_can_be(plaintext: str, size: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.deliver(pair.b, size.to_bytes(4, "big") + bytes(size))
    code = CloseCode.BAD_RECORD if plaintext == "never" else CloseCode.PROTOCOL_ERROR
    assert_ended(pair.b, code)


# Closing.


@EACH_KIND
def test_a_graceful_close_sends_what_is_queued_first(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    stream = pair.a.core.open_stream("x")
    for number in range(100):
        send(pair.a, b"%d" % number)
        pair.a.core.send_data(stream, bytes(1_000))
    pair.a.core.close(pair.now, 77, "done")
    assert pair.a.core.state is State.DRAINING
    pair.pump()
    assert len(pair.b.events) == 200
    for side, remote in ((pair.a, False), (pair.b, True)):
        ended = side.one(ConnectionEnded)
        assert (ended.code, ended.text, ended.remote) == (77, "done", remote)
        assert side.reports[-1] is ended
    assert pair.a.state == "CLOSING"
    assert pair.b.core.ended


def test_close_is_sealed_and_the_last_event() -> None:
    pair = open_pair()
    send(pair.a)
    pair.a.core.close(pair.now)
    events = events_of(pair.a.take(pair.now))
    assert [event[4] for event in events] == [0, 1]
    assert pair.a.core.wants_eof
    assert not pair.a.take(pair.now)


def test_close_waits_for_credit_for_a_while() -> None:
    pair = open_pair(stream_window=1_024)
    stream = pair.a.core.open_stream("x")
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.close(pair.now)
    pair.pump()
    assert pair.a.state == "DRAINING"
    pair.b.core.consume(stream, pair.b.events[0].cost)
    pair.pump()
    assert len(pair.b.events) == 2
    assert pair.a.code == pair.b.code == CloseCode.NORMAL


def test_close_waits_for_credit_no_longer_than_close_drain() -> None:
    pair = open_pair(stream_window=1_024, a={"close_drain": 3.0})
    stream = pair.a.core.open_stream("x")
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.close(pair.now)
    pair.run(2.9)
    assert pair.a.code == ALIVE
    pair.run(0.2)
    assert pair.a.code == pair.b.code == CloseCode.NORMAL
    assert len(pair.b.events) == 1


def test_close_ends_although_the_transport_takes_nothing() -> None:
    pair = open_pair(stream_window=1_024, a={"close_drain": 3.0})
    stream = pair.a.core.open_stream("x")
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.close(pair.now)
    core, now = pair.a.core, pair.now
    for seconds in (2.9, 0.2):
        now += seconds
        core.handle_deadline(now)
        assert core.state is State.DRAINING
    core.handle_deadline(now + 2.1)
    assert core.ended
    pair.a.collect(now)
    assert pair.a.code == CloseCode.NORMAL


def test_while_draining_nothing_new_is_taken_but_the_rest_goes_on() -> None:
    pair = open_pair(stream_window=1_024)
    stream = pair.a.core.open_stream("x")
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.close(pair.now, 64)
    for ask in (
        lambda: send(pair.a),
        lambda: pair.a.core.open_stream("y"),
        lambda: pair.a.core.send_data(stream, b"x"),
        lambda: pair.a.core.ping(pair.now),
    ):
        with pytest.raises(ConnectionClosedError) as caught:
            ask()
        assert caught.value.code == 64
    pair.a.core.close(pair.now, 65)  # the first code counts
    send(pair.b, b"still read")
    pair.b.core.ping(pair.now)
    pair.pump()
    assert pair.a.payloads == [b"still read"]
    pair.b.core.reset_stream(stream, 64)
    pair.pump()
    assert pair.b.code == 64


def test_a_violation_while_draining() -> None:
    pair = open_pair(stream_window=1_024)
    stream = pair.a.core.open_stream("x")
    for _ in range(2):
        pair.a.core.send_data(stream, bytes(2_000))
    pair.a.core.close(pair.now)
    pair.pump()
    pair.inject(pair.b, 1, 1, 6)
    assert_ended(pair.a, CloseCode.PROTOCOL_ERROR)


def test_a_close_while_draining() -> None:
    pair = open_pair()
    for side in pair.sides:
        send(side)
        side.core.close(pair.now, 64)
    from_a, from_b = pair.a.take(pair.now), pair.b.take(pair.now)
    pair.deliver(pair.a, from_b)
    pair.deliver(pair.b, from_a)
    for side in pair.sides:  # both have sent Close, so received bytes are discarded
        assert side.code == 64
        assert not side.events
        side.core.receive_eof(pair.now)
        assert side.core.ended


@pytest.mark.parametrize("code", [-1, -2, 14, 32, 35, 63, 2**32])
def test_a_code_that_close_may_not_carry(code: int) -> None:
    pair = open_pair()
    with pytest.raises(ValueError, match="code"):
        pair.a.core.close(pair.now, code)
    assert pair.a.core.state is State.OPEN


@pytest.mark.parametrize("text", ["x" * 1_025, "é" * 513, "\ud800"])
def test_a_text_that_is_too_long_or_no_text(text: str) -> None:
    pair = open_pair()
    stream = pair.a.core.open_stream("x")
    with pytest.raises(ValueError, match=r"text|surrogates"):
        pair.a.core.close(pair.now, 64, text)
    with pytest.raises(ValueError, match=r"text|surrogates"):
        pair.a.core.reset_stream(stream, 64, text)
    pair.a.core.reset_stream(stream, 64, "é" * 512)
    pair.a.core.close(pair.now, 64, "é" * 512)
    pair.pump()
    assert pair.b.one(ConnectionEnded).text == "é" * 512


@pytest.mark.parametrize("ending", ["close", "violation", "abort"])
def test_who_sent_close_reads_on_and_discards_for_2_seconds(ending: str) -> None:
    pair = open_pair()
    if ending == "close":
        pair.a.core.close(pair.now)
    elif ending == "abort":
        pair.a.core.abort(pair.now, CloseCode.GOING_AWAY, "stopping")
    else:
        pair.inject(pair.b, 1, 1, 6)
    pair.a.take(pair.now)
    pair.a.collect(pair.now)
    reports = len(pair.a.reports)
    core = pair.a.core
    assert core.wants_data
    assert core.wants_eof
    assert pair.a.state == "CLOSING"
    pair.inject(pair.b, 1, 64, 1, b"discarded")
    pair.deliver(pair.a, b"\xff" * 100)
    core.close(pair.now)
    core.abort(pair.now, CloseCode.INTERNAL_ERROR, "again")
    assert core.next_deadline() == pair.now + 2.0
    core.handle_deadline(pair.now + 1.9)
    assert pair.a.state == "CLOSING"
    core.handle_deadline(pair.now + 2.0)
    assert pair.a.state == "ENDED"
    assert core.next_deadline() == float("inf")
    core.handle_deadline(pair.now + 10.0)
    core.receive_eof(pair.now)
    pair.a.collect(pair.now)
    assert len(pair.a.reports) == reports


def test_the_end_of_the_transport_ends_the_farewell() -> None:
    pair = open_pair()
    pair.a.core.close(pair.now)
    pair.a.take(pair.now)
    pair.a.core.receive_eof(pair.now)
    assert pair.a.core.ended
    pair.a.collect(pair.now)
    assert pair.a.code == CloseCode.NORMAL
    assert not pair.a.core.wants_data


def test_eof_is_wanted_only_once_the_farewell_was_taken() -> None:
    pair = open_pair()
    pair.inject(pair.b, 1, 1, 6)
    assert not pair.a.core.wants_eof
    pair.a.take(pair.now)
    assert pair.a.core.wants_eof


@EACH_KIND
def test_an_end_without_close_is_connection_lost_between_frames_too(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.a.core.receive_eof(pair.now)
    pair.a.collect(pair.now)
    ended = pair.a.one(ConnectionEnded)
    assert (ended.code, ended.remote) == (CloseCode.CONNECTION_LOST, False)
    assert pair.a.core.ended
    assert not pair.a.take(pair.now)


# Aborting.


@EACH_KIND
def test_abort_drops_what_is_queued_and_tells_the_code(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    send(pair.a)
    pair.a.core.abort(pair.now, CloseCode.OVERLOADED, "local reason")
    pair.pump()
    assert not pair.b.events
    told = pair.b.one(ConnectionEnded)
    assert (told.code, told.text, told.remote) == (CloseCode.OVERLOADED, "", True)
    assert pair.a.one(ConnectionEnded).reason == "local reason"


@pytest.mark.parametrize("code", [CloseCode.CONNECTION_LOST, CloseCode.PEER_NOT_TRUSTED])
def test_codes_that_are_never_sent_are_not_sent(code: CloseCode) -> None:
    pair = open_pair()
    pair.a.core.abort(pair.now, code, "broken pipe")
    assert not pair.carry(pair.a)
    pair.a.collect(pair.now)
    assert pair.a.code == code
    assert pair.a.core.ended


def test_reasons_stay_here() -> None:
    pair = open_pair()
    pair.inject(pair.b, 9, 64, 1, b"x")
    assert "stream 9" in pair.a.one(ConnectionEnded).reason
    pair.pump()
    assert pair.b.one(ConnectionEnded).text == ""
    assert pair.b.one(ConnectionEnded).reason == "closed by the peer"


# Invalid calls.

ASKS: list[Callable[[Connection], object]] = [
    lambda core: core.send(1, 0, 64, 1, b"x", lbm=False),
    lambda core: core.send_data(3, b"x"),
    lambda core: core.open_stream("x"),
    lambda core: core.finish_stream(3),
    lambda core: core.reset_stream(3, 64),
    lambda core: core.notify_writable(1),
    lambda core: core.ping(START),
    lambda core: core.update_keys(START),
    lambda core: core.rekey(START),
]


@pytest.mark.parametrize("number", range(len(ASKS)))
def test_asking_a_connection_that_is_over_says_why(number: int) -> None:
    pair = open_pair()
    pair.inject(pair.a, 1, 1, 6)
    with pytest.raises(ConnectionClosedError) as caught:
        ASKS[number](pair.b.core)
    assert caught.value.code == CloseCode.PROTOCOL_ERROR
    pair = open_pair()
    pair.a.core.receive_eof(pair.now)
    with pytest.raises(ConnectionClosedError) as caught:
        ASKS[number](pair.a.core)
    assert caught.value.code == CloseCode.CONNECTION_LOST
    assert not pair.a.take(pair.now)


@pytest.mark.parametrize("number", range(len(ASKS)))
def test_asking_before_it_is_open(number: int) -> None:
    for initiator in (True, False):
        core = Connection(make_config(ALICE), initiator=initiator, now=START)
        before = core.queued_bytes
        with pytest.raises(ConnectionClosedError):
            ASKS[number](core)
        assert core.queued_bytes == before


def test_nobody_waits_to_be_decided_on() -> None:
    pair = open_pair()
    with pytest.raises(LocalProtocolError):
        pair.a.core.accept_peer(pair.now)
    assert pair.a.code == ALIVE
    early = Connection(make_config(ALICE), initiator=True, now=START)
    for core in (early, pair.a.core):
        if core is not early:
            core.abort(pair.now, CloseCode.CONNECTION_LOST, "over")
        with pytest.raises(
            LocalProtocolError, match=f"cannot refuse the peer in state {core.state.name}"
        ):
            core.refuse_peer("x", pair.now)


def test_consuming_never_fails() -> None:
    pair = open_pair()
    pair.a.core.consume(1, 0)
    pair.a.core.consume(99, 0)
    pair.a.core.receive_eof(pair.now)
    pair.a.core.consume(3, 100)
    core = Connection(make_config(ALICE), initiator=True, now=START)
    core.consume(3, 100)
    assert core.state is State.EXPECT_REPLY


def test_a_closed_connection_is_deaf() -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, CLOSE, {16: 0}, sealed=True)
    reports = len(pair.b.reports)
    pair.deliver(pair.b, b"\x00" * 100)
    pair.b.core.receive_eof(pair.now)
    pair.b.core.handle_deadline(pair.now + 1e6)
    pair.b.core.close(pair.now)
    pair.b.core.abort(pair.now, CloseCode.INTERNAL_ERROR, "x")
    pair.b.collect(pair.now)
    assert len(pair.b.reports) == reports
    assert not pair.b.take(pair.now)


def test_handling_a_deadline_too_early_does_nothing() -> None:
    pair = open_pair()
    send(pair.a)
    pair.carry(pair.a)
    for side in pair.sides:
        side.core.handle_deadline(pair.now)
        assert not side.take(pair.now)


def test_a_hello_is_made_once_and_only_when_it_is_asked_for() -> None:
    core = Connection(make_config(ALICE), initiator=True, now=START)
    assert core.data_to_send(START)
    assert core.data_to_send(START) == b""
    given_up = Connection(make_config(ALICE), initiator=True, now=START)
    given_up.close(START)
    assert given_up.data_to_send(START) == b""
