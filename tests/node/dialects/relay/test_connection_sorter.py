"""Messages reach their recipients in any chunks, and each error has its answer."""

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import BROADCAST, SERVER, RelayCode
from parley._node.dialects.relay.connection import MEMBERS_A_COST, MOST_PARTS, TURN_COST
from parley._node.dialects.relay.router import Piece
from tests.node.dialects.relay.hall import A, B, C, Hall, end_of, faults, message

NOWHERE = bytes([9]) * 16
TARGETS = (A, B, C, BROADCAST, NOWHERE)

targets = st.sampled_from(TARGETS)
sent = st.lists(
    st.builds(
        lambda count, to, payload: message(to, A, payload) * count,
        st.integers(1, 3),
        targets,
        st.binary(max_size=40),
    )
    | st.integers(0, 31).map(lambda length: pack(">I", length) + bytes(length)),
    max_size=12,
).map(b"".join)


class Listener:
    """A member without a connection, which stores its messages."""

    def __init__(self) -> None:
        self.got: list[Piece] = []

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> None:
        self.got += pieces


def outcome(data: bytes, cuts: list[int] | int, feedback: bool = True) -> list[object]:
    """Return everything observable after A has sent `data` in these chunks."""
    hall = Hall(A, B, C, feedback=feedback)
    if isinstance(cuts, int):
        hall.send(A, data, cuts)
    else:
        places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for start, end in pairwise(places):
            hall.send(A, data[start:end])
    connection = hall.at[A]
    return [
        *(hall.written(uuid) for uuid in (A, B, C)),
        connection.closing,
        end_of(connection),
        hall.router.undeliverable,
    ]


def test_messages_to_one_target_keep_their_order() -> None:
    hall = Hall(A, B, C)
    order = [(B, b"1"), (C, b"2"), (BROADCAST, b"3"), (B, b"4"), (B, b"5"), (C, b"6")]
    hall.send(A, b"".join(message(to, A, payload) for to, payload in order))
    assert [payload for _, _, payload in hall.read(B)] == [b"1", b"3", b"4", b"5"]
    assert [payload for _, _, payload in hall.read(C)] == [b"2", b"3", b"6"]


@given(data=sent, cuts=st.lists(st.integers(0, 2_000), max_size=6))
def test_it_does_not_matter_how_it_is_cut(data: bytes, cuts: list[int]) -> None:
    whole = outcome(data, 1 << 20)
    assert outcome(data, 1) == whole
    assert outcome(data, cuts) == whole


# Errors.


def test_a_short_message_is_answered_before_its_bytes_are_there() -> None:
    hall = Hall(A, B)
    hall.send(A, pack(">I", 31) + bytes(4))
    assert faults(hall.written(A)) == [RelayCode.INVALID_FORMAT]
    hall.send(A, bytes(27) + message(B, A, b"next"))
    assert hall.read(B) == [(B, A, b"next")]


@pytest.mark.parametrize("feedback", [True, False])
def test_a_target_that_is_not_there(feedback: bool) -> None:
    hall = Hall(A, B, feedback=feedback)
    gone = message(NOWHERE, A, b"x")
    hall.send(A, gone * 3 + message(B, A, b"y") + message(SERVER, A) + gone[:-1])
    hall.send(A, gone[-1:])
    assert hall.router.undeliverable == 5
    assert faults(hall.written(A)) == ([RelayCode.NOT_CONNECTED] * 5 if feedback else [])
    assert hall.read(B) == [(B, A, b"y")]
    assert not hall.at[A].closing


@pytest.mark.parametrize(
    "mistake", [bytes(4), message(NOWHERE, A)], ids=["too short", "nobody there"]
)
def test_after_many_mistakes_others_have_their_turn(mistake: bytes) -> None:
    hall = Hall(A, B, limits=DialectLimits(write_buffer=1 << 20))
    other = message(bytes([8]) * 16, A)
    data = (mistake + other) * (2 * TURN_COST) + message(B, A, b"last")
    hall.send(A, data)
    told, turns, connection = faults(hall.written(A)), 1, hall.at[A]
    while not connection.wants_data:
        assert len(told) <= turns * (TURN_COST + 1)
        assert hall.written(B) == b""
        assert connection.next_deadline() <= hall.now
        connection.handle_deadline(hall.now)
        told += faults(hall.written(A))
        turns += 1
    code = RelayCode.INVALID_FORMAT if len(mistake) == 4 else RelayCode.NOT_CONNECTED
    assert (turns, told) == (4, [code, RelayCode.NOT_CONNECTED] * (2 * TURN_COST))
    assert hall.read(B) == [(B, A, b"last")]


