"""ZeroMQ with CURVE: a blocking and an asyncio side, DEALER to ROUTER and XPUB to SUB.

CURVE authenticates both sides: the server looks up the client's key (the `ironhouse` of ZeroMQ's
own examples). A blocking call never yields to the loop: the connection itself keeps calls in
flight, and notes and the server have a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from threading import Thread
from time import perf_counter
from typing import Any, Final

import zmq
import zmq.asyncio
import zmq.auth
from zmq.auth.asyncio import AsyncioAuthenticator
from zmq.auth.thread import ThreadAuthenticator

from benchmarks.sides import Publish
from benchmarks.task import Task

# Bytes of a long row that may be on their way, as a number of messages for the high-water marks.
IN_FLIGHT: Final = 4 << 20
_FEWEST: Final = 4
_USUAL: Final = 1000  # Messages: ZeroMQ's default.
_PUBLIC: Final = "public"


def write_keys(where: Path) -> None:
    """Write both sides' keys; the accepted clients' keys are in a separate directory."""
    public = where / _PUBLIC
    public.mkdir()
    for name in ("server", "client"):
        zmq.auth.create_certificates(where, name)
    (where / "client.key").rename(public / "client.key")


def clients(where: Path) -> str:
    """The directory with the keys of clients."""
    return str(where / _PUBLIC)


def as_server(socket: Any, task: Task) -> int:
    """Give it the server's key and a port, which is returned."""
    public, secret = zmq.auth.load_certificate(Path(task.how) / "server.key_secret")
    socket.curve_publickey, socket.curve_secretkey = public, secret
    socket.curve_server = True
    _bound(socket, task)
    return int(socket.bind_to_random_port("tcp://127.0.0.1"))


def as_client(socket: Any, task: Task, port: int) -> None:
    """Give it the client's key, and connect it."""
    where = Path(task.how)
    socket.curve_serverkey, _ = zmq.auth.load_certificate(where / "server.key")
    public, secret = zmq.auth.load_certificate(where / "client.key_secret")
    socket.curve_publickey, socket.curve_secretkey = public, secret
    _bound(socket, task)
    socket.connect(f"tcp://127.0.0.1:{port}")


