"""Simulated time advances when all tasks are idle, and not while work is unfinished."""

from datetime import UTC, datetime

import anyio

from parley._node.apps.simulate.simulated_time import SimulatedTime


async def test_hours_pass_at_once_and_records_follow_each_other(anyio_backend: str) -> None:
    time = SimulatedTime(datetime(2026, 3, 1, tzinfo=UTC))
    start = time.nanoseconds()
    assert start == 1_772_323_200 * 10**9
    assert time.nanoseconds() == start + 1_000
    passed: list[float] = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(time.run, lambda: False, passed.append)
            await time.sleep(3_600)
            await time.sleep(0.5)
            tasks.cancel_scope.cancel()
    assert passed == [3_600, 3_600.5]
    assert time.nanoseconds() == start + 3_600_500_000_000


async def test_time_waits_for_unfinished_work(anyio_backend: str) -> None:
    time = SimulatedTime()
    looks: list[float] = []

    def behind() -> bool:
        looks.append(time.clock.now())
        return len(looks) < 4

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(time.run, behind, lambda _: None)
            await time.sleep(1)
            tasks.cancel_scope.cancel()
    assert looks[:4] == [0.0] * 4
    assert time.clock.now() == 1.0
