"""The dialogs of one connection: ids, timeouts, Pings, and every limit exceeded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.codec import (
    HEAD_SIZE,
    LAST_ID,
    NOTIFY,
    PING,
    PONG,
    REQUEST,
    RESPONSE,
    RPC,
    serialise_message,
)
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LimitReachedError,
    PayloadTooLargeError,
)
from parley._node.protocol.memory_budget import REQUEST_WEIGHT
from parley._node.protocol.reports import PongReceived
from tests.node.dialects.simproto.sides import TIGHT, Side, call, exchange, request


def reads(side: Side) -> bool:
    return side.core.wants_data


def ids(said: bytes) -> list[tuple[int, int]]:
    found = []
    while said:
        found.append((said[0], int.from_bytes(said[1:9], "little")))
        said = said[HEAD_SIZE + int.from_bytes(said[9:17], "little") :]
    return found


def test_ids_are_unique_among_local_requests() -> None:
    side = Side(TIGHT)
    call(side)
    ping = side.core.ping(0.0)
    call(side)
    assert ids(side.said()) == [(REQUEST, 1), (PING, ping), (REQUEST, 3)]
    side.core.next_id = LAST_ID
    call(side)
    call(side)
    assert ids(side.said()) == [(REQUEST, LAST_ID), (REQUEST, 1)] or ping == 1


def test_a_ping_is_no_request() -> None:
    """A Ping can have the id of a running request, because the type distinguishes their answers."""
    side = Side()
    assert side.receive(request(RPC, "wait", dialog=7)) == b""
    assert side.receive(serialise_message(PING, 7)) == serialise_message(PONG, 7)
    assert side.ended is None


@pytest.mark.parametrize("kind", [RESPONSE, PONG])
@pytest.mark.parametrize("asked", ["nothing", "call", "ping"])
def test_a_response_without_a_request_ends_it(kind: int, asked: str) -> None:
    side = Side()
    if asked == "call":
        call(side)
    elif asked == "ping":
        side.core.ping(0.0)
    right = (kind == RESPONSE and asked == "call") or (kind == PONG and asked == "ping")
    side.receive(serialise_message(kind, 1, b"\0"))
    assert side.code == (None if right else CloseCode.PROTOCOL_ERROR)
    if right:  # but not twice
        side.receive(serialise_message(kind, 1, b"\0"))
        assert side.code == CloseCode.PROTOCOL_ERROR


# Time.


def test_a_response_that_takes_too_long_ends_it() -> None:
    side = Side(TIGHT)
    first = call(side)
    side.at(10.0)
    second = call(side)
    assert side.core.next_deadline() == 15.0  # a Ping, before
    side.receive(serialise_message(PING, 1))
    side.at(20.0)
    side.receive(serialise_message(PING, 2))
    assert side.core.next_deadline() == 30.0
    side.at(29.9)
    assert side.ended is None
    side.at(30.0)
    assert side.code == CloseCode.TIMEOUT
    assert side.core.ended
    assert first == second == [-1, None]


def test_idle_is_pinged_and_silence_ends_it() -> None:
    side = Side(TIGHT)
    side.receive(serialise_message(PING, 1))
    assert side.core.next_deadline() == 15.0
    assert side.at(14.9) == b""
    assert side.at(15.0) == serialise_message(PING, 1)
    assert side.core.next_deadline() == 25.0
    side.at(20.0)
    side.receive(request(RPC, "wait"))  # other data, but no Pong
    side.at(24.9)
    assert side.ended is None
    side.at(25.0)
    assert side.code == CloseCode.TIMEOUT


def test_a_pong_in_time_goes_on() -> None:
    side = Side(TIGHT)
    side.at(15.0)
    side.now = 16.0
    side.receive(serialise_message(PONG, 1))
    assert side.reports == [PongReceived(1, 1.0)]
    assert side.core.next_deadline() == 31.0
    first, second = side.core.ping(16.0), side.core.ping(18.0)
    assert side.core.next_deadline() == 26.0
    side.receive(serialise_message(PONG, first))
    assert side.core.next_deadline() == 28.0
    side.receive(serialise_message(PONG, second))
    assert side.ended is None


def test_no_pong_overtakes_a_message_that_is_on_its_way() -> None:
    side = Side(TIGHT)
    side.at(15.0)
    message = request(RPC, "echo", b"x" * 50)
    side.now = 24.0
    side.receive(message[:30])
    side.at(25.0)
    assert side.ended is None
    assert side.core.next_deadline() == 34.0
    side.now = 33.0
    side.receive(message[30:])
    side.at(34.0)
    assert side.code == CloseCode.TIMEOUT  # the message is complete, and no Pong follows


# Limits.


def test_more_requests_than_dialogs_end_it() -> None:
    side = Side(TIGHT)
    for dialog in range(TIGHT.requests):
        side.receive(request(RPC, "wait", dialog=dialog))
    assert side.ended is None
    side.receive(request(RPC, "wait", dialog=99))
    assert side.code == CloseCode.OVERLOADED
    assert side.stopped == side.pending
    assert len(side.pending) == TIGHT.requests


def test_local_requests_are_limited_by_dialogs() -> None:
    side = Side(TIGHT)
    for _ in range(TIGHT.requests):
        call(side)
    said = side.said()
    with pytest.raises(LimitReachedError, match="4 already wait"):
        call(side)
    assert side.said() == b""
    side.receive(serialise_message(RESPONSE, ids(said)[2][1], b"\0"))
    call(side)


def test_more_bytes_than_may_wait_stop_reading() -> None:
    side = Side(TIGHT)
    for dialog in range(4):
        side.receive(request(RPC, "wait", b"x" * 240, dialog=dialog))
        assert reads(side)
    side = Side(DialectLimits(longest_frame=2_048, client_memory=REQUEST_WEIGHT + 1_024))
    call(side)
    side.core.ping(0.0)
    side.receive(request(RPC, "wait", b"x" * 1_100))
    assert not reads(side)
    # The request's timeout continues, so that the sides don't wait for each other forever; that of
    # Pings doesn't.
    assert side.core.next_deadline() == 30.0
    side.at(25.0)
    assert side.ended is None
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"", 25.0)
    assert reads(side)
    side.receive(serialise_message(RESPONSE, 1, b"\0"))
    assert side.core.next_deadline() == 35.0  # the Pong's timeout, restarted


def test_requests_that_wait_too_long_for_handlers_end_it() -> None:
    """Otherwise it would be unknown whether the requesting side still exists."""
    side = Side(DialectLimits(longest_frame=2_048, client_memory=2 * REQUEST_WEIGHT))
    for dialog in range(2):
        side.now = 10.0 * dialog
        side.receive(request(RPC, "wait", b"x" * 600, dialog=dialog))
    assert side.core.next_deadline() == 40.0
    side.at(39.9)
    assert side.ended is None
    side.at(40.0)
    assert side.code == CloseCode.OVERLOADED
    assert side.stopped == side.pending


def test_requests_are_not_read_while_answers_are_unread() -> None:
    side = Side(TIGHT)
    for dialog in range(8):
        side.core.receive_data(request(RPC, "echo", b"x" * 200, dialog=dialog), 0.0)
        for report in side.core.reports():
            side.sim.take(report, 0.0)  # type: ignore[arg-type]  # requests alone
    assert not reads(side)
    assert side.core.queued_bytes > TIGHT.write_buffer
    side.at(15.0)
    assert reads(side)  # reading has resumed
    side.at(24.0)
    assert side.ended is None


@pytest.mark.parametrize("size", [253, 254])
def test_the_longest_payload(size: int) -> None:
    side, answer = Side(TIGHT), Side(TIGHT)
    data = b"x" * (size - len("echo"))
    if size == 253:
        call(side, data=data)
        exchange(side, answer)
        assert answer.ended is None
        return
    with pytest.raises(PayloadTooLargeError):
        call(side, data=data)
    assert side.core.free_dialogs == TIGHT.requests
    side.receive(request(RPC, "echo", data))
    assert side.code == CloseCode.FRAME_TOO_LARGE


def test_a_long_payload_is_queued_as_it_is() -> None:
    one, other = Side(), Side()
    answer = call(one, data=b"x" * 100_000)
    assert one.core.outbox.count == 2
    exchange(one, other)
    assert answer == [0, b"x" * 100_000]


def test_pongs_are_bounded() -> None:
    side = Side()
    pings = b"".join(serialise_message(PING, number) for number in range(64))
    side.core.receive_data(pings, 0.0)
    assert side.core.data_to_send(0.0).count(bytes([PONG])) >= 64
    side.core.receive_data(pings, 0.0)  # the Pongs were read, so as many are possible again
    side.core.receive_data(serialise_message(PING, 99), 0.0)
    assert len(ids(side.said())) == 64
    assert side.code == CloseCode.OVERLOADED


def test_our_pings_are_bounded() -> None:
    side = Side()
    for _ in range(64):
        side.core.ping(0.0)
    with pytest.raises(LimitReachedError, match="64 already wait"):
        side.core.ping(0.0)


def test_no_request_can_be_sent_after_the_end() -> None:
    side = Side()
    side.receive(request(RPC, "wait"))
    answer = call(side)
    side.core.close(0.0)
    side.said()
    assert answer == [-1, None]
    assert side.stopped == side.pending
    with pytest.raises(ConnectionClosedError):
        call(side)
    with pytest.raises(ConnectionClosedError):
        side.core.ping(0.0)
    side.sim.incoming.answer(side.pending[0], ResultCode.ACCEPTED, b"late", 0.0)
    assert side.said() == b""


# Any bytes.


@given(st.binary(max_size=80), st.integers(1, 9))
def test_any_bytes_end_in_the_same_way_whole_or_in_pieces(data: bytes, piece: int) -> None:
    whole, pieces = Side(TIGHT), Side(TIGHT)
    said = whole.receive(data)
    said_in_pieces = b""
    for at in range(0, len(data), piece):
        said_in_pieces += pieces.receive(data[at : at + piece])
    assert said_in_pieces == said
    assert pieces.code == whole.code


def test_invalid_topics_are_not_found() -> None:
    side = Side(TIGHT)
    for topic in (b"\xff", b"x" * 17):
        for kind in range(NOTIFY + 1):
            assert side.receive(request(kind, topic)) == serialise_message(RESPONSE, 1, b"\x01")
    assert side.ended is None


@given(
    st.lists(st.tuples(st.booleans(), st.binary(max_size=60)), max_size=12),
    st.integers(1, 40),
)
def test_all_calls_are_answered_in_whatever_pieces(
    calls: list[tuple[bool, bytes]], piece: int
) -> None:
    sides = Side(), Side()
    answers = [(call(sides[ours], data=data), data) for ours, data in calls]
    said = [sides[0].said(), sides[1].said()]
    while any(said):
        heard, said = said, [b"", b""]
        for ours in range(2):
            for at in range(0, len(heard[1 - ours]), piece):
                said[ours] += sides[ours].receive(heard[1 - ours][at : at + piece])
    assert [answer for answer, _ in answers] == [[0, data or None] for _, data in answers]
    assert [side.ended for side in sides] == [None, None]