def _bound(socket: Any, task: Task) -> None:
    """Return the default high-water marks, except for large pieces, which would fill gigabytes."""
    socket.linger = 0
    socket.set_hwm(min(_USUAL, max(_FEWEST, IN_FLIGHT // max(1, task.size))))


# Milliseconds that subscribers may take to be known to the publisher.
PATIENCE: Final = 10_000
NUMBER: Final = Struct(">I")
MAX_SOCKETS: Final = 2048
# Bytes from which a message is not copied on its way: pyzmq's own default (`copy_threshold`).
LARGE: Final = 1 << 16


class ZeroMQ:
    """A ROUTER that echoes or counts, in a thread, and an XPUB."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        context = zmq.Context()
        known = ThreadAuthenticator(context)
        known.start()
        known.configure_curve(location=clients(Path(task.how)))
        notes = task.work == "notes"
        socket = context.socket(zmq.XPUB if notes else zmq.ROUTER)
        if notes:
            socket.xpub_nodrop = True  # Waits for slow subscribers, as Parley's topics do.
            socket.xpub_verbose = True  # Reports each subscriber, not only the first.
        port = as_server(socket, task)
        if not notes:
            answer = _count if task.work == "bulk" else _echo
            Thread(target=answer, args=[socket], daemon=True).start()

        async def publish(seconds: float) -> int:
            for _ in range(task.count):
                if not socket.poll(PATIENCE):
                    raise TimeoutError("not all subscribers came")
                socket.recv()
            note, sent = task.payload, 0
            end = perf_counter() + seconds
            while perf_counter() < end:
                socket.send(note)
                sent += 1
            return sent

        yield {"port": port}, publish

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["ZeroMQClient"]:
        """The client process."""
        context = zmq.Context()
        context.max_sockets = MAX_SOCKETS
        try:
            yield ZeroMQClient(context, task, info["port"])
        finally:
            context.destroy(linger=0)


def _echo(socket: Any) -> None:
    receive, send = socket.recv_multipart, socket.send_multipart
    while True:
        send(receive())


def _count(socket: Any) -> None:
    """An empty message asks how many bytes came since the last."""
    got = 0
    while True:
        who, piece = socket.recv_multipart(copy=False)
        if size := len(piece):
            got += size
        else:
            socket.send_multipart([who, str(got).encode()])
            got = 0


class ZeroMQClient:
    """Open sockets of one context, each with a separate connection."""

    def __init__(self, context: Any, task: Task, port: int) -> None:
        self._context = context
        self._task = task
        self._port = port

    async def open(self) -> "ZeroMQConnection":
        """A DEALER; the handshake is done by the time of its first answer."""
        return ZeroMQConnection(self._socket(zmq.DEALER))

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """SUB sockets, read by one thread."""
        sockets = [self._socket(zmq.SUB) for _ in range(count)]
        for socket in sockets:
            socket.subscribe(b"")
        Thread(target=_read, args=[sockets, received], daemon=True).start()

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        as_client(socket, self._task, self._port)
        return socket


def _read(sockets: list[Any], received: Callable[[int], None]) -> None:
    """Whatever is there of each, before the poller is asked again."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    try:
        while True:
            for socket, _ in poller.poll():
                count = 0
                try:
                    while True:
                        socket.recv(zmq.NOBLOCK)
                        count += 1
                except zmq.Again:
                    received(count)
    except zmq.ZMQError:
        return  # the context was destroyed: the measurement is over


class ZeroMQConnection:
    """A DEALER: calls have numbers, and their answers too."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._waiting: set[bytes] = set()
        self._last = 0

    async def call(self, payload: bytes) -> object:
        """Send, and wait for the answer."""
        self._ask(payload)
        return self._answer()

    async def pipeline(self, payload: bytes, count: int, end: float) -> int:
        """So many calls in flight until `end` of the clock; how many were answered."""
        for _ in range(count):
            self._ask(payload)
        done = count
        while perf_counter() < end:
            self._answer()
            self._ask(payload)
            done += 1
        for _ in range(count):
            self._answer()
        return done

    def _ask(self, payload: bytes) -> None:
        self._last = (self._last + 1) & 0xFFFFFFFF
        number = NUMBER.pack(self._last)
        self._waiting.add(number)
        self._socket.send(number + payload)

    def _answer(self) -> bytes:
        answer: bytes = self._socket.recv()
        self._waiting.remove(answer[: NUMBER.size])
        return answer[NUMBER.size :]

    async def send(self, chunk: bytes) -> None:
        """A message without a copy; waits at the high-water mark."""
        self._socket.send(chunk, copy=len(chunk) < LARGE)

    async def sent(self) -> int:
        """Ask for the count."""
        self._socket.send(b"")
        return int(self._socket.recv())

    async def aclose(self) -> None:
        """Close at once."""
        self._socket.close()


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
            socket.xpub_nodrop = True  # Waits for slow subscribers, as Parley's topics do.
            socket.xpub_verbose = True  # Reports each subscriber, not only the first.
        port = as_server(socket, task)
        answering = []
        if not notes:
            answer = _count_async if task.work == "bulk" else _echo_async
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


async def _echo_async(socket: Any) -> None:
    while True:
        await socket.send_multipart(await socket.recv_multipart())


async def _count_async(socket: Any) -> None:
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
    """Open sockets of one context, each with a separate connection and a reading task."""

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
            self._readers.append(asyncio.ensure_future(_read_async(socket, received)))

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        as_client(socket, self._task, self._port)
        return socket


async def _read_async(socket: Any, received: Callable[[int], None]) -> None:
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
