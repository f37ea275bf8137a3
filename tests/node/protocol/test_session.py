"""Tests of stream 0 of an open connection: Close, limits, and events that aren't allowed there."""

import pytest

from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.protocol.codes import (
    CLOSE,
    CONNECTION,
    DATA,
    FINISH,
    OPEN,
    PONG,
    RECEIVED,
    RESET,
    SEAL,
    STREAM,
    CloseCode,
)
from parley._node.protocol.limits import BATCH_COUNT, CONTROL_BUFFER
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded, PongReceived, StreamOpened
from parley._node.protocol.send_queue import Waker, WriteBuffer
from tests.node.protocol.pair import ALIVE, assert_ended, assert_violation, open_pair
from tests.sweep import sweep

EACH_KIND = pytest.mark.parametrize("plaintext", ["never", "only"])


def test_wire_keeps_order_and_counts() -> None:
    wire = WriteBuffer(MemoryBudget(1 << 20), Waker())
    wire.write(b"ab")
    wire.write(b"")
    wire.write(b"c")
    assert (wire.size, len(wire.frames)) == (3, 2)
    assert wire.take() == [b"ab", b"c"]
    assert (wire.size, wire.take()) == (0, [])


# Category 1 after the handshake.


@EACH_KIND
@sweep("subcategory", [1, 2, 3, 4, 5, 13, 14, 100, 255])
def test_handshake_events_and_unknown_ones(plaintext: str, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, 1, subcategory, {keys.CODE: 0, keys.TEXT: ""}, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
def test_a_position_in_a_session_that_cannot_be_resumed(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, CONNECTION, RECEIVED, {keys.RECEIVED: 0}, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize(("category", "subcategory"), [(2, 7), (2, 255)])
def test_unknown_stream_events(plaintext: str, category: int, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, category, subcategory, b"\xa0")
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@sweep(("category", "subcategory"), [(0, 1), (1, 0), (64, 0), (0, 0)])
@sweep("stream", [0, 1])
def test_type_0(plaintext: str, category: int, subcategory: int, stream: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, stream, category, subcategory)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize(("category", "subcategory"), [(1, 100), (2, 100), (64, 1)])
def test_a_payload_above_4096_bytes(plaintext: str, category: int, subcategory: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, category, subcategory, bytes(4_097))
    assert_violation(pair, pair.b, CloseCode.FRAME_TOO_LARGE)


def test_a_payload_of_4096_bytes_is_allowed() -> None:
    pair = open_pair()
    text = "x" * (4_096 - len(encode({keys.CODE: 0, keys.TEXT: "x" * 4_000})) + 4_000)
    pair.inject(pair.a, 0, 1, CLOSE, {keys.CODE: 0, keys.TEXT: text}, sealed=True)
    assert pair.b.one(ConnectionEnded).text == text


@EACH_KIND
def test_a_frame_above_the_limit_is_noticed_from_its_length(plaintext: str) -> None:
    for beyond in (0, 1):
        pair = open_pair(plaintext=plaintext, max_payload=100_000)
        limit = pair.b.core.frames.limit
        assert limit == (100_000 + 24 + 64 + 17 if plaintext == "never" else 100_000 + 8)
        pair.deliver(pair.b, (limit + beyond).to_bytes(4, "big"))
        if beyond:
            assert_violation(pair, pair.b, CloseCode.FRAME_TOO_LARGE)
        else:
            assert pair.b.code == ALIVE


@pytest.mark.parametrize("sealed", [False, True])
def test_the_greatest_payload_fits_the_greatest_frame(sealed: bool) -> None:
    for signing in ("ed25519", "ml-dsa-65", "ecdsa-p256"):
        for sealing in ("chain", "each"):
            names = {"kex": ("x25519",), "signing": (signing,), "sealing": (sealing,)}
            pair = open_pair(algorithms=names, max_payload=50_000)
            pair.a.core.send(1, 1, 64, 1, bytes(50_000), lbm=False, seal=sealed)
            pair.pump()
            assert pair.b.payloads == [bytes(50_000)]


# Close.


@EACH_KIND
@sweep("code", [*range(14), 32, 50, 64, 2**32 - 1])
def test_close_ends_it_with_its_code(plaintext: str, code: int) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 0, 1, CLOSE, {keys.CODE: code, keys.TEXT: "bye"}, sealed=True)
    ended = pair.b.one(ConnectionEnded)
    assert (ended.code, ended.text, ended.remote) == (code, "bye", True)
    assert pair.b.core.ended
    assert not pair.b.take(pair.now)


CLOSES: list[bytes | dict[int, Value]] = [
    {},
    {keys.TEXT: "x"},
    {keys.CODE: "0"},
    {keys.CODE: -1},
    {keys.CODE: 2**32},
    {keys.CODE: True},
    {keys.CODE: 0, keys.TEXT: b"x"},
    b"\x00",
    b"\xff",
]


@pytest.mark.parametrize("payload", CLOSES)
def test_a_malformed_close(payload: bytes | dict[int, Value]) -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, CLOSE, payload, sealed=True)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_who_receives_close_sends_nothing_more() -> None:
    pair = open_pair()
    pair.b.core.send(1, 0, 64, 1, b"queued", lbm=False)
    pair.b.core.ping(pair.now)
    pair.inject(pair.a, 0, 1, CLOSE, {keys.CODE: 0}, sealed=True)
    assert not pair.b.take(pair.now)
    assert pair.b.core.queued_bytes == 0
    assert pair.b.core.next_deadline() == float("inf")


