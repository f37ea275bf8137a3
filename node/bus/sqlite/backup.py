"""Backups of a bus in a file, made while the bus is in use; restoring them; finding damage."""

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
# Steps of SQLite's virtual machine between two calls of `enough`.
_STEPS: Final = 1_000
# Each finds rows only in a damaged file that SQLite can read.
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
    """Copy the bus at `path` into the new file `copy`, whole and in one file, also while other
    processes write. The copy appears under its name once it is complete and was checked.

    Raises:
        FileError: `path` doesn't exist, or `copy` does. BusDamagedError: the bus is damaged.
        BusError: it cannot be read, or the copy cannot be written.
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
    """Put a copy of a bus in the place of the bus at `path`. Returns the name under which the bus
    that was there is kept, if there was one: its log is kept with it, since SQLite would apply it
    to the copy.

    Raises:
        FileError: `copy` doesn't exist, or an earlier restore kept a bus. BusBusyError: a process
            has the bus open. BusDamagedError: the copy is damaged, or not a bus; or `path` is
            not a regular file. BusError: the copy cannot be read, or not be written.
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
    """Check everything in the bus at `path`, without changing it, or stop when `enough` returns
    True. Returns whether all of it was checked. Errors call the file `name`.

    Raises:
        BusDamagedError: the file is damaged, or not a bus. BusError: it cannot be read.
    """
    name = name or path
    with (
        _errors_of(name),
        closing(sqlite3.connect(database_uri(path, "ro"), uri=True)) as connection,
    ):
        connection.set_progress_handler(enough, _STEPS)
        try:
            if not is_bus(connection, name):
                return True  # empty
            connection.execute("BEGIN")
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise BusDamagedError(f"{name} is damaged: {found}")
            for query, text in _CONTRADICTIONS:
                row = connection.execute(query).fetchone()
                if row is not None:
                    raise BusDamagedError(f"{name} is damaged: {text.format(row[0])}")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return False
    return True


def _copy(source: sqlite3.Connection, name: str, target: str, *, kept: str | None = None) -> None:
    """Write the database that `source` has open, the file `name`, into the file `target`. Files
    that are in the way are renamed to `kept` first."""
    directory = os.path.dirname(target) or "."
    with _errors_of(target):
        descriptor, part = mkstemp(prefix=f".{os.path.basename(target)}-", dir=directory)
        os.close(descriptor)  # only its owner may read it
        try:
            with closing(sqlite3.connect(part, isolation_level=None)) as connection:
                source.backup(connection)
                connection.execute("PRAGMA journal_mode = DELETE")  # one file
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
    """Raise BusBusyError if a process has the bus open. A healthy bus has no log afterwards."""
    try:
        with closing(
            sqlite3.connect(database_uri(path), uri=True, timeout=0, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        # A restore replaces damaged files. Extended codes have the code in the low byte.
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
