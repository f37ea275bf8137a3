"""A bus on a store in memory that records its calls and can be made to fail.

The underlying store is real. A fault is raised before or after the store is called.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.store import Store
from tests.node.bus.model_store import ModelStore
from tests.node.network import task_scope

NAME, GROUP = "auth.user", "mailer"


class FaultyStore:
    """Raises errors from `faults`, by the name of the method, before it calls the real store.

    Errors from `late_faults` are raised after the call. `calls` has the names and arguments of all
    calls.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.faults: defaultdict[str, list[Exception]] = defaultdict(list)
        self.late_faults: defaultdict[str, list[Exception]] = defaultdict(list)
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def ask(*arguments: Any, **options: Any) -> Any:
            self.calls.append((name, arguments))
            if self.faults[name]:
                raise self.faults[name].pop(0)
            answer = await method(*arguments, **options)
            if self.late_faults[name]:
                raise self.late_faults[name].pop(0)
            return answer

        return ask

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of each call of a method."""
        return [arguments for called, arguments in self.calls if called == name]


@asynccontextmanager
async def a_bus(
    store: Store | None = None, **settings: Any
) -> AsyncIterator[tuple[Bus, FaultyStore]]:
    """Yield an open bus and its recording store, on a new store unless one is given."""
    config = BusConfig(**{"consumer": "me", **settings})
    faulty = FaultyStore(store or ModelStore(config))
    async with (
        task_scope() as backend,
        Bus(cast(Store, faulty), config, loop=lambda: backend) as bus,
    ):
        yield bus, faulty


async def publish(bus: Bus, count: int, name: str = NAME) -> list[str]:
    """Publish events with `n` from 0."""
    return await bus.publish_many(name, [{"n": number} for number in range(count)])


async def fail(bus: Bus, error: BaseException, name: str = NAME, **options: Any) -> None:
    """Make a loop fail at its next event; raises the error."""
    async with bus.consume(name, GROUP, **options) as events:
        await anext(events)
        raise error


async def attempts(bus: Bus) -> list[tuple[int, int]]:
    """Receive and acknowledge the group's events; return `n` and the attempt of each."""
    found = []
    async with bus.consume(NAME, GROUP, max_attempts=None) as events:
        waiting = await bus.pending(NAME, GROUP)
        total = len(waiting) + (await bus.lag(NAME, GROUP) or 0)
        for _ in range(total):
            event = await anext(events)
            found.append((event.data["n"], event.attempt))
    return found
