"""The disk itself: a loop of fsync, and a loop of sqlite3's commits, one event in each.

What they do is the least that makes an event durable, in one thread and without a task; who
publishes durably one after another cannot be faster than the first.
"""

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from benchmarks.bus.sides import TEXT, Done, NoWorkError, Piece, Place, Side, repeat_for


class OnlyPublishes:
    """A side that has neither consumers nor other processes."""

    def __init__(self, write: Piece) -> None:
        self._write = write

    @property
    def pids(self) -> tuple[int, ...]:
        """None: all is done in this process."""
        return ()

    async def publish(self, publishers: int, seconds: float) -> Done:
        """One after another; raises NoWorkError for more publishers."""
        if publishers != 1:
            raise NoWorkError
        return await repeat_for(seconds, 1, self._write)

    async def publish_batches(self, size: int, seconds: float) -> Done:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def consume(self, consumers: int, count: int) -> Done:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def handle(self, concurrency: int, count: int) -> Done:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError

    async def latencies(self, count: int) -> list[float]:
        """Never asked of it; raises NoWorkError."""
        raise NoWorkError


@asynccontextmanager
async def open_fsync(place: Place) -> AsyncIterator[Side]:
    """Append to a file and force it to the disk, again and again."""
    file = os.open(place.directory / "fsync", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def write() -> int:
        os.write(file, TEXT.encode())
        os.fsync(file)
        return 1

    try:
        yield OnlyPublishes(write)
    finally:
        os.close(file)


@asynccontextmanager
async def open_commits(place: Place) -> AsyncIterator[Side]:
    """One insert for each commit, WAL and synchronous=FULL: as durable as the bus is."""
    with closing(sqlite3.connect(place.directory / "bare.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, body TEXT)")

        async def write() -> int:
            database.execute("INSERT INTO events (body) VALUES (?)", (TEXT,))
            return 1

        yield OnlyPublishes(write)
