"""A redis-server that is unavailable for a while, and responses that are lost in transit.

Consumers wait, and continue where they were. The events of lost responses are delivered next.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.to_thread
import pytest
from anyio.abc import ByteStream

from parley._node.bus.address import open_bus
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusUnavailableError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import Delivery
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import C, G, S, event, numbers
from tests.node.bus.stores import opened
from tests.node.network import eventually, settled, started
from tests.redis_server import PATIENCE, RedisServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("operation", ["ack", "nack"])
async def test_acknowledgements_wait_during_an_outage(
    redis_server: RedisServer, redis_url: str, anyio_backend: str, operation: str
) -> None:
    async with open_bus(redis_url) as bus, anyio.create_task_group() as tasks:
        await bus.publish_many(S, [{"n": 1}, {"n": 2}])
        with anyio.fail_after(PATIENCE):
            async with bus.consume(S, group=G) as events:
                first = await anext(events)
                await anyio.to_thread.run_sync(redis_server.stop)
                said = await started(tasks, first.ack if operation == "ack" else first.nack)
                await settled()
                assert said == []
                await anyio.to_thread.run_sync(redis_server.start)
                await eventually(lambda: bool(said))
                assert said == [None]
                left = [await anext(events) for _ in range(1 if operation == "ack" else 2)]
            assert [(event.data["n"], event.attempt) for event in left] == (
                [(2, 1)] if operation == "ack" else [(2, 1), (1, 2)]
            )


class Proxy:
    """A TCP proxy in front of a server that can lose a response.

    `losing` is a text in the response to lose. Its connection is then closed, or with `silent`
    stays open without further responses.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = ""
        self.losing: bytes | None = None
        self.silent = False
        self.losses = 0

    async def serve(self, client: ByteStream) -> None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
            async with (
                client,
                await anyio.connect_tcp("127.0.0.1", self._port) as server,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._forward, client, server, False)
                await self._forward(server, client, True)
                tasks.cancel_scope.cancel()

    async def _forward(self, source: ByteStream, target: ByteStream, answers: bool) -> None:
        muted = False
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                if answers and self.losing is not None and self.losing in data:
                    self.losing = None
                    self.losses += 1
                    if not self.silent:
                        return
                    muted = True
                if not muted:
                    await target.send(data)


@asynccontextmanager
async def proxied(server: RedisServer) -> AsyncIterator[Proxy]:
    proxy = Proxy(server.port)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        port = listener.extra_attributes[anyio.abc.SocketAttribute.local_port]()
        proxy.url = f"redis://127.0.0.1:{port}/0"
        tasks.start_soon(listener.serve, proxy.serve)
        yield proxy
        tasks.cancel_scope.cancel()


async def test_an_event_of_a_lost_answer_comes_next(
    redis_server: RedisServer, redis_url: str, anyio_backend: str
) -> None:
    async with (
        proxied(redis_server) as proxy,
        open_bus(redis_url) as publisher,
        open_bus(proxy.url) as bus,
        # With one attempt, an event without a receiver would become a dead letter.
        bus.consume(S, group=G, max_attempts=1) as events,
    ):
        proxy.losing = b"lost"
        for n, text in enumerate(["", "lost", "", ""]):
            await publisher.publish(S, {"n": n, "text": text})
        with anyio.fail_after(PATIENCE):
            got = [await anext(events) for _ in range(4)]
        assert proxy.losses == 1
        assert [(one.data["n"], one.attempt) for one in got] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        assert [group.redelivered for group in await publisher.groups(S)] == [0]


async def test_an_attempt_of_a_lost_claim_is_counted_once(
    redis_server: RedisServer, redis_url: str, anyio_backend: str
) -> None:
    async with (
        proxied(redis_server) as proxy,
        opened(RedisStore(proxy.url, BusConfig(timeout=5))) as store,
    ):
        await store.publish([event(1, text="lost"), event(2)], durable=True)
        await store.join(S, G, C, BEFORE_ALL)
        assert await store.recover_pending(S, G, C, 9) == []
        first, second = await store.read(S, G, C, 9, 0)
        await store.nack(S, G, C, first.event.id, 0, "failed")
        proxy.losing = b"lost"
        with pytest.raises(BusUnavailableError):
            await store.claim(S, G, C, 9, 60)
        assert numbers(await store.recover_pending(S, G, C, 9)) == [(1, 2)]
        assert await store.recover_pending(S, G, C, 9) == []
        assert [one.id for one in await store.pending(S, G, 9, BEFORE_ALL)] == [
            first.event.id,
            second.event.id,
        ]


async def test_lost_answer_of_a_cancelled_read_raises(
    redis_server: RedisServer, redis_url: str, anyio_backend: str
) -> None:
    async with (
        proxied(redis_server) as proxy,
        opened(RedisStore(redis_url, BusConfig(timeout=5))) as publisher,
        opened(RedisStore(proxy.url, BusConfig(timeout=0.3))) as store,
    ):
        await store.join(S, G, C, BEFORE_ALL)
        assert await store.recover_pending(S, G, C, 9) == []
        async with anyio.create_task_group() as tasks:
            await started(tasks, lambda: store.read(S, G, C, 9, 5))
            proxy.losing, proxy.silent = b"lost", True
            await publisher.publish([event(1, text="lost")], durable=True)
            await eventually(lambda: proxy.losses == 1)
            tasks.cancel_scope.cancel()
        found: list[Delivery] = []
        with anyio.fail_after(PATIENCE):
            while not found:
                try:
                    found = await store.read(S, G, C, 9, 0.05)
                except BusUnavailableError:
                    found = await store.recover_pending(S, G, C, 9)
        assert numbers(found) == [(1, 1)]
