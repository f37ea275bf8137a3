"""WebSockets by `websockets`, over TLS with certificates on both sides, without compression.

It has no calls: a message begins with its kind and a number, as in the baseline, and pending calls
are in a dictionary. Notes use `broadcast`, as its documentation recommends; it doesn't wait for
clients, so the loop gets a turn after each.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import Struct
from time import perf_counter
from typing import Any, Final

from websockets.asyncio.client import connect
from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

from benchmarks.certificates import client_context, server_context
from benchmarks.sides import Publish
from benchmarks.task import Task

HEAD: Final = Struct(">cI")  # kind, request id
CALL, BULK, BULK_DONE, SUBSCRIBE = b"R", b"B", b"D", b"S"
# A message with its head may be somewhat larger than 1 MiB, which is the default.
MAX_SIZE: Final = 2 << 20
HOST: Final = "127.0.0.1"


class WebSockets:
    """A server that echoes, counts bytes and broadcasts."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        subscribers: set[Any] = set()

        async def handle(socket: Any) -> None:
            with suppress(ConnectionClosed):
                await serve_one(socket)

        async def serve_one(socket: Any) -> None:
            got = 0
            async for message in socket:
                kind, number = HEAD.unpack_from(message)
                if kind == BULK:
                    got += len(message) - HEAD.size
                elif kind == BULK_DONE:
                    await socket.send(HEAD.pack(BULK_DONE, number) + str(got).encode())
                    got = 0
                else:
                    if kind == SUBSCRIBE:
                        subscribers.add(socket)
                    await socket.send(message)

        async def publish(seconds: float) -> int:
            note, sent = task.payload, 0
            end = perf_counter() + seconds
            while perf_counter() < end:
                broadcast(subscribers, note)
                await asyncio.sleep(0)
                sent += 1
            return sent

        context = server_context(Path(task.how))
        async with serve(
            handle, HOST, 0, ssl=context, compression=None, max_size=MAX_SIZE
        ) as server:
            yield {"port": next(iter(server.sockets)).getsockname()[1]}, publish

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["WebSocketsClient"]:
        """The client process."""
        yield WebSocketsClient(info["port"], Path(task.how))


class WebSocketsClient:
    """Connections, each with a task that reads."""

    def __init__(self, port: int, where: Path) -> None:
        self._port = port
        self._context = client_context(where)
        self._readers: list[asyncio.Task[None]] = []

    async def open(self) -> "WebSocketsConnection":
        """Connect, and do both handshakes."""
        return WebSocketsConnection(await self._connect())

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Open each subscription on a separate connection."""
        for _ in range(count):
            socket = await self._connect()
            await socket.send(HEAD.pack(SUBSCRIBE, 0))
            await socket.recv()
            self._readers.append(asyncio.ensure_future(_take(socket, received)))

    async def _connect(self) -> Any:
        return await connect(
            f"wss://{HOST}:{self._port}",
            ssl=self._context,
            server_hostname="localhost",
            compression=None,
            max_size=MAX_SIZE,
            proxy=None,
        )


async def _take(socket: Any, received: Callable[[int], None]) -> None:
    async for _ in socket:
        received(1)


class WebSocketsConnection:
    """One connection: calls wait in a dictionary for their answers."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._last = 0
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                message = await self._socket.recv()
                _, number = HEAD.unpack_from(message)
                self._waiting.pop(number).set_result(message[HEAD.size :])

    async def call(self, payload: bytes, kind: bytes = CALL) -> bytes:
        """Send with a number, wait for the answer that has it."""
        self._last = number = (self._last + 1) & 0xFFFFFFFF
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        await self._socket.send(HEAD.pack(kind, number) + payload)
        body: bytes = await answer
        return body

    async def send(self, chunk: bytes) -> None:
        """A message that wants no answer."""
        await self._socket.send(HEAD.pack(BULK, 0) + chunk)

    async def sent(self) -> int:
        """Ask for the count."""
        return int(await self.call(b"", BULK_DONE))

    async def aclose(self) -> None:
        """Close, and wait until it is closed."""
        await self._socket.close()
        await self._task
