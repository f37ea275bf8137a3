"""SimProto clients that stop reading or don't acknowledge notes: the gateway serves others."""

import anyio
import pytest

from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.simproto.peer import SimProtoPeer
from parley._node.protocol.codes import CloseCode
from tests.node.gateways.simproto_sides import SimProtoPair, raw, served
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


def guest(sides: SimProtoPair) -> SimProtoPeer:
    (peer,) = set(sides.gateway.peers) - {sides.back}
    return peer


async def others_are_served(sides: SimProtoPair) -> None:
    assert await sides.client.call("echo", b"still") == b"still"
    assert sides.client.is_open


@pytest.mark.slow
async def test_a_client_that_stops_reading_is_paused_and_then_closed() -> None:
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
        assert most <= 64 * 1024 + 1_000_000  # in addition to the data read immediately
        await others_are_served(sides)


async def test_a_slow_subscriber_does_not_delay_others() -> None:
    async with served() as sides, raw(sides.address) as client:
        news = sides.node.topic("news", buffer=64 * 1024, patience=0.0)
        assert await client.ask("subscribe", "news") == ("accepted", b"")
        async with sides.client.subscribe("news") as notes:
            for number in range(500):
                await news.publish(b"%03d" % number + b"x" * 1_000)
                note = await anext(aiter(notes))
                assert note is not None
                assert note[:3] == b"%03d" % number
            # The client that doesn't acknowledge lost its subscription, but not its connection.
            assert [subscriber.peer for subscriber in news.subscribers] == [sides.back]
        assert len(sides.gateway.peers) == 2
