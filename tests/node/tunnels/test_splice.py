"""Tests of forwarding at a server between the ends: bytes, credit, ends and memory."""

import pytest

from parley._node.federation.limits import (
    TUNNEL_IDLE,
    TUNNEL_LEFT,
    TUNNEL_MEMORY,
)
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.flow_control import (
    FIRST_TUNNEL_DATA,
    LARGEST_TUNNEL_DATA,
    LARGEST_TUNNEL_WINDOW,
    TUNNEL_GROWTH,
    TUNNEL_WINDOW,
)
from parley._node.remote.requests import Call
from parley._node.testing import FakeClock, FaultyLink
from parley._node.tunnels.service import TunnelService
from parley._node.tunnels.splice import Splice
from parley._node.tunnels.tunnel_transport import WAITING_PIECES, WRITE_BUFFER_PART
from tests.node.network import eventually, settled
from tests.node.tunnels.tunnel_rows import RawEnd, Row, end_raw, row

STALLED = 255


def splices(made: Row) -> list[Splice]:
    """Return the splices of the first server."""
    service = made.nodes[1].handlers.reserved["tunnel"].handler.__self__
    assert isinstance(service, TunnelService)
    return list(service.splices)


async def test_bytes_pass_both_ways_whatever_their_pieces(anyio_backend: str) -> None:
    async with row(4) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        there = ends[0]
        sent = bytes(range(256)) * 4_000
        here.writer.write(sent)
        for start in range(0, len(sent), 9_973):
            there.writer.write(sent[start : start + 9_973])
        await eventually(lambda: len(here.data) == len(there.data) == len(sent))
        assert here.data == there.data == sent
        assert FIRST_TUNNEL_DATA < here.longest <= LARGEST_TUNNEL_DATA
        assert FIRST_TUNNEL_DATA < there.longest <= LARGEST_TUNNEL_DATA


@pytest.mark.parametrize("hop_grows", [False, True])
@pytest.mark.parametrize("ends_grow", [False, True])
async def test_sides_that_know_only_the_first_window_work_with_others(
    ends_grow: bool, hop_grows: bool, anyio_backend: str
) -> None:
    async with row(3) as made:
        ends = end_raw(made.target)
        grows = (ends_grow, hop_grows), (hop_grows, ends_grow)
        readers = [
            (one, how)
            for pair, hows in zip(made.links, grows, strict=True)
            for one, how in zip(pair, hows, strict=True)
        ]
        for reader, how in readers:
            if not how:
                reader.core.streams.stream_table.grown = TUNNEL_GROWTH
        here, there = RawEnd((await made.open()).stream), ends[0]
        sent = bytes(range(256)) * 4_000
        for end in (here, there):
            end.writer.write(sent)
        await eventually(lambda: len(here.data) == len(there.data) == len(sent))
        assert here.data == there.data == sent
        most = LARGEST_TUNNEL_DATA if ends_grow else FIRST_TUNNEL_DATA
        assert max(here.longest, there.longest) <= most
        for reader, how in readers:
            (flow,) = reader.core.flow().streams.values()
            assert flow.window == (LARGEST_TUNNEL_WINDOW if how else TUNNEL_WINDOW)


