"""Redis Streams without a bus: XADD, XREADGROUP, XACK, by coredis's own client.

`one` waits for each command before the next, `many` puts a hundred events into each trip.
Neither retries, reclaims, knows an idempotency key or encodes more than one field.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from coredis import PureToken, Redis

from benchmarks.bus.sides import TEXT, Arrivals, Done, NoWorkError, Place, Side, Turns, repeat_for

STREAM: Final = "bench:stream"
GROUP: Final = "group"
MAX_LENGTH: Final = 100_000  # as the bus and Lightbus have it
BATCH: Final = 100
_BLOCK: Final = 1_000  # ms


class RawRedis:
    """Commands on one stream; `batch` events are taken and acknowledged together."""

    def __init__(self, client: "Redis[str]", pid: int, batch: int) -> None:
        self._client = client
        self._pid = pid
        self._batch = batch

    @property
    def pids(self) -> tuple[int, ...]:
        """The server's."""
        return (self._pid,)

    async def publish(self, publishers: int, seconds: float) -> Done:
        """An XADD after another, in each of the tasks."""
        return await repeat_for(seconds, publishers, self._add)

    async def publish_batches(self, size: int, seconds: float) -> Done:
        """Pipelines of XADDs."""

        async def add() -> int:
            await self._fill(size, size)
            return size

        return await repeat_for(seconds, 1, add)

    async def consume(self, consumers: int, count: int) -> Done:
        """XREADGROUP and XACK, until all were acknowledged."""
        await self._fill(count, 1_000)
        await self._client.xgroup_create(STREAM, GROUP, "0")
        arrivals = Arrivals(count)
        async with anyio.create_task_group() as group:
            for number in range(consumers):
                group.start_soon(self._consume, f"consumer-{number}", arrivals)
        return arrivals.done()

    async def handle(self, concurrency: int, count: int) -> Done:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def latencies(self, count: int) -> list[float]:
        """An XADD, and the XREADGROUP that waits for it."""
        await self._client.xgroup_create(STREAM, GROUP, "$", mkstream=True)
        turns = Turns()
        async with anyio.create_task_group() as group:
            group.start_soon(self._wait_for_each, turns)
            found = await turns.take(count, self._add)
            group.cancel_scope.cancel()
        return found

    async def _add(self) -> int:
        await self._client.xadd(
            STREAM,
            {":text": TEXT},
            trim_strategy=PureToken.MAXLEN,
            trim_operator=PureToken.APPROXIMATELY,
            threshold=MAX_LENGTH,
        )
        return 1

    async def _fill(self, count: int, size: int) -> None:
        for first in range(0, count, size):
            async with self._client.pipeline(transaction=False) as pipeline:
                for _ in range(min(size, count - first)):
                    pipeline.xadd(
                        STREAM,
                        {":text": TEXT},
                        trim_strategy=PureToken.MAXLEN,
                        trim_operator=PureToken.APPROXIMATELY,
                        threshold=MAX_LENGTH,
                    )

    async def _consume(self, consumer: str, arrivals: Arrivals) -> None:
        while True:
            taken = await self._client.xreadgroup(GROUP, consumer, {STREAM: ">"}, count=self._batch)
            if not taken:
                return
            entries = taken[STREAM]
            for _ in entries:
                arrivals.one()
            await self._client.xack(STREAM, GROUP, [entry.identifier for entry in entries])

    async def _wait_for_each(self, turns: Turns) -> None:
        while True:
            taken = await self._client.xreadgroup(
                GROUP, "consumer", {STREAM: ">"}, count=self._batch, block=_BLOCK
            )
            for entry in taken[STREAM] if taken else ():
                turns.one()
                await self._client.xack(STREAM, GROUP, [entry.identifier])


@asynccontextmanager
async def open_one(place: Place) -> AsyncIterator[Side]:
    """A command at a time."""
    async with _client(place) as client:
        yield RawRedis(client, place.server.pid, 1)


@asynccontextmanager
async def open_many(place: Place) -> AsyncIterator[Side]:
    """A hundred events with each trip."""
    async with _client(place) as client:
        yield RawRedis(client, place.server.pid, BATCH)


@asynccontextmanager
async def _client(place: Place) -> AsyncIterator["Redis[str]"]:
    client = Redis.from_url(place.server.url, decode_responses=True)
    async with client:
        yield client
