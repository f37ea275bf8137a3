"""NATS by `nats-py`, over TLS with certificates on both sides, through its server.

The server process answers and publishes, the client process requests and subscribes. Both are
clients of a nats-server, whose processor time and memory count for the server. NATS doesn't wait
for slow subscribers, so requests pace long transfers, as its documentation advises.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import nats

from benchmarks.certificates import client_context
from benchmarks.peers.nats_server import address
from benchmarks.sides import Publish
from benchmarks.task import Task

ECHO, SINK, COUNT, NOTES = "echo", "sink", "count", "notes"
TIMEOUT: Final = 5.0
# Bytes of a long row that may wait for their acknowledgement.
IN_FLIGHT: Final = 4 << 20
# Notes between two looks at whether the server has taken them.
FLUSH_EVERY: Final = 256


async def _connect(task: Task) -> Any:
    where = Path(task.how)
    return await nats.connect(
        address(where), tls=client_context(where), tls_hostname="localhost", allow_reconnect=False
    )


class NATS:
    """What answers and publishes."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        connection = await _connect(task)
        got = 0

        async def echo(message: Any) -> None:
            await message.respond(message.data)

        async def sink(message: Any) -> None:
            nonlocal got
            got += len(message.data)
            await message.respond(b"")

        async def count(message: Any) -> None:
            nonlocal got
            await message.respond(str(got).encode())
            got = 0

        async def publish(seconds: float) -> int:
            note, sent = task.payload, 0
            end = perf_counter() + seconds
            while perf_counter() < end:
                for _ in range(FLUSH_EVERY):
                    await connection.publish(NOTES, note)
                await connection.flush()
                sent += FLUSH_EVERY
            return sent

        for subject, callback in ((ECHO, echo), (SINK, sink), (COUNT, count)):
            await connection.subscribe(subject, cb=callback)
        await connection.flush()
        try:
            yield {}, publish
        finally:
            await connection.close()

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["NATSClient"]:
        """The client process."""
        yield NATSClient(task)


class NATSClient:
    """Connections to the nats-server."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._subscribed: list[Any] = []

    async def open(self) -> "NATSConnection":
        """Connect, and do the handshake."""
        return NATSConnection(await _connect(self._task), self._task.size)

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Open each subscription on a separate connection."""

        async def note(_: Any) -> None:
            received(1)

        for _ in range(count):
            connection = await _connect(self._task)
            await connection.subscribe(NOTES, cb=note)
            await connection.flush()
            self._subscribed.append(connection)


class NATSConnection:
    """One connection to the nats-server."""

    def __init__(self, connection: Any, size: int) -> None:
        self._connection = connection
        self._most = max(2, IN_FLIGHT // size)
        self._acknowledged: deque[asyncio.Future[Any]] = deque()

    async def call(self, payload: bytes) -> object:
        """A request."""
        return (await self._connection.request(ECHO, payload, TIMEOUT)).data

    async def send(self, chunk: bytes) -> None:
        """A piece, as a request; so many of them wait for their answers at most."""
        if len(self._acknowledged) == self._most:
            await self._acknowledged.popleft()
        request = self._connection.request(SINK, chunk, TIMEOUT)
        self._acknowledged.append(asyncio.ensure_future(request))

    async def sent(self) -> int:
        """Wait for the last answers, then ask for the count."""
        while self._acknowledged:
            await self._acknowledged.popleft()
        return int((await self._connection.request(COUNT, b"", TIMEOUT)).data)

    async def aclose(self) -> None:
        """Close at once."""
        await self._connection.close()
