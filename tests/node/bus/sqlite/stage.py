"""A store in a file of its own, on a clock that the test moves; and short ways to ask it."""

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
    """The time, in seconds since 1970; only the test moves it.

    It is asked once for each transaction, in the store's thread, which `held` keeps there."""

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
        """The store's next transaction does not begin before this ends."""
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
        """Publish so many events; their ids."""
        events = [new(number, name=name, size=size) for number in range(count)]
        return [one.id for one in await self.store.publish(events, durable=True)]

    async def join(self, consumer: str = "c", group: str = GROUP, after: str = "0-0") -> None:
        await self.store.join(STREAM, group, consumer, after)

    async def read(self, count: int = EVERYTHING, consumer: str = "c") -> list[str]:
        """Read; the ids."""
        return ids_of(await self.store.read(STREAM, GROUP, consumer, count, 0))

    async def claim(
        self, consumer: str = "d", idle: float = 60.0, count: int = EVERYTHING
    ) -> dict[str, int]:
        """Claim; the attempts by id."""
        got = await self.store.claim(STREAM, GROUP, consumer, count, idle)
        return {one.event.id: one.attempt for one in got}

    async def stored(self, name: str = STREAM) -> list[StoredEvent]:
        """All events of a stream."""
        return await self.store.history(name, "0-0", None, EVERYTHING, 0)

    async def letters(self) -> list[dict[str, Any]]:
        """The data of the dead letters."""
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
    """A store in a file in `directory`."""
    clock = clock or Clock()
    file = directory / "bus.db"
    config = BusConfig(**{"clock": clock, "busy_timeout": 0.05, **settings})
    async with opened(SqliteStore(str(file), config)) as store:
        yield Stage(store, clock, file)
