"""A waiting consumer receives replayed dead letters without delay, like new events.

This applies to every store, and to replays by another process.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from parley._node.bus.address import open_bus
from parley._node.bus.bus import Bus
from parley._node.bus.consumers import fetcher as fetcher
from parley._node.bus.event import BusEvent
from tests.node.bus.buses import GROUP, NAME, fail
from tests.node.network import PATIENCE, eventually, new_node, settled, started
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def same(url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    async with open_bus(url) as bus:
        yield bus, bus


@asynccontextmanager
async def another(url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    async with open_bus(url) as bus, open_bus(url) as other:
        yield bus, other


@asynccontextmanager
async def peers(url: str) -> AsyncIterator[tuple[Bus, Bus]]:
    async with new_node() as server, new_node() as client, AsyncExitStack() as stack:
        own = server.bus(url, allow=lambda request: True)
        address = await server.listen("tcp://127.0.0.1:0")
        peer = await client.connect(address)
        yield await stack.enter_async_context(peer.bus()), own


Where = Callable[[str], AbstractAsyncContextManager[tuple[Bus, Bus]]]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.redis)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bus.db"
    return str(request.getfixturevalue("redis_url"))


@pytest.mark.parametrize("where", [same, another, peers])
async def test_a_waiting_consumer_gets_a_replayed_event(
    anyio_backend: str, url: str, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A consumer that only polls would find the event after the test has failed.
    monkeypatch.setattr(fetcher, "CLAIM_INTERVAL", 10 * PATIENCE)
    async with where(url) as (bus, other), anyio.create_task_group() as tasks:
        id = await other.publish(NAME, {"n": 1})
        with pytest.raises(ValueError, match="no"):
            await fail(other, ValueError("no"), max_attempts=1)
        (letter,) = await other.dead_letters(NAME)
        await other.publish(NAME, {"n": 2})
        async with bus.consume(NAME, GROUP) as events:
            assert (await anext(events)).data == {"n": 2}
            got = await started(tasks, lambda: anext(events))
            await settled()
            assert got == []
            await other.replay_dead(NAME, [letter.id])
            await eventually(lambda: bool(got))
            event = got[0]
            assert isinstance(event, BusEvent)
            assert (event.id, event.attempt) == (id, 1)


@pytest.mark.redis
async def test_without_permission_to_subscribe_a_consumer_polls(
    anyio_backend: str, redis_server: RedisServer, redis_url: str
) -> None:
    rights = ("on", "nopass", "~*", "+@all", "resetchannels")
    assert redis_server.command("ACL", "SETUSER", "limited", *rights) == b"+OK"
    try:
        url = redis_url.replace("redis://", "redis://limited:any@")
        async with open_bus(url) as bus, bus.consume(NAME, GROUP) as events:
            id = await bus.publish(NAME, {"n": 1})
            with anyio.fail_after(PATIENCE):
                event = await anext(events)
                await event.nack(delay=0)
                event = await anext(events)
            assert (event.id, event.attempt) == (id, 2)
    finally:
        redis_server.command("ACL", "DELUSER", "limited")
