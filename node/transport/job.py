"""One task at a time, that can be ended and waited for.

When `end` has returned nothing of it runs any more, even if it was begun a moment ago; and what it
shields is not cut short, on asyncio as on trio.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from node.transport.loop import Loop
from node.transport.waiting import Changes


class Job:
    """A task, begun again each time that it is needed. `changes` hears when it is over."""

    __slots__ = ("_changes", "_loop", "_scope", "running")

    def __init__(self, loop: Loop, changes: Changes) -> None:
        self._loop = loop
        self._changes = changes
        self._scope: anyio.CancelScope | None = None
        self.running = False

    def start(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run a coroutine function that raises nothing, unless it runs already."""
        if not self.running:
            # Not the runner's own `cancel`: on asyncio that goes through every shield.
            scope = anyio.CancelScope()
            self._loop.spawn(self._run, scope, function, *arguments)
            self._scope, self.running = scope, True

    def cancel(self) -> None:
        """Cancel it."""
        if self._scope is not None:
            self._scope.cancel()

    async def end(self) -> None:
        """Cancel it, and wait until it is over."""
        self.cancel()
        await self._changes.until(lambda: not self.running)

    async def _run(
        self,
        scope: anyio.CancelScope,
        function: Callable[..., Awaitable[Any]],
        *arguments: Any,
    ) -> None:
        try:
            with scope:
                await function(*arguments)
        finally:
            self.running = False
            self._scope = None
            self._changes.notify()
