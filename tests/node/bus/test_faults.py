"""A bus in a file without space, locked, or damaged: clear errors and no lost events.

Whatever is wrong with the file, an error of the bus is raised. Undamaged events that were stored
before can be read, and the store continues as soon as it can.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random  # noqa: TID251 - chooses the damage
from typing import Any, Final

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.errors import BusBusyError, BusDamagedError, BusError, BusFullError
from parley._node.bus.identifiers import BEFORE_ALL
from parley._node.bus.model import NewEvent, Trim
from parley._node.bus.sqlite.store import SqliteStore
from parley._node.bus.store import Store
from tests.node.bus.small_disk import on_small_disk
from tests.node.bus.stores import opened

pytestmark = pytest.mark.anyio

S: Final = "shop.sold"
G: Final = "ledger"
ALL: Final = 10_000
PAGE: Final = 4096
EVENTS: Final = 300
FULL: Final = "BusFullError"
DISK: Final = 1_500_000


def event(number: int, size: int = 1_000) -> NewEvent:
    data = {"number": number, "text": chr(97 + number % 26) * size}
    return NewEvent(S, data, json.dumps(data))


async def stored(store: Store) -> list[str]:
    return [event.id for event in await store.history(S, BEFORE_ALL, None, ALL, 0)]


# No space.


@pytest.mark.process
@pytest.mark.parametrize("how", ["limit", pytest.param("disk", marks=pytest.mark.mounts)])
def test_a_disk_that_is_full_loses_nothing(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-m", "tests.node.bus.filling", str(tmp_path), how]
    said = run(on_small_disk(tmp_path, DISK, command) if how == "disk" else command)
    assert said.pop("published") >= 30
    # A limit on file sizes has an effect without warning.
    assert said.pop("consuming when full") in (("done",) if how == "disk" else ("done", FULL))
    assert said == {
        "full": [FULL, FULL],
        "kept": True,
        "publishing later": "done",
        "consuming later": "done",
        "left": [0, 0],
        "kept later": True,
    }


@pytest.mark.mounts
@pytest.mark.parametrize("size", [1_500_000, 3_000_000])
def test_a_full_disk_allows_everything_except_publishing(tmp_path: Path, size: int) -> None:
    command = [sys.executable, "-m", "tests.node.bus.trimming", str(tmp_path)]
    said = run(on_small_disk(tmp_path, size, command))
    count = said["published"]
    assert count > 1_000
    assert said == {
        "published": count,
        "consumed": count,
        **dict.fromkeys(["touch", "release"], None),
        **dict.fromkeys(["claim", "ack", "redeliver", "remove_group"], True),
        "drop": count // 2,
        "trim": count - count // 2 - 10,
        "publish": 1,
        "left": 11,
    }


@pytest.mark.mounts
def test_greedy_consumer_leaves_space_on_a_full_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.node.bus.trimming", str(tmp_path), "greedy"]
    said = run(on_small_disk(tmp_path, DISK, command))
    count = said["published"]
    assert len(said.pop("reads")) > 1, "the disk had room for all of it"
    assert said == {"published": count, "consumed": count, "trim": count - 10, "publish": 1}


@pytest.mark.mounts
def test_on_a_read_only_disk_everything_can_be_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.node.bus.read_only", str(tmp_path)]
    said = run(on_small_disk(tmp_path, DISK, command))
    for name in ("closed", "killed", "copied"):
        why = f"cannot write to the bus '{tmp_path}/{name}.db': its file system is read-only"
        refused = (
            f"BusFullError: {why}"  # The event wasn't stored, so it isn't retried because of a key.
        )
        assert said[name] == [[2, 2], refused, refused, [2, 2], None, [2, 7], 1, 3, [3, 5]]
    for name in ("empty", "none"):
        why = f"cannot write to the bus '{tmp_path}/{name}.db': its file system is read-only"
        assert said[name] == f"BusFullError: {why}"


def run(command: list[str]) -> dict[str, Any]:
    """Return the JSON that a process prints."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


