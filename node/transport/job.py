"""One task at a time, that can be ended and waited for.

When `end` has returned nothing of it runs any more, even if it was begun a moment ago; and what it
shields is not cut short, on asyncio as on trio.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from parley._node.transport.loop import Loop
from parley._node.transport.waiting import Changes


class Job:
    """A task that can be started again once it has ended. `changes` is notified when it ends.

    `start` and `cancel` may be called in callbacks of the event loop. anyio's cancel scopes may not
    be made there, because outside of tasks anyio does not know which event loop is running.
    """

    __slots__ = ("_cancelled", "_changes", "_loop", "_scope", "running")

    def __init__(self, loop: Loop, changes: Changes) -> None:
        self._loop = loop
        self._changes = changes
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self.running = False

    def start(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run a coroutine function, which must not raise, unless the task is running already."""
        if not self.running:
            self._loop.spawn(self._run, function, *arguments)
            self._cancelled, self.running = False, True

    def cancel(self) -> None:
        """Cancel the task, also if its first step has yet to run."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    async def end(self) -> None:
        """Cancel the task and wait until it has ended."""
        self.cancel()
        await self._changes.until(lambda: not self.running)

    async def _run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            # Not the runner's own `cancel`: on asyncio it also cancels what is shielded.
            with anyio.CancelScope() as self._scope:
                if self._cancelled:
                    self._scope.cancel()
                await function(*arguments)
        finally:
            self.running = False
            self._scope = None
            self._changes.notify()
