"""Publishing: ascending IDs, and idempotency keys with limits of age and number."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parley._node.bus.errors import InvalidEventError
from parley._node.bus.identifiers import parse_id
from parley._node.bus.model import NewEvent, StreamInfo
from parley._node.bus.sqlite.events import size_of
from tests.node.bus.sqlite.stage import STREAM, Clock, new, stage

pytestmark = pytest.mark.anyio


async def test_events_are_stored_unchanged_and_in_order(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        events = [new(1), new(2, "k"), NewEvent(STREAM, {}, '{"é":"\U0001f600"}', None, 7)]
        published = await on.store.publish(events, durable=True)
        stored = await on.stored()
        assert [one.id for one in published] == [event.id for event in stored]
        assert [event[1:] for event in stored] == [
            (event.name, event.body, event.key, event.version) for event in events
        ]
        (info,) = await on.store.streams()
        size = sum(size_of(event.body) for event in events)
        assert info == StreamInfo(STREAM, 3, size, published[0].id, published[2].id)
        assert await on.store.publish([], durable=True) == []


async def test_ids_ascend_despite_clock_changes_and_restarts(
    anyio_backend: str, tmp_path: Path
) -> None:
    clock = Clock()
    ids = []
    for step in (0, -3_600, 0.001, 0, -1e12, 7_200):
        clock.now += step
        async with stage(tmp_path, clock) as on:
            ids += await on.publish(2)
            # The ID of a deleted event is not reused.
            await on.store.drop(STREAM, ids[-1:])
            clock.now = max(clock.now, 0.0)
    numbers = [parse_id(id) for id in ids]
    assert numbers == sorted(set(numbers))


async def test_a_key_is_one_event_within_the_window(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path, idempotency_window=60) as on:
        publish = on.store.publish
        first, again, other = await publish([new(1, "k"), new(2, "k"), new(3, "l")], durable=True)
        assert (again.id, again.duplicate) == (first.id, True)
        assert not first.duplicate
        assert not other.duplicate
        (elsewhere,) = await publish([new(1, "k", name="auth.other")], durable=True)
        assert not elsewhere.duplicate
        await on.store.drop(STREAM, [first.id])  # It was published as well.
        on.clock.now += 59
        assert (await publish([new(1, "k")], durable=False))[0] == (first.id, True)
        on.clock.now += 1
        assert not (await publish([new(1, "k")], durable=True))[0].duplicate


async def test_keys_are_remembered_over_a_restart(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as on:
        (first,) = await on.store.publish([new(1, "k")], durable=True)
    async with stage(tmp_path, clock) as on:
        assert await on.store.publish([new(1, "k")], durable=True) == [(first.id, True)]


async def test_oldest_key_is_forgotten_beyond_the_limit(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path, idempotency_keys=3) as on:
        for number in range(5):
            await on.store.publish([new(number, f"k{number}")], durable=False)
        again = await on.store.publish([new(0, f"k{number}") for number in (2, 3, 4)], durable=True)
        assert [one.duplicate for one in again] == [True, True, True]
        for key in ("k1", "k0"):
            assert not (await on.store.publish([new(0, key)], durable=True))[0].duplicate
    async with stage(tmp_path, idempotency_keys=1) as on:  # Fewer than before.
        for number in range(3):
            await on.store.publish([new(0, f"new{number}")], durable=True)
        assert not (await on.store.publish([new(0, "k4")], durable=True))[0].duplicate


async def test_lower_key_limit_is_reached_gradually(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as on:
        await on.store.publish([new(0, f"k{number}") for number in range(10)], durable=True)
    async with stage(tmp_path, clock, idempotency_keys=1) as on:
        with closing(sqlite3.connect(on.path)) as connection:
            counts = []
            for number in range(4):
                await on.store.publish([new(0, f"new{number}")], durable=True)
                counts += connection.execute("SELECT count(*) FROM keys").fetchone()
    assert counts == [7, 4, 1, 1]


@pytest.mark.parametrize(
    "event",
    [NewEvent(STREAM, {}, "\ud800"), NewEvent(STREAM, {}, "{}", None, 2**63), new(0, "\udfff")],
    ids=["body", "version", "key"],
)
async def test_data_that_sqlite_cannot_store_fails_the_whole_publish(
    anyio_backend: str, tmp_path: Path, event: NewEvent
) -> None:
    async with stage(tmp_path) as on:
        with pytest.raises(InvalidEventError):
            await on.store.publish([new(1), event, new(2)], durable=True)
        assert await on.stored() == []
        assert len(await on.publish()) == 1
