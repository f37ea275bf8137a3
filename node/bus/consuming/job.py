"""One task of ours at a time, that can be ended and waited for.

One rule: when `end` has returned nothing of it runs any more, on asyncio and on trio, also if it
was begun a moment ago. Knows nothing of what it does.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from node.transport.loop import Loop, Runner
from node.waiting import Changes, turn_of


class Job:
    """A task, begun again each time that it is needed. `changes` are told when it is over."""

    __slots__ = ("_changes", "_loop", "_runner", "running")

    def __init__(self, loop: Loop, changes: Changes) -> None:
        self._loop = loop
        self._changes = changes
        self._runner: Runner | None = None
        self.running = False

    def start(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run a coroutine function that raises nothing, unless it runs."""
        if not self.running:
            self.running = True
            self._runner = self._loop.spawn(self._run, function, *arguments)

    async def end(self) -> None:
        """Cancel it, and wait until it is over."""
        if self.running:
            await turn_of(self._loop)
            self.cancel()
        await self._changes.until(lambda: not self.running)

    def cancel(self) -> None:
        """Cancel it. A turn of the loop after it was begun at the earliest: asyncio never runs a
        task that is cancelled before it began, not even its `finally`."""
        if self._runner is not None:
            self._runner.cancel()

    async def _run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        try:
            await function(*arguments)
        finally:
            self.running = False
            self._runner = None
            self._changes.notify()
