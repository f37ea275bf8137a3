"""Tests of `tunnel` streams: their credit in both directions, which is counted separately."""

import pytest

from parley._node.protocol.codes import TUNNEL_LABEL
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.flow_control import (
    FIRST_TUNNEL_DATA,
    LARGEST_TUNNEL_DATA,
    LARGEST_TUNNEL_WINDOW,
    TUNNEL_GROWTH,
    TUNNEL_WINDOW,
)
from parley._node.protocol.limits import EVENT_COST, Limits
from parley._node.protocol.reports import StreamOpened, StreamReset, StreamWritable
from tests.node.protocol.pair import Pair, open_pair


def opened(pair: Pair) -> int:
    stream = pair.a.core.open_stream(TUNNEL_LABEL)
    pair.pump()
    assert StreamOpened(stream, TUNNEL_LABEL) in pair.b.reports
    return stream


@pytest.mark.parametrize("window", [1_024, TUNNEL_WINDOW, 1 << 20])
def test_credit_is_the_same_whatever_was_agreed(window: int) -> None:
    pair = open_pair(stream_window=window)
    stream = opened(pair)
    for side in (pair.a, pair.b):
        flow = side.core.flow().streams[stream]
        assert flow.credit == flow.window == side.core.credit(stream) == TUNNEL_WINDOW
        assert side.core.flow().committed == 0


def test_windows_of_tunnels_take_nothing_from_others() -> None:
    # Windows may add up to half of the memory; a stream gets an eighth of what remains of that.
    memory = 2 * 8 * Limits().stream_window
    pair = open_pair(peer_memory=memory)
    streams = [opened(pair) for _ in range(32)]
    other = pair.a.core.open_stream("x")
    assert pair.a.core.flow().streams[other].window == pair.a.core.limits.stream_window
    for stream in streams:
        pair.a.core.send_data(stream, bytes(40_000))
        pair.pump()
        pair.b.core.consume(stream, 40_000 + EVENT_COST)
        assert pair.b.core.flow().streams[stream].window == 2 * TUNNEL_WINDOW


def test_what_is_freed_is_charged_no_more_and_its_credit_is_given_back_later() -> None:
    pair = open_pair()
    stream = opened(pair)
    before = pair.b.core.account.held
    pair.a.core.send_data(stream, bytes(40_000))
    pair.pump()
    (event,) = [one for one in pair.b.reports if isinstance(one, Event)]
    assert pair.b.core.account.held > before + 40_000
    pair.b.core.free(event.cost)
    assert (pair.b.core.account.held, pair.b.core.flow().unconsumed) == (before, 0)
    pair.pump()
    assert pair.a.core.credit(stream) == TUNNEL_WINDOW - event.cost
    pair.b.core.give_back(stream, event.cost)
    pair.pump()
    assert pair.a.core.credit(stream) == 2 * TUNNEL_WINDOW


def pass_half(pair: Pair, stream: int) -> int:
    """Send and consume half of the window of `stream`; return the window after that."""
    half = pair.b.core.flow().streams[stream].window // 2
    pair.a.core.send_data(stream, bytes(half))
    pair.pump()
    pair.b.core.consume(stream, half + EVENT_COST)
    pair.pump()
    return pair.b.core.flow().streams[stream].window


def test_a_window_doubles_with_each_grant_up_to_its_limit() -> None:
    pair = open_pair()
    stream = opened(pair)
    sizes = [pass_half(pair, stream) for _ in range(4)]
    assert sizes == [2 * TUNNEL_WINDOW, *[LARGEST_TUNNEL_WINDOW] * 3]
    assert pair.a.core.credit(stream) == LARGEST_TUNNEL_WINDOW
    assert pair.a.core.flow().streams[stream].window == TUNNEL_WINDOW  # nothing was received


def test_windows_of_a_connection_grow_by_a_limited_sum() -> None:
    pair = open_pair()
    count = TUNNEL_GROWTH // (LARGEST_TUNNEL_WINDOW - TUNNEL_WINDOW)
    streams = [opened(pair) for _ in range(count + 2)]
    for stream in streams:
        for _ in range(3):
            pass_half(pair, stream)

    def windows() -> list[int]:
        return [flow.window for flow in pair.b.core.flow().streams.values()]

    assert sum(windows()) == len(streams) * TUNNEL_WINDOW + TUNNEL_GROWTH
    assert (max(windows()), windows()[-1]) == (LARGEST_TUNNEL_WINDOW, TUNNEL_WINDOW)
    pair.a.core.finish_stream(streams[0])
    pair.pump()
    assert pass_half(pair, streams[-1]) == 2 * TUNNEL_WINDOW  # the first tunnel freed its part


def test_data_may_be_longer_once_the_credit_has_exceeded_the_first_window() -> None:
    pair = open_pair()
    stream = opened(pair)
    sender, reader = pair.a.core.streams, pair.b.core.streams
    pair.b.core.streams.stream_table.grown = TUNNEL_GROWTH
    pass_half(pair, stream)
    assert sender.largest_sent(stream) == reader.largest_received(stream) == FIRST_TUNNEL_DATA
    pair.b.core.streams.stream_table.grown = 0
    pass_half(pair, stream)
    assert sender.largest_sent(stream) == reader.largest_received(stream) == LARGEST_TUNNEL_DATA
    pair.a.core.send_data(stream, bytes(LARGEST_TUNNEL_DATA))
    assert sender.largest_sent(stream) == LARGEST_TUNNEL_DATA  # also with less credit


def test_data_is_no_longer_than_an_agreed_payload() -> None:
    pair = open_pair(max_payload=1_024)
    assert pair.a.core.streams.largest_sent(opened(pair)) == 1_024


def test_a_full_account_ends_other_streams_and_no_tunnel() -> None:
    pair = open_pair()
    tunnel, other = opened(pair), pair.a.core.open_stream("x")
    pair.pump()
    account = pair.b.core.account
    account.charge(account.limit)
    for stream in (tunnel, other):
        pair.a.core.send_data(stream, b"data")
    pair.pump()
    ended = [one.stream for one in pair.b.reports if isinstance(one, StreamReset)]
    came = [one.stream for one in pair.b.reports if isinstance(one, Event)]
    assert (ended, came) == ([other], [tunnel])


def test_who_waits_for_credit_is_told_of_credit_alone() -> None:
    pair = open_pair()
    stream = opened(pair)
    core, piece = pair.a.core, TUNNEL_WINDOW // 4
    for _ in range(4):
        core.send_data(stream, bytes(piece))
    assert core.outbox.waiting_cost(stream) == 4 * (piece + EVENT_COST)
    core.streams.watch_credit(stream)
    pair.pump()
    assert core.outbox.waiting_cost(stream) == 0 >= core.credit(stream)
    assert StreamWritable(stream) not in pair.a.reports
    pair.b.core.consume(stream, 2 * (piece + EVENT_COST), 2)
    pair.pump()
    assert pair.a.reports.count(StreamWritable(stream)) == 1
    core.streams.watch_credit(stream)
    pair.b.core.reset_stream(stream, 1)
    pair.pump()
    assert pair.a.reports.count(StreamWritable(stream)) == 2  # credit can no longer arrive
    with pytest.raises(LocalProtocolError):
        core.streams.watch_credit(stream)