async def test_a_store_at_its_largest_size_can_be_read_acknowledged_and_trimmed(
    anyio_backend: str, tmp_path: Path
) -> None:
    config = BusConfig(max_store_bytes=2**20)
    async with opened(SqliteStore(str(tmp_path / "bus.db"), config)) as store:
        ids: list[str] = []
        while len(ids) < ALL:
            batch = [event(len(ids), 5_000), event(len(ids) + 1, 5_000)]
            try:
                ids += [one.id for one in await store.publish(batch, durable=True)]
            except BusFullError:
                break
        assert len(ids) > 100
        assert await stored(store) == ids
        assert (tmp_path / "bus.db").stat().st_size <= 2**20
        await store.join(S, G, "c", BEFORE_ALL)
        deliveries = await store.read(S, G, "c", ALL, 0)
        assert [one.event.id for one in deliveries] == ids
        assert await store.nack(S, G, "c", ids[0], 0, "no")
        assert await store.ack(S, G, ids) == len(ids)
        with pytest.raises(BusFullError):
            await store.publish([event(0, 5_000)] * 8, durable=True)
        assert await store.trim(S, Trim(max_length=10)) == len(ids) - 10
        (again,) = await store.publish([event(0, 5_000)], durable=True)
        assert await stored(store) == [*ids[-10:], again.id]


# Another process.


async def test_locked_database_is_busy_until_unlocked(anyio_backend: str, tmp_path: Path) -> None:
    path = str(tmp_path / "bus.db")
    config = BusConfig(busy_timeout=0.02)
    async with opened(SqliteStore(path, config)) as store:
        (first,) = await store.publish([event(1)], durable=True)
        await store.join(S, G, "c", BEFORE_ALL)
        (delivery,) = await store.read(S, G, "c", 1, 0)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for ask in (
                lambda: store.publish([event(2)], durable=True),
                lambda: store.publish([event(2)], durable=False),
                lambda: store.ack(S, G, [delivery.event.id]),
                lambda: store.trim(S, Trim(max_length=0)),
            ):
                with pytest.raises(BusBusyError):
                    await ask()
            other.execute("ROLLBACK")
        assert await stored(store) == [first.id]
        assert await store.ack(S, G, [delivery.event.id]) == 1
        await store.publish([event(2)], durable=True)
        assert len(await stored(store)) == 2


async def test_exclusively_locked_database_cannot_be_opened(
    anyio_backend: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "bus.db")
    async with opened(SqliteStore(path, BusConfig())) as store:
        await store.publish([event(1)], durable=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusBusyError):
            async with opened(SqliteStore(path, BusConfig(busy_timeout=0.02))):
                pass
        other.execute("ROLLBACK")
    async with opened(SqliteStore(path, BusConfig())) as store:
        assert len(await stored(store)) == 1


