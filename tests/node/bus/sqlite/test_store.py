"""The whole store: opened, closed, cancelled, and next to another store on the same file."""

import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError, BusDamagedError
from parley._node.bus.model import PendingInfo, Trim
from parley._node.bus.sqlite import store as sqlite_store
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.bus.store import Store
from parley._node.errors import ConfigError
from tests.inspection import running_of
from tests.node.bus.sqlite.stage import GROUP, STREAM, Clock, Stage, new, stage
from tests.node.bus.stores import opened
from tests.node.network import PATIENCE, eventually, task_scope

pytestmark = pytest.mark.anyio

ASKS: list[Callable[[Store], Awaitable[Any]]] = [
    lambda store: store.publish([new()], durable=True),
    lambda store: store.join(STREAM, GROUP, "c", "0-0"),
    lambda store: store.read(STREAM, GROUP, "c", 1, 1),
    lambda store: store.recover_pending(STREAM, GROUP, "c", 1),
    lambda store: store.claim(STREAM, GROUP, "c", 1, 1),
    lambda store: store.touch(STREAM, GROUP, "c", []),
    lambda store: store.ack(STREAM, GROUP, []),
    lambda store: store.nack(STREAM, GROUP, "c", "1-0", 0, ""),
    lambda store: store.release(STREAM, GROUP, "c", []),
    lambda store: store.bury(STREAM, GROUP, "c", "1-0", ""),
    lambda store: store.streams(),
    lambda store: store.groups(STREAM),
    lambda store: store.consumers(STREAM, GROUP),
    lambda store: store.pending(STREAM, GROUP, 1, "0-0"),
    lambda store: store.history(STREAM, "0-0", None, 1, 1),
    lambda store: store.rewind(STREAM, GROUP, "0-0"),
    lambda store: store.redeliver(STREAM, GROUP, []),
    lambda store: store.trim(STREAM, Trim()),
    lambda store: store.drop(STREAM, []),
    lambda store: store.remove_consumers(STREAM, GROUP, 1),
    lambda store: store.remove_group(STREAM, GROUP),
]


async def test_closed_store_raises_and_leaves_one_file(anyio_backend: str, tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "bus.db"), BusConfig())
    await store.aclose()
    for ask in ASKS:
        with pytest.raises(BusClosedError):
            await ask(store)
    async with task_scope() as backend:
        await store.open(backend)
        for ask in ASKS:
            if ask not in (ASKS[2], ASKS[14]):
                await ask(store)
        await store.aclose()
        for ask in ASKS:
            with pytest.raises(BusClosedError):
                await ask(store)
        await store.aclose()
    assert os.listdir(tmp_path) == ["bus.db"]


async def test_failed_open_raises_and_ends_its_thread(anyio_backend: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    for path, error in (("none/bus.db", ConfigError), ("text", BusDamagedError)):
        store = SqliteStore(str(tmp_path / path), BusConfig())
        async with task_scope() as backend:
            with pytest.raises(error):
                await store.open(backend)
        with pytest.raises(BusClosedError):
            await store.streams()


async def test_closing_finishes_queued_operations(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as on, anyio.create_task_group() as tasks:
        with clock.held():
            for _ in range(20):
                tasks.start_soon(on.publish)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(on.store.aclose)
            await anyio.wait_all_tasks_blocked()
    async with stage(tmp_path, clock) as on:
        assert len(await on.stored()) == 20


async def test_closing_a_blocked_disk_times_out(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.01)
    async with stage(tmp_path, busy_timeout=0) as on, anyio.create_task_group() as tasks:
        with on.clock.held():
            tasks.start_soon(on.publish)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(PATIENCE / 2):
                await on.store.aclose()
            running = running_of(on.store)
            assert not running._ended  # The blocked operation is still blocked.
            with pytest.raises(BusClosedError):
                await on.store.streams()


async def test_operation_cancelled_in_the_queue_is_not_run(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on, anyio.create_task_group() as tasks:
        with on.clock.held():
            before = on.clock.asked
            tasks.start_soon(on.store.streams)  # The thread has taken it, and is blocked in it.
            await eventually(lambda: on.clock.asked > before)
            with anyio.move_on_after(0.01):
                await on.publish()
        assert await on.stored() == []


async def taken_and_left(on: Stage, ask: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Let the thread take an operation, and cancel its caller before it is done."""
    before = on.clock.asked
    async with anyio.create_task_group() as tasks:
        with on.clock.held():
            tasks.start_soon(ask)
            await eventually(lambda: on.clock.asked > before)
            tasks.cancel_scope.cancel()
            await anyio.lowlevel.cancel_shielded_checkpoint()


async def test_deliveries_to_a_cancelled_caller_are_released(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(2)
        await on.join()
        for ask in (on.read, on.claim):
            await taken_and_left(on, ask)
            with anyio.fail_after(PATIENCE):
                while [one.due_in for one in await pending(on)] != [0, 0]:
                    await anyio.lowlevel.checkpoint()
            assert await on.read() == []
        assert await pending(on) == [PendingInfo(id, "", 0, 0, 0) for id in ids]
        assert await on.claim() == dict.fromkeys(ids, 1)


async def pending(on: Stage) -> list[PendingInfo]:
    return await on.store.pending(STREAM, GROUP, 9, "0-0")


async def test_two_stores_on_one_file_see_the_same(anyio_backend: str, tmp_path: Path) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as one, stage(tmp_path, clock) as other:
        (first,) = await one.store.publish([new(1, "k")], durable=False)
        assert await other.store.publish([new(1, "k")], durable=True) == [(first.id, True)]
        ids = [first.id, *await other.publish(1), *await one.publish(1)]
        assert ids == sorted(ids) == [event.id for event in await other.stored()]
        await one.join()
        await other.join("d")
        assert await one.read(1) + await other.read(1, "d") + await one.read(1) == ids
        assert await one.store.groups(STREAM) == await other.store.groups(STREAM)
        assert await other.store.ack(STREAM, GROUP, ids[:2]) == 2
        assert await one.store.ack(STREAM, GROUP, ids) == 1
        assert (await other.store.groups(STREAM))[0].pending == 0
        await other.store.aclose()
        assert len(await one.publish()) == 1


@pytest.mark.parametrize("name", ["bus.db", ":memory:", "file:bus.db?mode=memory"])
async def test_path_is_independent_of_the_working_directory(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for directory in ("there", "elsewhere"):
        (tmp_path / directory).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    store = SqliteStore(name, BusConfig())
    monkeypatch.chdir(tmp_path / "elsewhere")
    async with opened(store):
        await store.publish([new()], durable=True)
    assert (tmp_path / "there" / name).stat().st_size
    assert list((tmp_path / "elsewhere").iterdir()) == []
