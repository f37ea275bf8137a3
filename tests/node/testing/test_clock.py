"""Tests of node/testing/clock.py: the clock alone, then nodes that use it."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
from anyio import create_task_group, fail_after, move_on_after

from parley import CallTimeout, Node
from parley._crypto.identity import Identity
from parley._node.testing import FakeClock, connected_nodes
from tests.node.network import config, eventually, other_tasks, started

pytestmark = pytest.mark.anyio


def noting(called: list[str], clock: FakeClock, name: str) -> Callable[[], None]:
    return lambda: called.append(f"{name} at {clock.now():g}")


# The clock alone.


def test_clock_moves_only_on_command() -> None:
    clock = FakeClock(start=5)
    assert [clock.now(), clock.now()] == [5, 5]
    clock.advance(2.5)
    assert clock.now() == 7.5
    clock.advance(0)
    assert clock.now() == 7.5


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("inf"), float("nan")])
async def test_time_cannot_go_back(seconds: float) -> None:
    clock = FakeClock()
    with pytest.raises(ValueError, match="cannot advance the clock by"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="cannot advance the clock by"):
        await clock.tick(seconds)
    assert clock.now() == 1_000


def test_timers_are_called_in_the_order_of_their_time() -> None:
    clock = FakeClock(start=0)
    called: list[str] = []
    for name, when in (("late", 3), ("first", 1), ("second", 1), ("middle", 2), ("never", 4)):
        clock.call_at(when, noting(called, clock, name))
    clock.advance(0.5)
    assert called == []
    clock.advance(2.5)
    assert called == ["first at 1", "second at 1", "middle at 2", "late at 3"]
    assert clock.now() == 3
    assert clock.next_timer == 4


def test_a_cancelled_timer_is_not_called() -> None:
    clock = FakeClock(start=0)
    called: list[str] = []
    timer = clock.call_at(1, noting(called, clock, "cancelled"))
    clock.call_at(1, noting(called, clock, "kept"))
    timer.cancel()
    timer.cancel()
    clock.advance(1)
    assert called == ["kept at 1"]
    assert clock.next_timer == float("inf")


def test_a_timer_may_set_another_and_cancel_one() -> None:
    clock = FakeClock(start=0)
    called: list[str] = []
    doomed = clock.call_at(2, noting(called, clock, "doomed"))

    def first() -> None:
        doomed.cancel()
        clock.call_at(1.5, noting(called, clock, "set"))
        clock.call_at(0.5, noting(called, clock, "past"))

    clock.call_at(1, first)
    clock.advance(3)
    assert called == ["past at 1", "set at 1.5"]
    assert clock.now() == 3


def test_error_of_a_callback_propagates() -> None:
    clock = FakeClock(start=0)
    called: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    clock.call_at(1, fail)
    clock.call_at(2, noting(called, clock, "other"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(5)
    assert clock.now() == 1
    clock.advance(5)
    assert called == ["other at 2"]


async def test_sleepers_wake_one_after_another() -> None:
    clock = FakeClock(start=0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))

    async with create_task_group() as tasks:
        for name, seconds in (("b", 2.0), ("a", 1.0), ("none", 0.0)):
            tasks.start_soon(sleeper, name, seconds)
        await clock.tick(1.5)
        assert woken == [("none", 0), ("a", 1)]
        await clock.tick(10)
    assert woken == [("none", 0), ("a", 1), ("b", 2)]


async def test_a_cancelled_sleeper_leaves_no_timer() -> None:
    clock = FakeClock()
    with move_on_after(0.01) as scope:
        await clock.sleep(60)
    assert scope.cancelled_caught
    assert clock.next_timer == float("inf")


async def test_tick_returns_although_nodes_exchange_messages_endlessly() -> None:
    clock = FakeClock(start=0)

    async def chatter() -> None:
        while True:
            clock.now()
            await anyio.lowlevel.checkpoint()

    async with create_task_group() as tasks:
        tasks.start_soon(chatter)
        with fail_after(5):
            await clock.tick(1)
        tasks.cancel_scope.cancel()
    assert clock.now() == 1


# Nodes with a fake clock.


async def test_the_deadline_of_a_call_passes_at_once() -> None:
    clock = FakeClock()
    with fail_after(5):
        async with connected_nodes(clock=clock) as pair, create_task_group() as tasks:
            pair.server.on_call("never")(lambda call: anyio.sleep_forever())
            outcome = await started(tasks, lambda: pair.peer.call("never", timeout=3_600))
            await clock.tick(3_599)
            assert outcome == []
            assert pair.back.running_calls == 1
            await clock.tick(1.1)
            assert isinstance(outcome[0], CallTimeout)
            assert pair.back.running_calls == 0


async def test_a_clock_may_jump() -> None:
    """As if the machine had slept: no ping had been sent, so the connection survives."""
    clock = FakeClock()
    with fail_after(5):
        async with connected_nodes(clock=clock) as pair:
            pair.server.on_call("echo")(lambda call: call.data)
            clock.advance(7 * 24 * 3_600)
            await clock.settle()
            assert await pair.peer.call("echo", 1, timeout=5) == 1
            assert pair.back.is_open


@pytest.mark.usefixtures("leaves_nothing")
async def test_a_fake_clock_over_real_sockets() -> None:
    clock = FakeClock()
    with fail_after(10):
        async with (
            Node(Identity.create(), config=config(), clock=clock) as client,
            Node(Identity.create(), config=config(), clock=clock) as server,
        ):
            server.on_call("never")(lambda call: anyio.sleep_forever())
            address = await server.listen("tcp://127.0.0.1:0")
            peer = await client.connect(address)
            async with create_task_group() as tasks:
                outcome = await started(tasks, lambda: peer.call("never", timeout=1_000))
                await eventually(lambda: bool(server.peers[0].running_calls))
                await clock.tick(1_001)
            assert isinstance(outcome[0], CallTimeout)


@pytest.mark.usefixtures("leaves_nothing")
async def test_nodes_with_a_fake_clock_leave_nothing_open() -> None:
    clock = FakeClock()
    tasks = other_tasks()
    async with connected_nodes(clock=clock) as pair:
        await clock.tick(60)
        await pair.peer.close()
    await clock.settle()
    assert other_tasks() == tasks
    assert clock.next_timer == float("inf")
