"""Maintenance on Redis: rewinding, redelivering, deleting."""

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL
from parley._node.bus.model import Trim
from parley._node.bus.redis.format import LIGHTBUS
from parley._node.bus.redis.scripts import NOBODY
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import ALL, KEY, C, G, Redis, S, event, ids, numbers
from tests.node.bus.stores import opened

pytestmark = pytest.mark.anyio


async def filled(store: RedisStore, count: int = 5, read: int = 3) -> list[str]:
    published = await store.publish([event(n) for n in range(count)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    await store.read(S, G, C, read, 0)
    return [one.id for one in published]


async def pending(store: RedisStore) -> list[str]:
    return [one.id for one in await store.pending(S, G, ALL, BEFORE_ALL)]


async def test_rewinding(store: RedisStore) -> None:
    found = await filled(store)
    await store.rewind(S, G, found[0])
    assert numbers(await store.read(S, G, C, 9, 0)) == [(n, 1) for n in range(1, 5)]
    await store.rewind(S, G, AFTER_ALL)
    assert await store.read(S, G, C, 9, 0) == []
    await store.rewind(S, "new", found[3])
    assert numbers(await store.read(S, "new", C, 9, 0)) == [(4, 1)]
    await store.rewind("not.there", G, BEFORE_ALL)
    assert [one.name for one in await store.groups("not.there")] == [G]


async def test_redelivering(store: RedisStore) -> None:
    found = await filled(store)
    await store.ack(S, G, found[:1])
    await store.nack(S, G, C, found[1], 60, "x")
    assert await store.redeliver(S, G, ["1-1", *found[:3]]) == found[:3]
    assert numbers(await store.claim(S, G, "two", 9, 60)) == [(0, 1), (1, 1), (2, 1)]
    assert await store.redeliver(S, "none", found) == []
    assert await store.redeliver("not.there", G, found) == []


@pytest.mark.parametrize("bound", ["max_length", "before", "max_bytes"])
async def test_trimming_removes_pending_events(store: RedisStore, bound: str) -> None:
    found = await filled(store, 250, 248)
    await store.nack(S, G, C, found[0], 60, "x")
    size = (await store.streams())[0].size
    bounds = {
        "max_length": Trim(max_length=2),
        "before": Trim(before=found[248]),
        "max_bytes": Trim(max_bytes=size // 100),
    }[bound]
    taken = await store.trim(S, bounds)
    assert taken == 248
    assert await pending(store) == []
    assert await store.claim(S, G, C, 9, 0) == []
    assert store.lost == 0
    assert await store.trim(S, Trim(max_length=2)) == 0


async def test_exact_and_approximate_trimming(store: RedisStore) -> None:
    await filled(store)
    assert await store.trim(S, Trim(max_length=2, approximate=True)) == 0
    assert await store.trim(S, Trim()) == 0
    assert await store.trim(S, Trim(max_length=0)) == 5
    assert await pending(store) == []
    assert await store.trim("not.there", Trim(max_length=1, max_bytes=1)) == 0


async def test_dropping(store: RedisStore) -> None:
    found = await filled(store)
    assert await store.drop(S, [found[0], found[4], "1-1"]) == 2
    assert await pending(store) == found[1:3]
    assert await store.drop(S, []) == await store.drop(S, [found[0]]) == 0
    assert numbers(await store.read(S, G, C, 9, 0)) == [(3, 1)]


async def test_idle_consumers_are_removed_without_losing_events(
    store: RedisStore, redis: Redis
) -> None:
    found = await filled(store)
    redis("XTRIM", KEY, "MAXLEN", 4)
    assert await store.remove_consumers(S, G, 60) == []
    await anyio.sleep(0.03)
    await store.join(S, G, "two", BEFORE_ALL)
    await store.read(S, G, "two", 1, 0)
    assert await store.remove_consumers(S, G, 0.02) == [C]
    assert [one.name for one in await store.consumers(S, G)] == ["two"]
    assert await pending(store) == found[1:4]
    claimed = await store.claim(S, G, "two", 9, 60)
    assert numbers(claimed) == [(1, 2), (2, 2)]
    assert NOBODY in str(redis("XINFO", "CONSUMERS", KEY, G))
    assert await store.remove_consumers(S, "none", 0) == []
    assert await store.remove_consumers("not.there", G, 0) == []
    assert ids(claimed) == found[1:3]


async def test_removed_group_leaves_no_keys(store: RedisStore, redis: Redis) -> None:
    found = await filled(store)
    await store.nack(S, G, C, found[0], 60, "x")
    await store.claim(S, G, C, 9, 0)
    assert await store.remove_group(S, G)
    assert not await store.remove_group(S, G)
    assert not await store.remove_group("not.there", G)
    assert redis("KEYS", "*") == [KEY]
    await store.join(S, G, C, BEFORE_ALL)
    assert len(await store.read(S, G, C, 9, 0)) == 5


async def test_key_that_is_no_stream_raises(store: RedisStore, redis: Redis) -> None:
    redis("SET", KEY, "text")
    for ask in (
        lambda: store.rewind(S, G, BEFORE_ALL),
        lambda: store.redeliver(S, G, ["1-1"]),
        lambda: store.trim(S, Trim(max_length=1)),
        lambda: store.trim(S, Trim(max_bytes=1)),
        lambda: store.drop(S, ["1-1"]),
        lambda: store.remove_consumers(S, G, 0),
        lambda: store.remove_group(S, G),
    ):
        with pytest.raises(BusDamagedError):
            await ask()


async def test_maintenance_of_the_stream_of_an_api(redis_url: str, anyio_backend: str) -> None:
    async with opened(RedisStore(redis_url, BusConfig(formats={"*": LIGHTBUS}))) as store:
        await store.publish([event(n) for n in range(5)], durable=True)
        whole = "auth.*"
        await store.rewind(whole, G, BEFORE_ALL)
        assert [group.lag for group in await store.groups(whole)] == [5]
        assert await store.trim(whole, Trim(max_length=2)) == 3
        assert await store.remove_consumers(whole, G, 0) == []
        assert await store.remove_group(whole, G)
        assert await store.groups(whole) == []
