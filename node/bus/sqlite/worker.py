"""The thread that owns the database: everything that waits becomes one transaction.

One rule: an operation is done when its transaction is recorded, and not at all if that fails;
what fails among others is tried alone, so that it fails alone. Knows no tasks.
"""

import logging
import sqlite3
from collections.abc import Callable
from threading import Thread
from typing import Final

from node.bus.config import BusConfig
from node.bus.sqlite.books import Books
from node.bus.sqlite.faults import bus_error, is_fatal, is_full
from node.bus.sqlite.file import open_file, page_limits
from node.bus.sqlite.keeping import remove_idle, retain
from node.bus.sqlite.line import LOOK, Line, Operation

logger = logging.getLogger("parley.bus")

# Seconds between looks for what other processes wrote, while somebody waits for it.
POLL: Final = 0.05
# How often idle consumers are looked for: this part of `consumer_ttl`, and at least so often.
SWEEP: Final = 4
LONGEST_SWEEP: Final = 3_600.0


class Worker:
    """The thread and its connection.

    `on_done` is called in this thread, after each transaction, with what was done and the names
    of streams that who waits for may read; None is all.
    """

    def __init__(
        self,
        path: str,
        config: BusConfig,
        session: int,
        line: Line,
        on_done: Callable[[list[Operation], set[str] | None], None],
        on_ended: Callable[[], None],
    ) -> None:
        self._path = path
        self._config = config
        self._session = session
        self._line = line
        self._on_done = on_done
        self._on_ended = on_ended
        self._limits = page_limits(config)
        self._limit = 0
        self._durable = True
        self._switches = 0
        self._version = -1
        self._others_wrote = False
        self._sweep_at = 0.0
        self._connection: sqlite3.Connection | None = None
        self._books: Books | None = None
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
        except Exception:
            logger.exception("internal error of the bus")
        finally:
            self._close()
            self._on_ended()

    def _do(self, operations: list[Operation]) -> None:
        operations = [operation for operation in operations if not self._skip(operation)]
        woken: set[str] = set()
        try:
            self._transact(operations, woken)
        except Exception as error:
            self._after(error)
            if is_fatal(error) or len(operations) == 1:
                self._each_failed(operations, error, woken)
            else:
                for operation in operations:
                    self._alone(operation, woken)
        everyone, self._others_wrote = self._others_wrote, False
        self._on_done(operations, None if everyone else woken)

    def _skip(self, operation: Operation) -> bool:
        # What comes of a task that is gone has no waiter and is always done.
        return operation.abandoned

    def _each_failed(self, operations: list[Operation], error: Exception, woken: set[str]) -> None:
        """The transaction failed; what only looks may do without its lock."""
        for operation in operations:
            if operation.kind is LOOK and len(operations) > 1:
                self._alone(operation, woken)
            else:
                operation.error = bus_error(error)

    def _alone(self, operation: Operation, woken: set[str]) -> None:
        for last in (False, True):
            try:
                self._transact([operation], woken)
            except Exception as error:
                self._after(error)
                operation.error = bus_error(error)
                if last or not (operation.kind.publishes and is_full(error)):
                    return
                self._make_room(operation)
            else:
                operation.error = None
                return

    def _make_room(self, operation: Operation) -> None:
        return

    def _transact(self, operations: list[Operation], woken: set[str]) -> None:
        """One transaction for all of them; raises whatever went wrong, and has done nothing."""
        writes = any(operation.kind.writes for operation in operations)
        durable = any(operation.kind.durable for operation in operations)
        connection, books = self._ready()
        if durable is not self._durable:
            self._switch(connection, durable)
        execute = books.cursor.execute
        execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        self._see_others(books)
        now = self._config.clock()
        books.begin(now)
        before = connection.total_changes
        if writes and now >= self._sweep_at:
            self._sweep(books, now)
        for operation in operations:
            publishes = operation.kind.publishes
            if books.rows and not publishes:
                books.insert()
            self._allow(connection, self._limits[0 if publishes else 1])
            operation.result = operation.run(books)
        books.insert()
        for stream in books.grown:
            if stream.added:
                retain(books, self._config, stream)
        books.write_down()
        if books.repeated and durable and connection.total_changes == before:
            # The event it repeats may have been published without reaching the disk.
            execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")
        execute("COMMIT")
        woken.update(stream.name for stream in books.grown)
        books.end()

    def _ready(self) -> tuple[sqlite3.Connection, Books]:
        if self._connection is None or self._books is None:
            self._connection = open_file(self._path, self._config)
            self._books = Books(self._connection, self._session)
            self._durable, self._limit, self._version = True, 0, -1
        return self._connection, self._books

    def _switch(self, connection: sqlite3.Connection, durable: bool) -> None:
        """Whether commits wait for the disk."""
        # It takes effect when it is compiled, so it must never come out of a cache of statements.
        self._switches += 1
        mode = "FULL" if durable else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {mode} -- {self._switches}")
        self._durable = durable

    def _allow(self, connection: sqlite3.Connection, pages: int) -> None:
        """How large the file may become."""
        if pages != self._limit:
            connection.execute(f"PRAGMA max_page_count = {pages}")
            self._limit = pages

    def _see_others(self, books: Books) -> None:
        version = books.cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            if self._version >= 0:
                self._others_wrote = True
            self._version = version
            books.forget()

    def _sweep(self, books: Books, now: float) -> None:
        """Forget consumers that were idle for long."""
        ttl = self._config.consumer_ttl
        self._sweep_at = now + min(ttl / SWEEP, LONGEST_SWEEP)
        remove_idle(books, ttl)

    def _poll(self) -> None:
        """See whether another process wrote: somebody waits for it."""
        try:
            self._transact([Operation(LOOK, _nothing, None)], set())
        except Exception as error:
            self._after(error)
            return
        if self._others_wrote:
            self._others_wrote = False
            self._on_done([], None)

    def _after(self, error: Exception) -> None:
        """A transaction failed: nothing of it stays."""
        if self._connection is None or self._books is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._close()
            return
        self._books.forget()

    def _close(self) -> None:
        connection, self._connection, self._books = self._connection, None, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                logger.exception("the bus could not be closed in order")


def _nothing(books: Books) -> None:
    return
