"""The unmodified Lightbus 1.1.2: the contents of Redis after it has fired and handled events.

node/bus/redis and docs/guides/lightbus.md depend on the assertions here. If Lightbus differs from
its documentation, the test's name describes the difference.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import coredis
import pytest

from parley._node.bus.redis.format import Layout
from tests.interop.lightbus_peer import LISTENERS, SERVICE, LightbusBeside, LightbusService, key_of
from tests.redis_server import RedisServer

# One process for all of them: a service is started once for each layout.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.lightbus,
    pytest.mark.redis,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("lightbus"),
]


@asynccontextmanager
async def redis_at(server: RedisServer) -> AsyncIterator["coredis.Redis[str]"]:
    """A client that shows what there is."""
    async with coredis.Redis.from_url(server.url, decode_responses=True) as client:
        yield client


async def test_unlike_the_documentation_keys_have_a_suffix_and_data_the_colon(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    (fired,) = await beside.service.fire("user_registered", {"username": "Zoë"})
    async with redis_at(beside.server) as redis:
        (entry,) = await redis.xrange(beside.key("auth.user_registered"), start=fired["native_id"])
    assert dict(entry.field_values) == {
        "id": fired["id"],
        "api_name": "auth",
        "event_name": "user_registered",
        "version": "2",
        ":username": '"Zo\\u00eb"',
    }
    assert list(entry.field_values)[:4] == ["id", "api_name", "event_name", "version"]
    await beside.service.acknowledged(fired["native_id"])


async def test_a_stream_begins_with_an_entry_of_nothing_and_groups_are_of_service_and_listener(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    async with redis_at(beside.server) as redis:
        for event, listener in LISTENERS.items():
            key = beside.key(f"auth.{event}")
            first = (await redis.xrange(key, count=1))[0]
            assert dict(first.field_values) == {"": ""}
            groups = {group["name"] for group in await redis.xinfo_groups(key)}
            expected = {"mailer", "profiles"} if beside.layout == "per_api" else {listener}
            assert groups >= {f"{SERVICE}-{name}" for name in expected}
            consumers = await redis.xinfo_consumers(key, f"{SERVICE}-{listener}")
            assert "lightbus" in {consumer["name"] for consumer in consumers}


async def test_the_schema_of_an_api_is_in_redis_for_a_minute(
    anyio_backend: str, beside: LightbusBeside
) -> None:
    async with redis_at(beside.server) as redis:
        assert "auth" in await redis.smembers("schemas")
        assert 0 < await redis.ttl("schema:auth") <= 60
        schema: dict[str, Any] = json.loads(str(await redis.get("schema:auth")))
    parameters = schema["events"]["user_registered"]["parameters"]
    assert parameters["properties"] == {"username": {"type": "string"}}
    assert parameters["additionalProperties"] is False
    (fired,) = await beside.service.fire("user_registered", {"username": 3})
    assert "3 is not of type 'string'" in fired["error"]


@pytest.mark.parametrize("layout", ["per_event"], scope="function")
async def test_an_event_that_fails_validation_ends_the_worker_and_comes_again(
    anyio_backend: str, lightbus_is_there: None, layout: Layout
) -> None:
    fields = {
        "id": "1",
        "api_name": "auth",
        "event_name": "user_registered",
        "version": "1",
        ":username": "3",
    }
    key = key_of("auth.user_registered", layout)
    with RedisServer() as server:
        with LightbusService(server, layout) as service:
            async with redis_at(server) as redis:
                identifier = str(await redis.xadd(key, field_values=fields))
                assert await service.end() != 0
                assert "3 is not of type 'string'" in service.log
                groups = {group["name"]: group for group in await redis.xinfo_groups(key)}
                assert groups[f"{SERVICE}-mailer"]["pending"] == 1
        # Its successor with the same name takes it, and validation can be disabled.
        with LightbusService(server, layout, validate=False) as service:
            assert (await service.began(identifier))["data"] == {"username": 3}
