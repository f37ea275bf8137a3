"""Tests of node/streams/table.py: which stream hears of what, and for how long."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.messaging.stream_requests import StreamRequests
from parley._node.protocol.codes import DATA, STREAM
from parley._node.protocol.reports import EventReceived, StreamFinished, StreamReset, StreamWritable
from parley._node.streams.table import StreamTable

pytestmark = [pytest.mark.anyio, pytest.mark.pure]


def new_table() -> StreamTable:
    core: Any = SimpleNamespace(consume=lambda stream, cost: None)
    live: Any = SimpleNamespace(core=core, remote=None)
    return StreamTable(live, StreamRequests(core, lambda stream, async_id: None))


def data(stream: int, payload: bytes) -> EventReceived:
    return EventReceived(stream, 0, STREAM, DATA, payload, len(payload) + 64)


async def test_data_goes_to_its_stream() -> None:
    table = new_table()
    three, five = table.add(3, "three"), table.add(5, "five")
    assert table.receive(data(3, b"abc"))
    assert table.receive(data(5, b"def"))
    assert not table.receive(data(7, b"nobody's"))
    assert await three.receive() == b"abc"
    assert await five.receive() == b"def"
    assert (three.id, three.label) == (3, "three")
    assert repr(table) == "<StreamTable of 2>"


async def test_a_finished_stream_stays_until_both_ends_are() -> None:
    table = new_table()
    stream = table.add(3, "x")
    table.changed(StreamFinished(3))
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    assert len(table) == 1
    table.changed(StreamWritable(3))
    table.forget(stream)
    table.forget(stream)
    assert not table
    for late in (StreamFinished(3), StreamReset(3, 32, ""), StreamWritable(3)):
        table.changed(late)


async def test_a_reset_stream_is_gone_at_once() -> None:
    table = new_table()
    stream = table.add(3, "x")
    table.changed(StreamReset(3, 70, "enough"))
    assert not table
    with pytest.raises(StreamResetError, match="enough") as caught:
        await stream.receive()
    assert caught.value.code == 70


async def test_all_end_with_the_connection() -> None:
    table = new_table()
    streams = [table.add(number, "x") for number in (3, 5)]
    table.connection_ended(1, "bye")
    assert not table
    for stream in streams:
        with pytest.raises(PeerClosedError, match="bye"):
            await stream.receive()
