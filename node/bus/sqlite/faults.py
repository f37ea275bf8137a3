"""What SQLite says went wrong, as an error of the bus.

One rule: by SQLite's own code, never by its text; what it said stands behind as the cause.
"""

import sqlite3
from typing import Final

from node.bus.errors import (
    BusBusyError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusUnavailableError,
    InvalidEventError,
)
from node.errors import ConfigError, ParleyError

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DISK: Final = (sqlite3.SQLITE_IOERR,)
_FULL: Final = (sqlite3.SQLITE_FULL,)
_TOO_BIG: Final = (sqlite3.SQLITE_TOOBIG,)
# What is no fault of one operation: every other one would meet it too.
_COMMON: Final = (
    *_BUSY,
    *_DAMAGED,
    *_DISK,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)


def code_of(error: BaseException) -> int:
    """SQLite's primary result code; 0 if it has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def is_common(error: BaseException) -> bool:
    """Whether it is the whole transaction's: another try with fewer operations is no use."""
    return code_of(error) in _COMMON or isinstance(error, (OSError, BusDamagedError, ConfigError))


def is_of_disk(error: BaseException) -> bool:
    """Whether the disk failed."""
    return code_of(error) in _DISK


def is_full(error: BaseException) -> bool:
    """Whether there is no room."""
    return code_of(error) in _FULL


def bus_error(error: Exception) -> ParleyError:
    """The error for whoever asked: the bus's own, or a ConfigError."""
    if isinstance(error, ParleyError):
        return error
    found = _found(error)
    found.__cause__ = error
    return found


def _found(error: Exception) -> BusError:
    code = code_of(error)
    if code in _BUSY:
        return BusBusyError(f"another process holds the database: {error}")
    if code in _FULL:
        return BusFullError(f"there is no room for it: {error}")
    if code in _DAMAGED:
        return BusDamagedError(f"the database is damaged: {error}")
    if code in _TOO_BIG or isinstance(error, (OverflowError, UnicodeError)):
        return InvalidEventError(f"the database cannot keep it: {error}")
    if isinstance(error, (sqlite3.Error, OSError)):
        return BusUnavailableError(f"the database cannot be used: {error}")
    return BusError(f"internal error: {error!r}")
