"""Zenoh over TLS with certificates on both sides: a queryable, a subscriber that counts, a publisher.

Its Python API waits where it stands, and calls back in threads of its own; queries in flight are
handlers that are read in turn. The server is a peer that listens, and clients connect to it
directly, without a router between.
"""

import json
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any, Final

import zenoh

from benchmarks.sides import Publish
from benchmarks.task import Task

ECHO, SINK, COUNT, NOTES = "echo", "sink", "count", "notes"
# Seconds between two looks at how many bytes have arrived.
LOOK: Final = 0.001


def settings(task: Task, mode: str, way: str, port: int) -> Any:
    """A session's settings: it listens or connects as told, and looks for nobody else."""
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
        "transport/link/tls": tls,
    }.items():
        config.insert_json5(key, json.dumps(value))
    return config


class Zenoh:
    """A peer that listens."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """The server process."""
        got = 0

        def echo(query: Any) -> None:
            query.reply(ECHO, query.payload)

        def sink(sample: Any) -> None:
            nonlocal got
            got += len(sample.payload)

        def count(query: Any) -> None:
            query.reply(COUNT, str(got))

        port = _free_port()
        with zenoh.open(settings(task, "peer", "listen", port)) as session:
            session.declare_queryable(ECHO, echo)
            session.declare_queryable(COUNT, count)
            session.declare_subscriber(SINK, sink)
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


def _free_port() -> int:
    """Zenoh does not say which port it was given, so it is given one that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _publisher(session: Any, key: str) -> Any:
    """One that waits for whoever is behind, as Zenoh's own throughput example has it."""
    return session.declare_publisher(key, congestion_control=zenoh.CongestionControl.BLOCK)


class ZenohClient:
    """Sessions, each with a connection of its own."""

    def __init__(self, task: Task, port: int) -> None:
        self._task = task
        self._port = port
        self._subscribed: list[Any] = []

    async def open(self) -> "ZenohConnection":
        """A session that is connected."""
        return ZenohConnection(self._session())

    async def subscribe(self, count: int, received: Callable[[int], None]) -> None:
        """Subscribers, each called in a thread of its own."""
        lock = Lock()

        def note(_: Any) -> None:
            with lock:
                received(1)

        for _ in range(count):
            session = self._session()
            session.declare_subscriber(NOTES, note)
            session.get(ECHO, payload=b"x").recv()  # the subscription is known by then
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
        """Ask until all has come: a reply may overtake what was published."""
        while (got := int(self._session.get(COUNT).recv().ok.payload.to_string())) < self._wanted:
            time.sleep(LOOK)
        return got

    async def aclose(self) -> None:
        """Close, and tell the other side."""
        self._session.close()
