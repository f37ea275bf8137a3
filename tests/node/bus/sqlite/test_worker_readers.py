"""Waiting for events: which readers are woken, by what, and for how long."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from parley._node.bus.errors import BusClosedError
from tests.inspection import running_of
from tests.node.bus.sqlite.stage import GROUP, STREAM, Clock, Stage, ids_of, stage
from tests.node.network import PATIENCE, eventually

pytestmark = pytest.mark.anyio


async def test_publishing_wakes_the_readers_of_the_stream(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on, anyio.create_task_group() as tasks:
        got: dict[str, Any] = {}
        await on.join()

        async def read() -> None:
            got["read"] = ids_of(await on.store.read(STREAM, GROUP, "c", 9, PATIENCE))

        async def follow() -> None:
            events = await on.store.history(STREAM, "$", None, 9, PATIENCE)
            got["history"] = [event.id for event in events]

        tasks.start_soon(read)
        tasks.start_soon(follow)
        await eventually(lambda: waiting(on, STREAM) == 2)
        await anyio.wait_all_tasks_blocked()
        asked = on.clock.asked
        await on.publish(1, name="auth.other")
        await anyio.wait_all_tasks_blocked()
        assert on.clock.asked <= asked + 1  # No other reader was woken.
        ids = await on.publish(2)
        await eventually(lambda: got == {"read": ids, "history": ids})
        assert waiting(on, STREAM) == 0


async def test_wait_times_out(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.join()
        assert await on.store.read(STREAM, GROUP, "c", 9, 0.01) == []
        assert await on.store.history(STREAM, "0-0", None, 9, 0.01) == []
        assert waiting(on, STREAM) == 0


async def test_read_cancelled_before_it_ran_releases_nothing(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        await on.join()
        ids = await on.publish(2)
        with on.clock.held():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(on.publish)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(on.store.read, STREAM, GROUP, "c", 9, PATIENCE)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
        got = await on.store.read(STREAM, GROUP, "c", 9, PATIENCE)
        assert ids_of(got)[:2] == ids


async def test_rewind_wakes_readers(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on, anyio.create_task_group() as tasks:
        ids = await on.publish(1)
        await on.join(after="$")
        got: list[str] = []

        async def read() -> None:
            got.extend(ids_of(await on.store.read(STREAM, GROUP, "c", 9, PATIENCE)))

        tasks.start_soon(read)
        await eventually(lambda: waiting(on, STREAM) == 1)
        await on.store.rewind(STREAM, GROUP, "0-0")
        await eventually(lambda: got == ids)


async def test_another_process_that_publishes_is_noticed(
    anyio_backend: str, tmp_path: Path
) -> None:
    clock = Clock()
    async with (
        stage(tmp_path, clock) as on,
        stage(tmp_path, clock) as other,
        anyio.create_task_group() as tasks,
    ):
        await on.join()
        got: list[str] = []

        async def read() -> None:
            got.extend(ids_of(await on.store.read(STREAM, GROUP, "c", 9, PATIENCE)))

        tasks.start_soon(read)
        await eventually(lambda: waiting(on, STREAM) == 1)
        ids = await other.publish(1)
        await eventually(lambda: got == ids)


async def test_closing_the_store_ends_waiting_reads(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on, anyio.create_task_group() as tasks:

        async def read() -> None:
            with pytest.raises(BusClosedError):
                await on.store.read(STREAM, GROUP, "c", 9, PATIENCE)

        tasks.start_soon(read)
        await eventually(lambda: waiting(on, STREAM) == 1)
        await on.store.aclose()


def waiting(on: Stage, stream: str) -> int:
    running = running_of(on.store)
    return len(running.readers.waiters.get(stream, ()))
