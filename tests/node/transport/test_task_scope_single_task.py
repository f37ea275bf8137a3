"""Tests of `SingleTask` in node/transport/task_scope.py."""

from collections.abc import AsyncIterator
from contextvars import Context

import anyio
import pytest
from anyio import create_task_group
from anyio.lowlevel import checkpoint

from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition
from parley._node.transport.task_scope import SingleTask, current_backend
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def backend(anyio_backend: str) -> AsyncIterator[Backend]:
    async with create_task_group() as tasks:
        backend = current_backend(tasks)
        yield backend
        await backend.aclose()


async def test_it_starts_in_a_callback_that_knows_no_loop(backend: Backend) -> None:
    """A callback of a program that uses `asyncio.run` has an empty context, as here."""
    steps: list[str] = []
    job = SingleTask(backend, Condition(backend.waiter))

    async def work() -> None:
        steps.append("started")
        await checkpoint()
        steps.append("ended")

    backend.call_soon(lambda: Context().run(job.start, work))
    await eventually(lambda: steps == ["started", "ended"] and not job.running)


async def test_one_that_is_cancelled_before_its_first_step_ends(backend: Backend) -> None:
    job = SingleTask(backend, Condition(backend.waiter))
    ended: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()  # shielded code isn't cancelled
            ended.append("cleaned up")

    for times in (1, 2):  # cancelling the first run doesn't affect the second
        job.start(work)
        await job.end()
        assert len(ended) == times

    finished: list[bool] = []

    async def finish() -> None:
        await checkpoint()
        finished.append(True)

    job.start(finish)
    await eventually(lambda: finished == [True])
