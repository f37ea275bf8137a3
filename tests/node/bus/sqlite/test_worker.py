"""The thread: many operations in one transaction, each with its own result."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._node.bus.errors import BusBusyError, BusFullError, InvalidEventError
from parley._node.bus.model import NewEvent, Trim
from tests.node.bus.sqlite.stage import GROUP, STREAM, Clock, Stage, new, stage

pytestmark = pytest.mark.anyio


async def together(clock: Clock, *asks: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Return the result or error of each operation, when all are queued at the same time."""
    acks: list[Any] = [None] * len(asks)

    async def ask(number: int) -> None:
        try:
            acks[number] = await asks[number]()
        except Exception as error:
            acks[number] = type(error)

    async with anyio.create_task_group() as tasks:
        with clock.held():
            for number in range(len(asks)):
                tasks.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
    return acks


async def until_full(on: Stage) -> list[str]:
    """Publish until there is no space; return the IDs."""
    ids: list[str] = []
    while len(ids) < 300:
        try:
            ids += await on.publish(1, size=10_000)
        except BusFullError:
            break
    return ids


def publishing(on: Stage, event: NewEvent, *, durable: bool = True) -> Callable[[], Awaitable[Any]]:
    return lambda: on.store.publish([event], durable=durable)


async def test_queued_operations_share_transactions(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        before = on.clock.asked
        asks = [publishing(on, new(number), durable=number % 2 == 0) for number in range(50)]
        acks = await together(on.clock, *asks)
        assert {one.id for (one,) in acks} == {one.id for one in await on.stored()}
        # The first operation may run alone, all others run together; one more read the result.
        assert on.clock.asked - before <= 3


async def test_one_failing_operation_does_not_affect_others(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        bad = NewEvent(STREAM, {}, "\ud800")
        acks = await together(
            on.clock,
            publishing(on, new(1)),
            publishing(on, bad),
            publishing(on, new(2, "k")),
            lambda: on.store.ack(STREAM, GROUP, ["no id"]),
            lambda: on.store.join(STREAM, GROUP, "c", "0-0"),
            publishing(on, new(3, "k")),
        )
        assert acks[1] is InvalidEventError
        assert acks[2][0].duplicate is not acks[5][0].duplicate
        assert len(await on.stored()) == 2


async def test_reads_continue_while_another_process_writes(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(2)
        with closing(sqlite3.connect(on.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            acks = await together(
                on.clock,
                publishing(on, new(1)),
                lambda: on.store.read(STREAM, GROUP, "c", 9, 0),
                on.store.streams,
                lambda: on.store.history(STREAM, "0-0", None, 9, 0),
            )
            assert [one.id for one in acks[3]] == ids
            assert acks[2][0].length == 2
            assert acks[:2] == [BusBusyError, BusBusyError]
            other.execute("ROLLBACK")
        await on.publish()
        assert len(await on.read()) == 3


async def test_operation_without_space_does_not_affect_others(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path, max_store_bytes=2**20, max_length=None) as on:
        await on.join()
        await until_full(on)
        stored = [one.id for one in await on.stored()]
        acks = await together(
            on.clock,
            publishing(on, new(1, size=50_000)),
            lambda: on.read(50),
            publishing(on, new(2, size=50_000)),
        )
        assert acks == [BusFullError, stored[:50], BusFullError]
        assert await on.store.ack(STREAM, GROUP, stored[:50]) == 50
        assert await on.store.nack(STREAM, GROUP, "c", (await on.read(1))[0], 0, "no")
        assert [one.id for one in await on.stored()] == stored
        assert await on.store.trim(STREAM, Trim(max_length=20)) == len(stored) - 20
        await on.publish(1, size=50_000)


async def test_events_beyond_the_limits_are_removed_for_space(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path, max_store_bytes=2**20, max_length=5) as on:
        await on.join()
        published = await until_full(on)
        await on.store.ack(STREAM, GROUP, await on.read())
        assert len(await on.stored()) == len(published)
        published += await on.publish(1, size=50_000)
        assert [one.id for one in await on.stored()] == published[-5:]
