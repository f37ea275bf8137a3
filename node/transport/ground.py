"""Where a node, a relay or a client lives: a task group and a backend of its own.

Whatever is entered is left again, and nothing that lived on it stays: no task, no socket.
"""

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from node.errors import ParleyError
from node.transport.backend import Backend
from node.transport.clocked import Clock, ClockedBackend

# At first glibc gives back to the system what is free at the top of its heap beyond 128 KiB, and
# each flush of long events would get its pages anew, at twice its own cost. Once a block that was
# mapped has been freed, twice its size stays (mallopt(3), M_MMAP_THRESHOLD).
bytes(4 * 2**20)


class Ground:
    """A task group, and the backend whose tasks live in it; `what` is named in errors.
    `clock` is the time it lives by, in place of the loop's."""

    __slots__ = ("_backend", "_clock", "_task_group", "_what")

    def __init__(self, what: str, clock: Clock | None = None) -> None:
        self._what = what
        self._clock = clock
        self._backend: Backend | None = None
        self._task_group: TaskGroup | None = None

    @property
    def backend(self) -> Backend:
        """The backend; ParleyError before `enter` and after `leave`."""
        if self._backend is None:
            raise ParleyError(f"{self._what} is not running: use `async with`")
        return self._backend

    async def enter(self) -> Backend:
        """Begin; ParleyError if it has begun already."""
        if self._task_group is not None:
            raise ParleyError(f"{self._what} is running already")
        self._task_group = await anyio.create_task_group().__aenter__()
        backend = current_backend(self._task_group)
        self._backend = backend if self._clock is None else ClockedBackend(backend, self._clock)
        return self._backend

    async def leave(self) -> None:
        """Cancel what was spawned, close the sockets, and wait until both are gone."""
        task_group, self._task_group = self._task_group, None
        if task_group is None:
            return
        try:
            with anyio.CancelScope(shield=True):
                await self.backend.aclose()
        finally:
            self._backend = None
            # Without the exception: a group would wrap it, and it is the caller's own.
            await task_group.__aexit__(None, None, None)


def current_backend(task_group: TaskGroup) -> Backend:
    """The backend of the running loop; `task_group` is where its tasks may live.

    Raises:
        ParleyError: neither asyncio nor trio runs.
    """
    # Each is imported only where its loop runs already, so trio stays optional.
    name = current_token().backend_class.__module__.rsplit(".", 1)[-1].lstrip("_")
    if name == "asyncio":
        from node.transport.asyncio_backend import AsyncioBackend

        return AsyncioBackend()
    if name == "trio":
        from node.transport.trio_backend import TrioBackend

        return TrioBackend(task_group)
    raise ParleyError(f"neither asyncio nor trio but {name} is running")
