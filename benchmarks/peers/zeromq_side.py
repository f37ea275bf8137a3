"""ZeroMQ with CURVE, by its blocking sockets: DEALER to ROUTER, XPUB to SUB.

Its sockets wait where they stand, so a call here never gives way to the loop: what is in flight is
kept by the connection itself, notes and the server have a thread.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from threading import Thread
from time import perf_counter
from typing import Any, Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from benchmarks.peers.zeromq_keys import as_client, as_server, clients
from benchmarks.sides import Publish
from benchmarks.task import Task

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
            socket.xpub_nodrop = True  # waits for whoever is behind, as our topics do
            socket.xpub_verbose = True  # tells of each subscriber, not only of the first
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
    """Sockets of one context, each with a connection of its own."""

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
