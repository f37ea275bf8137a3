"""Tests of the model that stores are compared with: the states of events, and waiting."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
from parley._node.bus.model import NewEvent, Published, Trim
from parley._node.bus.store import Store
from tests.node.bus.model_store import ModelStore
from tests.node.network import settled, started, task_scope

pytestmark = pytest.mark.anyio

S, G = "auth.user", "mailer"


class Clock:
    """The clock of a store under test."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@asynccontextmanager
async def model(clock: Clock) -> AsyncIterator[Store]:
    async with task_scope() as loop:
        store: Store = ModelStore(BusConfig(clock=clock, idempotency_window=60.0))
        await store.open(loop)
        try:
            yield store
        finally:
            await store.aclose()


def event(number: int, key: str | None = None) -> NewEvent:
    return NewEvent(S, {"n": number}, json.dumps({"n": number}), key)


async def test_the_life_of_events(anyio_backend: str) -> None:
    clock = Clock()
    async with model(clock) as store:
        one, two = await store.publish([event(1, "k"), event(2)], durable=True)
        assert await store.publish([event(1, "k")], durable=True) == [Published(one.id, True)]
        await store.join(S, G, "a", "0-0")
        first, second = await store.read(S, G, "a", 9, 0)
        assert [first.event.id, second.event.id] == [one.id, two.id]
        assert await store.nack(S, G, "a", one.id, 5.0, "no")
        assert not await store.nack(S, G, "a", one.id, 5.0, "no")
        assert await store.claim(S, G, "b", 9, 60.0) == []
        clock.time += 5.0
        assert [d.attempt for d in await store.claim(S, G, "b", 9, 60.0)] == [2]
        clock.time += 60.0
        await store.touch(S, G, "b", [one.id, two.id])  # Consumer a sends no heartbeat.
        (taken,) = await store.claim(S, G, "b", 9, 60.0)
        assert (taken.event.id, taken.attempt) == (two.id, 2)
        assert await store.ack(S, G, [two.id, two.id]) == 1
        letter = await store.bury(S, G, "b", one.id, "never")
        assert letter is not None
        (dead,) = await store.history(f"{S}.dead", "0-0", None, 9, 0)
        assert [(f["attempt"], f["error"]) for f in json.loads(dead.body)["history"]] == [
            (1, "no"),
            (2, "never"),
        ]
        (group,) = await store.groups(S)
        assert (group.lag, group.pending, group.redelivered, group.dead_lettered) == (0, 0, 2, 1)
        assert await store.redeliver(S, G, [one.id, "1-1"]) == [one.id]
        assert [d.attempt for d in await store.claim(S, G, "b", 9, 60.0)] == [1]
        assert await store.trim(S, Trim(max_length=1)) == 1
        assert await store.ack(S, G, [one.id]) == 0
        assert not (await store.publish([event(1, "k")], durable=True))[0].duplicate


async def test_waiting_read_returns_events_or_times_out(anyio_backend: str) -> None:
    async with model(Clock()) as store, anyio.create_task_group() as tasks:
        assert await store.read(S, G, "a", 1, 0.001) == []
        read = await started(tasks, lambda: store.read(S, G, "a", 1, 9))
        look = await started(tasks, lambda: store.history(S, "$", None, 1, 9))
        assert (read, look) == ([], [])
        await store.publish([event(1)], durable=False)
        await settled()
        late = await started(tasks, lambda: store.read(S, G, "a", 1, 9))
        assert len(read) == len(look) == 1
        await store.aclose()
        with pytest.raises(BusClosedError):
            await store.streams()
    (outcome,) = late
    assert isinstance(outcome, BusClosedError)


async def test_earlier_process_leaves_events_to_recover(anyio_backend: str) -> None:
    async with task_scope() as loop:
        store = ModelStore(BusConfig())
        await store.open(loop)
        await store.publish([event(1)], durable=True)
        await store.read(S, G, "a", 1, 0)
        assert await store.recover_pending(S, G, "a", 9) == []
        await store.aclose()
        await store.open(loop)
        assert await store.recover_pending(S, G, "b", 9) == []
        assert [d.attempt for d in await store.recover_pending(S, G, "a", 9)] == [2]
        assert await store.recover_pending(S, G, "a", 9) == []
        await store.release(S, G, "a", [(await store.pending(S, G, 9, "0-0"))[0].id])
        assert [d.attempt for d in await store.claim(S, G, "b", 9, 60)] == [2]