# Damage.


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a bus whose process was killed: its last events are only in the log."""
    directory = tmp_path_factory.mktemp("sound")

    async def make() -> None:
        async with opened(SqliteStore(str(directory / "live.db"), BusConfig())) as store:
            await store.publish([event(number) for number in range(EVENTS)], durable=True)
            await store.join(S, G, "c", BEFORE_ALL)
            await store.read(S, G, "c", EVENTS // 2, 0)
            with closing(sqlite3.connect(directory / "live.db")) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for number in range(EVENTS, EVENTS + 10):
                await store.publish([event(number)], durable=True)
            for end in ("", "-wal"):
                shutil.copy(directory / f"live.db{end}", directory / f"bus.db{end}")

    anyio.run(make)
    return directory


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """Return a copy to be damaged."""
    for end in ("", "-wal"):
        shutil.copy(sound / f"bus.db{end}", tmp_path / f"bus.db{end}")
    return tmp_path / "bus.db"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def numbers(store: Store) -> list[int]:
    events = await store.history(S, BEFORE_ALL, None, ALL, 0)
    return [json.loads(event.body)["number"] for event in events]


async def test_bus_of_a_killed_process_is_complete(anyio_backend: str, damaged: Path) -> None:
    async with opened(SqliteStore(str(damaged), BusConfig())) as store:
        assert await numbers(store) == list(range(EVENTS + 10))


@pytest.mark.parametrize(
    "content",
    [b"not a database at all\n" * 50, b"SQLite format 3\0", b"SQLite format 3\0" + bytes(4080)],
    ids=["text", "header", "zeros"],
)
async def test_file_that_is_no_bus_is_left_alone(
    anyio_backend: str, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "bus.db"
    path.write_bytes(content)
    with pytest.raises(BusDamagedError):
        async with opened(SqliteStore(str(path), BusConfig())):
            pass
    assert path.read_bytes() == content


async def test_foreign_database_is_left_alone(anyio_backend: str, tmp_path: Path) -> None:
    path = tmp_path / "bus.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (what)")
    before = path.read_bytes()
    with pytest.raises(BusDamagedError):
        async with opened(SqliteStore(str(path), BusConfig())):
            pass
    assert path.read_bytes() == before


def cut_log(path: Path) -> None:
    log = log_of(path)
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])


def flip_log(path: Path) -> None:
    log = log_of(path)
    data = bytearray(log.read_bytes())
    data[len(data) * 2 // 3] ^= 0xFF
    log.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: log_of(path).unlink(), id="log deleted"),
        pytest.param(lambda path: log_of(path).write_bytes(b""), id="log emptied"),
        pytest.param(lambda path: log_of(path).write_bytes(bytes(50_000)), id="log zeroed"),
        pytest.param(cut_log, id="log cut"),
        pytest.param(flip_log, id="log flipped"),
    ],
)
async def test_events_before_the_damage_in_a_log_are_kept(
    anyio_backend: str, damaged: Path, damage: Callable[[Path], None]
) -> None:
    damage(damaged)
    async with opened(SqliteStore(str(damaged), BusConfig())) as store:
        found = await numbers(store)
        assert found == list(range(len(found)))
        assert EVENTS <= len(found) < EVENTS + 10
        await store.publish([event(len(found))], durable=True)
        deliveries = await store.read(S, G, "c", ALL, 0)
        deliveries += await store.claim(S, G, "c", ALL, 0)
        assert len({one.event.id for one in deliveries}) == len(found) + 1
        assert await store.ack(S, G, [one.event.id for one in deliveries]) == len(found) + 1
    with closing(sqlite3.connect(damaged)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def overwrite_pages(path: Path, every: int) -> None:
    """Overwrite all pages except the first, which identifies the file; some only in part."""
    data = bytearray(path.read_bytes())
    for page in range(every, len(data) // PAGE, every):
        data[page * PAGE : page * PAGE + 64 * every] = bytes(range(64)) * every
    path.write_bytes(data)


def flip_bytes(path: Path, seed: int) -> None:
    data = bytearray(path.read_bytes())
    random = Random(seed)
    for _ in range(200):
        data[random.randrange(100, len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(cut, id="cut"),
        *(
            pytest.param(partial(overwrite_pages, every=every), id=f"each page number {every}")
            for every in (1, 2, 3, 5)
        ),
        *(pytest.param(partial(flip_bytes, seed=seed), id=f"bits {seed}") for seed in range(4)),
    ],
)
async def test_any_damage_raises_a_bus_error(
    anyio_backend: str, damaged: Path, damage: Callable[[Path], None]
) -> None:
    damage(damaged)
    errors = []
    store = SqliteStore(str(damaged), BusConfig(busy_timeout=0.1))

    async def use() -> None:
        async with opened(store):
            for ask in (
                partial(stored, store),
                partial(store.publish, [event(1)], durable=True),
                partial(store.read, S, G, "c", ALL, 0),
                partial(store.claim, S, G, "d", ALL, 0),
                partial(store.pending, S, G, ALL, BEFORE_ALL),
                partial(store.groups, S),
                store.streams,
                partial(store.trim, S, Trim(max_length=5)),
                partial(store.publish, [event(1)], durable=True),
            ):
                await attempt(ask)

    async def attempt(ask: Callable[[], Awaitable[object]]) -> None:
        try:
            await ask()
        except BusError as error:
            errors.append(type(error))

    await attempt(use)
    assert errors
    assert set(errors) == {BusDamagedError}
