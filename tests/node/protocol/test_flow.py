"""What `Connection.flow` shows: credit and windows of both sides, at rest and under way."""

from parley._node.protocol.flow import Flow
from parley._node.protocol.limits import EVENT_COST
from tests.node.protocol.pair import Pair, open_pair

SIZE = 1_000
COST = SIZE + EVENT_COST


def stream_of(pair: Pair, *, sent: int) -> int:
    """A stream of a's, on which so many events have gone to b."""
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
    assert reader.streams[stream].consumed == 3 * COST  # too little for a Window
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
