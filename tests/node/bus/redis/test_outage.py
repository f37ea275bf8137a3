"""A redis-server that is away for a while: consumers wait, and go on where they were."""

import anyio
import anyio.to_thread
import pytest

from node.bus.bus_address import open_bus
from tests.node.bus.redis.streams import G, S
from tests.node.network import eventually, settled, started
from tests.redis_server import PATIENCE, RedisServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("word", ["ack", "nack"])
async def test_consumers_wait_with_what_they_have_to_say(
    redis_server: RedisServer, redis_url: str, anyio_backend: str, word: str
) -> None:
    async with open_bus(redis_url) as bus, anyio.create_task_group() as tasks:
        await bus.publish_many(S, [{"n": 1}, {"n": 2}])
        with anyio.fail_after(PATIENCE):
            async with bus.consume(S, group=G) as events:
                first = await anext(events)
                await anyio.to_thread.run_sync(redis_server.stop)
                said = await started(tasks, first.ack if word == "ack" else first.nack)
                await settled()
                assert said == []
                await anyio.to_thread.run_sync(redis_server.start)
                await eventually(lambda: bool(said))
                assert said == [None]
                left = [await anext(events) for _ in range(1 if word == "ack" else 2)]
            assert [(event.data["n"], event.attempt) for event in left] == (
                [(2, 1)] if word == "ack" else [(2, 1), (1, 2)]
            )
