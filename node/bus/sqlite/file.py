"""The file of a bus: made, looked at, opened; nobody but its owner may read it.

One rule: a file that is no bus, or a newer one, is not touched: its header is looked at before
anything could write. Knows the tables only as `schema.py` lists them.
"""

import os
import sqlite3
import stat
from contextlib import closing
from typing import Final
from urllib.parse import quote

from node.bus.config import BusConfig
from node.bus.errors import BusDamagedError
from node.bus.sqlite.schema import APPLICATION_ID, TABLES, VERSION
from node.errors import ConfigError

PAGE_SIZE: Final = 4096
# Pages of the write-ahead log after which it is copied into the file.
CHECKPOINT_PAGES: Final = 2_000
# Bytes of it that stay on the disk for the next use, and of pages that are kept in memory.
LOG_LEFT: Final = 64 * 2**20
CACHE_SIZE: Final = 32 * 2**20
# A part of the file's size that publishing leaves to all else: what is full can be read,
# acknowledged and trimmed.
RESERVED: Final = 16

# What would run, or stand for a table, in our own statements.
_FOREIGN: Final = """SELECT 1 FROM sqlite_schema
    WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL %'"""


def open_file(path: str, config: BusConfig) -> sqlite3.Connection:
    """A connection to the bus at `path`, which is made if it is not there.

    Raises:
        ConfigError: its directory is not there. BusDamagedError: the file is no bus.
        sqlite3.Error, OSError: it cannot be opened.
    """
    _look(path)
    connection = sqlite3.connect(
        path,
        timeout=config.busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def page_limits(config: BusConfig) -> tuple[int, int]:
    """How many pages the file may have when publishing, and for all else."""
    pages = config.max_store_bytes // PAGE_SIZE
    return pages - pages // RESERVED, pages


def _look(path: str) -> None:
    """See whether there is a bus; make an empty file, its owner's alone, if there is nothing."""
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise ConfigError(f"there is no directory {directory!r} for the bus")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    else:
        return
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
        raise BusDamagedError(f"{path} is no file")
    if not found.st_size:
        return
    application, version = _header(path)
    if application != APPLICATION_ID:
        raise BusDamagedError(f"{path} is a database, but no bus")
    if not 1 <= version <= VERSION:
        raise BusDamagedError(f"{path} is a bus of version {version}; known is {VERSION}")


def _header(path: str) -> tuple[int, int]:
    """Whose the database is, and of which version.

    SQLite reads it, as if nothing could change it: neither log nor locks are touched. A descriptor
    of our own, once closed, would drop the locks of all that has the file open in this process
    (POSIX), and another process could take the log away under it.
    """
    address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            return application, connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            raise BusDamagedError(f"{path} is no database") from error


def _prepare(connection: sqlite3.Connection) -> None:
    execute = connection.execute
    execute("PRAGMA trusted_schema = OFF")
    execute("PRAGMA fullfsync = ON")  # macOS: its fsync alone does not reach the disk
    execute("PRAGMA checkpoint_fullfsync = ON")
    execute("PRAGMA synchronous = FULL")
    _create(connection)
    if execute(_FOREIGN).fetchone() is not None:
        raise BusDamagedError("the file has triggers, views or virtual tables: no bus has any")
    if execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
        raise BusDamagedError("the file system has no room for a write-ahead log")
    execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    execute(f"PRAGMA journal_size_limit = {LOG_LEFT}")
    execute(f"PRAGMA cache_size = -{CACHE_SIZE // 1024}")
    execute("PRAGMA temp_store = MEMORY")


def _create(connection: sqlite3.Connection) -> None:
    """Make the tables, unless they are there; before the log is: the header is in the file."""
    if connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID:
        return
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        # Another process may have done it meanwhile.
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        if found != APPLICATION_ID:
            for statement in TABLES:
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
