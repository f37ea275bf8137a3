"""Retention, trimming, and repositioning of groups."""

from pathlib import Path
from typing import Any

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.model import Trim
from parley._node.bus.sqlite import maintenance
from parley._node.bus.sqlite.events import OVERHEAD
from tests.node.bus.sqlite.stage import GROUP, STREAM, Clock, Stage, stage

pytestmark = pytest.mark.anyio


async def ids(on: Stage) -> list[str]:
    return [event.id for event in await on.stored()]


async def lag(on: Stage) -> int | None:
    return (await on.store.groups(STREAM))[0].lag


@pytest.mark.parametrize(
    ("bounds", "most"),
    [({"max_length": 100}, 106), ({"max_bytes": 10_000}, 160), ({"max_age": 10}, 20)],
    ids=["length", "size", "age"],
)
async def test_retention_while_publishing(
    anyio_backend: str, tmp_path: Path, bounds: dict[str, Any], most: int
) -> None:
    async with stage(tmp_path, **bounds) as on:
        published = []
        for _ in range(40):
            published += await on.publish(10)
            on.clock.now += 5.001
        left = await ids(on)
        assert 20 <= len(left) + 1 <= most + 10
        assert left == published[-len(left) :]
        (info,) = await on.store.streams()
        assert info.length == len(left)
        assert info.size < len(left) * (OVERHEAD + 60)


@pytest.mark.parametrize("keep_unread", [True, False])
async def test_keep_unread_keeps_events_that_a_group_needs(
    anyio_backend: str, tmp_path: Path, keep_unread: bool
) -> None:
    async with stage(tmp_path, max_length=10, keep_unread=keep_unread) as on:
        await on.join()
        published = await on.publish(40)
        assert len(await ids(on)) == (40 if keep_unread else 10)
        read = await on.read(30)
        await on.store.ack(STREAM, GROUP, [*read[:5], *read[6:]])
        published += await on.publish(1)
        left = await ids(on)
        # An unacknowledged event keeps all later ones.
        assert left == published[5:] if keep_unread else len(left) <= 11
        await on.store.ack(STREAM, GROUP, [*read, *await on.read()])
        await on.publish(2)
        assert len(await ids(on)) <= 11


async def test_lower_limit_is_reached_in_steps(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock, max_length=None) as on:
        await on.publish(1_000)
    async with stage(tmp_path, clock, max_length=10) as on:
        await on.publish(1)
        assert len(await ids(on)) == 1_001 - maintenance.RETAINED_PIECE
        for _ in range(8):
            await on.publish(1)
        assert len(await ids(on)) == 10


