"""Reading by groups on Redis: new events, other events, entries that are not events."""

import logging

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError, BusError
from parley._node.bus.identifiers import AFTER_ALL, BEFORE_ALL
from parley._node.bus.model import Trim
from parley._node.bus.redis import group_reader
from parley._node.bus.redis import group_reader as group_notes
from parley._node.bus.redis.format import LIGHTBUS
from parley._node.bus.redis.scripts import PAGE
from parley._node.bus.redis.store import RedisStore
from parley._node.errors import ConfigError
from tests.node.bus.redis.streams import ALL, KEY, C, G, Redis, S, event, ids, numbers
from tests.node.bus.stores import opened
from tests.node.network import started

pytestmark = pytest.mark.anyio


async def test_group_receives_each_event_once(store: RedisStore, redis: Redis) -> None:
    await store.publish([event(n) for n in range(3)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    await store.join(S, "later", C, AFTER_ALL)
    assert numbers(await store.read(S, G, C, 2, 0)) == [(0, 1), (1, 1)]
    assert numbers(await store.read(S, G, "two", 2, 1)) == [(2, 1)]
    assert await store.read(S, G, C, 2, 0.01) == []
    assert await store.read(S, "later", C, 2, 0) == []
    found = (await store.history(S, BEFORE_ALL, None, 1, 0))[0]
    assert (found.name, found.version, found.body) == (S, 1, '{"number":0}')


async def test_waiting_read_does_not_block_other_commands(store: RedisStore) -> None:
    await store.join(S, G, C, BEFORE_ALL)
    async with anyio.create_task_group() as tasks:
        read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
        await store.publish([event(7)], durable=True)
    assert numbers(read[0]) == [(7, 1)]  # type: ignore[arg-type] # the return value of `read`


async def test_a_long_wait_is_several_short_ones(
    store: RedisStore, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_reader, "LONGEST_BLOCK", 0.01)
    await store.join(S, G, C, BEFORE_ALL)
    redis("CONFIG", "RESETSTAT")
    async with anyio.create_task_group() as tasks:
        read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
        await anyio.sleep(0.25)  # Redis checks blocked clients ten times per second.
        await store.publish([event(7)], durable=True)
    assert numbers(read[0]) == [(7, 1)]  # type: ignore[arg-type] # the return value of `read`
    (line,) = (line for line in redis("INFO", "commandstats").splitlines() if "xreadgroup" in line)
    assert int(line.split("calls=")[1].split(",")[0]) > 1


async def test_events_of_a_cancelled_read_are_due_immediately(
    store: RedisStore, redis: Redis
) -> None:
    await store.join(S, G, C, BEFORE_ALL)
    got: list[tuple[int, int]] = []
    for n in range(5):
        async with anyio.create_task_group() as tasks:
            read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
            # The response arrives while its reader is being cancelled.
            redis("XADD", KEY, "*", *entry(n))
            tasks.cancel_scope.cancel()
        for found in read:  # It may have come in time.
            assert isinstance(found, list)
            got += numbers(found)
    with anyio.fail_after(5):
        while len(got) < 5:
            got += numbers(await store.claim(S, G, C, 5, 60))
            got += numbers(await store.read(S, G, C, 5, 0.01))
    assert sorted(got) == [(n, 1) for n in range(5)]
    assert redis("CLIENT", "LIST").count("cmd=xreadgroup") <= 2


def entry(number: int, name: str = "user_registered") -> list[str]:
    """Return the fields of an entry as Lightbus writes it."""
    return [
        *("id", f"m{number}", "api_name", "auth", "event_name", name, "version", "1"),
        *(":number", str(number)),
    ]


async def test_entry_that_is_no_event_is_delivered_as_unreadable(
    store: RedisStore, redis: Redis
) -> None:
    for fields in (["", ""], ["a", "b"], entry(1), [*entry(2)[:-1], "no json"]):
        redis("XADD", KEY, "*", *fields)
    await store.join(S, G, C, BEFORE_ALL)
    no_event, good, unreadable = await store.read(S, G, C, ALL, 0)
    assert no_event.event.body.endswith("without its metadata: a=b")
    assert numbers([good]) == [(1, 1)]
    assert "no json" in unreadable.event.body
    held = ids([no_event, good, unreadable])
    assert [one.id for one in await store.pending(S, G, ALL, BEFORE_ALL)] == held
    assert [one.id for one in await store.history(S, BEFORE_ALL, None, ALL, 0)] == held


async def test_in_a_stream_of_an_api_other_events_are_acknowledged(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    async with opened(RedisStore(redis_url, BusConfig(formats={"*": LIGHTBUS}))) as store:
        for n in range(6):
            redis("XADD", "auth.*:stream", "*", *entry(n, "user_registered" if n % 3 == 2 else "x"))
        await store.join(S, G, C, BEFORE_ALL)
        assert numbers(await store.read(S, G, C, 1, 0)) == [(2, 1)]
        assert numbers(await store.read(S, G, C, 9, 0)) == [(5, 1)]
        assert len(await store.pending(S, G, ALL, BEFORE_ALL)) == 2
        with pytest.raises(ConfigError, match="another group"):
            await store.join("auth.x", G, C, BEFORE_ALL)
        await store.join("auth.x", "another", C, BEFORE_ALL)
        (first,) = await store.history(S, BEFORE_ALL, None, 1, 0)
        (second,) = await store.history(S, first.id, None, 1, 0)
        assert await store.history(S, second.id, None, 9, 0) == []
        assert len(await store.history("auth.*", BEFORE_ALL, None, ALL, 0)) == 6


async def test_consumer_recovers_events_of_its_earlier_process(
    redis_url: str, redis: Redis, anyio_backend: str
) -> None:
    async with opened(RedisStore(redis_url, BusConfig())) as store:
        await store.publish([event(n) for n in range(3)], durable=True)
        await store.join(S, G, C, BEFORE_ALL)
        first = await store.read(S, G, C, 3, 0)
        assert await store.recover_pending(S, G, C, 5) == []
        await store.nack(S, G, C, first[2].event.id, 60, "later")
    async with opened(RedisStore(redis_url, BusConfig())) as store:
        assert await store.recover_pending(S, G, "another", 5) == []
        assert numbers(await store.recover_pending(S, G, C, 1)) == [(0, 2)]
        assert numbers(await store.recover_pending(S, G, C, 5)) == [(1, 2)]
        assert await store.recover_pending(S, G, C, 5) == []
        assert await store.claim(S, G, C, 5, 60) == []
        assert numbers(await store.claim(S, G, C, 1, 0)) == [(0, 3)]
        assert numbers(await store.claim(S, G, C, 1, 0.0)) == [(0, 4)]


async def test_claim_takes_due_events_oldest_first(store: RedisStore) -> None:
    await store.publish([event(n) for n in range(4)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    found = ids(await store.read(S, G, C, 4, 0))
    await store.nack(S, G, C, found[3], 0, "a")
    await store.nack(S, G, C, found[1], 60, "b")
    await store.release(S, G, C, [found[0], "1-1"])
    assert numbers(await store.claim(S, G, "two", 1, 60)) == [(0, 1)]
    assert numbers(await store.claim(S, G, "two", 9, 60)) == [(3, 2)]
    await anyio.sleep(0.02)
    await store.touch(S, G, "two", [found[0], found[2]])
    assert numbers(await store.claim(S, G, C, 9, 0.015)) == [(2, 2), (3, 3)]


_VANISHING = {
    "DESTROY": ("XGROUP", "DESTROY", KEY, G),
    "DEL": ("DEL", KEY),
    "FLUSHALL": ("FLUSHALL",),
}


async def test_pending_events_are_examined_in_pages(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_notes, "MOST", 100_000)
    monkeypatch.setattr(group_notes, "FIRST", 1)
    count = PAGE + 100
    await store.publish([event(n) for n in range(count)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    found = ids(await store.read(S, G, C, count, 0))
    await store.release(S, G, C, found[:PAGE])
    # Due events fill a page, and an idle event follows it.
    assert len(await store.claim(S, G, "two", 10 * count, 0)) == count
    await store.release(S, G, "two", found)
    assert len(await store.claim(S, G, "two", 10 * count, 60)) == PAGE
    assert len(await store.claim(S, G, "two", 10 * count, 60)) == 100
    assert await store.remove_consumers(S, G, 0) == [C, "two"]
    assert await store.trim(S, Trim(max_length=10)) == count - 10
    assert len(await store.pending(S, G, count, BEFORE_ALL)) == 10


@pytest.mark.parametrize("how", [*_VANISHING, "while waiting"])
async def test_vanished_group_is_recreated(
    store: RedisStore, redis: Redis, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await store.publish([event(n) for n in range(3)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    assert len(await store.read(S, G, C, 2, 0)) == 2
    async with anyio.create_task_group() as tasks:
        if how == "while waiting":
            assert len(await store.read(S, G, C, 2, 0)) == 1
            read = await started(tasks, lambda: store.read(S, G, C, 5, 5))
            redis("DEL", KEY)
            await store.publish([event(9)], durable=True)
        else:
            redis(
                *(
                    ["XGROUP", "DESTROY", KEY, G]
                    if how == "DESTROY"
                    else [how] + [KEY] * (how == "DEL")
                )
            )
            if how != "DESTROY":
                # The stream was replaced, and the clock may have been set back.
                redis("XADD", KEY, "5-0", *entry(9))
            read = await started(tasks, lambda: store.read(S, G, C, 5, 0.01))
    assert numbers(read[0]) == ([(2, 1)] if how == "DESTROY" else [(9, 1)])  # type: ignore[arg-type]  # as above
    assert "recreated the vanished group" in caplog.text
    redis("XGROUP", "DESTROY", KEY, G)
    assert await store.claim(S, G, C, 5, 0) == []
    redis("XGROUP", "DESTROY", KEY, G)
    assert await store.ack(S, G, ["5-0"]) == 0
    assert not await store.nack(S, G, C, "5-0", 0, "")
    assert await store.bury(S, G, C, "5-0", "") is None
    await store.touch(S, G, C, ["5-0"])
    await store.release(S, G, C, ["5-0"])
    assert await store.pending(S, G, 5, BEFORE_ALL) == []
    assert await store.redeliver(S, G, ["5-0"]) == []
    assert await store.read(S, G, C, 5, 0) == []


async def test_repeatedly_vanishing_group_raises(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make(*rest: object) -> None:
        """Ignore the call."""

    monkeypatch.setattr(group_reader.GroupReader, "_make", make)
    with pytest.raises(BusError):
        await store.read(S, G, C, 1, 0)


async def test_events_trimmed_while_pending_are_counted_and_logged(
    store: RedisStore, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await store.publish([event(n) for n in range(4)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    found = ids(await store.read(S, G, C, 4, 0))
    await store.nack(S, G, C, found[1], 0, "x")
    redis("XTRIM", KEY, "MAXLEN", 1)
    assert await store.bury(S, G, C, found[2], "x") is None
    assert numbers(await store.claim(S, G, "two", 9, 0)) == [(3, 2)]
    assert store.lost == 3
    assert len(await store.pending(S, G, ALL, BEFORE_ALL)) == 1
    assert "2 events of auth.user_registered were trimmed before" in caplog.text


async def test_log_lines_are_rate_limited(
    store: RedisStore, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    await store.join(S, G, C, BEFORE_ALL)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            redis("XGROUP", "DESTROY", KEY, G)
            assert await store.read(S, G, C, 100, 0) == []
    assert caplog.text.count("recreated the vanished group") == 5


async def test_number_of_remembered_deliveries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_notes, "MOST_HELD", 3)
    state = group_notes.GroupState(S, KEY, G)
    for n in (1, 2, 1, 3, 4):
        state.handed(f"{n}-0", n)
    assert list(state.held) == ["1-0", "3-0", "4-0"]


def test_number_of_remembered_consumers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_notes, "MOST_PLACES", 2)
    state = group_notes.GroupState(S, KEY, G)
    for consumer in "abac":
        state.mark_drained(consumer)
        state.mark_lost(consumer)
    assert list(state.drained) == list(state.lost) == ["a", "c"]


async def test_key_of_another_type_raises(store: RedisStore, redis: Redis) -> None:
    redis("SET", KEY, "text")
    with pytest.raises(BusDamagedError):
        await store.join(S, G, C, BEFORE_ALL)
    with pytest.raises(BusDamagedError):
        await store.read(S, G, C, 1, 0)
    with pytest.raises(BusDamagedError):
        await store.claim(S, G, C, 1, 0)
    with pytest.raises(BusDamagedError):
        await store.ack(S, G, ["1-0"])
    with pytest.raises(BusDamagedError):
        await store.nack(S, G, C, "1-0", 0, "")
