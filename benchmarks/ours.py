"""Parley's side: a node in each process, through the public API alone.

It uses default settings (every limit, seals, no padding) unless a task changes them; each call has
its timeout, and its handler is an `async def`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import anyio
from anyio.abc import TaskGroup

from benchmarks.sides import Connection, Publish
from benchmarks.task import Task
from parley import Call, Identity, Node, Peer, PeerClosedError, Stream, StreamResetError
from parley.protocol import Value
from parley.settings import load_settings

TIMEOUT = 5.0
EVENTS, PLAIN, ASKED = 64, 1, 2


class Ours:
    """Parley."""

    @asynccontextmanager
    async def node(self, task: Task) -> AsyncIterator[Node]:
        """A node of either process."""
        async with Node(Identity.create(), config=load_settings(None, task.settings).node) as node:
            yield node

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A node that echoes calls, counts the bytes of streams and publishes."""
        async with self.node(task) as node:
            # As the baseline does, it waits for slow subscribers.
            topic = node.topic("notes")
            for number in range(1, task.topics):
                node.topic(f"notes-{number}")

            @node.on_call("echo")
            async def echo(call: Call) -> Value:
                return call.data

            @node.on_stream("sink")
            async def sink(stream: Stream) -> None:
                size = 0
                async for piece in stream:
                    size += len(piece)
                await stream.send(str(size).encode())

            @node.on_stream("events")
            async def events(stream: Stream) -> None:
                async for event in stream.events():
                    await event.answer(ASKED, event.data)

            async def publish(seconds: float) -> int:
                note, sent = task.payload, 0
                end = perf_counter() + seconds
                while perf_counter() < end:
                    await topic.publish(note)
                    sent += 1
                return sent

            yield {"address": await node.listen("tcp://127.0.0.1:0")}, publish

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["OurClient"]:
        """A node that dials."""
        async with self.node(task) as node, anyio.create_task_group() as readers:
            yield OurClient(node, info["address"], readers, batches=task.batches)
            readers.cancel_scope.cancel()


class OurClient:
    """Connections of one node to another."""

    def __init__(self, node: Node, address: str, readers: TaskGroup, *, batches: bool) -> None:
        self.node = node
        self._address = address
        self._readers = readers
        self._batches = batches

    async def open(self) -> "OurConnection":
        """Dial, and do the handshake."""
        return OurConnection(await self.node.connect(self._address))

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Open each subscription on a separate connection."""
        for _ in range(count):
            peer = await self.node.connect(self._address)
            await self._readers.start(self._read, peer, received)

    async def _read(
        self,
        peer: Peer,
        received: Callable[[int], None],
        *,
        task_status: anyio.abc.TaskStatus[None],
    ) -> None:
        async with peer.subscribe("notes") as sub:
            task_status.started()
            try:
                if self._batches:
                    async for notes in sub.batches():
                        received(len(notes))
                else:
                    async for _ in sub:
                        received(1)
            except (StreamResetError, PeerClosedError):
                return  # The count shows losses.


class OurConnection:
    """One connection; its byte stream is opened by the first `send`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._stream: Stream | None = None

    def call(self, payload: bytes) -> Awaitable[object]:
        """Make a call as applications do; its coroutine is awaited without another frame."""
        return self.peer.call("echo", payload, timeout=TIMEOUT)

    async def send(self, chunk: bytes) -> None:
        """Bytes on one stream."""
        if self._stream is None:
            self._stream = self.peer.open_stream("sink")
        await self._stream.send(chunk)

    async def sent(self) -> int:
        """Finish the stream; the other side answers with the number of bytes."""
        if self._stream is None:
            return 0
        async with self._stream as stream:
            await stream.send_eof()
            self._stream = None
            return int(b"".join([piece async for piece in stream]))

    async def aclose(self) -> None:
        """Close gracefully."""
        await self.peer.close()

    def open_streams(self, count: int) -> list[Connection]:
        """Streams on which each call is an event that asks for one."""
        return [OurStream(self.peer) for _ in range(count)]


class OurStream(OurConnection):
    """A stream of events instead of a connection, to measure the cost of many streams."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer)
        self._events = peer.open_stream("events", [(EVENTS, ASKED)])

    async def call(self, payload: bytes) -> object:
        """An event and the one that answers it."""
        answer = await self._events.request(EVENTS, PLAIN, payload, timeout=TIMEOUT)
        return answer.data
