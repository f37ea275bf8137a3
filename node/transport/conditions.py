"""Waiting for changes of state, for time, and for transports to accept data."""

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
    """Whether calling `function` returns a coroutine."""
    while isinstance(function, partial):
        function = function.func
    called = getattr(type(function), "__call__", None)  # noqa: B004 - this is the method that a call runs
    return iscoroutinefunction(function) or iscoroutinefunction(called)


class Wakeable(Protocol):
    def wake(self) -> None:
        """Check again; may be called repeatedly."""


class WriteWaiters:
    """Callers that wait until more may be written; `waits` counts them over time."""

    __slots__ = ("waiters", "waits")

    def __init__(self) -> None:
        self.waiters: list[Wakeable] = []
        self.waits = 0

    async def wait(self, waiter: "Waiter") -> None:
        self.waits += 1
        self.waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self.waiters:  # it was cancelled, or notified
                self.waiters.remove(waiter)

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.wake()


class Condition:
    """A condition variable for one event loop; `waiter` is `Loop.waiter`."""

    __slots__ = ("_waiter", "waiters")

    def __init__(self, waiter: "Callable[[], Waiter]") -> None:
        self._waiter = waiter
        self.waiters: dict[Waiter, None] = {}

    def notify(self) -> None:
        """Wake all waiters, which check again."""
        if not self.waiters:
            return
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            waiter.wake()

    async def wait(self) -> None:
        """Wait for the next `notify`, for callers that check their condition in a loop."""
        waiter = self._waiter()
        self.waiters[waiter] = None
        try:
            await waiter
        finally:
            self.waiters.pop(waiter, None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` is true."""
        while not condition():
            waiter = self._waiter()
            self.waiters[waiter] = None
            try:
                await waiter
            finally:
                self.waiters.pop(waiter, None)


async def yield_to_loop(loop: "Loop") -> None:
    """Let all other runnable callbacks and tasks run once."""
    waiter = loop.waiter()
    loop.call_soon(waiter.wake)
    await waiter


async def pause(loop: "Loop", seconds: float) -> None:
    """Sleep by the loop's own clock."""
    waiter = loop.waiter()
    timer = loop.call_at(loop.now() + seconds, waiter.wake)
    try:
        await waiter
    finally:
        timer.cancel()


async def pause_until(
    loop: "Loop", seconds: float, changes: Condition, condition: Callable[[], bool]
) -> None:
    """Sleep by the loop's own clock, or until `condition()`, which `changes` announces."""
    over = False

    def end() -> None:
        nonlocal over  # set here, because a timer of uvloop may fire slightly before its time
        over = True
        changes.notify()

    timer = loop.call_at(loop.now() + seconds, end)
    try:
        await changes.until(lambda: over or condition())
    finally:
        timer.cancel()


async def wait_within(
    wait: Callable[[], Awaitable[None]], timeout: float | None, now: Callable[[], float]
) -> float | None:
    """Run `wait` within `timeout` seconds; return the rest of the timeout.

    Raises:
        CallTimeout: it took longer.
    """
    began = now()
    with anyio.move_on_after(timeout) as scope:
        await wait()
    if scope.cancelled_caught:
        raise received_refusal(ResultCode.DEADLINE_EXCEEDED, None)
    return None if timeout is None else began + timeout - now()
