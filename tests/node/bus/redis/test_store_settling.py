"""Settling a pending event on Redis: acknowledged, failed, released, or a dead letter."""

import json
import time

import pytest

from parley._node.bus.data import decode_body
from parley._node.bus.dead_letters import LONGEST_ERROR, LONGEST_HISTORY, NOT_ACKNOWLEDGED
from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.redis.format import NO_DATA
from parley._node.bus.redis.scripts import keys_of
from parley._node.bus.redis.store import RedisStore
from tests.node.bus.redis.streams import ALL, DEAD, KEY, C, G, Redis, S, event, ids, numbers

pytestmark = pytest.mark.anyio


async def handed(store: RedisStore, count: int = 1) -> list[str]:
    """Deliver events to one consumer."""
    await store.publish([event(n) for n in range(count)], durable=True)
    await store.join(S, G, C, BEFORE_ALL)
    return ids(await store.read(S, G, C, count, 0))


async def dead(store: RedisStore) -> dict[str, object]:
    """Return the newest dead letter."""
    return decode_body((await store.history(DEAD, BEFORE_ALL, None, ALL, 0))[-1].body)


async def test_acknowledged_event_leaves_no_keys(store: RedisStore, redis: Redis) -> None:
    first, second, third = await handed(store, 3)
    await store.nack(S, G, C, first, 60, "x")
    await store.nack(S, G, C, second, 0, "x")
    assert len(await store.claim(S, G, C, 1, 60)) == 1
    assert await store.ack(S, G, []) == 0
    assert await store.ack(S, G, [first, second, third, "1-1"]) == 3
    assert await store.ack(S, G, [first]) == 0
    assert redis("KEYS", "parley:bus:*") == [f"parley:bus:counts:{KEY}:{G}"]
    with pytest.raises(InvalidEventError):
        await store.ack(S, G, ["x"])


async def test_only_the_current_consumer_can_settle(store: RedisStore) -> None:
    (id,) = await handed(store)
    assert not await store.nack(S, G, "two", id, 0, "x")
    assert await store.bury(S, G, "two", id, "x") is None
    await store.release(S, G, "two", [id])
    await store.touch(S, G, "two", [id])
    assert [one[:3] for one in await store.pending(S, G, 5, BEFORE_ALL)] == [(id, C, 1)]
    assert await store.nack(S, G, C, id, 60, "x")
    assert not await store.nack(S, G, C, id, 0, "x")
    assert await store.bury(S, G, C, id, "x") is None
    (one,) = await store.pending(S, G, 5, BEFORE_ALL)
    assert (one.consumer, one.attempt) == ("", 1)
    assert one.due_in is not None
    assert 50 < one.due_in <= 60


async def test_a_release_does_not_count(store: RedisStore) -> None:
    found = await handed(store, 2)
    await store.release(S, G, C, found)
    for attempt in (1, 1):
        claimed = await store.claim(S, G, "two", 9, 60)
        assert numbers(claimed) == [(0, attempt), (1, attempt)]
        await store.release(S, G, "two", found)
    assert [group.redelivered for group in await store.groups(S)] == [0]


async def test_a_dead_letter_has_the_whole_history(store: RedisStore, redis: Redis) -> None:
    (id,) = await handed(store)
    began = time.time()  # noqa: TID251 - the server uses the system's clock
    await store.nack(S, G, C, id, 0, "no\n way")
    await store.claim(S, G, "two", 1, 60)
    await store.claim(S, G, "three", 1, 0)
    letter = await store.bury(S, G, "three", id, "x" * 600)
    found = await dead(store)
    history = found.pop("history")
    assert isinstance(history, list)
    times = [one.pop("at") for one in history]
    assert times == sorted(times)
    assert abs(times[0] - began) < 5
    assert history == [
        {"attempt": 1, "consumer": C, "error": "no way"},
        {"attempt": 2, "consumer": "two", "error": NOT_ACKNOWLEDGED},
        {"attempt": 3, "consumer": "three", "error": "x" * LONGEST_ERROR},
    ]
    assert isinstance(found.pop("idempotency_key"), str)
    assert found == {
        "id": id,
        "name": S,
        "version": 1,
        "data": {"number": 0},
        "group": G,
        "attempts": 3,
    }
    assert redis("XRANGE", f"{DEAD}:stream", "-", "+")[0][0] == letter
    assert await store.pending(S, G, 5, BEFORE_ALL) == []
    (group,) = await store.groups(S)
    assert (group.redelivered, group.dead_lettered) == (2, 1)
    assert redis("KEYS", "parley:bus:*") == [f"parley:bus:counts:{KEY}:{G}"]


async def test_a_history_is_bounded(store: RedisStore, redis: Redis) -> None:
    (id,) = await handed(store)
    for n in range(LONGEST_HISTORY + 5):
        await store.nack(S, G, C, id, 0, f"e{n}")
        await store.claim(S, G, C, 1, 60)
        kept = json.loads(
            redis("HGET", keys_of(KEY, G).past, id)
        )  # Even if it never becomes a dead letter.
        assert len(kept) == min(n + 1, LONGEST_HISTORY)
    await store.bury(S, G, C, id, "last")
    history = (await dead(store))["history"]
    assert isinstance(history, list)
    assert len(history) == LONGEST_HISTORY
    assert [history[0]["error"], history[1]["error"], history[-1]["error"]] == ["e0", "e7", "last"]


async def test_reading_again_begins_a_new_history(store: RedisStore) -> None:
    (id,) = await handed(store)
    await store.nack(S, G, C, id, 60, "old")
    await store.rewind(S, G, BEFORE_ALL)
    assert numbers(await store.read(S, G, C, 5, 0)) == [(0, 1)]
    assert await store.claim(S, G, C, 5, 60) == []
    await store.nack(S, G, C, id, 0, "new")
    await store.claim(S, G, C, 5, 60)
    await store.bury(S, G, C, id, "last")
    found = await dead(store)
    assert [one["error"] for one in found["history"]] == ["new", "last"]  # type: ignore[attr-defined] # JSON


@pytest.mark.parametrize("value", ["NaN", "no json"])
async def test_data_that_cannot_be_encoded_is_buried_as_text(
    store: RedisStore, redis: Redis, value: str
) -> None:
    fields = ["id", "m", "api_name", "auth", "event_name", "user_registered", "version", "1"]
    redis("XADD", KEY, "*", *fields, ":a", value)
    await store.join(S, G, C, BEFORE_ALL)
    (one,) = await store.read(S, G, C, 1, 0)
    assert await store.bury(S, G, C, one.event.id, "unreadable")
    found = await dead(store)
    assert found["data"] is None
    assert found["body"] == (f"{NO_DATA}a=no json" if value == "no json" else f'{{"a":{value}}}')
    assert json.dumps(found)


async def test_ids_may_be_written_shorter(store: RedisStore, redis: Redis) -> None:
    metadata = ("id", "m", "api_name", "auth", "event_name", "user_registered", "version", "1")
    redis("XADD", KEY, "5-0", *metadata, ":number", "0")
    await store.join(S, G, C, BEFORE_ALL)
    (first,) = await store.read(S, G, C, 1, 0)
    await store.nack(S, G, C, first.event.id, 0, "no")
    await store.claim(S, G, C, 1, 60)
    assert await store.ack(S, G, ["5"]) == 1
    assert redis("KEYS", f"parley:bus:*:{KEY}:{G}") == [f"parley:bus:counts:{KEY}:{G}"]