async def test_trim_removes_the_oldest_events_read_or_not(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PIECE", 3)
    async with stage(tmp_path) as on:
        published = await on.publish(20)
        await on.join()
        await on.read(4)
        trim = on.store.trim
        assert await trim(STREAM, Trim()) == 0
        assert await trim(STREAM, Trim(max_length=15)) == 5
        assert await lag(on) == 15
        assert (await on.store.groups(STREAM))[0].pending == 0
        assert await on.store.ack(STREAM, GROUP, published[:4]) == 0
        assert await trim(STREAM, Trim(before=published[8])) == 3
        (info,) = await on.store.streams()
        assert await trim(STREAM, Trim(max_bytes=info.size - 1)) == 1
        assert await trim(STREAM, Trim(max_length=100, before="0-0", max_bytes=10**9)) == 0
        assert await ids(on) == published[9:]
        assert await lag(on) == 11
        assert await trim(STREAM, Trim(max_length=0)) == 11
        assert await lag(on) == 0
        assert await trim("no.stream", Trim(max_length=0)) == 0
        assert [one.length for one in await on.store.streams()] == [0]


async def test_drop_keeps_lag_and_pending_correct(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        published = await on.publish(6)
        (other,) = await on.publish(1, name="auth.other")
        await on.join()
        await on.read(2)
        dropped = [published[1], published[4], other, "1-0"]
        assert await on.store.drop(STREAM, dropped) == 2
        assert await on.store.drop(STREAM, dropped) == 0
        (group,) = await on.store.groups(STREAM)
        assert (group.lag, group.pending) == (3, 1)
        assert await on.read() == [published[2], published[3], published[5]]


async def test_rewound_group_rereads_events(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        published = await on.publish(5)
        await on.join()
        await on.read(4)
        await on.store.nack(STREAM, GROUP, "c", published[2], 0, "no")
        await on.store.rewind(STREAM, GROUP, published[0])
        (group,) = await on.store.groups(STREAM)
        assert (group.lag, group.pending, group.last_id) == (4, 4, published[0])
        again = await on.store.read(STREAM, GROUP, "d", 2, 0)
        assert [(one.event.id, one.attempt) for one in again] == [
            (published[1], 1),
            (published[2], 1),
        ]
        assert await on.claim() == {}  # It was due, and is pending now.
        (group,) = await on.store.groups(STREAM)
        assert (group.lag, group.pending) == (2, 4)
        await on.store.rewind(STREAM, GROUP, "$")
        assert await on.read() == []
        await on.store.rewind("auth.other", "made", "0-0")
        assert [one.name for one in await on.store.groups("auth.other")] == ["made"]


async def test_redelivered_events_are_due_with_attempts_reset(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        published = await on.publish(4)
        await on.join()
        read = await on.read(3)
        await on.store.nack(STREAM, GROUP, "c", read[0], 50, "no")
        await on.store.ack(STREAM, GROUP, read[1:2])
        await on.store.drop(STREAM, read[2:])
        given = await on.store.redeliver(STREAM, GROUP, published)
        assert given == [published[0], published[1], published[3]]
        (group,) = await on.store.groups(STREAM)
        assert group.pending == 3
        assert await on.claim() == dict.fromkeys(given, 1)
        assert await on.store.redeliver(STREAM, GROUP, []) == []
        assert await on.store.redeliver(STREAM, "no such group", published) == []


async def test_events_of_removed_idle_consumers_are_due(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (id,) = await on.publish()
        await on.join()
        await on.read()
        on.clock.now += 10
        await on.join("d")
        assert await on.store.remove_consumers(STREAM, GROUP, 10.5) == []
        assert await on.store.remove_consumers(STREAM, GROUP, 10) == ["c"]
        assert [one.name for one in await on.store.consumers(STREAM, GROUP)] == ["d"]
        (pending,) = await on.store.pending(STREAM, GROUP, 9, "0-0")
        assert (pending.consumer, pending.due_in) == ("", 0)
        assert await on.claim() == {id: 2}
        await on.store.bury(STREAM, GROUP, "d", id, "no")
        (letter,) = await on.letters()
        assert [entry["error"] for entry in letter["history"]] == ["not acknowledged", "no"]


async def test_idle_consumers_are_removed_automatically(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path, consumer_ttl=100) as on:
        (id,) = await on.publish()
        await on.join()
        await on.read()
        on.clock.now += 99
        await on.join("d")
        assert await on.claim("d", idle=1_000) == {}
        on.clock.now += 26  # Idle consumers are removed four times per `consumer_ttl`.
        assert await on.claim("d", idle=1_000) == {id: 2}
        assert [one.name for one in await on.store.consumers(STREAM, GROUP)] == ["d"]


async def test_idle_consumers_are_checked_at_least_hourly(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        await on.join()
        on.clock.now += BusConfig().consumer_ttl - 60
        await on.join("d")
        assert len(await on.store.consumers(STREAM, GROUP)) == 2
        on.clock.now += 3_600
        await on.join("d")
        assert [one.name for one in await on.store.consumers(STREAM, GROUP)] == ["d"]


async def test_removing_a_group_removes_its_pending_events(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        await on.publish(2)
        await on.join()
        await on.read(1)
        assert await on.store.remove_group(STREAM, GROUP)
        assert not await on.store.remove_group(STREAM, GROUP)
        assert await on.store.groups(STREAM) == []
        assert await on.store.pending(STREAM, GROUP, 9, "0-0") == []
        assert await on.store.consumers(STREAM, GROUP) == []
        await on.join()
        assert len(await on.read()) == 2
