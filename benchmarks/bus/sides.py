"""What a side has to do to be measured, and what all sides have in common.

A side does the work and takes its time; how often, beside whom and how well it did is said
elsewhere. Knows no store.
"""

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol, TypeAlias

import anyio

from tests.redis_server import RedisServer

# What each event carries: one field with this text.
TEXT: Final = "x" * 128
# Seconds before each event of which the latency is measured: its consumer is then waiting.
PAUSE: Final = 0.005
# Seconds without the next event after which a measurement counts as failed.
PATIENCE: Final = 60.0

# A piece of work: how many events it was.
Piece: TypeAlias = Callable[[], Coroutine[Any, Any, int]]


class NoWorkError(Exception):
    """This kind of work is not measured on this side."""

    def __init__(self) -> None:
        super().__init__("this is not measured on this side")


@dataclass(frozen=True, slots=True)
class Done:
    """So many events took so many seconds."""

    count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a measurement may keep what it stores: a directory of its own that is empty, and a
    redis-server that has nothing in it, if there is one."""

    directory: Path
    redis: RedisServer | None = None

    @property
    def server(self) -> RedisServer:
        """The redis-server.

        Raises:
            NoWorkError: the side does not do this work.
        """
        if self.redis is None:
            raise NoWorkError
        return self.redis


class Side(Protocol):
    """One way of keeping events, opened for one measurement."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The other processes that work for it."""

    async def publish(self, publishers: int, seconds: float) -> Done:
        """Publish for so long; each publisher waits for one event before it publishes the next."""

    async def publish_batches(self, size: int, seconds: float) -> Done:
        """One publisher, so many events at a time."""

    async def consume(self, consumers: int, count: int) -> Done:
        """Consumers of one group take and acknowledge events that are stored already: from the
        first that is handed out until all are acknowledged."""

    async def handle(self, concurrency: int, count: int) -> Done:
        """As `consume`, by one handler with so many tasks."""

    async def latencies(self, count: int) -> list[float]:
        """Seconds from the call that publishes an event until a consumer that waits has it; one
        event at a time."""


Opening: TypeAlias = Callable[[Place], AbstractAsyncContextManager[Side]]


async def repeat_for(seconds: float, tasks: int, work: Piece) -> Done:
    """Tasks that each do a piece of work after the other; it says how many events it was. What
    each does first does not count: it may make connections."""
    total = 0

    async def repeat() -> None:
        nonlocal total
        while perf_counter() < end:
            count = await work()  # `total +=` reads before it waits
            total += count

    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(work)
    began = perf_counter()
    end = began + seconds
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(repeat)
    return Done(total, perf_counter() - began)


class Arrivals:
    """Counts events as they are handed out: when the first was, and whether all were."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._first = 0.0
        self._all = anyio.Event()
        self.count = 0

    def one(self) -> bool:
        """One more; whether it was the last."""
        if not self.count:
            self._first = perf_counter()
        self.count += 1
        if self.count == self._wanted:
            self._all.set()
        return self.count >= self._wanted

    async def wait(self) -> None:
        """Until all are there.

        Raises:
            TimeoutError: they are not in time.
        """
        with anyio.fail_after(PATIENCE):
            await self._all.wait()

    def done(self) -> Done:
        """Since the first. What came after the first is what the time was for."""
        return Done(self.count - 1, perf_counter() - self._first)


class Turns:
    """One event after another: how long each is on its way."""

    def __init__(self) -> None:
        self._arrived = anyio.Event()
        self._at = 0.0

    def one(self) -> None:
        """It was handed out."""
        self._at = perf_counter()
        self._arrived.set()

    async def take(self, count: int, publish: Callable[[], Awaitable[object]]) -> list[float]:
        """So many, in seconds, after one that does not count.

        Raises:
            TimeoutError: one does not arrive.
        """
        found: list[float] = []
        for number in range(count + 1):
            await anyio.sleep(PAUSE)
            self._arrived = anyio.Event()
            began = perf_counter()
            await publish()
            with anyio.fail_after(PATIENCE):
                await self._arrived.wait()
            if number:
                found.append(self._at - began)
        return found
