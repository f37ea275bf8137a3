"""`SqliteStore`: a bus in one SQLite file that several processes can use, without a server.

One thread (`worker.py`) runs the operations, many in a transaction. The calling tasks wait here.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError, BusFullError
from parley._node.bus.identifiers import AFTER_ALL
from parley._node.bus.model import (
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
from parley._node.bus.sqlite import events as deliveries
from parley._node.bus.sqlite import events as publication
from parley._node.bus.sqlite import maintenance
from parley._node.bus.sqlite import queries as views
from parley._node.bus.sqlite.cache import MetadataCache
from parley._node.bus.sqlite.database import Database
from parley._node.bus.sqlite.worker import (
    PUBLISH,
    PUBLISH_DURABLE,
    READ,
    WRITE,
    WRITE_DURABLE,
    Operation,
    OperationKind,
    Readers,
    Worker,
    WorkQueue,
)
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition

# The time that closing waits for the thread beyond `busy_timeout`, in seconds, and the bytes of a
# session number.
PATIENCE: Final = 10.0
SESSION_SIZE: Final = 7

Result = TypeVar("Result")


class SqliteStore:
    """The `Store` in the file `path`."""

    def __init__(self, path: str, config: BusConfig) -> None:
        # An absolute path, because the file is reopened after some faults, and the process may
        # change its working directory.
        self._path = os.path.abspath(path)
        self._config = config
        self._running: OpenStore | None = None

    async def open(self, loop: Backend) -> None:
        """Open the file, created if it does not exist.

        Raises:
            BusDamagedError: the file is not a bus, or has a newer version.
            BusUnavailableError: the file cannot be opened.
            BusFullError: the file cannot be created.
            ConfigError: its directory does not exist.
        """
        session = int.from_bytes(random_bytes(SESSION_SIZE), "big")
        self._running = OpenStore(Database(self._path, self._config, session), self._config, loop)
        try:
            await self._do(READ, _nothing)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        if self._running is not None:
            await self._running.end(self._config.busy_timeout + PATIENCE)

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        config = self._config
        return await self._do(
            PUBLISH_DURABLE if durable else PUBLISH,
            lambda cache: publication.publish(cache, config, events),
            rescue=lambda cache, piece: maintenance.free_space(
                cache, config, {e.name for e in events}, piece
            ),
        )

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        await self._do(WRITE, lambda cache: deliveries.join(cache, stream, group, consumer, after))

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        def run(cache: MetadataCache, piece: int) -> tuple[list[Delivery], bool]:
            found = deliveries.rejoin(cache, stream, group)
            new = deliveries.read(cache, found, consumer, piece)
            return new, not new and deliveries.has_due(cache, found)

        release = _release(stream, group, consumer)

        def undo(result: tuple[list[Delivery], bool] | None) -> Operation | None:
            return (
                None if result is None else release(result[0])
            )  # None if the operation never ran.

        def ask(piece: int) -> Awaitable[tuple[list[Delivery], bool]]:
            return self._do(WRITE, partial(run, piece=piece), undo)

        return await self._readers.first(stream, wait, lambda: _shrink_to_fit(ask, count))

    async def recover_pending(
        self, stream: str, group: str, consumer: str, count: int
    ) -> list[Delivery]:
        none: list[Delivery] = []
        run = _in_group(stream, group, none, deliveries.recover_pending, consumer, count)
        return await self._do(WRITE, run, _release(stream, group, consumer))

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        none: list[Delivery] = []
        run = _in_group(stream, group, none, deliveries.claim, consumer, count, idle)
        return await self._do(WRITE, run, _release(stream, group, consumer))

    async def touch(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        def ask(some: Sequence[str]) -> Awaitable[None]:
            run = _in_group(stream, group, None, deliveries.touch, consumer, some)
            return self._do(WRITE, run)

        await _split_to_fit(ids, ask)

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        def ask(some: Sequence[str]) -> Awaitable[int]:
            return self._do(WRITE_DURABLE, _in_group(stream, group, 0, deliveries.ack, some))

        return sum(await _split_to_fit(ids, ask))

    async def nack(
        self, stream: str, group: str, consumer: str, id: str, delay: float, error: str
    ) -> bool:
        run = _in_group(stream, group, False, deliveries.nack, consumer, id, delay, error)
        return await self._do(WRITE_DURABLE, run)

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        def ask(some: Sequence[str]) -> Awaitable[None]:
            run = _in_group(stream, group, None, deliveries.release, consumer, some)
            return self._do(WRITE, run)

        await _split_to_fit(ids, ask)

    async def bury(self, stream: str, group: str, consumer: str, id: str, error: str) -> str | None:
        run = _in_group(stream, group, None, deliveries.bury, consumer, id, error)
        return await self._do(WRITE_DURABLE, run)

    # Inspection.

    async def streams(self) -> list[StreamInfo]:
        return await self._do(READ, views.streams)

    async def groups(self, stream: str) -> list[GroupInfo]:
        return await self._do(READ, lambda cache: views.groups(cache, stream))

    async def consumers(self, stream: str, group: str) -> list[ConsumerInfo]:
        return await self._do(READ, _in_group(stream, group, [], views.consumers))

    async def pending(self, stream: str, group: str, count: int, after: str) -> list[PendingInfo]:
        return await self._do(READ, _in_group(stream, group, [], views.pending, count, after))

    async def history(
        self, stream: str, after: str, until: str | None, count: int, wait: float
    ) -> list[StoredEvent]:
        if after == AFTER_ALL:
            after = await self._do(READ, lambda cache: views.place(cache, stream))

        def run(cache: MetadataCache) -> tuple[list[StoredEvent], bool]:
            return views.history(cache, stream, after, until, count), False

        return await self._readers.first(stream, wait, lambda: self._do(READ, run))

    # Maintenance.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        await self._do(WRITE_DURABLE, lambda cache: maintenance.rewind(cache, stream, group, after))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        return await self._do(
            WRITE_DURABLE, _in_group(stream, group, [], maintenance.redeliver, ids)
        )

    async def trim(self, stream: str, bounds: Trim) -> int:
        def ask(piece: int) -> Awaitable[tuple[int, bool]]:
            run = _in_stream(stream, (0, False), maintenance.trim, bounds, piece)
            return self._do(WRITE_DURABLE, run)

        total, more = await _shrink_to_fit(ask)
        while more:  # Other operations run between two steps.
            taken, more = await _shrink_to_fit(ask)
            total += taken
        return total

    async def drop(self, stream: str, ids: Sequence[str]) -> int:
        return sum(
            await _split_to_fit(
                ids,
                lambda some: self._do(WRITE_DURABLE, _in_stream(stream, 0, maintenance.drop, some)),
            )
        )

    async def remove_consumers(self, stream: str, group: str, idle: float) -> list[str]:
        return await self._do(
            WRITE_DURABLE, _in_group(stream, group, [], maintenance.remove_consumers, idle)
        )

    async def remove_group(self, stream: str, group: str) -> bool:
        missing: bool | None = False

        def ask(piece: int) -> Awaitable[bool | None]:
            run = _in_group(stream, group, missing, maintenance.remove_group, piece)
            return self._do(WRITE_DURABLE, run)

        removed = await _shrink_to_fit(ask)
        while removed is None:
            removed = await _shrink_to_fit(ask)
        return removed

    # Requests to the thread.

    @property
    def _readers(self) -> Readers:
        if self._running is None:
            raise BusClosedError("the bus is not open")
        return self._running.readers

    def _do(
        self,
        kind: OperationKind,
        run: Callable[[MetadataCache], Result],
        undo: Callable[[Any], Operation | None] | None = None,
        rescue: Callable[[MetadataCache, int], None] | None = None,
    ) -> Awaitable[Result]:
        if self._running is None:
            raise BusClosedError("the bus is not open")
        return self._running.queue.do(kind, run, undo, rescue)


class OpenStore:
    """The parts of an open store: the queue, the thread, and the waiting readers."""

    def __init__(self, database: Database, config: BusConfig, loop: Backend) -> None:
        self.queue = WorkQueue(loop, config.waiting)
        self.readers = Readers(loop, self.queue)
        self._loop = loop
        self._ended = False
        self._changes = Condition(loop.waiter)
        self.worker = Worker(database, config, self.queue, self._on_done, self._on_ended)
        self.worker.start()

    async def end(self, patience: float) -> None:
        """Let the thread finish the queue, for at most `patience` seconds."""
        if not self.queue.closed:
            self.queue.close()
            self.readers.wake(None)
        with anyio.move_on_after(patience, shield=True):
            await self._changes.until(lambda: self._ended)
            self.worker.join(1.0)

    # Called in the thread.

    def _on_done(self, done: list[Operation], readable: set[str] | None) -> None:
        self._loop.call_soon_threadsafe(partial(self._finished, done, readable))

    def _on_ended(self) -> None:
        self._loop.call_soon_threadsafe(self._end)

    # Called in the event loop.

    def _end(self) -> None:
        self._ended = True
        self._changes.notify()

    def _finished(self, done: list[Operation], readable: set[str] | None) -> None:
        self.queue.finished(done)
        if self.readers.waiters:
            self.readers.wake(readable)


async def _shrink_to_fit(
    ask: Callable[[int], Awaitable[Result]], piece: int = maintenance.PIECE
) -> Result:
    """Return the result of `ask(piece)`, where `piece` limits the events of one transaction.

    The limit is reduced each time that the disk or the file has no space.
    """
    while True:
        try:
            return await ask(piece)
        except BusFullError:
            if piece <= 1:
                raise
        piece = maintenance.smaller(piece)


async def _split_to_fit(
    ids: Sequence[str], ask: Callable[[Sequence[str]], Awaitable[Result]]
) -> list[Result]:
    """Return the results of `ask` for all `ids`.

    Uses one transaction, or several if there is no space for one.
    """
    try:
        return [await ask(ids)]
    except BusFullError:
        if len(ids) < 2:
            raise
    middle = len(ids) // 2
    return [*await _split_to_fit(ids[:middle], ask), *await _split_to_fit(ids[middle:], ask)]


def _release(stream: str, group: str, consumer: str) -> Callable[[Any], Operation | None]:
    """Release the deliveries of an operation whose caller was cancelled."""

    def undo(found: list[Delivery] | None) -> Operation | None:
        if not found:
            return None
        ids = [delivery.event.id for delivery in found]
        return Operation(WRITE, _in_group(stream, group, None, deliveries.release, consumer, ids))

    return undo


def _in_group(
    stream: str, name: str, missing: Result, function: Callable[..., Result], *arguments: Any
) -> Callable[[MetadataCache], Result]:
    """Call `function` with a group; return `missing` if it does not exist."""

    def run(cache: MetadataCache) -> Result:
        group = cache.group(stream, name)
        return missing if group is None else function(cache, group, *arguments)

    return run


def _in_stream(
    name: str, missing: Result, function: Callable[..., Result], *arguments: Any
) -> Callable[[MetadataCache], Result]:
    """Call `function` with a stream; return `missing` if it does not exist."""

    def run(cache: MetadataCache) -> Result:
        stream = cache.stream(name)
        return missing if stream is None else function(cache, stream, *arguments)

    return run


def _nothing(cache: MetadataCache) -> None:
    return
