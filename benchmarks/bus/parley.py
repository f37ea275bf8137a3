"""The bus as its users have it, on whichever store an address names, or another node's.

The public API with its default settings; nothing is taken past it. Knows no store.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from benchmarks.bus.node_child import offering_node
from benchmarks.bus.sides import (
    PATIENCE,
    TEXT,
    Arrivals,
    Done,
    Place,
    Side,
    Turns,
    repeat_for,
)
from parley import Identity, Node
from parley.bus import Bus, BusEvent, open_bus

NAME = "bench.measured"
GROUP = "group"
_FILL = 1_000
_LOOK = 0.001


class BusSide:
    """One event's stream on a bus, and one group."""

    def __init__(self, bus: Bus, *pids: int) -> None:
        self._bus = bus
        self._pids = pids

    @property
    def pids(self) -> tuple[int, ...]:
        """Those of the redis-server or of the node that offers the bus."""
        return self._pids

    async def publish(self, publishers: int, seconds: float) -> Done:
        """`publish`, durably, again and again."""
        return await repeat_for(seconds, publishers, self._publish)

    async def publish_batches(self, size: int, seconds: float) -> Done:
        """`publish_many`, durably."""
        items = [{"text": TEXT}] * size

        async def publish() -> int:
            await self._bus.publish_many(NAME, items)
            return size

        return await repeat_for(seconds, 1, publish)

    async def consume(self, consumers: int, count: int) -> Done:
        """`async for`, in so many tasks."""
        await self._fill(count)
        arrivals = Arrivals(count)
        async with anyio.create_task_group() as group:
            for _ in range(consumers):
                group.start_soon(self._consume, arrivals)
            await arrivals.wait()
            # Who leaves, in whatever way, has what it acknowledged recorded.
            group.cancel_scope.cancel()
        done = arrivals.done()
        await self._acknowledged()
        return done

    async def handle(self, concurrency: int, count: int) -> Done:
        """A handler that does nothing."""
        await self._fill(count)
        arrivals = Arrivals(count)

        @self._bus.handler(NAME, GROUP, concurrency=concurrency)
        async def handle(event: BusEvent) -> None:
            arrivals.one()

        await arrivals.wait()
        await self._acknowledged()
        return arrivals.done()

    async def latencies(self, count: int) -> list[float]:
        """To an `async for` that waits."""
        turns = Turns()

        async def consume() -> None:
            async with self._bus.consume(NAME, GROUP) as events:
                async for _ in events:
                    turns.one()

        async with anyio.create_task_group() as group:
            group.start_soon(consume)
            found = await turns.take(count, self._publish)
            group.cancel_scope.cancel()
        return found

    async def _publish(self) -> int:
        await self._bus.publish(NAME, {"text": TEXT})
        return 1

    async def _fill(self, count: int) -> None:
        for first in range(0, count, _FILL):
            await self._bus.publish_many(NAME, [{"text": TEXT}] * min(_FILL, count - first))

    async def _consume(self, arrivals: Arrivals) -> None:
        async with self._bus.consume(NAME, GROUP) as events:
            async for _ in events:
                if arrivals.one():
                    return

    async def _acknowledged(self) -> None:
        """Until nothing is pending: a handler's last ones are recorded a moment after it ended."""
        with anyio.fail_after(PATIENCE):
            while True:
                groups = await self._bus.groups(NAME)
                if not any(group.pending or group.lag for group in groups):
                    return
                await anyio.sleep(_LOOK)


@asynccontextmanager
async def open_sqlite(place: Place) -> AsyncIterator[Side]:
    """Embedded: a file."""
    async with open_bus(f"sqlite:///{place.directory}/bus.db") as bus:
        yield BusSide(bus)


@asynccontextmanager
async def open_redis(place: Place) -> AsyncIterator[Side]:
    """On the redis-server."""
    async with open_bus(place.server.url) as bus:
        yield BusSide(bus, place.server.pid)


@asynccontextmanager
async def open_peer(place: Place) -> AsyncIterator[Side]:
    """Another process's, over TCP, encrypted; that one has it in a file."""
    with offering_node(place.directory / "bus.db") as (pid, address):
        async with Node(Identity.create()) as node:
            peer = await node.connect(address)
            async with peer.bus() as bus:
                yield BusSide(bus, pid)
