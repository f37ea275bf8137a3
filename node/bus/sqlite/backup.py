"""Backing up the bus in a file while it is in use, restoring it, and checking it for damage."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from tempfile import mkstemp
from typing import Final

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusBusyError, BusDamagedError
from parley._node.bus.sqlite.database import (
    database_uri,
    is_bus,
    open_file,
    require_bus,
    require_regular,
)
from parley._node.bus.sqlite.errors import bus_error
from parley._node.errors import FileError

# The write-ahead log and its index. SQLite applies a log that it finds next to a file, even if it
# belongs to an earlier file.
LOG: Final = "-wal"
INDEX: Final = "-shm"
# The suffix under which a restore keeps the previous bus.
KEPT: Final = ".before-restore"
# The steps of SQLite's virtual machine between two calls of `enough`.
_STEPS: Final = 1_000
# Each query finds rows only in a damaged file that SQLite can still read.
_CONTRADICTIONS: Final = (
    (
        "SELECT name FROM streams WHERE length <> (SELECT count(*) FROM events "
        "INDEXED BY events_of_stream WHERE stream = number) LIMIT 1",
        "the number of events in stream {!r} is wrong",
    ),
    (
        "SELECT id FROM pending WHERE id NOT IN (SELECT id FROM events) LIMIT 1",
        "event {!r} is pending, and the file doesn't have it",
    ),
    (
        "SELECT name FROM groups WHERE pending <> (SELECT count(*) FROM pending WHERE grp = number)"
        " LIMIT 1",
        "the number of pending events in group {!r} is wrong",
    ),
)


def back_up(path: str, copy: str) -> None:
    """Copy the bus at `path` into the new file `copy`, even while other processes write to it.

    The copy is a single file, and appears under its name when it is complete and checked.

    Raises:
        FileError: `path` doesn't exist, or `copy` does.
        BusDamagedError: the bus is damaged.
        BusError: the bus cannot be read, or the copy cannot be written.
    """
    if not os.path.exists(path):
        raise FileError(f"cannot back up {path!r}: the file does not exist")
    if os.path.lexists(copy):
        raise FileError(f"cannot write {copy!r}: it exists; choose another name")
    with _errors_of(path):
        source = open_file(path, BusConfig())
    with closing(source):
        _copy(source, path, copy)


def restore(copy: str, path: str) -> str | None:
    """Replace the bus at `path` with a backup; return the new name of the previous bus, if any.

    The log of the previous bus is renamed with it, because SQLite would apply the log to the
    backup.

    Raises:
        FileError: `copy` doesn't exist, or the files of an earlier restore are in the way.
        BusBusyError: a process has the bus open.
        BusDamagedError: the backup is damaged or not a bus, or `path` is not a regular file.
        BusError: the backup cannot be read, or the bus cannot be written.
    """
    if not os.path.exists(copy):
        raise FileError(f"cannot restore {copy!r}: the file does not exist")
    if os.path.abspath(copy) == os.path.abspath(path):
        raise FileError(f"cannot restore {copy!r}: it is the file of the bus itself")
    with _errors_of(copy):
        require_bus(copy)
        source = sqlite3.connect(database_uri(copy, "ro"), uri=True)
    with closing(source):
        return _replace(source, copy, path)


def _replace(source: sqlite3.Connection, copy: str, path: str) -> str | None:
    replaced = [end for end in ("", LOG) if os.path.lexists(path + end)]
    kept = path + KEPT
    for end in replaced:
        if os.path.lexists(kept + end):
            raise FileError(f"cannot restore {path!r}: {kept + end!r} exists; move it away first")
    if os.path.exists(path):
        require_regular(path)
        _require_unused(path)
    _copy(source, copy, path, kept=kept)
    return kept if replaced else None


def require_sound(
    path: str, enough: Callable[[], bool] | None = None, *, name: str | None = None
) -> bool:
    """Check the whole bus at `path` without changing it; stop when `enough` returns True.

    Returns whether the check was completed. Errors show the file as `name`.

    Raises:
        BusDamagedError: the file is damaged, or not a bus.
        BusError: the file cannot be read.
    """
    name = name or path
    with (
        _errors_of(name),
        closing(sqlite3.connect(database_uri(path, "ro"), uri=True)) as connection,
    ):
        connection.set_progress_handler(enough, _STEPS)
        try:
            if not is_bus(connection, name):
                return True  # An empty file.
            connection.execute("BEGIN")
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise BusDamagedError(f"cannot use the bus {name!r}: the file is damaged: {found}")
            for query, text in _CONTRADICTIONS:
                row = connection.execute(query).fetchone()
                if row is not None:
                    raise BusDamagedError(
                        f"cannot use the bus {name!r}: the file is damaged: {text.format(row[0])}"
                    )
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return False
    return True


def _copy(source: sqlite3.Connection, name: str, target: str, *, kept: str | None = None) -> None:
    """Write the database that `source` has open, the file `name`, into the file `target`.

    Existing files are renamed to `kept` first.
    """
    directory = os.path.dirname(target) or "."
    with _errors_of(target):
        descriptor, part = mkstemp(prefix=f".{os.path.basename(target)}-", dir=directory)
        os.close(descriptor)  # Readable only by its owner.
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as connection:
                source.backup(connection)
                connection.execute("PRAGMA journal_mode = DELETE")  # A single file, without a log.
            require_sound(part, name=name)
            if kept is not None:
                _move_away(target, kept)
            os.replace(part, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(part)
            raise
        _sync(directory)


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    """Raise errors of SQLite and the system as errors of the bus at `path`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise bus_error(error, path) from error


def _require_unused(path: str) -> None:
    """Raise BusBusyError if a process has the bus open. Afterwards, an intact bus has no log."""
    try:
        with closing(
            sqlite3.connect(database_uri(path), uri=True, timeout=0, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        # A restore also replaces damaged files. Extended codes have the primary code in the low
        # byte.
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise BusBusyError(
                f"cannot restore {path!r}: another process has it open; stop that process first"
            ) from error


def _move_away(path: str, kept: str) -> None:
    # Move the log after the file: SQLite deletes a log without a file.
    for end in ("", LOG):
        with suppress(FileNotFoundError):
            os.rename(path + end, kept + end)
    with suppress(FileNotFoundError):
        os.unlink(path + INDEX)


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
