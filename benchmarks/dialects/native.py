"""Native named events: a call is an event whose reply is waited for.

All else is as in `Ours`, so that the difference to its calls is what events cost.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.ours import TIMEOUT, OurClient, OurConnection, Ours
from benchmarks.sides import Client
from benchmarks.task import Task
from parley import Peer


class NativeEvents:
    """Parley, asked by named events."""

    def __init__(self) -> None:
        self._ours = Ours()
        self.serve = self._ours.serve

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator[Client]:
        """A node that dials and emits."""
        async with self._ours.client(task, info) as client:
            yield EmittingClient(client)


class EmittingClient:
    """Connections whose calls are events."""

    def __init__(self, client: OurClient) -> None:
        self._client = client
        self.subscribe = client.subscribe

    async def open(self) -> "EmittingConnection":
        """Dial, and do the handshake."""
        return EmittingConnection((await self._client.open()).peer)


class EmittingConnection(OurConnection):
    """One connection."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._emit = peer.emit

    async def call(self, payload: bytes) -> object:
        """An event, and what its first reply carries."""
        return (await self._emit("echo", payload).reply(TIMEOUT)).data