def test_what_follows_a_close_is_not_read() -> None:
    pair = open_pair()
    wire = pair.a.forge(0, 1, CLOSE, {keys.CODE: 0}, sealed=True) + pair.a.forge(1, 64, 1, b"x")
    pair.deliver(pair.b, wire)
    assert not pair.b.events
    assert pair.b.code == CloseCode.NORMAL


def test_unknown_cells_are_ignored() -> None:
    pair = open_pair()
    pair.inject(pair.a, 0, 1, CLOSE, {keys.CODE: 1, 200: "?", 999: "?", 0: b""}, sealed=True)
    assert pair.b.code == CloseCode.GOING_AWAY


# A peer that causes answers and doesn't read them.


@EACH_KIND
def test_answers_that_nobody_reads_are_bounded(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext, seal_events=65_536)
    session = pair.b.session
    session.unwritten = session.control_buffer - 10_000  # as after a long time
    for stream in range(3, 2_003, 2):
        pair.inject(pair.a, stream, STREAM, OPEN, {keys.LABEL: "x"})
        pair.inject(pair.a, 0, STREAM, RESET, {keys.STREAM: stream, keys.CODE: 64})
        if pair.b.code != ALIVE:
            break
    assert_ended(pair.b, CloseCode.OVERLOADED)
    assert session.unwritten < session.control_buffer + 500


@EACH_KIND
def test_resets_of_unwanted_streams_that_nobody_reads_are_bounded(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext, seal_events=65_536)
    session = pair.b.session
    session.unwritten = session.control_buffer - 5_000  # as after a long time
    for stream in range(3, 1_003, 2):
        pair.inject(pair.a, stream, STREAM, OPEN, {keys.LABEL: "x"})
        if pair.b.code != ALIVE:
            break
        # Like the driver: after the event was handled, and before the next one.
        pair.b.core.reset_stream(stream, CloseCode.NO_HANDLER)
        pair.inject(pair.a, stream, STREAM, FINISH)
    assert_ended(pair.b, CloseCode.OVERLOADED)


