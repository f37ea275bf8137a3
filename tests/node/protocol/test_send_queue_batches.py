"""Tests of which events are sent in Batches: only small events of one stream in the same flush."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import encode
from parley._lbm.padding import parse_padding as pad
from parley._node.protocol.codes import BATCH, DATA, FINISH, STREAM
from parley._node.protocol.event import HEAD_SIZE, Event, parse_batch, parse_raw
from parley._node.protocol.flow_control import SendCredit
from parley._node.protocol.limits import BATCH_COUNT, BATCH_SIZE
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.send_queue import SMALL_PAYLOAD, OutgoingEvent, SendQueue
from tests.node.protocol.pair import Pair, events_of, open_pair

ALL = 1 << 20


def small(
    number: int = 0, size: int = 10, stream: int = 3, cost: int = 0, releases: int = 0
) -> OutgoingEvent:
    return OutgoingEvent(stream, number, 64, 1, b"x" * size, cost=cost, releases=releases)


def outbox_of(*events: OutgoingEvent, credit: SendCredit | None = None) -> SendQueue:
    outbox = SendQueue(MemoryBudget(1 << 30))
    for event in events:
        outbox.put(event, None if event.stream == 1 else credit or SendCredit(ALL))
    return outbox


def numbers(taken: list[OutgoingEvent]) -> list[int | list[int]]:
    """Return the async IDs of the taken events; those of a Batch as a list."""
    return [
        [inner.async_id for inner in parse_batch(Event(*event.head, bytes(event.payload)))]
        if event.head[2:] == (STREAM, BATCH)
        else event.async_id
        for event in taken
    ]


def test_what_waits_goes_as_one_in_its_order() -> None:
    outbox = outbox_of(*(small(n, 1 + n) for n in range(3)))
    (batch,) = outbox.take(ALL)
    assert (batch.stream, batch.async_id, batch.cost) == (3, 0, 0)
    assert parse_batch(Event(*batch.head, bytes(batch.payload))) == [
        Event(3, n, 64, 1, b"x" * (1 + n)) for n in range(3)
    ]
    assert (outbox.count, outbox.size, bool(outbox), outbox.account.held) == (0, 0, False, 0)


def test_one_event_is_itself() -> None:
    event = small(7)
    assert outbox_of(event).take(ALL) == [event]


def test_each_stream_has_its_own_and_they_take_turns() -> None:
    outbox = outbox_of(*(small(n, stream=stream) for n in range(2) for stream in (3, 1, 5)))
    taken = outbox.take(ALL)
    assert [event.stream for event in taken] == [3, 1, 5]
    assert numbers(taken) == [[0, 1]] * 3


def test_no_more_than_256_events() -> None:
    taken = numbers(outbox_of(*(small(n) for n in range(BATCH_COUNT + 1))).take(ALL))
    assert taken == [list(range(BATCH_COUNT)), BATCH_COUNT]


def test_no_more_than_32_kib() -> None:
    fits = (BATCH_SIZE - 8 * HEAD_SIZE) // 8
    assert fits <= SMALL_PAYLOAD
    (batch,) = outbox_of(*(small(n, fits) for n in range(8))).take(ALL)
    assert len(batch.payload) == BATCH_SIZE
    taken = outbox_of(*(small(n, fits) for n in range(7)), small(7, fits + 1)).take(ALL)
    assert numbers(taken) == [list(range(7)), 7]


def test_no_more_than_the_agreed_payload() -> None:
    pair = open_pair(a={"max_payload": 1_024})
    for size in (500, 508, 500, 509):  # each has 8 bytes in front
        pair.a.core.send(1, 0, 64, 1, bytes(size), lbm=False)
    pair.carry(pair.a)
    assert pair.b.channel.receiver.counters() == {1: 3}
    assert [len(payload) for payload in pair.b.payloads] == [500, 508, 500, 509]


def test_no_more_than_the_flush_takes() -> None:
    outbox = outbox_of(*(small(n, 100) for n in range(4)))
    assert numbers(outbox.take(250)) == [[0, 1]]
    assert numbers(outbox.take(250)) == [[2, 3]]


def test_long_events_go_alone_and_in_their_place() -> None:
    sizes = (1, SMALL_PAYLOAD, SMALL_PAYLOAD + 1, 1, 1, SMALL_PAYLOAD + 1)
    outbox = outbox_of(*(small(n, size) for n, size in enumerate(sizes)))
    assert numbers(outbox.take(ALL)) == [[0, 1], 2, [3, 4], 5]


def test_data_and_finish_go_alone_and_in_their_place() -> None:
    data = OutgoingEvent(3, 8, STREAM, DATA, b"x")
    finish = OutgoingEvent(3, 9, STREAM, FINISH, b"\x00")
    outbox = outbox_of(data, data, small(1), small(2), data, small(3), finish)
    assert numbers(outbox.take(ALL)) == [8, 8, [1, 2], 8, 3, 9]


def test_what_has_no_credit_stays_out() -> None:
    credit = SendCredit(100)
    outbox = outbox_of(*(small(n, cost=74) for n in range(5)), credit=credit)
    assert numbers(outbox.take(ALL)) == [[0, 1]]
    assert (credit.left, outbox.count, outbox.size) == (100 - 2 * 74, 3, 30)
    assert outbox.take(ALL) == []
    credit.grant(48 + 74 + 1)
    assert outbox.unblock(3)
    assert numbers(outbox.take(ALL)) == [[2, 3]]
    assert outbox.waiting(3) == 1


def test_a_batch_ends_with_what_releases_a_stream() -> None:
    outbox = outbox_of(small(1, stream=1), small(2, stream=1, releases=3), small(3, stream=1))
    outbox.put(small(4), SendCredit(ALL))
    outbox.hold(3)
    assert numbers(outbox.take(ALL)) == [[1, 2], 3, 4]
    outbox = outbox_of(small(1, stream=1, releases=3), small(2, stream=1))
    assert numbers(outbox.take(ALL)) == [1, 2]


def test_a_seal_that_was_asked_for_covers_the_batch() -> None:
    pair = open_pair()
    for seal in (False, True, False):
        pair.a.core.send(1, 0, 64, 1, b"x", lbm=False, seal=seal)
    pair.carry(pair.a)
    assert len(pair.b.events) == 3
    assert pair.b.channel.receiver.unsealed == 0


def test_padding_is_inside() -> None:
    pair = open_pair(a={"padding": pad("bucket:64")}, plaintext="only")
    for size in (1, 40, 100):
        pair.a.core.send(1, 0, 64, 1, encode({300: bytes(size)}))
    (event,) = events_of(pair.carry(pair.a))
    assert [len(inner.payload) for inner in parse_batch(parse_raw(event))] == [64, 64, 128]


@pytest.mark.parametrize("sealing", ["chain", "each"])
def test_it_is_one_link_of_the_chain(sealing: str) -> None:
    pair = open_pair(algorithms={"kex": ("x25519",), "sealing": (sealing,)})
    for _ in range(20):
        pair.a.core.send(1, 0, 64, 1, b"x", lbm=False)
    assert len(events_of(pair.carry(pair.a))) == 1
    sent, _ = pair.a.core.checkpoint()
    assert (sent.counters, sent.unsealed) == ({1: 1}, int(sealing == "chain"))
    assert len(pair.b.events) == 20


def written(pair: Pair, sends: list[tuple[int, int, bool]], *, at_once: bool) -> None:
    """Send events from `a`, each given as the index of its stream, its size, and whether it is
    LBM.
    """
    streams = [1, *(pair.a.core.open_stream("x") for _ in range(2))]
    for number, (place, size, lbm) in enumerate(sends):
        payload = encode({300: bytes(size)}) if lbm else b"\x01" * size
        pair.a.core.send(streams[place], number, 64, 1 + place, payload, lbm=lbm)
        if not at_once:
            pair.carry(pair.a)
    pair.pump()


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 90, 700, 5_000]), st.booleans()),
        max_size=40,
    ),
    st.sampled_from(["off", "padme"]),
    st.sampled_from(["never", "only"]),
)
def test_batched_or_not_the_same_comes(
    sends: list[tuple[int, int, bool]], padding: str, plaintext: str
) -> None:
    """Compare events by stream, their cost, and the memory charged to the budget and the
    windows.
    """
    seen = []
    for at_once in (True, False):
        pair = open_pair(a={"padding": pad(padding)}, plaintext=plaintext, stream_window=8_192)
        written(pair, sends, at_once=at_once)
        events = sorted(pair.b.events, key=lambda event: event.stream)
        mux = pair.a.session.mux
        seen.append((events, pair.b.core.flow(), pair.b.core.account.held, mux.expected))
        assert pair.a.core.flow().queued_events + len(events) == len(sends)
    assert seen[0] == seen[1]
