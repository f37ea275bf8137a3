"""The connection to the file: transactions begin and end here, and it is opened anew after faults.

Between `begin` and `commit` or `rolled_back` there is one transaction; whether its commit waits
for the disk, and how large the file may become, is set beforehand.
"""

import logging
import os
import sqlite3
from contextlib import closing, suppress
from typing import Final

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusFullError
from parley._node.bus.sqlite.books import Books
from parley._node.bus.sqlite.bus_file import PAGE_SIZE, has_room, open_file, page_limits, refusal
from parley._node.bus.sqlite.sqlite_errors import is_full, is_of_disk

logger = logging.getLogger("parley.bus")

# Bytes of the log for each byte of events, at most: an event may fill little of its last page. And
# for each event that is handed out, at most.
LOGGED: Final = 2
LOGGED_PENDING: Final = 128


class Database:
    """One connection to the file at `path`, for one thread. `session` is a number that only this
    run has."""

    def __init__(self, path: str, config: BusConfig, session: int) -> None:
        self.path = path
        self._config = config
        self._session = session
        self._limits = page_limits(config)
        self._connection: sqlite3.Connection | None = None
        self._read_only = False
        self.books: Books | None = None
        self._limit = 0
        self._durable = True
        self._switches = 0
        self._version = 0
        self._changes = 0
        self._others_wrote = False
        self._mend = False
        self._roomy = 0  # the number of pages for which the disk had room

    def begin(self, now: float, writes: bool, durable: bool) -> Books:
        """Begin a transaction at `now`; raises sqlite3.Error, OSError, BusError, ConfigError."""
        if self._read_only:
            refused = refusal(self.path)
            if refused is None:  # others may write by now, too
                self.close()
            elif writes:
                raise refused
        if self._connection is None or self.books is None:
            connection, books = self._open()
        else:
            connection, books = self._connection, self.books
        if writes and durable is not self._durable:
            self._switch(connection, durable)
        execute = books.cursor.execute
        execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        version = execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._others_wrote = self._version != 0
            self._version = version
            books.forget()
        self._changes = connection.total_changes
        books.begin(now)
        return books

    def leave_room(self, publishes: bool) -> None:
        """Set whether what comes now leaves a part of the file to everything else."""
        limit = self._limits[0 if publishes else 1]
        if limit != self._limit and self.books is not None:
            self.books.cursor.execute(f"PRAGMA max_page_count = {limit}")
            self._limit = limit

    def require_room(self) -> None:
        """Raise BusFullError if the disk has no room for the events that this transaction publishes
        or hands out: in the log, and in the file, once all of the log is there."""
        books = self.books
        if books is None or not (books.added or books.handed):
            return
        pages = books.cursor.execute("PRAGMA page_count").fetchone()[0]
        if pages <= self._roomy and not books.added:
            return
        growth = max(0, pages * PAGE_SIZE - os.stat(self.path).st_size)
        logged = LOGGED * books.added + LOGGED_PENDING * books.handed
        publishes = books.added > 0
        if not has_room(self.path, growth, logged, publishes=publishes):
            others = "consuming and for trimming" if publishes else "acknowledging and for trimming"
            raise BusFullError(
                f"there is no room for it on the disk of {self.path}: the rest is left for {others}"
            )
        self._roomy = pages

    def commit(self, durable: bool) -> None:
        """Record the transaction."""
        connection, books = self._connection, self.books
        if connection is None or books is None:
            return
        books.write_down()
        if durable and books.repeated and connection.total_changes == self._changes:
            # An event that is repeated may have been published without waiting for the disk; an
            # empty commit would not wait for it either.
            books.cursor.execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")
        books.cursor.execute("COMMIT")

    def rolled_back(self, error: Exception) -> None:
        """The transaction failed: nothing of it stays."""
        self._roomy = 0
        if self._connection is None or self.books is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.exception(
                "a transaction could not be rolled back: the bus is opened anew",
                extra={"event": "bus.rollback-failed"},
            )
            self.close()
            return
        self.books.forget()
        if is_full(error):
            # Once all of it is in the file, the log needs no room.
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        elif is_of_disk(error):
            # What a failed sync leaves in the log counts as written, but may not be: nothing may be
            # appended to it (`_open`).
            self._mend = True
            self.close()

    def others_wrote(self) -> bool:
        """Whether another process wrote since the last call."""
        found, self._others_wrote = self._others_wrote, False
        return found

    def close(self) -> None:
        """Close; the last process that does so copies the log into the file and removes it."""
        connection, self._connection, self.books = self._connection, None, None
        if connection is not None:
            try:
                with closing(connection):
                    self._switch(connection, True)
            except sqlite3.Error:
                logger.exception(
                    "the bus could not be closed properly", extra={"event": "bus.close-failed"}
                )

    def _open(self) -> tuple[sqlite3.Connection, Books]:
        connection = open_file(self.path, self._config)
        try:
            self._read_only = refusal(self.path) is not None
            if self._mend and not self._read_only:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._mend = False
            books = Books(connection, self._session)
        except BaseException:
            connection.close()
            raise
        self._connection, self.books = connection, books
        self._durable, self._limit, self._version = True, 0, 0
        return connection, books

    def _switch(self, connection: sqlite3.Connection, durable: bool) -> None:
        """Set whether commits wait for the disk."""
        # It takes effect as it is compiled: it must never come out of the cache of statements.
        self._switches += 1
        mode = "FULL" if durable else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {mode} -- {self._switches}")
        self._durable = durable
