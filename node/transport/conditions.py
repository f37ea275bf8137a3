"""Waiting for a state to change, as peers and nodes do; for a turn of the loop, for a time, and
for room within a time-out; and whether a function of the application's is to be awaited.

A change wakes all that wait, and each of them looks again.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Protocol

import anyio

from parley._node.errors import received_refusal
from parley._node.protocol.codes import ResultCode

if TYPE_CHECKING:
    from parley._node.transport.loop import Loop, Waiter


def is_async(function: object) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    while isinstance(function, partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - what a call of it would run
    return iscoroutinefunction(function) or iscoroutinefunction(called)


class Wakeable(Protocol):
    """Who is told that something may have changed."""

    def wake(self) -> None:
        """Look again; a second time is fine."""


class WriteWaiters:
    """Those who wait for room at one place; `waits` counts how often one began to."""

    __slots__ = ("waiters", "waits")

    def __init__(self) -> None:
        self.waiters: list[Wakeable] = []
        self.waits = 0

    async def wait(self, waiter: "Waiter") -> None:
        """Wait for `waiter`, which is woken when there may be room."""
        self.waits += 1
        self.waiters.append(waiter)
        try:
            await waiter.wait()
        finally:
            if waiter in self.waiters:  # it was cancelled, or others woke it
                self.waiters.remove(waiter)

    def wake(self) -> None:
        """There may be room: each looks again."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.wake()


class Condition:
    """The changes of one thing. `waiter` makes a wait (`Backend.waiter`)."""

    __slots__ = ("_waiter", "waiters")

    def __init__(self, waiter: "Callable[[], Waiter]") -> None:
        self._waiter = waiter
        self.waiters: set[Waiter] = set()

    def notify(self) -> None:
        """Something changed."""
        if not self.waiters:
            return
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            waiter.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, which may be true already."""
        while not condition():
            waiter = self._waiter()
            self.waiters.add(waiter)
            try:
                await waiter.wait()
            finally:
                self.waiters.discard(waiter)


async def yield_to_loop(loop: "Loop") -> None:
    """Let everything else that can run do so once."""
    waiter = loop.waiter()
    loop.soon(waiter.wake)
    await waiter.wait()


async def pause(loop: "Loop", seconds: float) -> None:
    """Wait for so long, by the loop's own clock."""
    waiter = loop.waiter()
    timer = loop.at(loop.now() + seconds, waiter.wake)
    try:
        await waiter.wait()
    finally:
        timer.cancel()


async def pause_until(
    loop: "Loop", seconds: float, changes: Condition, condition: Callable[[], bool]
) -> None:
    """Wait for so long, by the loop's own clock, or until `condition`, of which `changes` tell."""
    over = False

    def end() -> None:
        nonlocal over  # and not the time, which a timer of uvloop's may be a little ahead of
        over = True
        changes.notify()

    timer = loop.at(loop.now() + seconds, end)
    try:
        await changes.until(lambda: over or condition())
    finally:
        timer.cancel()


async def wait_within(
    wait: Callable[[], Awaitable[None]], timeout: float | None, now: Callable[[], float]
) -> float | None:
    """Wait within a request's `timeout` in seconds; returns what is left of it.

    Raises:
        CallTimeout: it took longer.
    """
    began = now()
    with anyio.move_on_after(timeout) as scope:
        await wait()
    if scope.cancelled_caught:
        raise received_refusal(ResultCode.DEADLINE_EXCEEDED, None)
    return None if timeout is None else began + timeout - now()
