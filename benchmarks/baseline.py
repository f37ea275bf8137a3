"""The baseline: asyncio streams, TLS 1.3 with mutual certificates, frames with a length.

It is lean and stays unchanged (drain after each write, a dictionary of futures, no features),
because a weaker baseline would be meaningless. Removing one `await drain()` would change its calls
per second by half.
"""

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.certificates import client_context, server_context, write_certificates
from benchmarks.sides import Publish
from benchmarks.task import Task

HEAD = struct.Struct(">IcI")  # length, kind, request id
CALL, BULK, BULK_DONE, SUBSCRIBE, ANSWER, NOTE = b"R", b"B", b"D", b"S", b"r", b"P"
BACKLOG = 1024

_ENDED = (asyncio.IncompleteReadError, OSError)


class Baseline:
    """What anybody would write first, and well."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A server that echoes, counts bytes and publishes."""
        subscribers: set[asyncio.StreamWriter] = set()

        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            got = 0
            try:
                while True:
                    size, kind, number = HEAD.unpack(await reader.readexactly(HEAD.size))
                    body = await reader.readexactly(size)
                    if kind == BULK:
                        got += size
                        continue
                    if kind == SUBSCRIBE:
                        subscribers.add(writer)
                    elif kind == BULK_DONE:
                        body, got = str(got).encode(), 0
                    writer.write(HEAD.pack(len(body), ANSWER, number) + body)
                    await writer.drain()
            except _ENDED:
                pass
            finally:
                subscribers.discard(writer)
                writer.close()

        async def publish(seconds: float) -> int:
            end, sent = perf_counter() + seconds, 0
            note = task.payload
            frame = HEAD.pack(len(note), NOTE, 0) + note
            while perf_counter() < end:
                for writer in subscribers:
                    writer.write(frame)
                    await writer.drain()
                sent += 1
            return sent

        with tempfile.TemporaryDirectory(prefix="parley-benchmark-") as directory:
            where = Path(directory)
            write_certificates(where)
            context = server_context(where)
            server = await asyncio.start_server(
                client, "127.0.0.1", 0, backlog=BACKLOG, ssl=context
            )
            port = server.sockets[0].getsockname()[1]
            yield {"port": port, "certificates": directory}, publish

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["BaselineClient"]:
        """Connections to the server, each with a task that reads."""
        yield BaselineClient(info["port"], Path(info["certificates"]))


class BaselineClient:
    """The client process's end."""

    def __init__(self, port: int, certificates: Path) -> None:
        self._port = port
        self._context = client_context(certificates)
        self._readers: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> "BaselineConnection":
        """Connect, and do the handshake."""
        return BaselineConnection(*await self._connect())

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Open each subscription on a separate connection."""
        for _ in range(count):
            reader, writer = await self._connect()
            writer.write(HEAD.pack(0, SUBSCRIBE, 1))
            await reader.readexactly(HEAD.size)
            self._writers.append(writer)
            self._readers.append(asyncio.ensure_future(self._read(reader, received)))

    async def _read(self, reader: asyncio.StreamReader, received: Callable[[int], None]) -> None:
        with suppress(*_ENDED):
            while True:
                size, _, _ = HEAD.unpack(await reader.readexactly(HEAD.size))
                await reader.readexactly(size)
                received(1)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=self._context, server_hostname="localhost"
        )


class BaselineConnection:
    """One connection: calls wait in a dictionary for their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._last = 0
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        with suppress(*_ENDED):
            while True:
                size, _, number = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                body = await self._reader.readexactly(size)
                self._waiting.pop(number).set_result(body)

    async def call(self, payload: bytes, kind: bytes = CALL) -> bytes:
        """Send a frame, wait for the one with its number."""
        self._last = number = (self._last + 1) & 0xFFFFFFFF
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        self._writer.write(HEAD.pack(len(payload), kind, number) + payload)
        await self._writer.drain()
        body: bytes = await answer
        return body

    async def send(self, chunk: bytes) -> None:
        """A frame that wants no answer."""
        self._writer.write(HEAD.pack(len(chunk), BULK, 0))
        self._writer.write(chunk)
        await self._writer.drain()

    async def sent(self) -> int:
        """Ask for the count."""
        return int(await self.call(b"", BULK_DONE))

    async def aclose(self) -> None:
        """Close, and wait until it is closed."""
        self._writer.close()
        with suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), 5)
        self._task.cancel()
