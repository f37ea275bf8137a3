"""Opening the store on Redis: addresses, and log messages about the server's durability."""

import logging

import pytest

from parley._node.bus.address import open_store
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.redis.store import RedisStore
from parley._node.bus.store import Store
from tests.node.bus.redis.streams import ALL, C, G, Redis, S, event
from tests.node.bus.stores import opened
from tests.redis_server import RedisServer

pytestmark = pytest.mark.anyio


async def test_over_a_unix_socket_and_in_another_database(
    redis_server: RedisServer, redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    store, _ = open_store(f"redis+{redis_server.unix_url}?db=3&max_length=5")
    async with opened(store):
        await store.publish([event(1)], durable=True)
    assert redis("DBSIZE") == 0
    async with opened(RedisStore(redis_url.replace("/0", "/3"), BusConfig())) as same:
        assert len(await same.history(S, BEFORE_ALL, None, ALL, 0)) == 1


@pytest.mark.parametrize(
    ("name", "value", "level", "text"),
    [
        ("appendonly", "no", logging.WARNING, "no append-only file"),
        ("appendfsync", "everysec", logging.INFO, "appendfsync everysec"),
        ("appendfsync", "always", logging.INFO, ""),
        ("maxmemory-policy", "allkeys-lru", logging.WARNING, "deletes streams"),
    ],
)
async def test_durability_of_the_server_is_logged(
    redis_url: str,
    redis: Redis,
    name: str,
    value: str,
    level: int,
    text: str,
    caplog: pytest.LogCaptureFixture,
    anyio_backend: str,
) -> None:
    before = {"appendonly": "yes", "appendfsync": "everysec"}.get(name, "noeviction")
    caplog.set_level(logging.INFO, "parley.bus")
    with redis.setting("appendfsync", "always", "everysec"), redis.setting(name, value, before):
        async with opened(RedisStore(redis_url, BusConfig())):
            lines = [line for line in caplog.records if line.name == "parley.bus"]
    assert [line.levelno for line in lines] == [level] * bool(text)
    assert text in "".join(line.getMessage() for line in lines)


async def test_closed_store_raises(redis_url: str, anyio_backend: str) -> None:
    store: Store = RedisStore(redis_url, BusConfig())
    async with opened(store):
        await store.streams()
    for ask in (
        lambda: store.publish([event(1)], durable=True),
        lambda: store.join(S, G, C, BEFORE_ALL),
        lambda: store.recover_pending(S, G, C, 1),
        lambda: store.ack(S, G, ["1-1"]),
        lambda: store.streams(),
        lambda: store.drop(S, ["1-1"]),
    ):
        with pytest.raises(BusClosedError):
            await ask()
