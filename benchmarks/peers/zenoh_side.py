"""Zenoh over TLS, with certificates on both sides: queryables, subscribers and publishers.

Its Python API blocks, and calls back in its own threads; queries in flight are handlers that are
read in turn. The server is a peer that listens, and clients connect to it directly, without a
router between.
"""

import json
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any

import zenoh

from benchmarks.sides import Publish
from benchmarks.task import Task

ECHO, SINK, COUNT, NOTES = "echo", "sink", "count", "notes"


def settings(task: Task, mode: str, way: str, port: int) -> Any:
    """Return a session's settings: it listens or connects as specified, without discovery."""
    where = Path(task.how)
    tls = {
        "root_ca_certificate": str(where / "ca.crt"),
        "listen_private_key": str(where / "server.key"),
        "listen_certificate": str(where / "server.crt"),
        "connect_private_key": str(where / "client.key"),
        "connect_certificate": str(where / "client.crt"),
        "enable_mtls": True,
    }
    config = zenoh.Config()
    for key, value in {
        "mode": mode,
        f"{way}/endpoints": [f"tls/127.0.0.1:{port}"],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        # Large messages would go past the encryption: both processes are on one machine.
        "transport/shared_memory/enabled": False,
        "transport/link/tls": tls,
    }.items():
        config.insert_json5(key, json.dumps(value))
    return config


class Zenoh:
    """A peer that listens."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        sink = _Sink()

        def echo(query: Any) -> None:
            query.reply(ECHO, query.payload)

        port = _free_port()
        with zenoh.open(settings(task, "peer", "listen", port)) as session:
            session.declare_queryable(ECHO, echo)
            session.declare_queryable(COUNT, sink.ask)
            session.declare_subscriber(SINK, sink.take)
            notes = _publisher(session, NOTES)

            async def publish(seconds: float) -> int:
                note, sent = task.payload, 0
                end = perf_counter() + seconds
                while perf_counter() < end:
                    notes.put(note)
                    sent += 1
                return sent

            yield {"port": port}, publish

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator["ZenohClient"]:
        """The client process."""
        client = ZenohClient(task, info["port"])
        try:
            yield client
        finally:
            client.close()


class _Sink:
    """Counts bytes, and replies once all that a query names have come: it may overtake them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._got = self._wanted = 0
        self._query: Any = None

    def take(self, sample: Any) -> None:
        """A piece."""
        with self._lock:
            self._got += len(sample.payload)
            self._reply()

    def ask(self, query: Any) -> None:
        """How many bytes there should be."""
        with self._lock:
            self._query, self._wanted = query, int(query.payload.to_string())
            self._reply()

    def _reply(self) -> None:
        if self._query is not None and self._got >= self._wanted:
            self._query.reply(COUNT, str(self._got))
            self._query = None


def _free_port() -> int:
    """Choose a free port, because Zenoh doesn't report the port that it was given."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _publisher(session: Any, key: str) -> Any:
    """Return a publisher that waits for slow subscribers, as in Zenoh's own throughput example."""
    return session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)


class ZenohClient:
    """Open sessions, each with a separate connection."""

    def __init__(self, task: Task, port: int) -> None:
        self._task = task
        self._port = port
        self._subscribed: list[Any] = []

    async def open(self) -> "ZenohConnection":
        """A session that is connected."""
        return ZenohConnection(self._session())

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Open subscribers, each called in a separate thread."""
        lock = Lock()

        def note(_: Any) -> None:
            with lock:
                received(1)

        for _ in range(count):
            session = self._session()
            session.declare_subscriber(NOTES, note)
            session.get(ECHO, payload=b"x").recv()  # The subscription is known at this point.
            self._subscribed.append(session)

    def _session(self) -> Any:
        return zenoh.open(settings(self._task, "client", "connect", self._port))

    def close(self) -> None:
        """Close what subscribes."""
        for session in self._subscribed:
            session.close()


class ZenohConnection:
    """A session with a querier, and a publisher for a long row of bytes."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._querier = session.declare_querier(ECHO)
        self._sink: Any = None
        self._wanted = 0

    async def call(self, payload: bytes) -> object:
        """A query, and its one reply."""
        return self._querier.get(payload=payload).recv().ok.payload.to_bytes()

    async def pipeline(self, payload: bytes, count: int, end: float) -> int:
        """So many queries in flight until `end` of the clock; how many were replied to."""
        ask = self._querier.get
        waiting = deque(ask(payload=payload) for _ in range(count))
        done = count
        while perf_counter() < end:
            waiting.popleft().recv().ok.payload.to_bytes()
            waiting.append(ask(payload=payload))
            done += 1
        for reply in waiting:
            reply.recv()
        return done

    async def send(self, chunk: bytes) -> None:
        """Publish a piece."""
        if self._sink is None:
            self._sink = _publisher(self._session, SINK)
        self._sink.put(chunk)
        self._wanted += len(chunk)

    async def sent(self) -> int:
        """Ask how much came, once all of it has."""
        reply = self._session.get(COUNT, payload=str(self._wanted)).recv()
        return int(reply.ok.payload.to_string())

    async def aclose(self) -> None:
        """Close, and notify the other side."""
        self._session.close()
