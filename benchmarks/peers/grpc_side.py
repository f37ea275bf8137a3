"""gRPC by `grpc.aio`, over TLS with certificates on both sides; plain bytes, without Protobuf.

A call is a unary one, a long row of bytes a stream to the server, notes a stream from it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import grpc

from benchmarks.sides import Publish
from benchmarks.task import Task

SERVICE: Final = "benchmark.Peer"
TIMEOUT: Final = 5.0
# Each channel has a separate connection; by default, channels to one server share them.
OWN: Final = [("grpc.use_local_subchannel_pool", 1)]


class GRPC:
    """A server of generic handlers."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        subscribers: set[Any] = set()

        async def echo(request: bytes, context: Any) -> bytes:
            return request

        async def sink(pieces: AsyncIterator[bytes], context: Any) -> bytes:
            got = 0
            async for piece in pieces:
                got += len(piece)
            return str(got).encode()

        async def notes(request: bytes, context: Any) -> None:
            await context.send_initial_metadata(())
            subscribers.add(context)
            try:
                await asyncio.Event().wait()
            finally:
                subscribers.discard(context)

        async def publish(seconds: float) -> int:
            note, sent = task.payload, 0
            end = perf_counter() + seconds
            while perf_counter() < end:
                for subscriber in subscribers:
                    await subscriber.write(note)
                sent += 1
            return sent

        server = grpc.aio.server()
        handlers = {
            "Echo": grpc.unary_unary_rpc_method_handler(echo),
            "Sink": grpc.stream_unary_rpc_method_handler(sink),
            "Notes": grpc.unary_stream_rpc_method_handler(notes),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        authority, key, certificate = _read(task, "server")
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            yield {"port": port}, publish
        finally:
            await server.stop(None)

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["GRPCClient"]:
        """The client process."""
        credentials = grpc.ssl_channel_credentials(*_read(task, "client"))
        yield GRPCClient(f"localhost:{info['port']}", credentials)


def _read(task: Task, stem: str) -> tuple[bytes, bytes, bytes]:
    """The authority's certificate, then key and certificate of one side."""
    where = Path(task.how)
    names = "ca.crt", f"{stem}.key", f"{stem}.crt"
    authority, key, certificate = ((where / name).read_bytes() for name in names)
    return authority, key, certificate


class GRPCClient:
    """Open channels, each with a separate connection."""

    def __init__(self, target: str, credentials: Any) -> None:
        self._target = target
        self._credentials = credentials
        self._subscribed: list[object] = []

    async def open(self) -> "GRPCConnection":
        """A channel, which connects at its first call."""
        return GRPCConnection(self._channel())

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Streams of notes."""
        for _ in range(count):
            channel = self._channel()
            stream = channel.unary_stream(f"/{SERVICE}/Notes")(b"")
            await stream.initial_metadata()
            self._subscribed += channel, asyncio.ensure_future(_take(stream, received))

    def _channel(self) -> Any:
        return grpc.aio.secure_channel(self._target, self._credentials, OWN)


async def _take(stream: Any, received: Callable[[int], None]) -> None:
    async for _ in stream:
        received(1)


class GRPCConnection:
    """A channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._echo = channel.unary_unary(f"/{SERVICE}/Echo")
        self._sink: Any = None

    async def call(self, payload: bytes) -> object:
        """A unary call with a deadline."""
        return await self._echo(payload, timeout=TIMEOUT)

    async def send(self, chunk: bytes) -> None:
        """A piece of a stream, at the pace of the other side."""
        if self._sink is None:
            self._sink = self._channel.stream_unary(f"/{SERVICE}/Sink")()
        await self._sink.write(chunk)

    async def sent(self) -> int:
        """End the stream; its answer is how much it was."""
        await self._sink.done_writing()
        stream, self._sink = self._sink, None
        return int(await stream)

    async def aclose(self) -> None:
        """Close at once."""
        await self._channel.close()
