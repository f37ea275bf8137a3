"""A store on this process's redis-server, for the tests in this directory."""

from collections.abc import AsyncIterator

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import Redis
from tests.node.bus.stores import opened
from tests.redis_server import RedisServer


@pytest.fixture
async def store(redis_url: str, anyio_backend: str) -> AsyncIterator[RedisStore]:
    """Yield an open store on an empty server."""
    async with opened(RedisStore(redis_url, BusConfig(timeout=5))) as store:
        yield store


@pytest.fixture
def redis(redis_url: str, redis_server: RedisServer) -> Redis:
    """Return a raw connection to the same server."""
    return Redis(redis_server)
