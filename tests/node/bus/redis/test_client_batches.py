"""Commands of many tasks in one request to Redis: each has its own result."""

from functools import partial
from typing import Any

import anyio
import pytest

from parley._node.bus.batcher import Bounds
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError, BusUnavailableError, InvalidEventError
from parley._node.bus.model import NewEvent, Published
from parley._node.bus.redis import client as module
from parley._node.bus.redis import connection as redis_link
from parley._node.bus.redis.connection import RedisConnection, RedisRequest
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import KEY, Redis, event
from tests.node.bus.stores import opened
from tests.node.network import eventually, settled, started

pytestmark = pytest.mark.anyio

Outcome = Published | Exception | None


async def publish_all(store: RedisStore, *events: NewEvent) -> list[Outcome]:
    """Publish each event in its own task; return the results."""
    acks: list[Outcome] = [None] * len(events)

    async def publish(number: int, one: NewEvent) -> None:
        try:
            (acks[number],) = await store.publish([one], durable=True)
        except Exception as error:
            acks[number] = error

    async with anyio.create_task_group() as tasks:
        for number, one in enumerate(events):
            tasks.start_soon(publish, number, one)
    return acks


def stored(redis: Redis) -> list[int]:
    """Return the numbers of the stored events, in order."""
    return [int(entry[1][-1]) for entry in redis("XRANGE", KEY, "-", "+")]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many commands each publishing request had."""
    made: list[int] = []

    class Counted(RedisRequest):
        def __init__(
            self, connection: RedisConnection, several: Any, timeout: float, batch: bool
        ) -> None:
            super().__init__(connection, several, timeout, batch)
            if several[0][0] == b"XADD":
                made.append(len(several))

    monkeypatch.setattr(redis_link, "RedisRequest", Counted)
    return made


async def test_commands_of_one_loop_iteration_share_a_request(
    requests: list[int], store: RedisStore, redis: Redis
) -> None:
    acks = await publish_all(store, *(event(n) for n in range(30)))
    ids = [one.id for one in acks if isinstance(one, Published)]
    assert len(set(ids)) == 30
    assert requests == [1, 29]  # The first one is sent immediately.
    assert sorted(stored(redis)) == list(range(30))
    by_id = {entry[0]: int(entry[1][-1]) for entry in redis("XRANGE", KEY, "-", "+")}
    assert [by_id[id] for id in ids] == list(range(30))


@pytest.mark.parametrize(
    ("bounds", "most"), [(Bounds(4, 10**6, 2), 4), (Bounds(100, 1_000, 2), 2), (Bounds(0, 0, 1), 1)]
)
async def test_requests_have_their_limits(
    bounds: Bounds,
    most: int,
    requests: list[int],
    redis_url: str,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_TOGETHER", bounds.number)
    monkeypatch.setattr(module, "LARGEST_TOGETHER", bounds.size)
    monkeypatch.setattr(module, "REQUESTS", bounds.under_way)
    under_way = [0]

    class Watched(redis_link.RedisRequest):
        def __init__(
            self, connection: RedisConnection, several: Any, timeout: float, batch: bool
        ) -> None:
            super().__init__(connection, several, timeout, batch)
            under_way.append(under_way[-1] + 1)

        async def wait(self) -> list[Any]:
            try:
                return await super().wait()
            finally:
                under_way.append(under_way[-1] - 1)

    monkeypatch.setattr(redis_link, "RedisRequest", Watched)
    async with opened(RedisStore(redis_url, BusConfig(timeout=5))) as store:
        await publish_all(store, *(event(n, text="x" * 300) for n in range(20)))
    assert max(requests, default=0) == most
    assert max(under_way) <= bounds.under_way
    assert redis("XLEN", KEY) == 20


async def test_one_failure_does_not_affect_other_callers(store: RedisStore, redis: Redis) -> None:
    redis("SET", "bad.one:stream", "text")
    for _ in range(2):  # The second time, the server does not have the scripts.
        acks = await publish_all(
            store,
            event(0),
            event(1, name="bad.one"),
            event(2, key="k"),
            event(3, bad=float("nan")),
            event(4, name="bad.one", key="k"),
            event(5),
        )
        assert [type(outcome) for outcome in acks] == [
            Published,
            BusDamagedError,
            Published,
            InvalidEventError,
            BusDamagedError,
            Published,
        ]
        redis("SCRIPT", "FLUSH")
    assert sorted(stored(redis)) == [0, 0, 2, 5, 5]


async def test_events_of_one_task_stay_in_order(store: RedisStore, redis: Redis) -> None:
    async def publish(first: int) -> None:
        for number in range(first, first + 20):
            await store.publish([event(number)], durable=True)

    async with anyio.create_task_group() as tasks:
        for first in (0, 100, 200):
            tasks.start_soon(publish, first)
    found = stored(redis)
    assert len(found) == 60
    for first in (0, 100, 200):
        assert [n for n in found if first <= n < first + 100] == list(range(first, first + 20))


async def test_cancelled_caller_does_not_affect_others(
    requests: list[int], store: RedisStore, redis: Redis
) -> None:
    redis("CLIENT", "PAUSE", 100, "ALL")
    async with anyio.create_task_group() as others, anyio.create_task_group() as tasks:
        await started(tasks, partial(store.publish, [event(1)], durable=True))
        for number in (2, 3, 4, 5):
            running = tasks if number == 2 else others
            running.start_soon(partial(store.publish, [event(number)], durable=True))
        await settled()
        tasks.cancel_scope.cancel()
    assert requests == [1, 4]
    assert {3, 4, 5} <= set(stored(redis))
    await store.publish([event(6)], durable=True)
    assert len(stored(redis)) == len(set(stored(redis)))


async def test_lost_connection_raises_in_all_callers(store: RedisStore, redis: Redis) -> None:
    redis("CLIENT", "PAUSE", 150, "WRITE")
    acks: list[Outcome] = []

    async def publish() -> None:
        acks.extend(await publish_all(store, *(event(n) for n in range(10))))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish)
        await eventually(lambda: "cmd=xadd" in redis("CLIENT", "LIST"))
        redis("CLIENT", "KILL", "TYPE", "normal")
    assert {type(outcome) for outcome in acks} == {BusUnavailableError}
    assert len(acks) == 10
    redis("CLIENT", "UNPAUSE")
    again = await publish_all(store, *(event(n, key=f"k{n}") for n in range(10, 20)))
    assert {type(outcome) for outcome in again} == {Published}
    assert sorted(stored(redis)) == list(range(10, 20))  # Each command was sent once.


async def test_unresponsive_server_raises_in_all_callers(redis_url: str, redis: Redis) -> None:
    async with opened(RedisStore(redis_url, BusConfig(timeout=0.1))) as store:
        redis("CLIENT", "PAUSE", 200, "ALL")
        acks = await publish_all(store, *(event(n) for n in range(5)))
        assert {type(outcome) for outcome in acks} == {BusUnavailableError}
        redis("CLIENT", "UNPAUSE")
        assert isinstance((await publish_all(store, event(9)))[0], Published)
