"""Tests of ClockedBackend: what uses the other clock, and what still uses the loop's."""

from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import create_task_group, fail_after

from parley._node.testing import FakeClock
from parley._node.transport.backend import ClockedBackend
from parley._node.transport.task_scope import current_backend
from tests.node.network import eventually, settled

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=50)


@pytest.fixture
async def backend(anyio_backend: str, clock: FakeClock) -> AsyncIterator[ClockedBackend]:
    async with create_task_group() as tasks:
        backend = ClockedBackend(current_backend(tasks), clock)
        yield backend
        with fail_after(2):
            await backend.aclose()


async def test_its_time_is_the_clock_s(backend: ClockedBackend, clock: FakeClock) -> None:
    called: list[float] = []
    backend.call_at(60, lambda: called.append(backend.now()))
    backend.call_at(55, lambda: called.append(-1.0)).cancel()
    await settled()
    assert (backend.now(), called) == (50, [])
    clock.advance(20)
    assert (backend.now(), called) == (70, [60])


@pytest.mark.parametrize("when", [-5.0, 50.0])
async def test_what_is_due_already_does_not_wait_for_the_clock(
    backend: ClockedBackend, when: float
) -> None:
    called: list[float] = []
    backend.call_at(when, lambda: called.append(backend.now()))
    assert called == []
    await eventually(lambda: called == [50])


async def test_waits_callbacks_and_tasks_are_the_loop_s(backend: ClockedBackend) -> None:
    waiter = backend.waiter()
    told: list[str] = []

    async def sleeper() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            told.append("cancelled")

    runner = backend.spawn(sleeper)
    backend.call_soon(waiter.wake)
    with fail_after(2):
        await waiter
    await settled()
    runner.cancel()
    await eventually(lambda: told == ["cancelled"])


async def test_other_threads_are_the_loop_s(backend: ClockedBackend) -> None:
    called: list[None] = []
    await anyio.to_thread.run_sync(backend.call_soon_threadsafe, lambda: called.append(None))
    await eventually(lambda: bool(called))
