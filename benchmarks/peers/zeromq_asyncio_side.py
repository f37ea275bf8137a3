"""ZeroMQ with CURVE, by `zmq.asyncio`: DEALER to ROUTER, XPUB to SUB."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import zmq
import zmq.asyncio
from zmq.auth.asyncio import AsyncioAuthenticator

from benchmarks.peers.zeromq_keys import as_client, as_server, clients
from benchmarks.peers.zeromq_side import LARGE, MAX_SOCKETS, NUMBER, PATIENCE
from benchmarks.sides import Publish
from benchmarks.task import Task

# Seconds until a subscriber that was behind is looked at again.
PAUSE: Final = 0.001


class ZeroMQAsyncio:
    """A ROUTER that echoes or counts, and an XPUB, in the loop."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        context = zmq.asyncio.Context()
        known = AsyncioAuthenticator(context)
        known.start()
        known.configure_curve(location=clients(Path(task.how)))
        notes = task.work == "notes"
        socket = context.socket(zmq.XPUB if notes else zmq.ROUTER)
        if notes:
            socket.xpub_nodrop = True  # waits for whoever is behind, as our topics do
            socket.xpub_verbose = True  # tells of each subscriber, not only of the first
        port = as_server(socket, task)
        answering = []
        if not notes:
            answer = _count if task.work == "bulk" else _echo
            answering.append(asyncio.ensure_future(answer(socket)))

        async def publish(seconds: float) -> int:
            for _ in range(task.count):
                await asyncio.wait_for(socket.recv(), PATIENCE / 1000)
            note, sent = task.payload, 0
            end = perf_counter() + seconds
            while perf_counter() < end:
                try:
                    await socket.send(note)
                    sent += 1
                except zmq.Again:  # to the poller it can always be written to
                    await asyncio.sleep(PAUSE)
            return sent

        try:
            yield {"port": port}, publish
        finally:
            for running in answering:
                running.cancel()

    @asynccontextmanager
    async def client(
        self, task: Task, info: dict[str, Any]
    ) -> AsyncIterator["ZeroMQAsyncioClient"]:
        """The client process."""
        context = zmq.asyncio.Context()
        context.max_sockets = MAX_SOCKETS
        try:
            yield ZeroMQAsyncioClient(context, task, info["port"])
        finally:
            context.destroy(linger=0)


async def _echo(socket: Any) -> None:
    while True:
        await socket.send_multipart(await socket.recv_multipart())


async def _count(socket: Any) -> None:
    """A message of a number alone asks how many bytes came since the last."""
    got = 0
    while True:
        who, piece = await socket.recv_multipart(copy=False)
        if (size := len(piece)) > NUMBER.size:
            got += size
        else:
            await socket.send_multipart([who, piece.bytes + str(got).encode()])
            got = 0


class ZeroMQAsyncioClient:
    """Sockets of one context, each with a connection of its own and a task that reads."""

    def __init__(self, context: Any, task: Task, port: int) -> None:
        self._context = context
        self._task = task
        self._port = port
        self._readers: list[asyncio.Task[None]] = []

    async def open(self) -> "ZeroMQAsyncioConnection":
        """A DEALER; the handshake is done by the time of its first answer."""
        return ZeroMQAsyncioConnection(self._socket(zmq.DEALER))

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """SUB sockets."""
        for _ in range(count):
            socket = self._socket(zmq.SUB)
            socket.subscribe(b"")
            self._readers.append(asyncio.ensure_future(_read(socket, received)))

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        as_client(socket, self._task, self._port)
        return socket


async def _read(socket: Any, received: Callable[[int], None]) -> None:
    while True:
        await socket.recv()
        received(1)


class ZeroMQAsyncioConnection:
    """A DEALER: calls wait in a dictionary for the answers with their numbers."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}
        self._last = 0
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while True:
            answer = await self._socket.recv()
            self._waiting.pop(answer[: NUMBER.size]).set_result(answer[NUMBER.size :])

    async def call(self, payload: bytes) -> object:
        """Send with a number, wait for the answer that has it."""
        self._last = (self._last + 1) & 0xFFFFFFFF
        number = NUMBER.pack(self._last)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send(number + payload)
        return await answer

    async def send(self, chunk: bytes) -> None:
        """A message without a copy; waits at the high-water mark."""
        await self._socket.send(chunk, copy=len(chunk) < LARGE)

    async def sent(self) -> int:
        """Ask for the count."""
        answer = await self.call(b"")
        return int(bytes(answer)) if isinstance(answer, bytes) else 0

    async def aclose(self) -> None:
        """Close at once."""
        self._task.cancel()
        self._socket.close()
