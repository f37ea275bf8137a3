"""Tests of the table of streams: IDs, parity, limits, and when a stream is closed."""

import pytest

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError, LocalProtocolError, RemoteProtocolError
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.streams import Flow, Streams
from tests.node.protocol.pair import Pair, open_pair


def violates(code: CloseCode = CloseCode.PROTOCOL_ERROR) -> "pytest.RaisesExc[RemoteProtocolError]":
    return pytest.raises(RemoteProtocolError, check=lambda error: error.code == code)


def both_sides() -> list[tuple[Streams, int, int]]:
    """Return a table of either side, its own first ID, and the peer's."""
    return [
        (Streams(True, 4, MemoryBudget(1 << 20)), 3, 2),
        (Streams(False, 4, MemoryBudget(1 << 20)), 2, 3),
    ]


def test_our_ids_ascend_by_two() -> None:
    for streams, ours, _ in both_sides():
        assert [streams.open_local(10, 10).id for _ in range(3)] == [ours, ours + 2, ours + 4]


def test_ids_are_not_used_again() -> None:
    for streams, ours, _ in both_sides():
        stream = streams.open_local(10, 10)
        streams.end_local(stream)
        streams.end_remote(stream)
        assert not streams.open
        assert streams.open_local(10, 10).id == ours + 2


def test_the_last_id() -> None:
    streams = Streams(True, 4, MemoryBudget(1 << 20))
    streams.last_local = 2**32 - 3
    assert streams.open_local(10, 10).id == 2**32 - 1
    with pytest.raises(LimitReachedError):
        streams.open_local(10, 10)


def test_streams_0_and_1_need_no_opening_and_cannot_be_opened() -> None:
    for streams, _, _ in both_sides():
        for stream in (0, 1):
            streams.admit(stream)
            with violates():
                streams.open_remote(stream, 10, 10)
            with violates():
                streams.get_live(stream)


def test_the_other_sides_ids() -> None:
    for streams, ours, theirs in both_sides():
        streams.admit(theirs)
        streams.admit(theirs + 100)
        with violates():
            streams.admit(ours)  # the peer can't open a local ID
        streams.open_remote(theirs + 4, 10, 10)
        streams.admit(theirs + 4)
        for id in (theirs, theirs + 2):
            with violates():
                streams.admit(id)  # lower than the peer's last ID
        with violates():
            streams.open_remote(theirs + 4, 10, 10)
        streams.admit(theirs + 6)


def test_on_our_own_stream_they_may_write_at_once() -> None:
    for streams, ours, _ in both_sides():
        streams.open_local(10, 10)
        streams.admit(ours)
        with violates():
            streams.admit(ours + 2)


def test_an_ended_direction_admits_nothing() -> None:
    for streams, _, theirs in both_sides():
        stream = streams.open_remote(theirs, 10, 10)
        streams.end_remote(stream)
        with violates():
            streams.admit(theirs)
        assert streams.get_local(theirs) is stream
        streams.end_local(stream)
        with violates():
            streams.admit(theirs)
        assert streams.get_live(theirs) is None
        with pytest.raises(LocalProtocolError):
            streams.get_local(theirs)


def test_window_and_reset_may_name_what_was_opened() -> None:
    for streams, ours, theirs in both_sides():
        for id in (ours, theirs):
            with violates():
                streams.get_live(id)
        assert streams.open_local(10, 10) is streams.get_live(ours)
        opened = streams.open_remote(theirs + 2, 10, 10)
        assert streams.get_live(theirs + 2) is opened
        assert streams.get_live(theirs) is None  # skipped, which counts as closed
        for id in (ours + 2, theirs + 4):
            with violates():
                streams.get_live(id)