@EACH_KIND
def test_resets_that_are_read_are_not_counted(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.b.session.unwritten = pair.b.session.control_buffer
    pair.b.take(pair.now)
    pair.b.core.reset_stream(pair.b.core.open_stream("x"), CloseCode.CANCELLED, "x" * 1_000)
    pair.inject(pair.a, 0, 1, PONG)
    assert pair.b.code == ALIVE


@EACH_KIND
@pytest.mark.parametrize(("category", "subcategory", "taken"), [(64, 1, 2), (STREAM, DATA, 8)])
def test_a_step_takes_few_long_messages(
    plaintext: str, category: int, subcategory: int, taken: int
) -> None:
    """Each may take milliseconds to decode, unless it is Data."""
    pair = open_pair(plaintext=plaintext)
    stream = pair.a.core.open_stream("x")
    pair.pump()
    wire = b"".join(pair.a.forge(stream, category, subcategory, bytes(4_000)) for _ in range(8))
    pair.b.core.receive_some(wire, pair.now)
    pair.b.collect(pair.now)
    assert len(pair.b.events) == taken
    assert pair.b.core.unread == (taken < 8)


@EACH_KIND
def test_what_the_application_asks_for_is_not_held_against_the_peer(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    for _ in range(3):
        pair.a.core.open_stream("x" * 900_000)
    pair.inject(pair.b, 0, 1, PONG)  # a peer that only keeps the connection open
    assert pair.a.code == ALIVE
    pair.pump()
    assert len(pair.b.all(StreamOpened)) == 3


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_a_peer_can_reset_all_its_streams_before_it_reads(sealing: str) -> None:
    """With long signatures, the answers exceed the part of the buffer that doesn't depend on
    `max_streams`.
    """
    names = {"kex": ("x25519",), "signing": ("ml-dsa-65",), "sealing": (sealing,)}
    pair = open_pair(algorithms=names, seal_events=1, max_streams=400)
    streams = [pair.a.core.open_stream("x") for _ in range(400)]
    for stream in streams:
        pair.a.core.reset_stream(stream, CloseCode.CANCELLED)
    pair.carry(pair.a)
    assert pair.b.code == ALIVE
    assert pair.b.core.queued_bytes > CONTROL_BUFFER
    pair.pump()
    assert not pair.a.core.flow().streams


# deliver = "sealed".


def test_sealed_delivery_takes_all_that_may_come_before_a_seal() -> None:
    """The memory of other data of the connection, such as events to send, doesn't count."""
    sealed = {"deliver": "sealed", "peer_memory": 65_536}
    pair = open_pair(seal_events=20, max_payload=16_384, seal_delay_ms=60_000, b=sealed)
    for _ in range(20):
        pair.b.core.send(1, 0, 64, 1, bytes(16_384), lbm=False)
    for _ in range(19):
        for _ in range(BATCH_COUNT):
            pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
        pair.carry(pair.a)
    assert pair.b.code == ALIVE
    assert not pair.b.events
    assert pair.b.core.unsealed.held > 19 * BATCH_COUNT
    assert pair.b.core.unsealed.held <= pair.b.core.unsealed.limit
    pair.a.core.send(1, 0, 64, 1, b"last", lbm=False, seal=True)
    pair.carry(pair.a)
    assert len(pair.b.events) == 19 * BATCH_COUNT + 1
    assert pair.b.core.unsealed.held == 0


def test_sealed_delivery_waits_for_the_seal() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    pair.inject(pair.a, 1, 64, 1, b"one")
    pair.inject(pair.a, 3, STREAM, OPEN, {keys.LABEL: "x"})
    pair.inject(pair.a, 3, STREAM, DATA, b"two")
    assert not pair.b.reports
    pair.inject(pair.a, 0, 1, SEAL, sealed=True)
    assert pair.b.payloads == [b"one", b"two"]
    assert pair.b.all(StreamOpened)


def test_sealed_delivery_hands_up_a_sealed_event_at_once() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    pair.inject(pair.a, 1, 64, 1, b"one")
    pair.inject(pair.a, 1, 64, 1, b"two", sealed=True)
    assert pair.b.payloads == [b"one", b"two"]


def test_sealed_delivery_drops_what_no_seal_vouches_for() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    pair.inject(pair.a, 1, 64, 1, b"one")
    broken = bytearray(pair.a.forge(1, 64, 1, b"two", sealed=True))
    broken[30] ^= 1  # in the seal
    pair.deliver(pair.b, bytes(broken))
    assert_ended(pair.b, CloseCode.SEAL_VIOLATION)


def test_sealed_delivery_when_the_transport_ends() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    pair.inject(pair.a, 1, 64, 1, b"one")
    pair.b.core.receive_eof(pair.now)
    pair.b.collect(pair.now)
    assert pair.b.code == CloseCode.CONNECTION_LOST
    assert not pair.b.events


def test_sealed_delivery_does_not_hold_up_keep_alive() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    async_id = pair.b.core.ping(pair.now)
    pair.carry(pair.b)
    pair.carry(pair.a)
    assert pair.b.channel.receiver.unsealed
    assert pair.b.one(PongReceived).async_id == async_id


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_sealed_delivery_between_two_honest_sides(sealing: str) -> None:
    names = {"kex": ("x25519",), "sealing": (sealing,)}
    pair = open_pair(deliver="sealed", algorithms=names)
    for number in range(200):
        pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
    pair.run(0.1)
    assert pair.b.payloads == [b"%d" % number for number in range(200)]


def test_without_encryption_there_is_no_seal_to_wait_for() -> None:
    pair = open_pair(deliver="sealed", plaintext="only")
    pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
    pair.pump()
    assert pair.b.payloads == [b"x"]
