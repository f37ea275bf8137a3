"""Scopes of tasks: the backend of a node, bus, relay or client, a task group, and a single task.

On asyncio, a scope may be left in another task than the one that entered it, as fixtures of
pytest-asyncio do. trio doesn't permit that.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from parley._node.errors import ParleyError
from parley._node.transport.backend import Backend, Clock, ClockedBackend
from parley._node.transport.conditions import Condition
from parley._node.transport.loop import Loop


class TaskScope:
    """The backend that runs the tasks of one object, which errors call `what`.

    `clock` replaces the clock of the event loop.
    """

    __slots__ = ("_backend", "_clock", "_is_entered", "_task_group", "_what")

    def __init__(self, what: str, clock: Clock | None = None) -> None:
        self._what = what
        self._clock = clock
        self._backend: Backend | None = None
        self._is_entered = False
        # Only on trio: asyncio needs no group for its tasks, and a group must be left by the task
        # that entered it.
        self._task_group: TaskGroup | None = None

    @property
    def backend(self) -> Backend:
        """The backend; raises ParleyError outside of the scope."""
        if self._backend is None:
            raise ParleyError(f"{self._what} is not running: use `async with`")
        return self._backend

    async def enter(self) -> Backend:
        """Start; raises ParleyError if it is running already."""
        if self._is_entered:
            raise ParleyError(f"{self._what} is running already")
        if running_library() == "trio":
            self._task_group = await anyio.create_task_group().__aenter__()
        backend = current_backend(self._task_group)
        self._is_entered = True
        self._backend = backend if self._clock is None else ClockedBackend(backend, self._clock)
        return self._backend

    async def leave(self) -> None:
        """Cancel the tasks, close the sockets, and wait for both."""
        if not self._is_entered:
            return
        self._is_entered = False
        task_group, self._task_group = self._task_group, None
        try:
            with anyio.CancelScope(shield=True):
                await self.backend.aclose()
        finally:
            self._backend = None
            if task_group is not None:
                # Without the exception, which belongs to the caller and which a group would wrap.
                await task_group.__aexit__(None, None, None)


@asynccontextmanager
async def own_task_group(what: str) -> AsyncIterator[TaskGroup]:
    """Run a task group in a task of its own; leaving the block cancels it.

    If a task raises, the group ends, and leaving the block raises the exception.
    """
    scope = TaskScope(what)
    backend = await scope.enter()
    changes = Condition(backend.waiter)
    opened: list[TaskGroup] = []
    failures: list[Exception] = []
    ended = False

    async def own() -> None:
        nonlocal ended
        try:
            async with anyio.create_task_group() as tasks:
                opened.append(tasks)
                changes.notify()
                await anyio.sleep_forever()
        except Exception as error:
            failures.append(error)
        finally:
            ended = True
            changes.notify()

    try:
        backend.spawn(own)
        await changes.until(lambda: bool(opened))
        yield opened[0]
    finally:
        with anyio.CancelScope(shield=True):
            for tasks in opened:
                tasks.cancel_scope.cancel()
                await changes.until(lambda: ended)
        await scope.leave()
    if failures:
        raise failures[0]


def running_library() -> str:
    """Return `asyncio`, `trio` or the name of another library."""
    return current_token().backend_class.__module__.rsplit(".", 1)[-1].lstrip("_")


def current_backend(task_group: TaskGroup | None) -> Backend:
    """Return a backend of the running loop; on trio its tasks run in `task_group`.

    Raises:
        ParleyError: the running loop is neither asyncio's nor trio's.
    """
    # Import a backend only if its loop is running, so that trio stays optional.
    name = running_library()
    if name == "asyncio":
        from parley._node.transport.asyncio_backend import AsyncioBackend

        return AsyncioBackend()
    if name == "trio" and task_group is not None:
        from parley._node.transport.trio_backend import TrioBackend

        return TrioBackend(task_group)
    raise ParleyError(f"unsupported event loop {name}: use asyncio or trio")


class SingleTask:
    """A task that can be started again once it has ended; `changes` announces its end.

    `start` and `cancel` may be called in callbacks of the event loop, in which anyio cannot create
    a cancel scope.
    """

    __slots__ = ("_cancelled", "_changes", "_loop", "_scope", "running")

    def __init__(self, loop: Loop, changes: Condition) -> None:
        self._loop = loop
        self._changes = changes
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self.running = False

    def start(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run a coroutine function, which must not raise, unless the task is running."""
        if not self.running:
            self._loop.spawn(self._run, function, *arguments)
            self._cancelled, self.running = False, True

    def cancel(self) -> None:
        """Cancel the task, even before its first step."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    async def end(self) -> None:
        """Cancel the task and wait until it has ended."""
        self.cancel()
        await self._changes.until(lambda: not self.running)

    async def _run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            # Not the runner's own `cancel`, which on asyncio also cancels shielded code.
            with anyio.CancelScope() as self._scope:
                if self._cancelled:
                    self._scope.cancel()
                await function(*arguments)
        finally:
            self.running = False
            self._scope = None
            self._changes.notify()
