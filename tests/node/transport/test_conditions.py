"""Tests of node/transport/conditions.py: waiters check their condition after each change."""

from functools import partial

import pytest
from anyio import create_task_group, fail_after, move_on_after

from parley._node.testing import FakeClock
from parley._node.transport.backend import ClockedBackend
from parley._node.transport.conditions import Condition, is_async, pause, pause_until
from parley._node.transport.task_scope import current_backend
from tests.node.network import settled, started

pytestmark = pytest.mark.anyio


class Waits:
    async def __call__(self, argument: object = None) -> None: ...


def works(argument: object = None) -> None: ...


def test_what_is_called_as_a_coroutine_is_told() -> None:
    awaited = (Waits.__call__, Waits(), Waits().__call__, partial(Waits(), 1))
    assert [is_async(one) for one in awaited] == [True] * 4
    plain = (works, Waits, partial(works, 1), partial(partial, Waits()), None)
    assert [is_async(one) for one in plain] == [False] * 5


async def test_what_is_so_is_not_waited_for() -> None:
    async with create_task_group() as tasks:
        with fail_after(1):
            await Condition(current_backend(tasks).waiter).until(lambda: True)


async def test_each_waits_for_its_own_condition() -> None:
    async with create_task_group() as tasks:
        changes = Condition(current_backend(tasks).waiter)
        state = 0
        low = await started(tasks, lambda: changes.until(lambda: state >= 1))
        high = await started(tasks, lambda: changes.until(lambda: state >= 2))
        changes.notify()
        await settled()
        assert (low, high) == ([], [])
        state = 1
        changes.notify()
        await settled()
        assert (low, high) == ([None], [])
        state = 2
        changes.notify()
        changes.notify()
        await settled()
        assert high == [None]


async def test_who_gives_up_is_forgotten() -> None:
    async with create_task_group() as tasks:
        changes = Condition(current_backend(tasks).waiter)
        with move_on_after(0.005):
            await changes.until(lambda: False)
        assert not changes.waiters


async def test_a_pause_is_by_the_clock_of_the_loop() -> None:
    clock = FakeClock()
    async with create_task_group() as tasks:
        loop = ClockedBackend(current_backend(tasks), clock)
        slept = await started(tasks, lambda: pause(loop, 3600))
        await clock.tick(3599)
        assert slept == []
        await clock.tick(1)
        assert slept == [None]
        with move_on_after(0.005):
            await pause(loop, 3600)
        assert clock.next_timer == float("inf")  # a cancelled waiter leaves no timer


async def test_a_pause_ends_when_what_it_waits_for_is_so() -> None:
    async with create_task_group() as tasks:
        clock = FakeClock()
        loop = ClockedBackend(current_backend(tasks), clock)
        changes, so = Condition(loop.waiter), False
        waiting = await started(tasks, lambda: pause_until(loop, 5.0, changes, lambda: so))
        changes.notify()
        await settled()
        assert waiting == []
        so = True
        changes.notify()
        await settled()
        assert waiting == [None]
        assert clock.next_timer == float("inf")
        so = False
        waiting = await started(tasks, lambda: pause_until(loop, 5.0, changes, lambda: so))
        await clock.tick(4.9)
        assert waiting == []
        await clock.tick(0.1)
        assert waiting == [None]


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])
async def test_a_pause_ends_although_the_timer_is_early(anyio_backend: object) -> None:
    """Timers of uvloop count whole milliseconds."""
    async with create_task_group() as tasks:
        loop = current_backend(tasks)
        changes = Condition(loop.waiter)
        with fail_after(5):
            for number in range(100):
                await pause_until(loop, 0.001 + number / 1e5, changes, lambda: False)
