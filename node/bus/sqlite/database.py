"""The file of a bus and the connection to it: transactions begin and end here, and it is reopened
after faults.

The file is readable by its owner only. SQLite alone reads and writes it, with its own locks and
log. A file descriptor of our own, once closed, would drop the locks of everything that has the file
open in this process (POSIX), and without the log, a file in the middle of a checkpoint looks
damaged.

Between `begin` and `commit` or `roll_back` there is one transaction; whether its commit waits for
the disk, and how large the file may become, is set beforehand.
"""

import logging
import os
import sqlite3
import stat
import time
from contextlib import closing, suppress
from typing import Final
from urllib.parse import quote

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError, BusFullError, BusUnavailableError
from parley._node.bus.sqlite.cache import MetadataCache
from parley._node.bus.sqlite.errors import is_full, is_of_disk, is_read_only, refusal
from parley._node.bus.sqlite.schema import APPLICATION_ID, TABLES, VERSION
from parley._node.errors import ConfigError

PAGE_SIZE: Final = 4096
# Pages of the write-ahead log after which it is copied into the file; fewer if they would take
# more than a quarter of what is left free on the disk: nothing frees them if the file cannot grow.
CHECKPOINT_PAGES: Final = 2_000
# Bytes of the log that stay on the disk for the next use, and of pages that are kept in memory.
LOG_LEFT: Final = 64 * 2**20
CACHE_SIZE: Final = 32 * 2**20
# The part of the file's size, and of the disk, that publishing leaves to everything else: a full
# bus can be read, acknowledged and trimmed. Of the disk it is at most `DISK_RESERVED` bytes.
# Handing out events leaves half of them to acknowledging and trimming.
RESERVED: Final = 16
DISK_RESERVED: Final = 32 * 2**20

# Seconds between attempts where SQLite does not wait for a lock itself.
LOCK_PAUSE: Final = 0.005

# Triggers, views and virtual tables would run in, or replace a table of, our own statements.
_FOREIGN: Final = """SELECT 1 FROM sqlite_schema
    WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL %'"""


