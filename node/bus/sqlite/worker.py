"""The thread that owns the database, and its queue: all queued operations become one transaction.

An operation is done when its transaction is committed. Operations that failed together are retried
one by one, so that one failure does not affect the others. The queue has a size limit; further
callers wait in order. Each value is set by one thread only, so that no operation takes a lock:
appending to a list and removing its head are atomic under the interpreter's lock.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusClosedError
from parley._node.bus.sqlite.cache import MetadataCache
from parley._node.bus.sqlite.database import Database
from parley._node.bus.sqlite.errors import bus_error, is_common, is_full
from parley._node.bus.sqlite.maintenance import PIECE, remove_idle, retain, smaller
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Waiter

Found = TypeVar("Found")
Run: TypeAlias = Callable[..., Any]
Rescue: TypeAlias = Callable[..., None]
Undo: TypeAlias = "Callable[[Any], Operation | None] | None"


class OperationKind(NamedTuple):
    """The properties of an operation.

    A `durable` operation is on disk when it is done. One that `publishes` adds events, and may use
    less of the file.
    """

    writes: bool = True
    durable: bool = False
    publishes: bool = False


READ: Final = OperationKind(writes=False)
WRITE: Final = OperationKind()
WRITE_DURABLE: Final = OperationKind(durable=True)
PUBLISH_DURABLE: Final = OperationKind(durable=True, publishes=True)
PUBLISH: Final = OperationKind(publishes=True)


class Operation:
    """A function for the thread to run with its cache, and the waiter for its result.

    For a caller that was cancelled, `undo` converts the result to the operation that reverses it.
    `rescue` removes at most `piece` events to free space for a second attempt.
    """

    __slots__ = ("abandoned", "done", "error", "kind", "rescue", "result", "run", "undo", "waiter")

    def __init__(
        self,
        kind: OperationKind,
        run: Run,
        waiter: Waiter | None = None,
        undo: Undo = None,
        rescue: Rescue | None = None,
    ) -> None:
        self.kind = kind
        self.run = run
        self.waiter = waiter
        self.undo = undo
        self.rescue = rescue
        self.result: Any = None
        self.error: Exception | None = None
        self.abandoned = (
            False  # Set by the loop; the thread then skips an operation that it has not taken.
        )
        self.done = False  # Set by the loop.


class WorkQueue:
    """The queue of operations. The thread calls `take`, the event loop everything else."""

    def __init__(self, backend: Backend, limit: int) -> None:
        self._backend = backend
        self._free = limit
        self._outside: deque[list[Any]] = deque()  # [waiter, whether it has a slot]
        self._waiting: list[Operation | None] = []
        self._idle = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self.closed = False
        self.watched = False  # Whether a task waits for changes by other processes.

    async def do(
        self,
        kind: OperationKind,
        run: Run,
        undo: Undo = None,
        rescue: Rescue | None = None,
    ) -> Any:
        """Run a function in the thread; return its result or raise its error."""
        if self._free <= 0 or self._outside:
            await self._enter()
        else:
            self._free -= 1
        if self.closed:
            self._leave(1)
            raise BusClosedError("the bus is closed")
        waiter = self._backend.waiter()
        operation = Operation(kind, run, waiter, undo, rescue)
        self.put(operation)
        try:
            await waiter
        except BaseException:
            operation.abandoned = True
            if operation.done:
                self._undo(operation)
            raise
        if operation.error is not None:
            raise operation.error
        return operation.result

    def put(self, operation: Operation | None) -> None:
        """Append an operation without waiting for a slot; None marks the end."""
        self._waiting.append(operation)
        if self._idle:
            self.wake()

    def close(self) -> None:
        """Accept no more operations. Queued ones still run."""
        self.closed = True
        self.put(None)

    def wake(self) -> None:
        self._idle = False
        self._wakes.put(None)

    def finished(self, operations: list[Operation]) -> None:
        for operation in operations:
            operation.done = True
            if operation.waiter is None:
                continue
            self._free += 1
            if operation.abandoned:
                self._undo(operation)
            else:
                operation.waiter.wake()
        if self._outside:
            self._leave(0)

    # Called by the thread.

    def take(self, timeout: float | None) -> list[Operation | None]:
        """Remove and return all queued operations, or none after `timeout` seconds without any."""
        waiting = self._waiting
        if not waiting:
            self._idle = True
            if not waiting:
                with suppress(Empty):
                    self._wakes.get(timeout=timeout)
            self._idle = False
        taken = waiting[:]
        del waiting[: len(taken)]
        return taken

    # Slots.

    async def _enter(self) -> None:
        waiter = self._backend.waiter()
        entry = [waiter, False]
        self._outside.append(entry)
        try:
            await waiter
        except BaseException:
            if entry[1]:
                self._leave(1)
            else:
                self._outside.remove(entry)
            raise

    def _leave(self, count: int) -> None:
        """Free `count` slots."""
        self._free += count
        while self._outside and self._free > 0:
            entry = self._outside.popleft()
            self._free -= 1
            entry[1] = True
            entry[0].wake()

    def _undo(self, operation: Operation) -> None:
        if operation.undo is None or operation.error is not None:
            return
        made = operation.undo(operation.result)
        if made is not None and not self.closed:
            self.put(made)


class Readers:
    """The tasks that wait for events, in the event loop.

    A task is listed before it reads, so that it misses no events published in between. Only the
    readers of a stream are woken when it grows.
    """

    def __init__(self, backend: Backend, queue: WorkQueue) -> None:
        self._backend = backend
        self._queue = queue
        self.waiters: dict[str, set[Waiter]] = {}

    async def first(
        self, stream: str, wait: float, ask: Callable[[], Awaitable[tuple[list[Found], bool]]]
    ) -> list[Found]:
        """Return the list of `ask` when it is not empty, within `wait` seconds.

        Returns an empty list when the second result of `ask` is True: then events are due that it
        does not return.
        """
        if wait <= 0:
            return (await ask())[0]
        loop = self._backend
        end = loop.now() + wait
        while True:
            waiter = loop.waiter()
            self._enter(stream, waiter)
            try:
                found, is_due = await ask()
                if found or is_due or loop.now() >= end:
                    return found
                timer = loop.call_at(end, waiter.wake)
                try:
                    await waiter
                finally:
                    timer.cancel()
            finally:
                self._leave(stream, waiter)

    def wake(self, streams: set[str] | None) -> None:
        """Wake the readers of these streams, or all readers if None."""
        for stream in list(self.waiters) if streams is None else streams:
            for waiter in self.waiters.get(stream, ()):
                waiter.wake()

    def _enter(self, stream: str, waiter: Waiter) -> None:
        self.waiters.setdefault(stream, set()).add(waiter)
        self._queue.watched = True

    def _leave(self, stream: str, waiter: Waiter) -> None:
        waiters = self.waiters[stream]
        waiters.discard(waiter)
        if not waiters:
            del self.waiters[stream]
            self._queue.watched = bool(self.waiters)


logger = logging.getLogger("parley.bus")

# The interval between checks for changes by other processes while a task waits, in seconds.
POLL: Final = 0.05
# Idle consumers are removed `SWEEP` times per `consumer_ttl`, and at least every `LONGEST_SWEEP`
# seconds.
SWEEP: Final = 4
LONGEST_SWEEP: Final = 3_600.0


class Worker:
    """The thread that runs the operations.

    It calls `on_done` after each transaction, with the finished operations and the names of streams
    with new events (None: any). It calls `on_ended` at its end.
    """

    def __init__(
        self,
        database: Database,
        config: BusConfig,
        queue: WorkQueue,
        on_done: Callable[[list[Operation], set[str] | None], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.database = database
        self._config = config
        self._queue = queue
        self._on_done = on_done
        self._on_ended = on_ended
        self._sweep_at = 0.0
        self._thread = Thread(target=self._run, name="parley bus", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until the thread ends; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # Run by the thread.

    def _run(self) -> None:
        try:
            ended = False
            while not ended:
                taken = self._queue.take(POLL if self._queue.watched else None)
                operations = [found for found in taken if found is not None]
                ended = len(operations) < len(taken)
                if operations:
                    self._do(operations)
                elif not ended:
                    self._poll()
        finally:
            self.database.close()
            self._on_ended()

    def _do(self, operations: list[Operation]) -> None:
        woken: set[str] = set()
        try:
            self._together([found for found in operations if not found.abandoned], woken)
        except Exception as error:
            # Every error is raised in the callers, and the thread continues.
            logger.exception("internal error in the bus", extra={"event": "bus.bug"})
            for operation in operations:
                operation.error = bus_error(error, self.database.path)
        self._on_done(operations, None if self.database.others_wrote() else woken)

    def _together(self, operations: list[Operation], woken: set[str]) -> None:
        try:
            self._transact(operations, woken)
        except Exception as error:
            self.database.roll_back(error)
            if len(operations) == 1 and not is_full(error):
                operations[0].error = bus_error(error, self.database.path)
                return
            common = is_common(error)
            for operation in operations:
                # A read-only operation needs no write lock.
                if common and operation.kind is not READ:
                    operation.error = bus_error(error, self.database.path)
                else:
                    self._alone(operation, woken)

    def _alone(self, operation: Operation, woken: set[str]) -> None:
        error = self._try(operation, woken)
        if error is not None and is_full(error) and operation.rescue is not None:
            # Removing events beyond the configured limits may free space.
            error = self._free_space(operation.kind, operation.rescue)
            error = error or self._try(operation, woken)
        operation.error = None if error is None else bus_error(error, self.database.path)

    def _free_space(self, kind: OperationKind, rescue: Rescue) -> Exception | None:
        piece = PIECE
        while True:
            room = Operation(kind._replace(publishes=False), partial(rescue, piece=piece))
            error = self._try(room, set())
            if error is None or not is_full(error) or piece == 1:
                return error
            piece = smaller(piece)

    def _try(self, operation: Operation, woken: set[str]) -> Exception | None:
        try:
            self._transact([operation], woken)
        except Exception as error:
            self.database.roll_back(error)
            return error
        return None

    def _transact(self, operations: list[Operation], woken: set[str]) -> None:
        """Run operations in one transaction. If this raises, nothing was done."""
        if not operations:
            return
        database = self.database
        writes = any(operation.kind.writes for operation in operations)
        durable = any(operation.kind.durable for operation in operations)
        now = self._config.clock()
        cache = database.begin(now, writes, durable)
        if writes and now >= self._sweep_at:
            self._sweep(cache, now)
        for operation in operations:
            publishes = operation.kind.publishes
            if not publishes:
                cache.insert()
            database.limit_pages(publishes)
            operation.result = operation.run(cache)
        cache.insert()
        for stream in cache.grown:
            if stream.added:
                retain(cache, self._config, stream)
        if writes:
            database.limit_pages(False)
        database.require_disk_space()
        database.commit(durable)
        woken.update(stream.name for stream in cache.grown)
        cache.end()

    def _sweep(self, cache: MetadataCache, now: float) -> None:
        """Remove idle consumers."""
        ttl = self._config.consumer_ttl
        self._sweep_at = now + min(ttl / SWEEP, LONGEST_SWEEP)
        remove_idle(cache, ttl)

    def _poll(self) -> None:
        """Check whether another process wrote."""
        self._try(Operation(READ, _nothing), set())
        if self.database.others_wrote():
            self._on_done([], None)


def _nothing(cache: MetadataCache) -> None:
    return
