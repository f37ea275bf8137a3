"""SimProto clients that break the rules, stop reading, flood or hang up anywhere: what they
cost is bounded, and other clients are served on."""

import anyio
import pytest

from parley import SubscribeRejected
from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.simproto.peer import SimProtoPeer
from parley._node.protocol.codes import CloseCode
from tests.node.gateways.simproto_sides import Served, raw, served
from tests.node.network import eventually
from tests.reference.dialects.simproto import Message, request
from tests.vectors.load import Vector, of_kind, unhex, vectors

pytestmark = pytest.mark.anyio

CALL = Message("request", 1, request("rpc", b"echo", b"hi")).raw


def guest(sides: Served) -> SimProtoPeer:
    """The one that is not the well-behaved client."""
    (peer,) = set(sides.gateway.peers) - {sides.back}
    return peer


async def others_are_served(sides: Served) -> None:
    """The well-behaved client notices nothing."""
    assert await sides.client.call("echo", b"still") == b"still"
    assert sides.client.is_open


@vectors("simproto", of_kind("exchange"))
async def test_the_exchanges_of_the_vectors(anyio_backend: str, vector: Vector) -> None:
    async with served() as sides, raw(sides.address) as client:
        sides.node.topic("news")
        sides.node.topic("secret").on_subscribe(_reject)
        await _play(client.stream, vector)
        await others_are_served(sides)


async def _reject(asked: object) -> None:
    raise SubscribeRejected("no")


async def _play(stream: anyio.abc.ByteStream, vector: Vector) -> None:
    for step in vector["steps"]:
        if step["from"] == "client" and step.get("closes"):
            await stream.send_eof()
        elif step["from"] == "client":
            await stream.send(unhex(step["hex"]))
        elif step.get("closes"):
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        else:
            expected = unhex(step["hex"])
            said = b""
            while len(said) < len(expected):
                said += await stream.receive()
            assert said == expected


async def test_a_cut_at_every_byte(anyio_backend: str) -> None:
    async with served() as sides:
        for size in range(len(CALL) + 1):
            async with raw(sides.address) as client:
                await client.stream.send(CALL[:size])
                await client.stream.send_eof()
        await eventually(lambda: len(sides.gateway.peers) == 1)
        await others_are_served(sides)


async def test_a_length_above_all(anyio_backend: str) -> None:
    async with served() as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        peer = guest(sides)
        await client.stream.send(b"\0" + bytes(8) + b"\xff" * 8)
        await client.closed()
        assert (await peer.closed()).code == CloseCode.FRAME_TOO_LARGE
        await others_are_served(sides)


@pytest.mark.slow
async def test_who_stops_reading_is_read_no_more_and_then_closed(anyio_backend: str) -> None:
    limits = DialectLimits(write_buffer=64 * 1024, idle_before_ping=0.3, ping_timeout=0.3)
    async with served(limits=limits) as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        peer, most = guest(sides), 0
        data = b"x" * 60_000
        with anyio.move_on_after(5) as sending:
            try:
                while True:
                    await client.send("rpc", "echo", data)
                    most = max(most, peer.core.queued_bytes)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                pass
        assert not sending.cancelled_caught
        assert (await peer.closed()).code == CloseCode.TIMEOUT
        assert most <= 64 * 1024 + 1_000_000  # what was read at once comes on top
        await others_are_served(sides)


async def test_a_flood_of_requests_is_cut_off(anyio_backend: str) -> None:
    limits = DialectLimits(requests=8)
    async with served(limits=limits) as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        peer = guest(sides)
        for _ in range(9):
            await client.send("rpc", "wait")
        await client.closed()
        assert (await peer.closed()).code == CloseCode.OVERLOADED
        assert peer.running_requests == 0
        await others_are_served(sides)


async def test_a_flood_of_pings_is_cut_off(anyio_backend: str) -> None:
    async with served() as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        peer = guest(sides)
        await client.stream.send(Message("ping", 5).raw * 2_000)
        await client.closed()
        assert (await peer.closed()).code == CloseCode.OVERLOADED
        await others_are_served(sides)


async def test_what_waits_for_handlers_is_bounded(anyio_backend: str) -> None:
    limits = DialectLimits(client_memory=100_000, longest_frame=60_000)
    async with served(limits=limits) as sides, raw(sides.address) as client:
        await eventually(lambda: len(sides.gateway.peers) == 2)
        peer = guest(sides)
        with anyio.move_on_after(0.3) as sending:
            while True:
                await client.send("rpc", "wait", b"x" * 50_000)
        assert sending.cancelled_caught  # the reader is gone
        assert peer.core.account.held <= 100_000 + 256 * 1024 + 60_000
        await others_are_served(sides)


async def test_half_open_clients_are_pinged_away(anyio_backend: str) -> None:
    limits = DialectLimits(idle_before_ping=0.02, ping_timeout=0.05, clients=4)
    async with served(limits=limits) as sides:
        async with raw(sides.address), raw(sides.address), raw(sides.address):
            await eventually(lambda: len(sides.gateway.peers) == 4)
            await eventually(lambda: len(sides.gateway.peers) == 1)
        await others_are_served(sides)


async def test_a_slow_subscriber_holds_up_nobody(anyio_backend: str) -> None:
    async with served() as sides, raw(sides.address) as client:
        news = sides.node.topic("news", buffer=64 * 1024, patience=0.0)
        assert await client.ask("subscribe", "news") == ("accepted", b"")
        async with sides.client.subscribe("news") as notes:
            for number in range(500):
                await news.publish(b"%03d" % number + b"x" * 1_000)
                note = await anext(aiter(notes))
                assert note is not None
                assert note[:3] == b"%03d" % number
            # The one that acknowledges nothing lost its subscription, and keeps its connection.
            assert [subscriber.peer for subscriber in news.subscribers] == [sides.back]
        assert len(sides.gateway.peers) == 2
