"""Transactions: when they wait for the disk, and reopening after a failure."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.sqlite.cache import MetadataCache
from parley._node.bus.sqlite.database import Database
from parley._node.bus.sqlite.events import publish
from tests.node.bus.sqlite.stage import START, STREAM, new

CONFIG = BusConfig(max_store_bytes=2**20)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(str(tmp_path / "bus.db"), CONFIG, 1)
    yield database
    database.close()


def setting(cache: MetadataCache, name: str) -> object:
    return cache.connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_only_durable_operations_wait_for_the_disk(database: Database) -> None:
    for durable in (True, False, True, True, False, False, True):
        cache = database.begin(START, True, durable)
        assert setting(cache, "synchronous") == (2 if durable else 1)
        database.commit(durable)


def test_publishing_cannot_use_the_whole_file(database: Database) -> None:
    cache = database.begin(START, True, True)
    for publishes, pages in ((True, 240), (False, 256), (True, 240)):
        database.limit_pages(publishes)
        assert setting(cache, "max_page_count") == pages
    database.commit(True)


def test_original_of_a_duplicate_is_on_the_disk(database: Database) -> None:
    cache = database.begin(START, True, False)
    publish(cache, CONFIG, [new(1, "k")])
    cache.insert()
    database.commit(False)
    cache.end()
    cache = database.begin(START, True, True)
    assert publish(cache, CONFIG, [new(1, "k")])[0].duplicate
    before = cache.connection.total_changes
    database.commit(True)
    assert cache.connection.total_changes > before  # An empty commit would not wait.


def test_after_a_failed_sync_nothing_is_appended_to_the_log(
    database: Database, tmp_path: Path
) -> None:
    cache = database.begin(START, True, True)
    publish(cache, CONFIG, [new(1)])
    cache.insert()
    database.commit(True)
    first = cache.connection
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with closing(sqlite3.connect(tmp_path / "bus.db")) as other:
        # Another process has the file open, so closing does not copy the log into it.
        other.execute("SELECT * FROM events").fetchall()
        database.begin(START, True, True)
        database.roll_back(failed)
        assert (tmp_path / "bus.db-wal").stat().st_size > 0
        cache = database.begin(START, True, True)
        assert cache.connection is not first
        assert (tmp_path / "bus.db-wal").stat().st_size == 0
        assert cache.stream(STREAM) is not None
        database.commit(True)


def test_writes_of_other_processes_are_reported_once(database: Database, tmp_path: Path) -> None:
    cache = database.begin(START, True, True)
    cache.make_stream(STREAM)
    database.commit(True)
    assert not database.others_wrote()
    with closing(sqlite3.connect(tmp_path / "bus.db", isolation_level=None)) as other:
        other.execute("UPDATE streams SET length = 7")
    cache = database.begin(START, False, False)
    stream = cache.stream(STREAM)
    assert stream is not None
    assert stream.length == 7
    database.commit(False)
    assert database.others_wrote()
    assert not database.others_wrote()