def test_each_sides_streams_are_bounded_until_they_are_gone() -> None:
    streams = Streams(True, 2, MemoryBudget(1 << 20))
    ours = [streams.open_local(10, 10) for _ in range(2)]
    with pytest.raises(LimitReachedError):
        streams.open_local(10, 10)
    theirs = [streams.open_remote(id, 10, 10) for id in (2, 4)]
    with violates(CloseCode.TOO_MANY_STREAMS):
        streams.open_remote(6, 10, 10)
    for stream in (ours[0], theirs[0]):
        streams.end_local(stream)  # one direction is still open
    with pytest.raises(LimitReachedError):
        streams.open_local(10, 10)
    with violates(CloseCode.TOO_MANY_STREAMS):
        streams.open_remote(6, 10, 10)
    for stream in (ours[0], theirs[0]):
        streams.end_remote(stream)
    assert streams.open_local(10, 10).id == 7
    assert streams.open_remote(6, 10, 10).id == 6


def test_max_streams_0_allows_none() -> None:
    streams = Streams(False, 0, MemoryBudget(1 << 20))
    with pytest.raises(LimitReachedError):
        streams.open_local(10, 10)
    with violates(CloseCode.TOO_MANY_STREAMS):
        streams.open_remote(3, 10, 10)


def test_committed_is_the_sum_of_windows_still_read_under() -> None:
    streams = Streams(True, 9, MemoryBudget(1 << 20))
    first = streams.open_local(99, 1_000)
    second = streams.open_remote(2, 99, 4_096)
    assert streams.committed == 5_096
    streams.end_remote(first)
    assert streams.committed == 4_096
    streams.end_remote(first)  # Finish, then Reset
    assert streams.committed == 4_096
    streams.end_local(first)
    second.window.take(4_096)
    assert streams.consume(second, 4_096, budget=1_000) == 2_048  # memory is short, so it shrinks
    assert streams.committed == 2_048
    streams.end_remote(second)
    assert streams.committed == 0


SIZE = 1_000
COST = SIZE + EVENT_COST


def stream_of(pair: Pair, *, sent: int) -> int:
    """Return a stream of a on which this number of events was delivered to b."""
    stream = pair.a.core.open_stream("x")
    for _ in range(sent):
        pair.a.core.send_data(stream, bytes(SIZE))
    pair.pump()
    return stream


def test_what_was_sent_is_held_until_it_is_consumed() -> None:
    pair = open_pair()
    stream = stream_of(pair, sent=3)
    window = pair.a.core.limits.stream_window
    sender, reader = pair.a.core.flow(), pair.b.core.flow()
    assert sender.streams[stream].credit == reader.streams[stream].left == window - 3 * COST
    assert reader.streams[stream].held == reader.unconsumed == 3 * COST
    pair.b.core.consume(stream, 3 * COST)
    reader = pair.b.core.flow()
    assert (reader.streams[stream].held, reader.unconsumed) == (0, 0)
    assert reader.streams[stream].consumed == 3 * COST  # not enough for a Window
    assert reader.committed == window


def test_credit_comes_back_with_the_window() -> None:
    pair = open_pair()
    window = pair.a.core.limits.stream_window
    count = window // COST
    stream = stream_of(pair, sent=count)
    pair.b.core.consume(stream, count * COST)
    pair.pump()
    assert pair.a.core.flow().streams[stream].credit == window
    assert pair.b.core.flow().streams[stream].left == window


def test_a_direction_that_ended_has_no_credit_and_no_window() -> None:
    pair = open_pair()
    stream = stream_of(pair, sent=1)
    pair.a.core.finish_stream(stream)
    assert pair.a.core.flow().queued_events == 1
    pair.pump()
    assert pair.a.core.flow().streams[stream].credit is None
    ended = pair.b.core.flow()
    assert (ended.streams[stream].window, ended.streams[stream].held) == (0, 0)
    assert (ended.committed, ended.unconsumed) == (0, COST)


def test_none_is_left_when_the_connection_is_over() -> None:
    pair = open_pair()
    stream_of(pair, sent=1)
    pair.a.core.receive_eof(pair.now)
    assert pair.a.core.flow() == Flow({}, 0, 0, 0)
