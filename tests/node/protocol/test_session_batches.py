"""Tests of received Batches: each event has the same effect as outside of a Batch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.protocol.codes import BATCH, CHUNK, SIM, STREAM, CloseCode
from parley._node.protocol.event import Event, serialise_batch
from parley._node.protocol.memory_budget import EVENT_WEIGHT, STREAM_WEIGHT
from parley._node.protocol.rate_limit import Rate, TokenBucket
from parley._node.protocol.reports import StreamReset
from parley._node.protocol.session import STEP_COST
from tests.node.protocol.pair import ALIVE, Pair, assert_ended, assert_violation, open_pair
from tests.sweep import sweep

EACH_KIND = pytest.mark.parametrize("plaintext", ["never", "only"])

# Async id, category, subcategory, payload.
Inner = tuple[int, int, int, bytes]
TWO: list[Inner] = [(0, 64, 1, b"one"), (9, 64, 2, b"\x00")]


def with_stream(**settings: Any) -> tuple[Pair, int]:
    """Return a pair on which `a` has opened a stream."""
    pair = open_pair(**settings)
    stream = pair.a.core.open_stream("app/test")
    pair.pump()
    return pair.forget(), stream


def give(pair: Pair, stream: int, events: list[Inner], *, sealed: bool = False) -> None:
    """Forge a Batch of `a`."""
    pair.inject(pair.a, stream, STREAM, BATCH, serialise_batch(events), sealed=sealed)


@EACH_KIND
def test_on_stream_1_and_on_an_open_one(plaintext: str) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    give(pair, stream, TWO)
    give(pair, 1, TWO)
    assert pair.b.events == [
        Event(stream, 0, 64, 1, b"one", 67),
        Event(stream, 9, 64, 2, b"", 65),
        Event(1, 0, 64, 1, b"one", 0),
        Event(1, 9, 64, 2, b"", 0),
    ]


MALFORMED = [
    b"\x00",
    serialise_batch(TWO[:1]),
    serialise_batch(TWO)[:-1],
    serialise_batch(TWO) + b"\x00",
    serialise_batch(TWO * 129),
    serialise_batch([*TWO, (0, 2, 5, b"Data")]),
    serialise_batch([*TWO, (0, 2, 6, serialise_batch(TWO))]),
    serialise_batch([(0, 64, 1, bytes(20_000))] * 2),
]


@EACH_KIND
@sweep("place", ["main", "open", "reset"])
@sweep("payload", MALFORMED)
def test_of_what_is_none_nothing_is_delivered(plaintext: str, place: str, payload: bytes) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    if place == "reset":
        pair.b.core.reset_stream(stream, CloseCode.REFUSED)
    pair.inject(pair.a, 1 if place == "main" else stream, STREAM, BATCH, payload)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
def test_with_an_async_id(plaintext: str) -> None:
    pair = open_pair(plaintext=plaintext)
    pair.inject(pair.a, 1, STREAM, BATCH, serialise_batch(TWO), async_id=7)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize("stream", [0, 2, 3, 5])
def test_where_no_batch_may_be(plaintext: str, stream: int) -> None:
    pair = open_pair(plaintext=plaintext)
    give(pair, stream, TWO)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
def test_on_an_ended_direction(plaintext: str) -> None:
    pair, stream = with_stream(plaintext=plaintext)
    pair.a.core.finish_stream(stream)
    pair.pump()
    give(pair, stream, TWO)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


@EACH_KIND
@pytest.mark.parametrize("stream", [1, 3])
def test_above_the_agreed_payload(plaintext: str, stream: int) -> None:
    pair, _ = with_stream(plaintext=plaintext, max_payload=1_024)
    give(pair, stream, [(0, 64, 1, bytes(504))] * 2)
    assert (pair.b.code, len(pair.b.events)) == (ALIVE, 2)
    pair.b.reports.clear()
    give(pair, stream, [(0, 64, 1, bytes(504)), (0, 64, 1, bytes(505))])
    assert_violation(pair, pair.b, CloseCode.FRAME_TOO_LARGE)


def test_each_event_needs_its_own_credit() -> None:
    pair, stream = with_stream(stream_window=1_024)
    give(pair, stream, [(0, 64, 1, bytes(500)), (0, SIM, CHUNK, bytes(9)), (0, 64, 1, bytes(600))])
    assert [event.cost for event in pair.b.events] == [564, 0, 664]
    charged = 564 + 664 + 2 * (EVENT_WEIGHT - 64)
    assert pair.b.core.account.held == STREAM_WEIGHT + charged
    give(pair, stream, [(0, SIM, CHUNK, b"x"), (0, 64, 1, b"x")])
    assert len(pair.b.events) == 4  # the Chunk precedes the invalid event
    pair.b.reports[:] = [report for report in pair.b.reports if type(report) is not Event]
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_what_meets_our_reset_is_dropped_and_uses_up_credit() -> None:
    pair, stream = with_stream(stream_window=1_024)
    pair.b.core.reset_stream(stream, CloseCode.REFUSED)
    give(pair, stream, [(0, 64, 1, bytes(400))] * 3)
    assert (pair.b.code, pair.b.events, pair.b.core.flow().unconsumed) == (ALIVE, [], 0)
    give(pair, stream, TWO)
    assert_violation(pair, pair.b, CloseCode.PROTOCOL_ERROR)


def test_what_is_dropped_counts_one_by_one() -> None:
    pair, stream = with_stream()
    pair.b.core.reset_stream(stream, CloseCode.REFUSED)
    pair.b.session.drops = TokenBucket(Rate(5, 1e9))
    chunk: Inner = (1, SIM, CHUNK, b"\xa0")
    give(pair, stream, [chunk] * 5)
    assert pair.b.code == ALIVE
    give(pair, stream, [chunk] * 2)  # the second exceeds the limit
    assert_violation(pair, pair.b, CloseCode.OVERLOADED)


def test_a_stream_without_room_is_reset_in_the_middle() -> None:
    pair, stream = with_stream(peer_memory=65_536)
    give(pair, stream, [(n, 64, 1, bytes(2_500)) for n in range(12)])
    give(pair, stream, [(n, 64, 1, bytes(2_500)) for n in range(12)])
    give(pair, stream, [(n, 64, 1, bytes(2_500)) for n in range(12)])
    assert 0 < len(pair.b.events) < 36
    assert len(pair.b.events) % 12
    assert pair.b.all(StreamReset) == [StreamReset(stream, CloseCode.OVERLOADED, "")]
    assert pair.b.code == ALIVE


def test_it_takes_as_much_of_a_step_as_its_events() -> None:
    pair = open_pair()
    data = b"".join(
        pair.a.forge(1, STREAM, BATCH, serialise_batch([(0, 64, 1, b"x")] * STEP_COST))
        for _ in range(2)
    )
    pair.b.core.receive_some(data, pair.now)
    pair.b.collect(pair.now)
    assert (len(pair.b.events), pair.b.core.unread) == (STEP_COST, True)


def test_all_of_it_waits_for_its_seal() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    give(pair, 1, TWO)
    assert pair.b.core.unsealed.held == len(serialise_batch(TWO)) + 2 * EVENT_WEIGHT
    assert pair.b.events == []
    give(pair, 1, TWO, sealed=True)
    assert (len(pair.b.events), pair.b.core.unsealed.held) == (4, 0)


def test_what_is_no_batch_and_waits_for_a_seal_is_never_delivered() -> None:
    pair = open_pair(b={"deliver": "sealed"})
    give(pair, 1, TWO)
    pair.inject(pair.a, 1, STREAM, BATCH, b"\x00", sealed=True)
    assert_ended(pair.b, CloseCode.PROTOCOL_ERROR)


events = st.tuples(
    st.integers(0, 3),
    st.sampled_from([SIM, 4, 9, 64, 255]),
    st.sampled_from([1, CHUNK, 255]),
    st.sampled_from([b"\x00", b"x", bytes(300), bytes(900)]),
)


@given(
    st.lists(events, min_size=2, max_size=12),
    st.sampled_from(["main", "open", "reset"]),
    st.sampled_from(["opened", "sealed"]),
    st.sampled_from(["never", "only"]),
)
def test_batched_or_not_the_same_happens(
    inner: list[Inner], place: str, deliver: str, plaintext: str
) -> None:
    """Also if credit ends in the middle, and if all events are dropped."""
    seen = []
    for batched in (True, False):
        pair, stream = with_stream(b={"deliver": deliver}, plaintext=plaintext, stream_window=2_048)
        if place == "reset":
            pair.b.core.reset_stream(stream, CloseCode.REFUSED)
            pair.b.collect(pair.now)
        on = 1 if place == "main" else stream
        if batched:
            give(pair, on, inner, sealed=True)
        else:
            for number, (async_id, *event) in enumerate(inner, 1):
                sealed = number == len(inner)
                pair.inject(pair.a, on, *event, async_id=async_id, sealed=sealed)
        seen.append((pair.b.reports, pair.b.core.flow(), pair.b.core.account.held))
    assert seen[0] == seen[1]
