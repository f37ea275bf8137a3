"""The thread that owns the database: everything that waits becomes one transaction.

One rule: an operation is done when its transaction is recorded, and not at all if that fails;
what failed among others is tried alone, so that it fails alone. Knows no tasks.
"""

import logging
from collections.abc import Callable
from threading import Thread
from typing import Final

from node.bus.config import BusConfig
from node.bus.sqlite.books import Books
from node.bus.sqlite.database import Database
from node.bus.sqlite.faults import bus_error, is_common, is_full
from node.bus.sqlite.keeping import remove_idle, retain
from node.bus.sqlite.line import LOOK, Line, Operation

logger = logging.getLogger("parley.bus")

# Seconds between looks for what other processes wrote, while somebody waits for it.
POLL: Final = 0.05
# How often idle consumers are looked for: this part of `consumer_ttl`, and at least so often.
SWEEP: Final = 4
LONGEST_SWEEP: Final = 3_600.0


class Worker:
    """The thread.

    `on_done` is called in it after each transaction: with what was done, and with the names of
    streams that can be read on (None: any of them). `on_ended` when it ends.
    """

    def __init__(
        self,
        database: Database,
        config: BusConfig,
        line: Line,
        on_done: Callable[[list[Operation], set[str] | None], None],
        on_ended: Callable[[], None],
    ) -> None:
        self.database = database
        self._config = config
        self._line = line
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
                taken = self._line.take(POLL if self._line.watched else None)
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
            # Whoever waits is told, whatever it is; and the thread goes on.
            logger.exception("internal error of the bus")
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
                # Who only looks needs no lock.
                if common and operation.kind is not LOOK:
                    operation.error = bus_error(error, self.database.path)
                else:
                    self._alone(operation, woken)

    def _alone(self, operation: Operation, woken: set[str]) -> None:
        error = self._try(operation, woken)
        if error is not None and is_full(error) and operation.rescue is not None:
            # What the settings let be taken away may make the room.
            room = Operation(operation.kind._replace(publishes=False), operation.rescue)
            error = self._try(room, woken) or self._try(operation, woken)
        operation.error = None if error is None else bus_error(error, self.database.path)

    def _try(self, operation: Operation, woken: set[str]) -> Exception | None:
        try:
            self._transact([operation], woken)
        except Exception as error:
            self.database.rolled_back(error)
            return error
        return None

    def _transact(self, operations: list[Operation], woken: set[str]) -> None:
        """One transaction for all of them; raises whatever went wrong, and has done nothing."""
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
        if any(operation.kind.publishes for operation in operations):
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
        """See whether another process wrote: somebody waits for it."""
        self._try(Operation(LOOK, _nothing), set())
        if self.database.others_wrote():
            self._on_done([], None)


def _nothing(books: Books) -> None:
    return
