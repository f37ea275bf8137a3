"""Backing up and restoring a bus in a file."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusBusyError, BusDamagedError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import NewEvent
from parley._node.bus.sqlite.backup import back_up, require_sound, restore
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.errors import FileError
from tests.node.bus.stores import opened

pytestmark = pytest.mark.anyio

S: Final = "shop.sold"
ALL: Final = 100_000


async def publish(store: SqliteStore, count: int) -> None:
    event = NewEvent(S, {}, '{"text": "' + 300 * "x" + '"}')
    await store.publish([event] * count, durable=True)


async def stored(path: Path) -> list[str]:
    async with opened(SqliteStore(str(path), BusConfig())) as store:
        return [event.id for event in await store.history(S, BEFORE_ALL, None, ALL, 0)]


def make(directory: Path, after: int) -> tuple[Path, Path]:
    """Return a bus whose process was killed, with a log, and a backup of an earlier state.

    `after` events were published between the backup and the last checkpoint.
    """
    live, backup = directory / "live.db", directory / "backup.db"

    async def fill() -> None:
        async with opened(SqliteStore(str(live), BusConfig())) as store:
            await publish(store, 300)
            await store.join(S, "g", "c", BEFORE_ALL)
            await store.read(S, "g", "c", 100, 0)
            back_up(str(live), str(backup))
            await publish(store, after)
            with closing(sqlite3.connect(live)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            await publish(store, 40)
            for end in ("", "-wal"):
                shutil.copy(f"{live}{end}", directory / f"bus.db{end}")

    anyio.run(fill)
    return directory / "bus.db", backup


async def test_a_backup_of_a_bus_in_use_is_whole_and_one_file(
    anyio_backend: str, tmp_path: Path
) -> None:
    path, copy = tmp_path / "bus.db", tmp_path / "copy.db"
    async with opened(SqliteStore(str(path), BusConfig())) as store:
        await publish(store, 50)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, back_up, str(path), str(copy))
            await publish(store, 50)
        await publish(store, 1)
        found = [event.id for event in await store.history(S, BEFORE_ALL, None, ALL, 0)]
        assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["bus.db", "copy.db"]
    kept = await stored(copy)
    assert len(kept) in (50, 100)
    assert kept == found[: len(kept)]


def test_a_restored_bus_is_the_backup_whatever_log_was_left(tmp_path: Path) -> None:
    path, backup = make(tmp_path, 0)
    before = anyio.run(stored, backup)
    assert restore(str(backup), str(path)) == f"{path}.before-restore"
    assert not path.with_name("bus.db-wal").exists()
    assert anyio.run(stored, path) == before
    assert len(before) == 300
    assert len(anyio.run(stored, path.with_name("bus.db.before-restore"))) == 340
    with pytest.raises(FileError, match=r"before-restore' exists; move it away first"):
        restore(str(backup), str(path))
    assert anyio.run(stored, path) == before


def test_a_log_without_its_file_is_not_applied(tmp_path: Path) -> None:
    path, backup = make(tmp_path, 1_000)
    path.unlink()
    assert restore(str(backup), str(path)) == f"{path}.before-restore"
    assert len(anyio.run(stored, path)) == 300


def test_where_there_is_no_bus_nothing_is_kept(tmp_path: Path) -> None:
    _, backup = make(tmp_path, 0)
    assert restore(str(backup), str(tmp_path / "other.db")) is None
    assert len(anyio.run(stored, tmp_path / "other.db")) == 300


def test_a_damaged_bus_is_replaced(tmp_path: Path) -> None:
    path, backup = make(tmp_path, 0)
    path.write_bytes(b"nonsense" * 1_000)
    restore(str(backup), str(path))
    assert len(anyio.run(stored, path)) == 300


async def test_a_bus_in_use_is_not_replaced(anyio_backend: str, tmp_path: Path) -> None:
    path, copy = tmp_path / "bus.db", tmp_path / "copy.db"
    async with opened(SqliteStore(str(path), BusConfig())) as store:
        await publish(store, 5)
        back_up(str(path), str(copy))
        await publish(store, 5)
        with pytest.raises(BusBusyError, match="another process has it open"):
            restore(str(copy), str(path))
        await publish(store, 5)
    assert len(await stored(path)) == 15


def test_a_copied_file_with_the_old_log_is_found_to_be_damaged(tmp_path: Path) -> None:
    path, backup = make(tmp_path, 1_000)
    assert require_sound(str(path))
    shutil.copy(backup, path)  # A restore must not produce this.
    with pytest.raises(BusDamagedError, match=f"{path}': the file is damaged: "):
        require_sound(str(path))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events WHERE id = (SELECT min(id) FROM events)",
        "UPDATE streams SET length = length + 1",
        "UPDATE groups SET pending = 0",
        "UPDATE pending SET id = id + 1000000 WHERE id = (SELECT max(id) FROM pending)",
    ],
)
def test_contradictions_are_damage(tmp_path: Path, statement: str) -> None:
    path, _ = make(tmp_path, 0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)
    with pytest.raises(BusDamagedError):
        require_sound(str(path))
    with pytest.raises(BusDamagedError, match=f"{path}': the file is damaged: "):
        back_up(str(path), str(tmp_path / "copy.db"))
    assert not [*tmp_path.glob("*copy.db*")]


def test_a_check_ends_in_time(tmp_path: Path) -> None:
    path, _ = make(tmp_path, 3_000)
    assert not require_sound(str(path), lambda: True)


def _missing(directory: Path) -> None:
    back_up(str(directory / "none.db"), str(directory / "copy.db"))


def _existing(directory: Path) -> None:
    (directory / "copy.db").touch()
    path, _ = make(directory, 0)
    back_up(str(path), str(directory / "copy.db"))


def _no_backup(directory: Path) -> None:
    restore(str(directory / "none.db"), str(directory / "bus.db"))


def _itself(directory: Path) -> None:
    path, _ = make(directory, 0)
    restore(str(path), str(path))


@pytest.mark.parametrize("how", [_missing, _existing, _no_backup, _itself])
def test_files_that_cannot_be_used(tmp_path: Path, how: Callable[[Path], None]) -> None:
    with pytest.raises(FileError, match=r"^cannot .*'/.*': "):
        how(tmp_path)


@pytest.mark.parametrize("content", [b"no database\n" * 400, b"SQLite format 3\0"])
def test_what_is_not_a_backup_replaces_nothing(tmp_path: Path, content: bytes) -> None:
    path, _ = make(tmp_path, 0)
    copy = tmp_path / "other"
    copy.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BusDamagedError, match="other': it is not a database"):
        restore(str(copy), str(path))
    assert sorted(tmp_path.iterdir()) == before
    assert len(anyio.run(stored, path)) == 340


@pytest.mark.parametrize("make_other", [Path.mkdir, os.mkfifo])
def test_what_is_not_a_file_is_not_replaced(
    tmp_path: Path, make_other: Callable[[Path], None]
) -> None:
    _, backup = make(tmp_path, 0)
    other = tmp_path / "other"
    make_other(other)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BusDamagedError, match="other': it is not a regular file"):
        restore(str(backup), str(other))
    assert sorted(tmp_path.iterdir()) == before
