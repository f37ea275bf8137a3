"""Tests of `tunnel` streams: 65,536 bytes of credit in both directions, counted separately."""

import pytest

from parley._node.protocol.codes import TUNNEL_LABEL
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.flow_control import TUNNEL_WINDOW
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
        assert pair.b.core.flow().streams[stream].window == TUNNEL_WINDOW  # it doesn't shrink


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
    assert pair.a.core.credit(stream) == TUNNEL_WINDOW


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
