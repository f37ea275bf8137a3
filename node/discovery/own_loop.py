"""An asyncio loop in a thread of its own, for a library that knows no other, on any loop of ours.

Also under asyncio: what strangers flood the local network with does not wait in line before the
node's own work.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from anyio import CancelScope, to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

P = ParamSpec("P")
T = TypeVar("T")


class OwnLoop:
    """Runs coroutines in the other thread's loop."""

    __slots__ = ("_portal",)

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def run(
        self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call `function` there and wait for what it returns; being cancelled cancels it."""

        async def call() -> T:
            return await function(*args, **kwargs)

        future = self._portal.start_task_soon(call)
        try:
            return await to_thread.run_sync(future.result, abandon_on_cancel=True)
        except BaseException:
            future.cancel()
            raise


@asynccontextmanager
async def own_loop() -> AsyncIterator[OwnLoop]:
    """A loop that lives until the block is left, by which time its thread has ended."""
    thread = start_blocking_portal("asyncio")
    portal = await to_thread.run_sync(thread.__enter__)
    try:
        yield OwnLoop(portal)
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(thread.__exit__, None, None, None)
