"""The file of a bus: its permissions, its required contents, and files that are left alone."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Timer

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusDamagedError
from parley._node.bus.sqlite import database as bus_file
from parley._node.bus.sqlite.database import (
    DISK_RESERVED,
    PAGE_SIZE,
    RESERVED,
    has_disk_space,
    open_file,
    page_limits,
)
from parley._node.bus.sqlite.schema import APPLICATION_ID, VERSION
from parley._node.errors import ConfigError

CONFIG = BusConfig()


def test_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    with closing(open_file(str(tmp_path / "bus.db"), CONFIG)) as connection:
        connection.execute("UPDATE meta SET value = 1")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("bus.db", "bus.db-shm", "bus.db-wal"), 0o600)
    assert [file.name for file in tmp_path.iterdir()] == ["bus.db"]


def test_a_path_can_begin_with_two_slashes(tmp_path: Path) -> None:
    with closing(open_file(f"/{tmp_path}/bus.db", CONFIG)):
        assert (tmp_path / "bus.db").exists()
    bus_file.require_bus(f"/{tmp_path}/bus.db")


def test_header_identifies_the_file_before_any_write(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with closing(open_file(str(path), CONFIG)):
        header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID
    assert int.from_bytes(header[60:64], "big") == VERSION


def test_an_empty_file_becomes_a_bus_and_an_old_one_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    path.touch()
    for value in (0, 7):
        with closing(open_file(str(path), CONFIG)) as connection:
            assert connection.execute("SELECT max(value) FROM meta").fetchone() == (value,)
            connection.execute("UPDATE meta SET value = 7")


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (text)")


def newer(path: Path) -> None:
    with closing(open_file(str(path), CONFIG)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes(b"notes\n" * 100),
        lambda path: path.write_bytes(b"SQLite format 3\0"),
        foreign,
        newer,
    ],
    ids=["text", "short", "foreign", "newer"],
)
def test_foreign_file_is_not_changed(tmp_path: Path, make: object) -> None:
    path = tmp_path / "bus.db"
    assert callable(make)
    make(path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(BusDamagedError):
        open_file(str(path), CONFIG)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [file.name for file in tmp_path.iterdir()] == ["bus.db"]


def copy(path: Path, to: Path) -> Path:
    """Copy a bus and its log, as if its process had been killed now."""
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{to}{end}")
    return to


def test_a_file_in_the_middle_of_a_checkpoint_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with closing(open_file(str(path), CONFIG)) as connection:
        for number in range(100):
            connection.execute(
                "INSERT INTO events VALUES (?, 1, 1, NULL, ?)", (number, "x" * 1_000)
            )
        half = copy(path, tmp_path / "half.db")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # The first page exists, and refers to pages that are only in the log.
    half.write_bytes(path.read_bytes()[:PAGE_SIZE] + half.read_bytes()[PAGE_SIZE:])
    with closing(open_file(str(half), CONFIG)) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (100,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_contents_of_the_log_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with closing(open_file(str(path), CONFIG)) as connection:
        newer = f"PRAGMA user_version = {VERSION + 1}"
        connection.execute(newer)
        left = copy(path, tmp_path / "left.db")
    with pytest.raises(BusDamagedError, match=f"left.db': it has version {VERSION + 1}"):
        open_file(str(left), CONFIG)


def test_a_foreign_log_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    foreign(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO notes VALUES ('one')")
        left = copy(path, tmp_path / "left.db")
    with pytest.raises(BusDamagedError, match="it is another database"):
        open_file(str(left), CONFIG)
    with closing(sqlite3.connect(left)) as connection:
        assert connection.execute("SELECT * FROM notes").fetchall() == [("one",)]


def test_open_waits_for_other_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.db")
    with closing(open_file(path, CONFIG)):
        pass
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("PRAGMA journal_mode = DELETE")  # As before the write-ahead log.
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            open_file(path, BusConfig(busy_timeout=0.02))
        Timer(0.05, other.execute, ["COMMIT"]).start()
        with closing(open_file(path, CONFIG)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_unusual_file_names(tmp_path: Path) -> None:
    path = tmp_path / "a ?mode=memory#%41é.db"
    with closing(open_file(str(path), CONFIG)):
        pass
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.process
def test_second_connection_keeps_the_locks_of_the_first(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.db")
    reading = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM meta')"
    with closing(open_file(path, CONFIG)) as first, closing(open_file(path, CONFIG)):
        first.execute("UPDATE meta SET value = 7")
        # It would be the last to have the file open, and would remove the log.
        subprocess.run([sys.executable, "-c", reading, path], check=True)
        assert (tmp_path / "bus.db-wal").exists()
        first.execute("UPDATE meta SET value = 8")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT max(value) FROM meta").fetchone() == (8,)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/full")])
def test_opening_a_special_file_does_not_block(tmp_path: Path, make: object) -> None:
    path = tmp_path / "bus.db"
    assert callable(make)
    make(path)
    with pytest.raises(BusDamagedError, match="is not a regular file"):
        open_file(str(path), CONFIG)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END",
        "CREATE VIEW v AS SELECT * FROM events",
        "CREATE VIRTUAL TABLE v USING fts5 (body)",
    ],
)
def test_file_with_triggers_or_views_is_refused(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "bus.db"
    with closing(open_file(str(path), CONFIG)) as connection:
        connection.execute(statement)
    with pytest.raises(BusDamagedError, match="it has triggers, views or virtual tables"):
        open_file(str(path), CONFIG)


def test_missing_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no directory"):
        open_file(str(tmp_path / "none" / "bus.db"), CONFIG)


def test_publishing_leaves_space_in_the_file() -> None:
    publishing, all_else = page_limits(BusConfig(max_store_bytes=2**20))
    assert publishing < all_else == 2**20 // PAGE_SIZE


def test_publishing_leaves_space_on_the_disk(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    reserved = min(DISK_RESERVED, disk.f_blocks * disk.f_frsize // RESERVED)
    near = free - reserved // 2
    assert has_disk_space(str(tmp_path), free - 2 * reserved, reserved)
    assert not has_disk_space(str(tmp_path), near, 0)
    # Bytes that only pass through the log may use reserved space, but not more than the free space.
    assert has_disk_space(str(tmp_path), 0, near)
    assert not has_disk_space(str(tmp_path), 0, free + reserved)


def test_log_is_copied_into_the_file_and_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_file, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(bus_file, "LOG_LEFT", 20 * PAGE_SIZE)
    log = tmp_path / "bus.db-wal"
    with closing(open_file(str(tmp_path / "bus.db"), CONFIG)) as connection:
        for number in range(100):
            connection.execute("INSERT INTO events VALUES (NULL, 1, 1, NULL, ?)", (str(number),))
        assert log.stat().st_size < 20 * PAGE_SIZE
        connection.execute(
            "INSERT INTO events SELECT NULL, 1, 1, NULL, hex(zeroblob(3000)) FROM events"
        )
        assert log.stat().st_size > 100 * PAGE_SIZE
        for _ in range(3):
            connection.execute("UPDATE meta SET value = value + 1")
        assert log.stat().st_size <= 20 * PAGE_SIZE