async def test_a_large_window_that_stalls_is_buffered_up_to_its_limit(anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        here.writer.write(bytes(1_000_000))
        await eventually(lambda: len(ends[0].data) == 1_000_000)
        ends[0].reading = False
        here.writer.write(bytes(2_000_000))
        (splice,) = splices(made)
        await eventually(lambda: splice.buffered > LARGEST_TUNNEL_WINDOW // 2)
        await settled()
        assert splice.buffered <= TUNNEL_MEMORY
        ends[0].read()
        await eventually(lambda: len(ends[0].data) == 3_000_000)


async def test_a_reader_that_stalls_holds_its_sender_at_the_windows(anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target, reading=False)
        here = RawEnd((await made.open()).stream)
        sent = bytes(1_000_000)
        here.writer.write(sent)
        (splice,) = splices(made)
        await eventually(lambda: len(ends[0].data) > TUNNEL_WINDOW - FIRST_TUNNEL_DATA)
        await eventually(lambda: splice.buffered > TUNNEL_WINDOW // 2)
        await settled()
        assert len(ends[0].data) <= TUNNEL_WINDOW + FIRST_TUNNEL_DATA
        assert splice.buffered <= TUNNEL_MEMORY
        for end in made.links[0]:
            assert end.core.account.held < 16_384  # the stream and its task
        ends[0].read()
        await eventually(lambda: len(ends[0].data) == len(sent))
        assert splice.buffered == 0


async def test_small_pieces_are_joined_where_they_wait(anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target, reading=False)
        here = RawEnd((await made.open()).stream)
        here.writer.write(bytes(TUNNEL_WINDOW))
        await eventually(lambda: len(ends[0].data) == TUNNEL_WINDOW)
        await settled()
        before = ends[0].events
        core, stream = here.stream.live.core, here.stream.id
        sent = 0
        while core.credit(stream) > 0:
            for _ in range(100):  # data beyond the credit waits in the origin's queues
                core.send_data(stream, b"x")
                sent += 1
            await settled()
        (splice,) = splices(made)
        assert 0 < splice.buffered <= TUNNEL_MEMORY
        ends[0].read()
        await eventually(lambda: splice.buffered == 0)
        await settled()
        assert ends[0].events - before < sent / 10
        here.writer.write(bytes(300_000))
        size = len(ends[0].data)
        await eventually(lambda: len(ends[0].data) == size + 300_000)


async def test_finish_passes_one_direction_at_a_time(anyio_backend: str) -> None:
    async with row(3) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        there = ends[0]
        here.writer.write(bytes(200_000))
        here.writer.finish()
        await eventually(lambda: there.eof)
        assert len(there.data) == 200_000
        assert not here.eof
        there.writer.write(b"back")
        there.writer.finish()
        await eventually(lambda: here.eof)
        assert here.data == b"back"
        await eventually(lambda: not splices(made))
        assert (here.code, there.code) == (None, None)
        assert [(one.forward, one.back) for one in made.records] == [(200_000, 4)]


@pytest.mark.parametrize("back", [False, True])
async def test_reset_passes_with_its_code(back: bool, anyio_backend: str) -> None:
    async with row(4) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        first, last = (ends[0], here) if back else (here, ends[0])
        first.stream.reset(77)
        await eventually(lambda: last.code is not None)
        assert last.code == 77
        await eventually(lambda: len(made.records) == 2)


@pytest.mark.parametrize("back", [False, True])
async def test_a_link_that_is_lost_ends_its_tunnels(back: bool, anyio_backend: str) -> None:
    async with row(4) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        lost = made.links[0 if back else 2][0]
        last = ends[0] if back else here
        lost.live.lost("a test")
        await eventually(lambda: last.code == CloseCode.GOING_AWAY)
        await eventually(lambda: len(made.records) == 2)


async def test_a_tunnel_in_which_nothing_passes_is_reset(anyio_backend: str) -> None:
    clock = FakeClock()
    async with row(3, clock=clock) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        await clock.tick(TUNNEL_IDLE - 1)
        here.writer.write(b"x")
        await eventually(lambda: ends[0].data == b"x")
        await clock.tick(TUNNEL_IDLE - 1)
        assert not made.records
        await clock.tick(TUNNEL_IDLE + 1)
        await eventually(lambda: here.code == ends[0].code == CloseCode.TIMEOUT)
        assert not splices(made)


@pytest.mark.parametrize("back", [False, True])
async def test_who_stays_alone_keeps_no_tunnel(back: bool, anyio_backend: str) -> None:
    clock = FakeClock()
    async with row(3, clock=clock) as made:
        ends = end_raw(made.target)
        here = RawEnd((await made.open()).stream)
        leaving, staying = (ends[0], here) if back else (here, ends[0])
        leaving.writer.finish()
        await eventually(lambda: staying.eof)
        await clock.tick(TUNNEL_LEFT - 1)
        staying.writer.write(b"x")
        await eventually(lambda: leaving.data == b"x")
        await clock.tick(TUNNEL_LEFT - 1)
        assert not made.records
        await clock.tick(TUNNEL_LEFT + 1)
        await eventually(lambda: staying.code == CloseCode.TIMEOUT)
        assert not splices(made)


async def test_many_stalled_tunnels_are_nothing_to_a_good_one(anyio_backend: str) -> None:
    async with row(3) as made:
        offered = made.target.handlers.reserved.pop("tunnel")
        ends = end_raw(made.target, reading=False)
        for _ in range(STALLED):
            end = RawEnd((await made.open()).stream)
            end.writer.write(bytes(3 * TUNNEL_WINDOW))
        assert len(ends) == STALLED
        await eventually(lambda: all(splice.buffered for splice in splices(made)))
        await settled()
        made.target.handlers.reserved["tunnel"] = offered

        @made.target.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        peer = await made.reach()
        assert await peer.call("echo", bytes(500_000)) == bytes(500_000)

        stalled = [splice for splice in splices(made) if splice.buffered]
        assert len(stalled) == STALLED
        assert max(splice.buffered for splice in stalled) <= TUNNEL_MEMORY
        for live in (made.links[0][1].live, made.links[1][0].live):  # both of the server's
            assert live.core.account.held < 300 * 16_384  # streams and their tasks
            assert live.core.queued_bytes < 4 * LARGEST_TUNNEL_DATA
            assert live.driver.can_send
        await peer.close()


async def test_a_slow_transport_is_not_filled_by_tunnels(anyio_backend: str) -> None:
    async with FaultyLink() as link, row(3, last=link, write_buffer=1 << 20) as made:
        ends = end_raw(made.target)
        here = [RawEnd((await made.open()).stream) for _ in range(24)]
        onward = made.links[1][0]
        link.stall()
        for end in here:
            end.writer.write(bytes(2 * TUNNEL_WINDOW))
        await eventually(lambda: bool(onward.driver.write_waiters.waiters))
        await settled()
        most = (1 << 20) // WRITE_BUFFER_PART + WAITING_PIECES * LARGEST_TUNNEL_DATA
        assert most // 2 < onward.core.queued_bytes < most + 10_000
        assert onward.driver.can_send  # for calls
        assert max(splice.buffered for splice in splices(made)) <= TUNNEL_MEMORY
        link.resume()
        await eventually(lambda: all(len(end.data) == 2 * TUNNEL_WINDOW for end in ends))
        assert not onward.driver.write_waiters.waiters
        link.heal()


async def test_who_ends_while_it_waits_for_a_transport_leaves_nothing(anyio_backend: str) -> None:
    async with FaultyLink() as link, row(3, last=link, write_buffer=1 << 20) as made:
        end_raw(made.target)
        here = [RawEnd((await made.open()).stream) for _ in range(24)]
        link.stall()
        for end in here:
            end.writer.write(bytes(2 * TUNNEL_WINDOW))
        onward = made.links[1][0]
        await eventually(lambda: bool(onward.driver.write_waiters.waiters))
        for end in here:
            end.stream.reset()
        await eventually(lambda: not splices(made))
        assert not onward.driver.write_waiters.waiters
        link.heal()
