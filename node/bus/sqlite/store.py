"""A bus in one SQLite file: no server, several processes.

One rule: what is asked here is done by one thread (`worker.py`), many requests in a transaction;
this is where they wait. Knows no SQL.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import anyio

from crypto.randomness import random_bytes
from node.bus.config import BusConfig
from node.bus.errors import BusClosedError
from node.bus.ids import AFTER_ALL
from node.bus.model import (
    ConsumerInfo,
    Delivery,
    GroupInfo,
    NewEvent,
    PendingInfo,
    Published,
    StoredEvent,
    StreamInfo,
    Trim,
)
from node.bus.sqlite import handing, keeping, looking, publishing, settling
from node.bus.sqlite.books import Books
from node.bus.sqlite.database import Database
from node.bus.sqlite.line import LOOK, MARK, PUBLISH, PUBLISH_SOON, RECORD, Kind, Line, Operation
from node.bus.sqlite.readers import Readers
from node.bus.sqlite.worker import Worker
from node.transport.backend import Backend
from node.transport.waiting import Changes

# Seconds beyond `busy_timeout` that closing gives the thread, and bytes of a session's number.
PATIENCE: Final = 10.0
SESSION_SIZE: Final = 7

Result = TypeVar("Result")


class SqliteStore:
    """The `Store` in the file `path`."""

    def __init__(self, path: str, config: BusConfig) -> None:
        # It is opened anew after some faults, wherever the process has gone since.
        self._path = os.path.abspath(path)
        self._config = config
        self._running: _Running | None = None

    async def open(self, loop: Backend) -> None:
        """Make ready.

        Raises:
            BusDamagedError: the file is no bus, or a newer one. BusUnavailableError: it cannot be
                opened. BusFullError: nor can it be made. ConfigError: its directory is not there.
        """
        session = int.from_bytes(random_bytes(SESSION_SIZE), "big")
        self._running = _Running(Database(self._path, self._config, session), self._config, loop)
        try:
            await self._do(LOOK, _nothing)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Finish what is under way and let go."""
        if self._running is not None:
            await self._running.end(self._config.busy_timeout + PATIENCE)

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """Store events."""
        config = self._config
        return await self._do(
            PUBLISH if durable else PUBLISH_SOON,
            lambda books: publishing.publish(books, config, events),
            rescue=lambda books: keeping.make_room(books, config, {e.name for e in events}),
        )

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """Make the group and the consumer known."""
        await self._do(MARK, lambda books: handing.join(books, stream, group, consumer, after))

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """Hand out what the group was never handed."""

        def run(books: Books) -> list[Delivery]:
            return handing.read(books, handing.rejoin(books, stream, group), consumer, count)

        undo = _release(stream, group, consumer)
        return await self._readers.first(stream, wait, lambda: self._do(MARK, run, undo))

    async def own(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        """Hand out again what an earlier process of this name left."""
        none: list[Delivery] = []
        run = _in_group(stream, group, none, handing.own, consumer, count)
        return await self._do(MARK, run, _release(stream, group, consumer))

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """Hand out again what is due, or was left."""
        none: list[Delivery] = []
        run = _in_group(stream, group, none, handing.claim, consumer, count, idle)
        return await self._do(MARK, run, _release(stream, group, consumer))

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """They are being worked on."""
        await self._do(MARK, _in_group(stream, group, None, settling.touch, consumer, ids))

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        """They are done."""
        return await self._do(RECORD, _in_group(stream, group, 0, settling.ack, ids))

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        """It failed."""
        run = _in_group(stream, group, False, settling.nack, consumer, id, delay, error)
        return await self._do(RECORD, run)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        """They were never begun."""
        await self._do(MARK, _in_group(stream, group, None, settling.release, consumer, ids))

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        """Set it aside."""
        run = _in_group(stream, group, None, settling.bury, consumer, id, error)
        return await self._do(RECORD, run)

    # Looking.

    async def streams(self) -> list[StreamInfo]:
        """All streams."""
        return await self._do(LOOK, looking.streams)

    async def groups(self, stream: str) -> list[GroupInfo]:
        """The groups of a stream."""
        return await self._do(LOOK, lambda books: looking.groups(books, stream))

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        """The consumers of a group."""
        return await self._do(LOOK, _in_group(stream, group, [], looking.consumers))

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        """What is pending in a group."""
        return await self._do(LOOK, _in_group(stream, group, [], looking.pending, count, after))

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        """Events, whatever any group does."""
        if after == AFTER_ALL:
            after = await self._do(LOOK, lambda books: looking.place(books, stream))

        def run(books: Books) -> list[StoredEvent]:
            return looking.history(books, stream, after, until, count)

        return await self._readers.first(stream, wait, lambda: self._do(LOOK, run))

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """The group reads on after `after`."""
        await self._do(RECORD, lambda books: keeping.rewind(books, stream, group, after))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events pending and due."""
        return await self._do(RECORD, _in_group(stream, group, [], keeping.redeliver, ids))

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Take away the oldest events, a piece at a time: others go on between two."""
        run = _in_stream(stream, 0, keeping.trim, bounds)
        total = taken = await self._do(RECORD, run)
        while taken == keeping.PIECE:
            taken = await self._do(RECORD, run)
            total += taken
        return total

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        """Take events out."""
        return await self._do(RECORD, _in_stream(stream, 0, keeping.drop, ids))

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        """Forget idle consumers."""
        return await self._do(RECORD, _in_group(stream, group, [], keeping.remove_consumers, idle))

    async def remove_group(self, stream: str, group: str) -> bool:
        """Forget a group."""
        return await self._do(RECORD, _in_group(stream, group, False, keeping.remove_group))

    # How it is asked.

    @property
    def _readers(self) -> Readers:
        if self._running is None:
            raise BusClosedError("the bus is not open")
        return self._running.readers

    async def _do(
        self,
        kind: Kind,
        run: Callable[[Books], Result],
        undo: Callable[[Any], Operation | None] | None = None,
        rescue: Callable[[Books], None] | None = None,
    ) -> Result:
        if self._running is None:
            raise BusClosedError("the bus is not open")
        return cast(Result, await self._running.line.do(kind, run, undo, rescue))


class _Running:
    """What there is of a store while it is open: the line, the thread at its end, who waits."""

    def __init__(self, database: Database, config: BusConfig, loop: Backend) -> None:
        self.line = Line(loop, config.waiting)
        self.readers = Readers(loop, self.line)
        self._loop = loop
        self._ended = False
        self._changes = Changes(loop.waiter)
        self.worker = Worker(database, config, self.line, self._on_done, self._on_ended)
        self.worker.start()

    async def end(self, patience: float) -> None:
        """Let the thread finish what is in line, for at most `patience` seconds."""
        if not self.line.closed:
            self.line.close()
            self.readers.wake(None)
        with anyio.move_on_after(patience, shield=True):
            await self._changes.until(lambda: self._ended)
            self.worker.join(1.0)

    # In the thread.

    def _on_done(self, done: list[Operation], readable: set[str] | None) -> None:
        self._loop.soon_from_thread(partial(self._finished, done, readable))

    def _on_ended(self) -> None:
        self._loop.soon_from_thread(self._end)

    # In the loop.

    def _end(self) -> None:
        self._ended = True
        self._changes.notify()

    def _finished(self, done: list[Operation], readable: set[str] | None) -> None:
        self.line.finished(done)
        self.readers.wake(readable)


def _release(stream: str, group: str, consumer: str) -> Callable[[Any], Operation | None]:
    """What gives back the deliveries of an operation that nobody waits for any more."""

    def undo(deliveries: list[Delivery] | None) -> Operation | None:
        if not deliveries:
            return None
        ids = [delivery.event.id for delivery in deliveries]
        return Operation(MARK, _in_group(stream, group, None, settling.release, consumer, ids))

    return undo


def _in_group(
    stream: str, name: str, missing: Result, function: Callable[..., Result], *arguments: Any
) -> Callable[[Books], Result]:
    """What runs `function` with a group; `missing` if there is none."""

    def run(books: Books) -> Result:
        group = books.group(stream, name)
        return missing if group is None else function(books, group, *arguments)

    return run


def _in_stream(
    name: str, missing: Result, function: Callable[..., Result], *arguments: Any
) -> Callable[[Books], Result]:
    """What runs `function` with a stream; `missing` if there is none."""

    def run(books: Books) -> Result:
        stream = books.stream(name)
        return missing if stream is None else function(books, stream, *arguments)

    return run


def _nothing(books: Books) -> None:
    return
