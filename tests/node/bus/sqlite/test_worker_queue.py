"""The queue: its limit, its order, and callers that leave it."""

import asyncio

import anyio
import pytest

from parley._node.bus.errors import BusClosedError
from parley._node.bus.sqlite.worker import READ, Operation, WorkQueue
from parley._node.transport.asyncio_backend import AsyncioBackend
from tests.node.network import eventually, task_scope

pytestmark = pytest.mark.anyio


def taken(line: WorkQueue) -> list[Operation]:
    return [found for found in line.take(0) if found is not None]


def name_of(operation: Operation) -> str:
    return str(operation.run())


async def test_queue_is_bounded_and_further_callers_wait_in_order(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        line = WorkQueue(backend, 2)
        done: list[str] = []

        async def ask(name: str) -> None:
            await line.do(READ, lambda: name)
            done.append(name)

        for name in "abcde":
            tasks.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
        for expected in ("ab", "cd", "e"):
            operations = taken(line)
            # On trio, callers that are admitted together run in any order.
            assert sorted(map(name_of, operations)) == list(expected)
            assert taken(line) == []  # Their slots stay occupied until they are done.
            line.finished(operations)
            await anyio.wait_all_tasks_blocked()
        await eventually(lambda: sorted(done) == list("abcde"))


async def test_cancelled_caller_frees_its_slot(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        line = WorkQueue(backend, 1)
        scopes: dict[str, anyio.CancelScope] = {}
        done: list[str] = []

        async def ask(name: str) -> None:
            with anyio.CancelScope() as scopes[name]:
                done.append(await line.do(READ, lambda: name))

        for name in "abc":
            tasks.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
        for name in "ab":  # In the queue, and waiting before it.
            scopes[name].cancel()
        await anyio.wait_all_tasks_blocked()
        (first,) = taken(line)
        assert first.abandoned
        line.finished([first])
        await anyio.wait_all_tasks_blocked()
        (last,) = taken(line)
        last.result = name_of(last)
        line.finished([last])
        await eventually(lambda: done == ["c"])


def test_admitted_and_cancelled_caller_frees_its_slot() -> None:
    async def main() -> None:
        line = WorkQueue(AsyncioBackend(), 1)
        asks = []
        for name in "abc":
            asks.append(asyncio.create_task(line.do(READ, lambda name=name: name)))
            await asyncio.sleep(0)
        line.finished(taken(line))  # Admits b, which has not been resumed yet.
        asks[1].cancel()  # asyncio's own function, because anyio's would let b continue first.
        await asyncio.wait(asks[:2])
        await asyncio.sleep(0)
        (last,) = taken(line)
        assert name_of(last) == "c"
        line.finished([last])
        await asks[2]

    asyncio.run(main())


async def test_closed_queue_accepts_no_operations(anyio_backend: str) -> None:
    async with task_scope() as backend, anyio.create_task_group() as tasks:
        line = WorkQueue(backend, 1)

        async def refused() -> None:
            with pytest.raises(BusClosedError):
                await line.do(READ, lambda: None)

        tasks.start_soon(line.do, READ, lambda: "in line")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(refused)  # Waits for a slot.
        tasks.start_soon(refused)
        await anyio.wait_all_tasks_blocked()
        line.close()
        operations = line.take(0)
        assert operations[1:] == [None]
        line.finished([found for found in operations if found is not None])
        await refused()
