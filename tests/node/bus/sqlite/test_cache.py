"""The metadata cache has a limited size, and removed entries are read again."""

from pathlib import Path

import pytest

from parley._node.bus.sqlite import cache as cache_module
from tests.inspection import running_of
from tests.node.bus.sqlite.stage import GROUP, STREAM, stage

pytestmark = pytest.mark.anyio


async def test_cache_is_bounded_and_reread(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "REMEMBERED", 3)
    async with stage(tmp_path) as on:
        for number in range(10):
            await on.publish(2, name=f"auth.event{number}")
            await on.store.join(f"auth.event{number}", GROUP, f"c{number}", "0-0")
            await on.store.read(f"auth.event{number}", GROUP, f"c{number}", 1, 0)
        running = running_of(on.store)
        held = running.worker.database.cache
        assert held is not None
        assert len(held.streams) <= 2  # Each with its group and its consumer.
        assert [one.length for one in await on.store.streams()] == [2] * 10
        assert len(held.places) == 3
        await on.store.groups(STREAM)
        for number in range(10):
            (group,) = await on.store.groups(f"auth.event{number}")
            assert (group.lag, group.pending, group.consumers) == (1, 1, 1)
            (consumer,) = await on.store.consumers(f"auth.event{number}", GROUP)
            assert (consumer.name, consumer.pending) == (f"c{number}", 1)


async def test_waiting_consumer_does_not_write_at_each_check(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        await on.join()
        before = (tmp_path / "bus.db-wal").stat().st_size
        for _ in range(5):
            on.clock.now += cache_module.SEEN_RESOLUTION / 10
            await on.read()
        assert (tmp_path / "bus.db-wal").stat().st_size == before
        (consumer,) = await on.store.consumers(STREAM, GROUP)
        assert consumer.idle == 0
        on.clock.now += cache_module.SEEN_RESOLUTION
        await on.read()
        assert (tmp_path / "bus.db-wal").stat().st_size > before
