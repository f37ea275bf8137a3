"""Inspecting a Redis: streams, groups, consumers, pending and stored events."""

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL
from parley._node.bus.redis import store as store_module
from parley._node.bus.redis.format import DOCUMENTED, LIGHTBUS
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import ALL, KEY, C, G, Redis, S, event
from tests.node.bus.stores import opened
from tests.node.network import started

pytestmark = pytest.mark.anyio


async def test_streams_are_those_whose_keys_are_ours(
    redis_url: str, redis: Redis, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_STREAMS", 2)
    monkeypatch.setattr(store_module, "_KEYS", 3)
    formats = {"shop": LIGHTBUS, "docs": DOCUMENTED}
    async with opened(RedisStore(redis_url, BusConfig(formats=formats))) as store:
        first, last = await store.publish([event(1), event(2)], durable=True)
        await store.publish(
            [event(0, name) for name in ("shop.a", "shop.b", "docs.x")], durable=True
        )
        await store.join("empty.one", G, C, BEFORE_ALL)
        redis("XADD", "no name:stream", "*", "a", "b")
        redis("XADD", "docs.y:stream", "*", "a", "b")
        redis("SET", "text.one:stream", "a")
        found = await store.streams()
    assert [(one.name, one.length) for one in found] == [
        (S, 2),
        ("docs.x", 1),
        ("empty.one", 0),
        ("shop.*", 2),
    ]
    assert found[0][3:] == (first.id, last.id)
    assert found[0].size > 100
    assert found[2][3:] == (None, None)


async def test_groups_and_consumers(
    store: RedisStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await store.groups(S) == []
    assert await store.consumers(S, G) == []
    published = await store.publish([event(n) for n in range(5)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    await store.join(S, "a", C, AFTER_ALL)
    assert await store.consumers(S, "none") == []
    found = [one.event.id for one in await store.read(S, G, C, 2, 0)]
    await store.release(S, G, C, found[:1])
    new, group = await store.groups(S)
    assert (new.name, new.lag, new.pending) == ("a", 0, 0)
    assert group == (S, G, 3, 2, 0, 0, 1, published[1].id)
    assert [one[:2] for one in await store.consumers(S, G)] == [(C, 1)]
    # Redis does not know the lag of a group whose position was set.
    await store.rewind(S, G, published[2].id)
    assert [one.lag for one in await store.groups(S)] == [0, 2]
    monkeypatch.setattr(store_module, "MOST_COUNTED", 2)
    assert [one.lag for one in await store.groups(S)] == [0, None]


async def test_pending_is_read_in_pages(store: RedisStore) -> None:
    await store.publish([event(n) for n in range(3)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    found = [one.event.id for one in await store.read(S, G, C, 3, 0)]
    first = await store.pending(S, G, 2, BEFORE_ALL)
    rest = await store.pending(S, G, 2, first[-1].id)
    assert [one.id for one in (*first, *rest)] == found
    assert all(one.due_in is None and 0 <= one.idle < 5 for one in first)
    assert await store.pending("not.there", G, 2, BEFORE_ALL) == []


async def test_history_is_bounded_on_both_sides(store: RedisStore) -> None:
    ids = [one.id for one in await store.publish([event(n) for n in range(5)], durable=True)]

    async def between(after: str, until: str | None, count: int = ALL) -> list[str]:
        return [one.id for one in await store.history(S, after, until, count, 0)]

    assert await between(BEFORE_ALL, None) == ids
    assert await between(ids[0], ids[3]) == ids[1:4]
    assert await between(BEFORE_ALL, None, 2) == ids[:2]
    assert await between(AFTER_ALL, None) == []
    assert await store.history("not.there", AFTER_ALL, None, 5, 0) == []
    assert await store.history(S, ids[4], ids[4], 5, 5) == []


async def test_history_waits(store: RedisStore, redis: Redis) -> None:
    async with anyio.create_task_group() as tasks:
        found = await started(tasks, lambda: store.history(S, AFTER_ALL, None, 5, 5))
        redis("XADD", KEY, "*", "", "")
        (one,) = await store.publish([event(1)], durable=True)
    assert isinstance(found[0], list)
    assert [event.id for event in found[0]] == [one.id]
    assert await store.history(S, one.id, None, 5, 0.01) == []


async def test_key_that_is_no_stream_raises(store: RedisStore, redis: Redis) -> None:
    redis("SET", KEY, "text")
    for ask in (
        lambda: store.groups(S),
        lambda: store.pending(S, G, 1, BEFORE_ALL),
        lambda: store.history(S, BEFORE_ALL, None, 1, 0),
        lambda: store.history(S, AFTER_ALL, None, 1, 0),
    ):
        with pytest.raises(BusDamagedError):
            await ask()
