"""A store in its own file, with a clock that the test controls, and shortcuts to call it."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final

from parley._node.bus.config import BusConfig
from parley._node.bus.model import Delivery, NewEvent, StoredEvent
from parley._node.bus.sqlite.store import SqliteStore
from tests.node.bus.stores import opened
from tests.node.network import PATIENCE

STREAM: Final = "auth.user_registered"
GROUP: Final = "mailer"
START: Final = 1_700_000_000.0
EVERYTHING: Final = 100_000


class Clock:
    """The time in seconds since 1970; only the test changes it.

    The store's thread reads it once per transaction. `held` makes the thread wait there.
    """

    def __init__(self) -> None:
        self.now = START
        self.asked = 0
        self._free = Event()
        self._free.set()

    def __call__(self) -> float:
        self.asked += 1
        self._free.wait(PATIENCE)
        return self.now

    @contextmanager
    def held(self) -> Iterator[None]:
        """Prevent the store's next transaction from starting inside the block."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()


class Stage:
    """An open store, and its clock."""

    def __init__(self, store: SqliteStore, clock: Clock, path: Path) -> None:
        self.store = store
        self.clock = clock
        self.path = path

    async def publish(self, count: int = 1, *, name: str = STREAM, size: int = 0) -> list[str]:
        """Publish so many events; return their IDs."""
        events = [new(number, name=name, size=size) for number in range(count)]
        return [one.id for one in await self.store.publish(events, durable=True)]

    async def join(self, consumer: str = "c", group: str = GROUP, after: str = "0-0") -> None:
        await self.store.join(STREAM, group, consumer, after)

    async def read(self, count: int = EVERYTHING, consumer: str = "c") -> list[str]:
        """Read; return the IDs."""
        return ids_of(await self.store.read(STREAM, GROUP, consumer, count, 0))

    async def claim(
        self, consumer: str = "d", idle: float = 60.0, count: int = EVERYTHING
    ) -> dict[str, int]:
        """Claim; return the attempts by ID."""
        got = await self.store.claim(STREAM, GROUP, consumer, count, idle)
        return {one.event.id: one.attempt for one in got}

    async def stored(self, name: str = STREAM) -> list[StoredEvent]:
        """Return all events of a stream."""
        return await self.store.history(name, "0-0", None, EVERYTHING, 0)

    async def letters(self) -> list[dict[str, Any]]:
        """Return the data of the dead letters."""
        return [json.loads(event.body) for event in await self.stored(f"{STREAM}.dead")]


def new(number: int = 0, key: str | None = None, *, name: str = STREAM, size: int = 0) -> NewEvent:
    data = {"number": number, "pad": "x" * size}
    return NewEvent(name, data, json.dumps(data), key)


def ids_of(deliveries: list[Delivery]) -> list[str]:
    return [one.event.id for one in deliveries]


@asynccontextmanager
async def stage(
    directory: Path, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    """Yield a store in a file in `directory`."""
    clock = clock or Clock()
    file = directory / "bus.db"
    config = BusConfig(**{"clock": clock, "busy_timeout": 0.05, **settings})
    async with opened(SqliteStore(str(file), config)) as store:
        yield Stage(store, clock, file)
