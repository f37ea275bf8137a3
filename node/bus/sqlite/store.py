"""A bus in one SQLite file: no server, many processes.

One rule: what is asked here is done by one thread (`worker.py`), many requests in a transaction;
this is where they wait. Knows no SQL.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio

from crypto.randomness import random_bytes
from node.bus.config import BusConfig
from node.bus.errors import BusClosedError
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
from node.bus.sqlite.line import (
    LOOK,
    MARK,
    PUBLISH,
    PUBLISH_SOON,
    RECORD,
    Kind,
    Line,
    Operation,
)
from node.bus.sqlite.worker import Worker
from node.transport.backend import Backend
from node.transport.loop import Waiter

# Seconds beyond `busy_timeout` that closing gives the thread.
PATIENCE: Final = 10.0


class SqliteStore:
    """The `Store` in the file `path`."""

    def __init__(self, path: str, config: BusConfig) -> None:
        self._path = path
        self._config = config
        self._backend: Backend | None = None
        self._line: Line | None = None
        self._worker: Worker | None = None
        self._ended: Waiter | None = None
        self._readers: dict[str, set[Waiter]] = {}
        self._places: dict[tuple[str, str], str] = {}

    async def open(self, loop: Backend) -> None:
        """Make ready."""
        self._backend = loop
        self._line = Line(loop, self._config.waiting)
        self._ended = loop.waiter()
        self._worker = Worker(
            self._path,
            self._config,
            int.from_bytes(random_bytes(7), "big"),
            self._line,
            lambda done, woken: loop.soon_from_thread(partial(self._finished, done, woken)),
            lambda: loop.soon_from_thread(self._ended.wake),
        )
        self._worker.start()
        try:
            await self._do(LOOK, _nothing)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Finish what is under way and let go."""
        line, worker = self._line, self._worker
        if line is None or worker is None or line.closed:
            return
        line.closed = True
        line.put(None)
        with anyio.move_on_after(self._config.busy_timeout + PATIENCE, shield=True):
            await self._ended.wait()
        worker.join(1.0)

    # Publishing.

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        """Store events."""
        kind = PUBLISH if durable else PUBLISH_SOON
        config = self._config
        return await self._do(kind, lambda books: publishing.publish(books, config, events))

    # Consuming.

    async def join(self, stream: str, group: str, consumer: str, after: str) -> None:
        """Make the group and the consumer known."""
        await self._do(MARK, lambda books: handing.join(books, stream, group, consumer, after))

    async def read(
        self, stream: str, group: str, consumer: str, count: int, wait: float
    ) -> list[Delivery]:
        """Events that the group was never handed."""

        def run(books: Books) -> list[Delivery]:
            found = books.group(stream, group) or handing.begin(books, stream, group, "0-0")
            return handing.read(books, found, consumer, count)

        return await self._waiting(stream, wait, lambda: self._hand(stream, group, consumer, run))

    async def own(self, stream: str, group: str, consumer: str, count: int) -> list[Delivery]:
        """Events that an earlier process of this name left."""
        run = _in_group(stream, group, [], handing.own, consumer, count)
        return await self._hand(stream, group, consumer, run)

    async def claim(
        self, stream: str, group: str, consumer: str, count: int, idle: float
    ) -> list[Delivery]:
        """Events that are due, or were left."""
        run = _in_group(stream, group, [], handing.claim, consumer, count, idle)
        return await self._hand(stream, group, consumer, run)

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

        async def ask() -> list[StoredEvent]:
            return await self._do(
                LOOK, lambda books: looking.history(books, stream, after, until, count)
            )

        return await self._waiting(stream, wait, ask)

    # Keeping order.

    async def rewind(self, stream: str, group: str, after: str) -> None:
        """The group reads on after `after`."""
        await self._do(RECORD, lambda books: keeping.rewind(books, stream, group, after))

    async def redeliver(self, stream: str, group: str, ids: Sequence[str]) -> list[str]:
        """Make events pending and due."""
        return await self._do(RECORD, _in_group(stream, group, [], keeping.redeliver, ids))

    async def trim(self, stream: str, bounds: Trim) -> int:
        """Take away the oldest events."""
        total, ended = 0, False
        while not ended:
            taken, ended = await self._do(
                RECORD, _in_stream(stream, (0, True), keeping.trim, bounds)
            )
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

        def run(books: Books) -> bool:
            found = books.group(stream, group)
            if found is not None:
                keeping.remove_group(books, found)
            return found is not None

        return await self._do(RECORD, run)

    # How it is asked.

    async def _do(
        self,
        kind: Kind,
        run: Callable[[Books], Any],
        undo: Callable[[Any], Operation | None] | None = None,
    ) -> Any:
        line = self._line
        if line is None or line.closed:
            raise BusClosedError("the bus is closed")
        return await line.do(kind, run, undo)

    async def _hand(
        self, stream: str, group: str, consumer: str, run: Callable[[Books], Any]
    ) -> list[Delivery]:
        def undo(result: list[Delivery]) -> Operation | None:
            if not result:
                return None
            ids = [delivery.event.id for delivery in result]
            again = _in_group(stream, group, None, settling.release, consumer, ids)
            return Operation(MARK, again, None)

        return await self._do(MARK, run, undo)

    async def _waiting(self, stream: str, wait: float, ask: Callable[[], Any]) -> Any:
        """What `ask` gives, as soon as it gives something, within `wait` seconds."""
        if wait <= 0 or self._backend is None or self._line is None:
            return await ask()
        loop, line = self._backend, self._line
        end = loop.now() + wait
        waiters = self._readers.setdefault(stream, set())
        while True:
            waiter = loop.waiter()
            waiters.add(waiter)
            line.watched = True
            timer = None
            try:
                found = await ask()
                if found or loop.now() >= end or line.closed:
                    return found
                timer = loop.at(end, waiter.wake)
                await waiter.wait()
            finally:
                if timer is not None:
                    timer.cancel()
                waiters.discard(waiter)
                if not waiters:
                    self._readers.pop(stream, None)
                    line.watched = bool(self._readers)
                    waiters = self._readers.setdefault(stream, set())

    def _finished(self, done: list[Operation], woken: set[str] | None) -> None:
        if self._line is not None:
            self._line.finished(done)
        for stream in list(self._readers) if woken is None else woken:
            waiters = self._readers.get(stream)
            if waiters:
                for waiter in list(waiters):
                    waiter.wake()


def _in_group(
    stream: str, name: str, missing: Any, function: Callable[..., Any], *arguments: Any
) -> Callable[[Books], Any]:
    """What runs `function` with a group; `missing` if there is none."""

    def run(books: Books) -> Any:
        group = books.group(stream, name)
        return missing if group is None else function(books, group, *arguments)

    return run


def _in_stream(
    name: str, missing: Any, function: Callable[..., Any], *arguments: Any
) -> Callable[[Books], Any]:
    """What runs `function` with a stream; `missing` if there is none."""

    def run(books: Books) -> Any:
        stream = books.stream(name)
        return missing if stream is None else function(books, stream, *arguments)

    return run


def _nothing(books: Books) -> None:
    return