def test_after_many_broadcasts_others_have_their_turn() -> None:
    # Runs of broadcasts are one slice; the messages in between end each run.
    others = [bytes([10]) * 15 + bytes([n]) for n in range(160)]
    hall = Hall(A, *others, limits=DialectLimits(write_buffer=1 << 20))
    data = (message(BROADCAST, A, b"x") * 3 + message(A, A)) * 200
    hall.send(A, data)
    runs = TURN_COST // (1 + 161 // MEMBERS_A_COST) + 1
    assert len(hall.read(others[0])) == 3 * runs
    turns = 1
    while not hall.at[A].wants_data:
        hall.at[A].handle_deadline(hall.now)
        turns += 1
    assert turns == -(-200 // runs)
    assert len(hall.read(others[0])) == 3 * (200 - runs)
    assert len(hall.read(others[-1])) == 600


def test_postponed_messages_precede_later_ones() -> None:
    hall = Hall(A, B)
    hall.send(A, bytes(4) * (TURN_COST + 1) + message(B, A, b"1") + message(B, A, b"2")[:20])
    assert hall.written(B) == b""
    hall.send(A, message(B, A, b"2")[20:])  # the transport would be paused now
    assert [payload for _, _, payload in hall.read(B)] == [b"1", b"2"]
    hall.written(A)  # its own errors, for which it waits as for any queue
    assert hall.at[A].wants_data


# The number of copies, and the stored bytes.


def test_forwarded_messages_are_slices_of_received_data() -> None:
    hall, one, other = Hall(A), Listener(), Listener()
    hall.router.join(B, one)
    hall.router.join(C, other)
    data = message(B, A, bytes(50)) * 3 + message(BROADCAST, A, bytes(9)) + message(C, A)
    hall.send(A, data)
    for pieces in (one.got, other.got):
        assert len(pieces) == 2
        assert all(isinstance(piece, memoryview) and piece.obj is data for piece in pieces)
    assert one.got[1] is other.got[0]  # all share one view of a broadcast


def test_a_message_in_parts_is_forwarded_as_its_parts() -> None:
    hall, target = Hall(A), Listener()
    hall.router.join(B, target)
    data = message(B, A, bytes(3_000))
    parts = [data[:1_000], data[1_000:2_000], data[2_000:]]
    for part in parts:
        hall.send(A, part)
    assert [piece.obj for piece in target.got if isinstance(piece, memoryview)] == parts


def test_single_bytes_do_not_cost_a_slice_each() -> None:
    limits = DialectLimits(longest_frame=1 << 20, write_buffer=1 << 20)
    hall = Hall(A, B, limits=limits)
    data = message(B, A, bytes(20_000))
    tracemalloc.start()
    try:
        for at in range(len(data) - 1):
            hall.at[A].receive_data(data[at : at + 1], hall.now)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 2 * len(data) + MOST_PARTS * 500
    hall.send(A, data[-1:])
    assert hall.read(B) == [(B, A, bytes(20_000))]


def test_leaving_within_a_message_leaves_no_state() -> None:
    hall = Hall(A, B)
    hall.send(A, message(B, A, bytes(3_000))[:2_000])
    hall.at[A].receive_eof(hall.now)
    assert hall.written(B) == b""


@given(data=st.binary(max_size=300))
def test_any_bytes_are_answered_within_limits(data: bytes) -> None:
    hall = Hall(A, B)
    hall.send(A, data)
    assert set(faults(hall.written(A))) <= {3, 4, 5}
    assert all(sender == A for _, sender, _ in hall.read(B))
