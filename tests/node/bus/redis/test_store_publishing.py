"""Publishing on Redis: stored entries, keys, atomicity, and limits."""

import sys
from types import FrameType

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError, BusFullError, InvalidEventError
from parley._node.bus.redis import store as store_module
from parley._node.bus.redis.format import DOCUMENTED, LIGHTBUS
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import KEY, Redis, S, event
from tests.node.bus.stores import opened

pytestmark = pytest.mark.anyio


async def test_an_entry_is_as_lightbus_writes_it(store: RedisStore, redis: Redis) -> None:
    keyed, plain = event(1, key="k1", name_="Ü"), event(2)
    (first,) = await store.publish([keyed], durable=True)
    (second,) = await store.publish([plain], durable=False)
    entries = redis("XRANGE", KEY, "-", "+")
    metadata = ["api_name", "auth", "event_name", "user_registered", "version", "1"]
    data = [":number", "1", ":name_", '"\\u00dc"']
    assert entries[0] == [first.id, ["id", "k1", *metadata, *data]]
    assert entries[1][0] == second.id
    uuid = entries[1][1].pop(1)
    assert (len(uuid), uuid[14]) == (36, "4")
    assert entries[1][1] == ["id", *metadata, ":number", "2"]
    assert redis("TYPE", KEY) == "stream"


@pytest.mark.parametrize(("form", "key"), [(LIGHTBUS, "auth.*:stream"), (DOCUMENTED, S)])
async def test_formats_are_set_for_an_api(
    redis_url: str, redis: Redis, form: object, key: str, anyio_backend: str
) -> None:
    config = BusConfig(formats={"auth": form, "*": DOCUMENTED})  # type: ignore[dict-item] # parametrised
    async with opened(RedisStore(redis_url, config)) as store:
        await store.publish([event(1), event(2, name="other.b")], durable=True)
        assert redis("XLEN", key) == redis("XLEN", "other.b") == 1
        assert redis("XRANGE", "other.b", "-", "+")[0][1][0] == ":id"


async def test_a_key_is_one_event_within_the_window(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    async with opened(RedisStore(redis_url, BusConfig(idempotency_window=0.05))) as store:
        one, again, two = await store.publish(
            [event(1, key="k"), event(2, key="k"), event(3)], durable=True
        )
        assert (again.id, again.duplicate, two.duplicate) == (one.id, True, False)
        (elsewhere,) = await store.publish([event(1, key="k", name="a.b")], durable=True)
        assert not elsewhere.duplicate
        await anyio.sleep(0.06)
        (later,) = await store.publish([event(4, key="k")], durable=True)
        assert not later.duplicate
    async with opened(RedisStore(redis_url, BusConfig(idempotency_window=0))) as store:
        for _ in range(2):
            assert not (await store.publish([event(5, key="k")], durable=True))[0].duplicate
        assert len(await store.publish([event(6, key="k"), event(6, key="k")], durable=True)) == 2
        assert await store.publish([], durable=True) == []
    assert redis("XLEN", KEY) == 7


async def test_all_or_none(
    store: RedisStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis("SET", "bad.one:stream", "text")
    with pytest.raises(BusDamagedError, match="not a stream"):
        await store.publish([event(1), event(2, name="bad.one")], durable=True)
    with pytest.raises(BusDamagedError, match="wrong kind"):
        await store.publish([event(2, name="bad.one")], durable=True)
    with pytest.raises(InvalidEventError):
        await store.publish([event(1), event(2, bad=float("nan"))], durable=True)
    with redis.setting("maxmemory", "1", "0"):
        for events in ([event(1)], [event(1, key="k"), event(2)]):
            with pytest.raises(BusFullError, match="OOM"):
                await store.publish(events, durable=True)
    monkeypatch.setattr(store_module, "MOST_WORDS", 60)
    with pytest.raises(InvalidEventError, match="use smaller batches"):
        await store.publish([event(n) for n in range(4)], durable=True)
    assert redis("KEYS", "*") == ["bad.one:stream"]
    assert len(await store.publish([event(n) for n in range(3)], durable=True)) == 3


async def test_bounds_are_kept_as_one_publishes(
    redis_url: str, redis: Redis, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(RedisStore(redis_url, BusConfig(max_length=100))) as store:
        await store.publish([event(n) for n in range(450)], durable=True)
        assert 100 <= redis("XLEN", KEY) < 250
    redis("DEL", KEY)
    async with opened(RedisStore(redis_url, BusConfig(max_length=None))) as store:
        await store.publish([event(n) for n in range(450)], durable=True)
        assert redis("XLEN", KEY) == 450
    async with opened(RedisStore(redis_url, BusConfig(max_length=None, max_bytes=8192))) as store:
        await store.publish([event(n, text="x" * 400) for n in range(100)], durable=True)
        assert redis("MEMORY", "USAGE", KEY) < 20_000
        for n in range(60):  # Too few events for the check by number, and too many by bytes.
            await store.publish([event(n, text="x" * 800)], durable=True)
        assert redis("MEMORY", "USAGE", KEY) < 20_000
    redis("DEL", KEY)
    monkeypatch.setattr(store_module, "_CHECK_EVERY", 1)
    async with opened(RedisStore(redis_url, BusConfig(max_age=0.02))) as store:
        await store.publish([event(n) for n in range(250)], durable=True)
        await anyio.sleep(0.03)
        await store.publish([event(1)], durable=True)
        assert redis("XLEN", KEY) <= 100
        # The events are stored even if trimming fails.
        redis("ACL", "SETUSER", "default", "-xtrim")
        try:
            assert await store.publish([event(1)], durable=True)
        finally:
            redis("ACL", "SETUSER", "default", "+xtrim")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_publishing_takes_few_steps(store: RedisStore) -> None:
    """Count the function calls of all packages for an event that is published alone.

    Most of them are coredis's and anyio's.
    """
    called = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal called
        called += event == "call"

    await store.publish([event(0)], durable=True)
    sys.setprofile(note)
    try:
        for number in range(50):
            await store.publish([event(number)], durable=True)
    finally:
        sys.setprofile(None)
    assert called / 50 < 500
