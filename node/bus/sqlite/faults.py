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

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_FULL: Final = (sqlite3.SQLITE_FULL,)
_TOO_BIG: Final = (sqlite3.SQLITE_TOOBIG,)


def code_of(error: BaseException) -> int:
    """SQLite's primary result code; 0 if it has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def is_fatal(error: BaseException) -> bool:
    """Whether it is the whole transaction's: another try with fewer operations is no use."""
    return isinstance(error, sqlite3.Error) and code_of(error) not in (0, *_FULL, *_TOO_BIG)


def is_full(error: BaseException) -> bool:
    """Whether there is no room."""
    return code_of(error) in _FULL


def bus_error(error: Exception) -> BusError:
    """The bus's error for what was raised."""
    if isinstance(error, BusError):
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
