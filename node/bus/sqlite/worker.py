"""The thread that owns the database: all waiting operations become one transaction.

An operation is done when its transaction is recorded, and not at all if that fails; operations
that failed together are tried one by one, so that each fails alone.
"""

import logging
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Final

from parley._node.bus.config import BusConfig
from parley._node.bus.sqlite.books import Books
from parley._node.bus.sqlite.database import Database
from parley._node.bus.sqlite.maintenance import PIECE, remove_idle, retain, smaller
from parley._node.bus.sqlite.sqlite_errors import bus_error, is_common, is_full
from parley._node.bus.sqlite.work_queue import LOOK, Operation, OperationKind, Rescue, WorkQueue

logger = logging.getLogger("parley.bus")

# Seconds between looks for what other processes wrote, while a task waits for it.
POLL: Final = 0.05
# Idle consumers are looked for each `SWEEP`th part of `consumer_ttl`, and at least each
# `LONGEST_SWEEP` seconds.
SWEEP: Final = 4
LONGEST_SWEEP: Final = 3_600.0


class Worker:
    """The thread.

    `on_done` is called in it after each transaction: with the operations that are done, and the
    names of streams that can be read on (None: any of them). `on_ended` when it ends.
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
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended; whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # The thread.

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
            # The callers are told, whatever it is; and the thread goes on.
            logger.exception("internal error of the bus", extra={"event": "bus.bug"})
            for operation in operations:
                operation.error = bus_error(error, self.database.path)
        self._on_done(operations, None if self.database.others_wrote() else woken)

    def _together(self, operations: list[Operation], woken: set[str]) -> None:
        try:
            self._transact(operations, woken)
        except Exception as error:
            self.database.rolled_back(error)
            if len(operations) == 1 and not is_full(error):
                operations[0].error = bus_error(error, self.database.path)
                return
            common = is_common(error)
            for operation in operations:
                # An operation that only looks needs no lock.
                if common and operation.kind is not LOOK:
                    operation.error = bus_error(error, self.database.path)
                else:
                    self._alone(operation, woken)

    def _alone(self, operation: Operation, woken: set[str]) -> None:
        error = self._try(operation, woken)
        if error is not None and is_full(error) and operation.rescue is not None:
            # Taking out what the settings do not keep may make room.
            error = self._make_room(operation.kind, operation.rescue) or self._try(operation, woken)
        operation.error = None if error is None else bus_error(error, self.database.path)

    def _make_room(self, kind: OperationKind, rescue: Rescue) -> Exception | None:
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
            self.database.rolled_back(error)
            return error
        return None

    def _transact(self, operations: list[Operation], woken: set[str]) -> None:
        """One transaction for all of them; if it raises, nothing was done."""
        if not operations:
            return
        database = self.database
        writes = any(operation.kind.writes for operation in operations)
        durable = any(operation.kind.durable for operation in operations)
        now = self._config.clock()
        books = database.begin(now, writes, durable)
        if writes and now >= self._sweep_at:
            self._sweep(books, now)
        for operation in operations:
            publishes = operation.kind.publishes
            if not publishes:
                books.insert()
            database.leave_room(publishes)
            operation.result = operation.run(books)
        books.insert()
        for stream in books.grown:
            if stream.added:
                retain(books, self._config, stream)
        if writes:
            database.leave_room(False)
        database.require_room()
        database.commit(durable)
        woken.update(stream.name for stream in books.grown)
        books.end()

    def _sweep(self, books: Books, now: float) -> None:
        """Forget consumers that were idle for long."""
        ttl = self._config.consumer_ttl
        self._sweep_at = now + min(ttl / SWEEP, LONGEST_SWEEP)
        remove_idle(books, ttl)

    def _poll(self) -> None:
        """See whether another process wrote: a task waits for it."""
        self._try(Operation(LOOK, _nothing), set())
        if self.database.others_wrote():
            self._on_done([], None)


def _nothing(books: Books) -> None:
    return
