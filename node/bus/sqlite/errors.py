"""Converts SQLite's errors to errors of the bus, by code and never by text.

The error of SQLite is the cause of the bus's error.
"""

import os
import sqlite3
from typing import Final

from parley._node.bus.errors import (
    BusBusyError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.errors import ConfigError, ParleyError, os_reason

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FULL: Final = (sqlite3.SQLITE_FULL,)
# SQLite reports a quota, a file size limit, and a lack of space for the log's index as a failing
# disk.
_NOT_WRITTEN: Final = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
_DISK: Final = (sqlite3.SQLITE_IOERR,)
_TOO_BIG: Final = (sqlite3.SQLITE_TOOBIG,)
_UNUSABLE: Final = (
    *_DISK,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)
# Warnings and errors that are unrelated to the file.
_MISTAKES: Final = (
    *(Warning, sqlite3.InterfaceError, sqlite3.NotSupportedError, sqlite3.ProgrammingError),
    *(AssertionError, AttributeError, ImportError, NameError, NotImplementedError, RecursionError),
)
# Errors that affect every operation.
_COMMON: Final = (*_BUSY, *_UNUSABLE, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_common(error: BaseException) -> bool:
    """Return whether an error affects the whole transaction.

    Retrying with fewer operations does not help then.
    """
    if isinstance(error, sqlite3.Error):
        return _code(error) in _COMMON and not is_full(error)
    return isinstance(error, (OSError, BusDamagedError, ConfigError))


def is_full(error: BaseException) -> bool:
    """Return whether there was no space, so that nothing was written."""
    return (
        isinstance(error, BusFullError)
        or _code(error) in _FULL
        or getattr(error, "sqlite_errorcode", 0) in _NOT_WRITTEN
    )


def is_of_disk(error: BaseException) -> bool:
    """Return whether the disk failed, so that its content is unknown."""
    return _code(error) in _DISK and not is_full(error)


def bus_error(error: Exception, path: str) -> ParleyError:
    """Return the error to raise for the bus at `path`: a BusError or a ConfigError."""
    if isinstance(error, ParleyError):
        return error
    found = _found(error, path)
    found.__cause__ = error
    return found


def _found(error: Exception, path: str) -> BusError:
    code = _code(error)
    text = os_reason(error) if isinstance(error, OSError) else str(error)
    if code in _UNUSABLE or isinstance(error, OSError):
        refused = refusal(path)
        if refused is not None:
            return refused
    if is_full(error):
        return BusFullError(f"cannot write to the bus {path!r}: {text}")
    if code in _BUSY:
        return BusBusyError(f"cannot use the bus {path!r}: another process has locked it: {text}")
    if code in _TOO_BIG or isinstance(error, (OverflowError, UnicodeEncodeError)):
        return InvalidEventError(f"cannot store this in the database: {text}")
    if code in _UNUSABLE or isinstance(error, (OSError, MemoryError)):
        return BusUnavailableError(f"cannot use the bus {path!r}: {text}")
    if isinstance(error, _MISTAKES):
        why = f"a bug in parley: {error!r}"
        return BusError(f"cannot use the bus {path!r}: {why}; please report it")
    # For all other errors the file is damaged: a table is missing, or a number is text.
    return BusDamagedError(f"cannot use the bus {path!r}: the file is damaged: {text}")


def _code(error: BaseException) -> int:
    """Return SQLite's primary result code, or 0 if there is none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def refusal(path: str) -> BusFullError | None:
    """Return the error if the file, or a file to be created, is not writable."""
    place = path if os.path.exists(path) else os.path.dirname(path) or "."
    if not os.path.exists(place):
        return None
    if is_read_only(place):
        return BusFullError(f"cannot write to the bus {path!r}: its file system is read-only")
    if not os.access(place, os.W_OK):
        return BusFullError(f"cannot write to the bus {path!r}: permission denied")
    return None


def is_read_only(path: str) -> bool:
    """Return whether the file system is read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