def open_file(path: str, config: BusConfig) -> sqlite3.Connection:
    """Open the bus at `path`, created if it does not exist.

    Raises:
        ConfigError: its directory does not exist. BusDamagedError: the file is not a bus.
        sqlite3.Error, OSError: it cannot be opened.
    """
    _make(path)
    connection = sqlite3.connect(
        database_uri(path),
        uri=True,
        timeout=config.busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _prepare(connection, path, config.busy_timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def require_bus(path: str) -> None:
    """Raise BusDamagedError, or sqlite3.Error, unless the file is a bus, empty, or missing. Changes
    nothing."""
    if os.path.exists(path):
        require_regular(path)
        with closing(sqlite3.connect(database_uri(path, "ro"), uri=True)) as connection:
            is_bus(connection, path)


def page_limits(config: BusConfig) -> tuple[int, int]:
    """Return how many pages the file may have when publishing, and for everything else."""
    pages = config.max_store_bytes // PAGE_SIZE
    return pages - pages // RESERVED, pages


def has_room(path: str, growth: int, logged: int, *, publishes: bool = True) -> bool:
    """Return whether the disk has room to publish or hand out: `growth` bytes for the file and
    `logged` for the log. Also true if the disk doesn't state its size.

    The log's bytes are freed once it is copied into the file, so a part is reserved only if the
    file grows.
    """
    disk = os.statvfs(path)
    left = _reserved(disk) if publishes else _reserved(disk) // 2
    needed = growth + max(logged, left if growth else 0)
    return not disk.f_blocks or disk.f_bavail * disk.f_frsize >= needed


def _reserved(disk: os.statvfs_result) -> int:
    return min(DISK_RESERVED, disk.f_blocks * disk.f_frsize // RESERVED)


def _make(path: str) -> None:
    """Create an empty file, readable by its owner only, if it does not exist."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise ConfigError(f"the directory {directory!r} of the bus does not exist")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        require_regular(path)


def require_regular(path: str) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
        raise BusDamagedError(f"{path} is not a regular file")


def database_uri(path: str, mode: str = "rw") -> str:
    """Return the URI with which SQLite opens the file: read-only if its file system is.

    There SQLite reads a log by the index next to it (-shm). Without an index no process has the bus
    open: the file is then read without locks, the log by an index in memory.
    """
    # With an empty authority, since an absolute path can begin with two slashes.
    address = f"file://{quote(os.fsencode(os.path.abspath(path)))}"
    if not is_read_only(path):
        return f"{address}?mode={mode}"
    if not os.path.exists(f"{path}-wal"):
        return f"{address}?mode=ro&immutable=1"
    if not os.path.exists(f"{path}-shm"):
        return f"{address}?mode=ro&vfs=unix-none"
    return f"{address}?mode=ro"


def _prepare(connection: sqlite3.Connection, path: str, busy_timeout: float) -> None:
    refused = refusal(path)
    execute = connection.execute
    execute("PRAGMA trusted_schema = OFF")
    execute("PRAGMA fullfsync = ON")  # on macOS, fsync alone does not reach the disk
    execute("PRAGMA checkpoint_fullfsync = ON")
    if is_read_only(path) and not os.path.exists(f"{path}-shm"):
        execute("PRAGMA locking_mode = EXCLUSIVE")  # needed for an index in memory
    if not is_bus(connection, path):
        if refused is not None:
            raise refused
        _create(connection, path)
    if execute(_FOREIGN).fetchone() is not None:
        raise BusDamagedError(
            f"{path} has triggers, views or virtual tables, which a bus never has"
        )
    if refused is None and _keep_log(connection, busy_timeout) != "wal":
        raise BusUnavailableError(f"the file system of {path} cannot have a write-ahead log")
    execute("PRAGMA synchronous = FULL")
    # Some builds of SQLite overwrite freed pages with zeros: trimming would need as much room in
    # the log as it frees.
    execute("PRAGMA secure_delete = FAST")
    pages = _reserved(os.statvfs(path)) // (4 * PAGE_SIZE) or CHECKPOINT_PAGES
    execute(f"PRAGMA wal_autocheckpoint = {min(pages, CHECKPOINT_PAGES)}")
    execute(f"PRAGMA journal_size_limit = {LOG_LEFT}")
    execute(f"PRAGMA cache_size = -{CACHE_SIZE // 1024}")
    execute("PRAGMA temp_store = MEMORY")


def is_bus(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether it is a bus of a known version; False if it is empty. Raises
    BusDamagedError."""

    def value(name: str) -> int:
        found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
        return found

    try:
        made = value("schema_version")  # first: another process may be creating the bus
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise BusDamagedError(f"{path} is not a database") from error
    application = value("application_id")
    if application == APPLICATION_ID:
        version = value("user_version")
        if not 1 <= version <= VERSION:
            raise BusDamagedError(f"{path} is a bus of version {version}; known is {VERSION}")
        return True
    if application or made:
        raise BusDamagedError(f"{path} is a database, but not a bus")
    return False


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables before the log, so that the file's header identifies it."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if not is_bus(connection, path):  # another process may have done it
            for statement in TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _keep_log(connection: sqlite3.Connection, timeout: float) -> str:
    """Switch to the write-ahead log; returns the mode. SQLite does not wait for this lock itself,
    and another process may be doing the same."""
    left = timeout
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or left <= 0:
                raise
        time.sleep(LOCK_PAUSE)
        left -= LOCK_PAUSE


logger = logging.getLogger("parley.bus")

# The most bytes of the log for each byte of events (an event may fill little of its last page), and
# for each event that is handed out.
LOGGED: Final = 2
LOGGED_PENDING: Final = 128


class Database:
    """One connection to the file at `path`, for one thread. `session` is a number unique to this
    run."""

    def __init__(self, path: str, config: BusConfig, session: int) -> None:
        self.path = path
        self._config = config
        self._session = session
        self._limits = page_limits(config)
        self._connection: sqlite3.Connection | None = None
        self._read_only = False
        self.cache: MetadataCache | None = None
        self._limit = 0
        self._durable = True
        self._switches = 0
        self._version = 0
        self._changes = 0
        self._others_wrote = False
        self._mend = False
        self._roomy = 0  # the number of pages for which the disk had room

    def begin(self, now: float, writes: bool, durable: bool) -> MetadataCache:
        """Begin a transaction at `now`; raises sqlite3.Error, OSError, BusError, ConfigError."""
        if self._read_only:
            refused = refusal(self.path)
            if refused is None:  # it is writable again
                self.close()
            elif writes:
                raise refused
        if self._connection is None or self.cache is None:
            connection, cache = self._open()
        else:
            connection, cache = self._connection, self.cache
        if writes and durable is not self._durable:
            self._switch(connection, durable)
        execute = cache.cursor.execute
        execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        version = execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._others_wrote = self._version != 0
            self._version = version
            cache.forget()
        self._changes = connection.total_changes
        cache.begin(now)
        return cache

    def reserve_room(self, publishes: bool) -> None:
        """Set whether the next operations leave a part of the file to all others."""
        limit = self._limits[0 if publishes else 1]
        if limit != self._limit and self.cache is not None:
            self.cache.cursor.execute(f"PRAGMA max_page_count = {limit}")
            self._limit = limit

    def require_room(self) -> None:
        """Raise BusFullError if the disk lacks room for the events that this transaction publishes
        or hands out: in the log, and in the file once the log is copied."""
        cache = self.cache
        if cache is None or not (cache.added or cache.handed):
            return
        pages = cache.cursor.execute("PRAGMA page_count").fetchone()[0]
        if pages <= self._roomy and not cache.added:
            return
        growth = max(0, pages * PAGE_SIZE - os.stat(self.path).st_size)
        logged = LOGGED * cache.added + LOGGED_PENDING * cache.handed
        publishes = cache.added > 0
        if not has_room(self.path, growth, logged, publishes=publishes):
            others = "consuming and for trimming" if publishes else "acknowledging and for trimming"
            raise BusFullError(
                f"there is no room for it on the disk of {self.path}: the rest is left for {others}"
            )
        self._roomy = pages

    def commit(self, durable: bool) -> None:
        connection, cache = self._connection, self.cache
        if connection is None or cache is None:
            return
        cache.flush()
        if durable and cache.repeated and connection.total_changes == self._changes:
            # The original of a duplicate may have been published without waiting for the disk, and
            # an empty commit would not wait either.
            cache.cursor.execute("UPDATE meta SET value = value + 1 WHERE name = 'touched'")
        cache.cursor.execute("COMMIT")

    def roll_back(self, error: Exception) -> None:
        """Roll back a failed transaction."""
        self._roomy = 0
        if self._connection is None or self.cache is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.exception(
                "a transaction could not be rolled back: the bus is reopened",
                extra={"event": "bus.rollback-failed"},
            )
            self.close()
            return
        self.cache.forget()
        if is_full(error):
            # Once it is copied into the file, the log needs no room.
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        elif is_of_disk(error):
            # Data in the log after a failed sync counts as written but may not be: nothing may be
            # appended (`_open`).
            self._mend = True
            self.close()

    def others_wrote(self) -> bool:
        """Return whether another process wrote since the last call."""
        found, self._others_wrote = self._others_wrote, False
        return found

    def close(self) -> None:
        """Close; the last process to do so copies the log into the file and removes it."""
        connection, self._connection, self.cache = self._connection, None, None
        if connection is not None:
            try:
                with closing(connection):
                    self._switch(connection, True)
            except sqlite3.Error:
                logger.exception(
                    "the bus could not be closed properly", extra={"event": "bus.close-failed"}
                )

    def _open(self) -> tuple[sqlite3.Connection, MetadataCache]:
        connection = open_file(self.path, self._config)
        try:
            self._read_only = refusal(self.path) is not None
            if self._mend and not self._read_only:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._mend = False
            cache = MetadataCache(connection, self._session)
        except BaseException:
            connection.close()
            raise
        self._connection, self.cache = connection, cache
        self._durable, self._limit, self._version = True, 0, 0
        return connection, cache

    def _switch(self, connection: sqlite3.Connection, durable: bool) -> None:
        """Set whether commits wait for the disk."""
        # It takes effect when compiled, so it must never come from the statement cache.
        self._switches += 1
        mode = "FULL" if durable else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {mode} -- {self._switches}")
        self._durable = durable
