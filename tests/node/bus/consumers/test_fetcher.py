"""Where events come from, and how often the store is called for each kind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.consumers import fetcher as supply_module
from parley._node.bus.consumers.fetcher import Fetcher
from parley._node.bus.consumers.options import ConsumerContext, ConsumerOptions
from parley._node.bus.model import Counters, Delivery, NewEvent
from parley._node.bus.store import Store
from tests.node.bus.buses import FaultyStore
from tests.node.bus.model_store import ModelStore
from tests.node.network import settled, started, task_scope

pytestmark = pytest.mark.anyio

S, G = "auth.user", "g"


@asynccontextmanager
async def a_supply(
    *, ttl: float = 60.0, reclaim_after: float = 60.0
) -> AsyncIterator[tuple[Fetcher, FaultyStore]]:
    config = BusConfig(consumer_ttl=ttl)
    store = FaultyStore(ModelStore(config))
    async with task_scope() as backend:
        await store.open(backend)
        options = ConsumerOptions(S, G, 100, reclaim_after, 5, "0-0")
        fetcher = Fetcher(
            ConsumerContext(cast(Store, store), backend, options, "me", Counters()), config
        )
        await fetcher.join()
        yield fetcher, store
        await store.aclose()


async def put(store: FaultyStore, count: int) -> list[str]:
    events = [NewEvent(S, {}, "{}") for _ in range(count)]
    return [one.id for one in await store.publish(events, durable=True)]


async def test_pending_events_come_before_new_ones(anyio_backend: str) -> None:
    async with a_supply(reclaim_after=0.05) as (fetcher, store):
        ids = await put(store, 4)
        await store.read(S, G, "me", 1, 0.0)
        await store.read(S, G, "other", 1, 0.0)
        await store.aclose()
        await store.open(fetcher.loop)  # As if this process had restarted.
        await store.claim(S, G, "other", 1, 60.0)
        await anyio.sleep(0.06)
        got = []
        for _ in range(3):
            found = await fetcher.fetch(100, 1, wait=True)
            got.append([(one.event.id, one.attempt) for one in found])
        assert got == [[(ids[0], 2)], [(ids[1], 2)], [(ids[2], 1), (ids[3], 1)]]
        assert await fetcher.fetch(100, 1, wait=False) == []


async def test_refused_event_is_fetched_when_due(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply_module, "MOST_AWAITED", 2)
    async with a_supply() as (fetcher, store), anyio.create_task_group() as tasks:
        (id,) = await put(store, 1)
        await fetcher.fetch(1, 1, wait=True)
        waiting = await started(tasks, lambda: fetcher.fetch(1, 1, wait=True))
        claims = len(store.asked("claim"))
        await store.nack(S, G, "me", id, 0.03, "no")
        fetcher.claim_at(fetcher.loop.now() + 0.03)
        for _ in range(5):  # More than are remembered.
            fetcher.claim_at(fetcher.loop.now() + 9.0)
        await settled()
        assert len(fetcher.awaited) == 2
        assert not waiting
        with anyio.fail_after(0.5):
            while not waiting:
                await settled()
        assert [one.attempt for one in cast(list[Delivery], waiting[0])] == [2]
        assert len(store.asked("claim")) <= claims + 3


async def test_waiting_costs_little(anyio_backend: str) -> None:
    async with a_supply() as (fetcher, store), anyio.create_task_group() as tasks:
        await started(tasks, lambda: fetcher.fetch(1, 1, wait=True))
        await anyio.sleep(0.1)
        assert len(store.calls) <= 6
        assert store.asked("read")[0][-1] > 0.9  # One long wait.
        assert store.asked("remove_consumers") == [(S, G, 60.0)]
        tasks.cancel_scope.cancel()


async def test_idle_consumers_are_removed_now_and_then(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply_module, "REMOVAL_INTERVAL", 0.01)
    monkeypatch.setattr(supply_module, "CLAIM_INTERVAL", 0.01)
    async with a_supply() as (fetcher, store), anyio.create_task_group() as tasks:
        await started(tasks, lambda: fetcher.fetch(1, 1, wait=True))
        with anyio.fail_after(2):
            while len(store.asked("remove_consumers")) < 2:
                await settled()
        # A consumer that removes others is active itself, and so is not removed.
        tasks.cancel_scope.cancel()
    async with a_supply(ttl=1.0) as (fetcher, store):
        assert fetcher.interval <= 1 / 3
