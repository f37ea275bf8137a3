"""The event relay as a server; what asks it are raw sockets.

Default limits, feedback on, one process.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from benchmarks.dialects.places import NO_PUBLISH, NoWorkError, place_of
from benchmarks.sides import Client, Publish
from benchmarks.task import Task
from parley.dialects import Relay


class RelayServer:
    """A relay in each server process."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A relay."""
        async with Relay() as relay:
            with place_of(task) as place:
                yield {"address": await relay.listen(place)}, NO_PUBLISH

    def client(self, task: Task, info: dict[str, Any]) -> AbstractAsyncContextManager[Client]:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError
