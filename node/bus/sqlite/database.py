"""The file of a bus and the connection to it, which runs transactions and is reopened after faults.

The file is readable by its owner only. Only SQLite reads and writes it, with its own locks and log.
Closing a file descriptor of our own would drop the locks of every connection to the file in this
process (POSIX). Without its log, a file in the middle of a checkpoint looks damaged.

One transaction runs between `begin` and `commit` or `roll_back`. Whether its commit waits for the
disk, and the size limit of the file, are set before it.
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
# The pages of the write-ahead log after which it is copied into the file. They are fewer if they
# would take more than a quarter of the free disk space, because a file that cannot grow never frees
# them.
CHECKPOINT_PAGES: Final = 2_000
# The bytes of the log that stay on the disk for reuse, and of pages that are kept in memory.
LOG_LEFT: Final = 64 * 2**20
CACHE_SIZE: Final = 32 * 2**20
# The fraction of the file's size limit, and of the disk, that publishing leaves free, so that a
# full bus can still be read, acknowledged and trimmed. On the disk it is at most `DISK_RESERVED`
# bytes. Delivering events leaves half of it free for acknowledging and trimming.
RESERVED: Final = 16
DISK_RESERVED: Final = 32 * 2**20

# The interval between attempts to get a lock that SQLite does not wait for itself, in seconds.
LOCK_PAUSE: Final = 0.005

# Triggers, views and virtual tables could run inside our statements, or replace one of our tables.
_FOREIGN: Final = """SELECT 1 FROM sqlite_schema
    WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL %'"""


def open_file(path: str, config: BusConfig) -> sqlite3.Connection:
    """Open the bus at `path`, created if it does not exist.

    Raises:
        ConfigError: its directory does not exist.
        BusDamagedError: the file is not a bus. sqlite3.Error, OSError: it cannot be opened.
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
    """Raise BusDamagedError, or sqlite3.Error, unless the file is a bus, empty, or missing.

    Changes nothing.
    """
    if os.path.exists(path):
        require_regular(path)
        with closing(sqlite3.connect(database_uri(path, "ro"), uri=True)) as connection:
            is_bus(connection, path)


def page_limits(config: BusConfig) -> tuple[int, int]:
    """Return the maximum number of pages of the file when publishing, and for everything else."""
    pages = config.max_store_bytes // PAGE_SIZE
    return pages - pages // RESERVED, pages


def has_disk_space(path: str, growth: int, logged: int, *, publishes: bool = True) -> bool:
    """Return whether the disk has enough space for an operation.

    Publishing or delivering adds `growth` bytes to the file and `logged` to the log. Returns True
    if the disk does not report its size. The log's bytes are freed when it is copied into the file,
    so space is reserved only if the file grows.
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
        raise ConfigError(f"cannot open the bus {path!r}: there is no directory {directory!r}")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        require_regular(path)


def require_regular(path: str) -> None:
    if not stat.S_ISREG(os.stat(path).st_mode):  # Opening a pipe would block.
        raise BusDamagedError(f"cannot open the bus {path!r}: it is not a regular file")


def database_uri(path: str, mode: str = "rw") -> str:
    """Return the URI with which SQLite opens the file: read-only if its file system is.

    On a read-only file system, SQLite reads a log with the index next to it (-shm). Without an
    index, no process has the bus open. The file is then read without locks, and the log with an
    index in memory.
    """
    # The empty authority is needed because an absolute path can begin with two slashes.
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
    execute("PRAGMA fullfsync = ON")  # On macOS, fsync alone does not reach the disk.
    execute("PRAGMA checkpoint_fullfsync = ON")
    if is_read_only(path) and not os.path.exists(f"{path}-shm"):
        execute("PRAGMA locking_mode = EXCLUSIVE")  # Needed for an index in memory.
    if not is_bus(connection, path):
        if refused is not None:
            raise refused
        _create(connection, path)
    if execute(_FOREIGN).fetchone() is not None:
        raise BusDamagedError(
            f"cannot open the bus {path!r}: it has triggers, views or virtual tables"
        )
    if refused is None and _keep_log(connection, busy_timeout) != "wal":
        raise BusUnavailableError(
            f"cannot open the bus {path!r}: its file system does not support a write-ahead log"
        )
    execute("PRAGMA synchronous = FULL")
    # Some builds of SQLite overwrite freed pages with zeros. Trimming would then need as much log
    # space as it frees.
    execute("PRAGMA secure_delete = FAST")
    pages = _reserved(os.statvfs(path)) // (4 * PAGE_SIZE) or CHECKPOINT_PAGES
    execute(f"PRAGMA wal_autocheckpoint = {min(pages, CHECKPOINT_PAGES)}")
    execute(f"PRAGMA journal_size_limit = {LOG_LEFT}")
    execute(f"PRAGMA cache_size = -{CACHE_SIZE // 1024}")
    execute("PRAGMA temp_store = MEMORY")


def is_bus(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether the file is a bus of a known version, or False if it is empty.

    Raises BusDamagedError if it is neither.
    """

    def value(name: str) -> int:
        found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
        return found

    try:
        made = value(
            "schema_version"
        )  # Lock first, because another process may be creating the bus.
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise BusDamagedError(f"cannot open the bus {path!r}: it is not a database") from error
    application = value("application_id")
    if application == APPLICATION_ID:
        version = value("user_version")
        if not 1 <= version <= VERSION:
            raise BusDamagedError(
                f"cannot open the bus {path!r}: it has version {version}, and this release "
                f"reads version {VERSION}"
            )
        return True
    if application or made:
        raise BusDamagedError(f"cannot open the bus {path!r}: it is another database")
    return False


def _create(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables before the log, so that the file's header identifies it."""
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if not is_bus(connection, path):  # Another process may have created them.
            for statement in TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _keep_log(connection: sqlite3.Connection, timeout: float) -> str:
    """Switch to the write-ahead log; return the resulting mode.

    SQLite does not wait for this lock itself, and another process may be switching at the same
    time.
    """
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

# The maximum size of the log for each byte of events (an event may fill little of its last page),
# and for each delivered event.
LOGGED: Final = 2
LOGGED_PENDING: Final = 128


class Database:
    """One connection to the file at `path`, for one thread. `session` identifies this run."""

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
        self._checked_pages = 0  # The number of pages for which the disk had space.

    def begin(self, now: float, writes: bool, durable: bool) -> MetadataCache:
        """Begin a transaction at `now`.

        Raises sqlite3.Error, OSError, BusError or ConfigError.
        """
        if self._read_only:
            refused = refusal(self.path)
            if refused is None:  # The file is writable again.
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

    def limit_pages(self, publishes: bool) -> None:
        """Set whether the next operations leave space in the file for all others."""
        limit = self._limits[0 if publishes else 1]
        if limit != self._limit and self.cache is not None:
            self.cache.cursor.execute(f"PRAGMA max_page_count = {limit}")
            self._limit = limit

    def require_disk_space(self) -> None:
        """Raise BusFullError if the disk lacks space for the events of this transaction.

        Events that it publishes or delivers need space in the log, and in the file when the log is
        copied.
        """
        cache = self.cache
        if cache is None or not (cache.added or cache.handed):
            return
        pages = cache.cursor.execute("PRAGMA page_count").fetchone()[0]
        if pages <= self._checked_pages and not cache.added:
            return
        growth = max(0, pages * PAGE_SIZE - os.stat(self.path).st_size)
        logged = LOGGED * cache.added + LOGGED_PENDING * cache.handed
        publishes = cache.added > 0
        if not has_disk_space(self.path, growth, logged, publishes=publishes):
            others = "consuming" if publishes else "acknowledging"
            raise BusFullError(
                f"cannot write to the bus {self.path!r}: the disk is almost full, and the rest is "
                f"reserved for {others} and trimming"
            )
        self._checked_pages = pages

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
        self._checked_pages = 0
        if self._connection is None or self.cache is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            logger.exception(
                "cannot roll back a transaction; reopening the bus",
                extra={"event": "bus.rollback-failed"},
            )
            self.close()
            return
        self.cache.forget()
        if is_full(error):
            # Once the log is copied into the file, it needs no more space.
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        elif is_of_disk(error):
            # Data in the log after a failed sync counts as written but may not be, so nothing may
            # be appended to it (`_open`).
            self._mend = True
            self.close()

    def others_wrote(self) -> bool:
        """Return whether another process wrote since the last call."""
        found, self._others_wrote = self._others_wrote, False
        return found

    def close(self) -> None:
        """Close the file. The last process to do so copies the log into it and removes the log."""
        connection, self._connection, self.cache = self._connection, None, None
        if connection is not None:
            try:
                with closing(connection):
                    self._switch(connection, True)
            except sqlite3.Error:
                logger.exception(
                    "cannot close the bus properly", extra={"event": "bus.close-failed"}
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
        # The statement takes effect when compiled, so it must never come from the statement cache.
        self._switches += 1
        mode = "FULL" if durable else "NORMAL"
        connection.execute(f"PRAGMA synchronous = {mode} -- {self._switches}")
        self._durable = durable
