"""A caller that is cancelled at any moment while it receives events doesn't leave events pending.

In each store, and over the network, the next caller receives all of them, in order and without
another attempt counted.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley._node.bus.config import BusConfig
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import Delivery
from parley._node.bus.redis.store import RedisStore
from parley._node.bus.remote import channel
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.bus.store import Store
from tests.node.bus.remote.offered import GROUP, NAME, between, new
from tests.node.bus.stores import opened

pytestmark = pytest.mark.anyio

PLACE = (NAME, GROUP, "c")
# The most loop iterations before the cancellation; after more, the call has finished.
TURNS = 24

Ask = Callable[[Store], Awaitable[list[Delivery]]]


@pytest.fixture(
    params=["sqlite", pytest.param("redis", marks=pytest.mark.redis), "peer"],
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str
) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        if request.param == "sqlite":
            sqlite = SqliteStore(str(tmp_path / "bus.db"), BusConfig())
            yield await stack.enter_async_context(opened(sqlite))
        elif request.param == "redis":
            url = request.getfixturevalue("redis_url")
            yield await stack.enter_async_context(opened(RedisStore(url, BusConfig())))
        else:
            yield await (await stack.enter_async_context(between())).asking()


async def ask_for_a_while(store: Store, ask: Ask, turns: int) -> list[Delivery]:
    """Return the result of `ask`, unless it needs more than this many loop iterations."""
    found: list[Delivery] = []

    async def asking() -> None:
        found.extend(await ask(store))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asking)
        for _ in range(turns):
            await checkpoint()
        tasks.cancel_scope.cancel()
    return found


async def nothing_is_lost(store: Store, ask: Ask, turns: int, ids: list[str]) -> None:
    """Check that the cancelled caller or the next one immediately has the first of `ids`."""
    found = await ask_for_a_while(store, ask, turns)
    if not found:
        await store.join(*PLACE, BEFORE_ALL)
        found = await store.claim(*PLACE, 4, 60.0) or await store.read(*PLACE, 4, 0.0)
    assert [(one.event.id, one.attempt) for one in found] == [(id, 1) for id in ids[: len(found)]]
    assert found
    await store.ack(NAME, GROUP, ids)


async def test_cancelled_read_keeps_no_events(store: Store) -> None:
    await store.join(*PLACE, BEFORE_ALL)
    ids = [one.id for one in await store.publish([new(n) for n in range(4)], durable=False)]
    for turns in range(TURNS):
        await store.rewind(NAME, GROUP, BEFORE_ALL)
        await nothing_is_lost(store, lambda store: store.read(*PLACE, 2, 5.0), turns, ids)


async def test_cancelled_claim_keeps_no_events(store: Store) -> None:
    await store.join(*PLACE, "$")
    ids = [one.id for one in await store.publish([new(n) for n in range(4)], durable=False)]
    await store.rewind(NAME, GROUP, "$")
    for turns in range(TURNS):
        await store.redeliver(NAME, GROUP, ids)
        await nothing_is_lost(store, lambda store: store.claim(*PLACE, 2, 60.0), turns, ids)


async def test_cancellation_waits_briefly_for_a_missing_answer(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    monkeypatch.setattr(channel, "PATIENCE", 0.05)
    async with between() as bus:
        peer, begun = await bus.asking(), anyio.Event()

        async def silent(*arguments: object) -> list[Delivery]:
            begun.set()
            with anyio.CancelScope(shield=True):
                await over.wait()
            return []

        over = anyio.Event()
        monkeypatch.setattr(bus.store, "read", silent)
        await peer.join(*PLACE, BEFORE_ALL)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.read, *PLACE, 1, 5.0)
                await begun.wait()
                tasks.cancel_scope.cancel()
            assert not over.is_set()
        finally:
            over.set()
