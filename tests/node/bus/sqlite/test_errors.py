"""Conversion of SQLite's errors to errors of the bus."""

import sqlite3

import pytest

from parley._node.bus.errors import (
    BusBusyError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusUnavailableError,
    InvalidEventError,
    NotPendingError,
)
from parley._node.bus.sqlite.errors import bus_error, is_common, is_full, is_of_disk
from parley._node.errors import ConfigError
from tests.sweep import sweep


def said(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("SQLite's text")
    error.sqlite_errorcode = code
    return error


@sweep(
    ("error", "kind", "common"),
    [
        (said(sqlite3.SQLITE_BUSY), BusBusyError, True),
        (said(sqlite3.SQLITE_BUSY_RECOVERY), BusBusyError, True),
        (said(sqlite3.SQLITE_FULL), BusFullError, False),
        (said(sqlite3.SQLITE_IOERR_WRITE), BusFullError, False),
        (said(sqlite3.SQLITE_IOERR_FSYNC), BusUnavailableError, True),
        (said(sqlite3.SQLITE_READONLY), BusUnavailableError, True),
        (said(sqlite3.SQLITE_CORRUPT), BusDamagedError, True),
        (said(sqlite3.SQLITE_NOTADB), BusDamagedError, True),
        (said(sqlite3.SQLITE_ERROR), BusDamagedError, False),
        (said(sqlite3.SQLITE_TOOBIG), InvalidEventError, False),
        (sqlite3.OperationalError("no code"), BusDamagedError, False),
        (OverflowError("int too large"), InvalidEventError, False),
        (UnicodeEncodeError("utf-8", "x", 0, 1, "no"), InvalidEventError, False),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "no"), BusDamagedError, False),
        (PermissionError("no"), BusUnavailableError, True),
        (TypeError("text where a number was"), BusDamagedError, False),
        (DeprecationWarning("do it otherwise"), BusError, False),
        (sqlite3.ProgrammingError("closed"), BusError, False),
        (sqlite3.InterfaceError("misused"), BusError, False),
        (AttributeError("no such name"), BusError, False),
    ],
)
def test_bus_errors_have_the_sqlite_error_as_cause(
    error: Exception, kind: type[Exception], common: bool
) -> None:
    found = bus_error(error, "bus.db")
    assert type(found) is kind
    assert found.__cause__ is error
    assert is_common(error) is common


@pytest.mark.parametrize(
    "error",
    [said(sqlite3.SQLITE_CORRUPT), said(sqlite3.SQLITE_BUSY), PermissionError(13, "no", "bus.db")],
)
def test_errors_name_the_problem_and_the_file(error: Exception) -> None:
    text = str(bus_error(error, "/var/lib/bus.db"))
    assert "/var/lib/bus.db" in text
    assert text.endswith((": SQLite's text", ": no"))
    assert "Err" not in text


def test_bus_and_config_errors_stay_unchanged() -> None:
    for error in (NotPendingError("no"), ConfigError("no")):
        assert bus_error(error, "bus.db") is error


def test_failed_write_is_full_and_failed_sync_is_unknown() -> None:
    assert is_full(said(sqlite3.SQLITE_IOERR_WRITE))
    assert not is_of_disk(said(sqlite3.SQLITE_IOERR_WRITE))
    assert is_of_disk(said(sqlite3.SQLITE_IOERR_FSYNC))
