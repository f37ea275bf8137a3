"""Tests of node/testing/faults.py: each fault on plain bytes, limits, and cancellation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product

import anyio
import pytest
from anyio import EndOfStream, create_task_group, fail_after, move_on_after

from parley._node.testing import FakeClock, FaultyDirection, FaultyLink
from parley._node.testing.faults import PIECE
from parley._node.transport.memory import DEFAULT_BUFFER_SIZE, MemoryStream, memory_pair
from tests.node.network import settled, started

pytestmark = pytest.mark.anyio

DATA = bytes(range(200))


@asynccontextmanager
async def joined(
    clock: FakeClock | None = None,
) -> AsyncIterator[tuple[FaultyLink, MemoryStream, MemoryStream]]:
    """Run a link and return its two ends."""
    with fail_after(5):
        async with FaultyLink(clock=clock) as link:
            client, server = link.streams()
            yield link, client, server


async def received(stream: MemoryStream, size: int) -> bytes:
    """Receive so many bytes, or fewer if the stream ends."""
    data = b""
    try:
        while len(data) < size:
            data += await stream.receive(size - len(data))
    except (EndOfStream, anyio.BrokenResourceError):
        pass
    return data


async def test_without_a_fault_all_is_carried() -> None:
    async with joined() as (link, client, server):
        await client.send(DATA)
        await server.send(DATA[::-1])
        assert await received(server, 200) == DATA
        assert await received(client, 200) == DATA[::-1]
        assert (link.to_server.passed, link.to_client.passed) == (200, 200)


async def test_one_direction_ends_without_the_other() -> None:
    async with joined() as (link, client, server):
        await client.send_eof()
        with pytest.raises(EndOfStream):
            await server.receive()
        await server.send(b"still")
        assert await client.receive() == b"still"
        assert link.connections == 1
        await server.send_eof()
        await settled()
        assert link.connections == 0


# Flip.


async def test_a_flip_is_of_one_bit_at_one_place() -> None:
    async with joined() as (link, client, server):
        await client.send(b"before")
        assert await received(server, 6) == b"before"
        for place, bit in product([0, 1, 57, 199], range(8)):
            link.flip(after=place, bit=bit)
            expected = bytearray(DATA)
            expected[place] ^= 1 << bit
            await client.send(DATA)
            assert await received(server, 200) == bytes(expected)
            await client.send(DATA)  # once only
            assert await received(server, 200) == DATA


async def test_places_are_found_in_whatever_pieces_come() -> None:
    async with joined() as (link, client, server):
        for place in (0, 3, 4, 9):
            link.to_server.flip(after=place, bit=7)
        got = b""
        for byte in bytes(10):
            await client.send(bytes([byte]))
            got += await server.receive()
        assert [place for place, byte in enumerate(got) if byte == 0x80] == [0, 3, 4, 9]


async def test_flips_of_one_byte_add_up() -> None:
    async with joined() as (link, client, server):
        link.flip(bit=0)
        link.flip(bit=1)
        link.flip(after=1, bit=5)
        link.flip(after=1, bit=5)
        await client.send(b"\x00\x00")
        assert await received(server, 2) == b"\x03\x00"


async def test_a_flip_is_of_one_direction() -> None:
    async with joined() as (link, client, server):
        link.to_client.flip()
        await client.send(b"\x00")
        await server.send(b"\x00")
        assert (await server.receive(), await client.receive()) == (b"\x00", b"\x01")


# Cut.


@pytest.mark.parametrize("size", [1, 57, 199, 200])
async def test_a_cut_comes_after_so_many_bytes(size: int) -> None:
    async with joined() as (link, client, server):
        link.to_server.cut(after=size)
        await client.send(DATA)
        assert await received(server, 1_000) == DATA[:size]
        assert await received(client, 1_000) == b""
        await settled()
        assert link.connections == 0


async def test_cut_ends_stalled_and_delayed_data() -> None:
    async with joined(FakeClock()) as (link, client, server):
        link.to_server.delay(60)
        link.to_client.stall()
        await client.send(DATA)
        await server.send(DATA)
        await settled()
        link.cut()
        await settled()
        assert link.connections == 0
        assert await received(server, 1) == b""
        assert await received(client, 1) == b""


async def test_a_link_that_was_cut_carries_the_next_connection() -> None:
    async with joined() as (link, client, server):
        link.to_server.cut(after=3)
        await client.send(b"123456")
        assert await received(server, 10) == b"123"
        client, server = link.streams()
        await client.send(b"123456")
        assert await received(server, 6) == b"123456"


# Stall.


async def test_stall_delays_all_data_until_resumed() -> None:
    async with joined() as (link, client, server), create_task_group() as tasks:
        link.to_server.stall()
        link.to_server.stall()
        await client.send(DATA)
        await client.send_eof()
        outcome = await started(tasks, lambda: received(server, 1_000))
        assert outcome == []
        await server.send(b"free")
        assert await client.receive() == b"free"
        link.resume()
        await settled()
        assert outcome == [DATA]
        link.resume()


async def test_stall_buffers_a_limited_amount() -> None:
    """At most one piece in the link and a buffer on either side; then the sender waits."""
    async with joined() as (link, client, server), create_task_group() as tasks:
        link.stall()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(100):
                await client.send(bytes(8_192))
                sent += 8_192

        tasks.start_soon(send)
        await settled()
        await anyio.sleep(0.02)
        assert 0 < sent <= PIECE + DEFAULT_BUFFER_SIZE
        assert link.to_server.passed == 0
        link.resume()
        assert len(await received(server, 100 * 8_192)) == 100 * 8_192


# Delay.


async def test_a_delay_on_a_clock() -> None:
    clock = FakeClock()
    async with joined(clock) as (link, client, server), create_task_group() as tasks:
        link.to_server.delay(3)
        outcome = await started(tasks, lambda: received(server, 200))
        await client.send(DATA)
        await clock.tick(2.9)
        assert outcome == []
        await clock.tick(0.1)
        assert outcome == [DATA]
        await server.send(b"at once")
        assert await client.receive() == b"at once"


async def test_pieces_that_are_delayed_keep_their_order() -> None:
    clock = FakeClock()
    async with joined(clock) as (link, client, server), create_task_group() as tasks:
        link.delay(1)
        outcome = await started(tasks, lambda: received(server, 3))
        for piece in (b"a", b"b", b"c"):
            await client.send(piece)
            await settled()
        link.delay(0)
        await clock.tick(1)
        assert outcome == [b"abc"]


async def test_heal_releases_all_data() -> None:
    async with joined(FakeClock()) as (link, client, server):
        link.delay(60)
        link.to_server.flip(after=5)
        link.to_server.cut(after=6)
        link.to_client.stall()
        await client.send(DATA)
        await server.send(DATA)
        await settled()
        link.heal()
        assert await received(server, 200) == DATA
        assert await received(client, 200) == DATA


# Limits and cancellation.


def test_invalid_faults_are_refused() -> None:
    way = FaultyDirection(lambda: None)
    for wrong in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="delay"):
            way.delay(wrong)
    for after, bit in ((-1, 0), (0, -1), (0, 8)):
        with pytest.raises(ValueError, match="0 to 7"):
            way.flip(after, bit)
    with pytest.raises(ValueError, match="0 or more"):
        way.cut(-1)


@pytest.mark.parametrize("fault", ["none", "delay", "stall"])
async def test_carrying_is_cancelled_wherever_it_waits(fault: str) -> None:
    """Cancellation doesn't close the ends and leaves no timer."""
    clock = FakeClock()
    way = FaultyDirection(lambda: None, clock)
    client, ours = memory_pair()
    theirs, server = memory_pair()
    if fault == "delay":
        way.delay(60)
    elif fault == "stall":
        way.stall()
    await client.send(DATA)
    with move_on_after(0.02) as scope:
        await way.carry(ours, theirs)
    assert scope.cancelled_caught
    assert clock.next_timer == float("inf")
    assert not way._delayed
    assert way.passed == (200 if fault == "none" else 0)
    await theirs.send(b"open")
    assert (await server.receive())[-4:] == b"open"
