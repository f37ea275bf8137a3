"""Which events are delivered, to which consumer, and with which attempt."""

from pathlib import Path

import pytest

from parley._node.bus.model import Trim
from parley._node.bus.sqlite.events import CLOCK_SET_BACK, HANDFUL
from tests.node.bus.sqlite.stage import GROUP, STREAM, Clock, ids_of, stage

pytestmark = pytest.mark.anyio


async def test_each_group_reads_all_once_and_in_order(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(5)
        await on.publish(1, name="auth.other")
        for group in ("one", "two"):
            await on.join(group=group)
            got = await on.store.read(STREAM, group, "c", 3, 0)
            got += await on.store.read(STREAM, group, "d", 3, 0)
            assert ids_of(got) == ids
            assert {one.attempt for one in got} == {1}
            assert [one.event for one in got] == await on.stored()
            assert await on.store.read(STREAM, group, "c", 3, 0) == []


@pytest.mark.parametrize(("after", "expected"), [("0-0", 4), ("$", 1), ("second", 2)])
async def test_new_group_begins_at_its_start_position(
    anyio_backend: str, tmp_path: Path, after: str, expected: int
) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(3)
        await on.join(after=ids[1] if after == "second" else after)
        await on.join(after="0-0")  # The group exists, so this has no effect.
        ids += await on.publish(1)
        assert (await on.store.groups(STREAM))[0].lag == expected
        assert await on.read() == ids[-expected:]
        assert (await on.store.groups(STREAM))[0].lag == 0


async def test_a_stream_without_events_can_be_joined(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        await on.join(after="$")
        assert [(one.length, one.last_id) for one in await on.store.streams()] == [(0, None)]
        assert await on.read() == []
        assert await on.read(consumer="nobody joined") == []
        assert len(await on.publish(1)) == len(await on.read())


async def test_vanished_group_continues_at_its_position(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(4)
        await on.join()
        assert await on.read(2) == ids[:2]
        assert await on.store.remove_group(STREAM, GROUP)
        assert await on.read() == ids[2:]
        (group,) = await on.store.groups(STREAM)
        assert (group.lag, group.pending, group.consumers) == (0, 2, 1)


async def test_recover_pending_returns_events_of_an_earlier_process(
    anyio_backend: str, tmp_path: Path
) -> None:
    clock = Clock()
    async with stage(tmp_path, clock) as on:
        ids = await on.publish(4)
        await on.join()
        await on.read(3, "c")
        await on.read(1, "d")
        await on.store.nack(STREAM, GROUP, "c", ids[2], 5, "no")
        assert await on.store.recover_pending(STREAM, GROUP, "c", 9) == []  # This process has them.
    async with stage(tmp_path, clock) as on:
        own = on.store.recover_pending
        again = await own(STREAM, GROUP, "c", 1) + await own(STREAM, GROUP, "c", 9)
        assert [(one.event.id, one.attempt) for one in again] == [(ids[0], 2), (ids[1], 2)]
        assert await own(STREAM, GROUP, "c", 9) == []
        assert await own(STREAM, "no such group", "c", 9) == []


async def test_claim_takes_due_and_idle_events_oldest_first(
    anyio_backend: str, tmp_path: Path
) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(5)
        await on.join()
        await on.read()
        await on.store.nack(STREAM, GROUP, "c", ids[3], 30, "no")
        await on.store.release(STREAM, GROUP, "c", ids[1:2])
        assert await on.claim() == {ids[1]: 1}  # A released event does not count as an attempt.
        on.clock.now += 30
        assert await on.claim() == {ids[3]: 2}
        on.clock.now += 29
        await on.store.touch(STREAM, GROUP, "c", ids[4:])
        assert await on.claim() == {}
        on.clock.now += 1
        assert await on.claim(count=1) == {ids[0]: 2}
        assert await on.claim() == {ids[1]: 2, ids[2]: 2}
        on.clock.now += 30
        assert await on.claim("e", idle=59) == {ids[3]: 3}
        (group,) = await on.store.groups(STREAM)
        assert (group.pending, group.redelivered) == (5, 5)


async def test_clock_set_back_does_not_prevent_claims(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(2)
        await on.join()
        await on.read(1)
        assert await on.claim() == {}
        on.clock.now -= 3_600
        await on.read(1)
        on.clock.now += 60
        assert await on.claim() == {ids[1]: 2}
        on.clock.now += 3_600
        assert await on.claim() == {ids[0]: 2, ids[1]: 3}


async def test_delivery_times_in_the_future_are_corrected(
    anyio_backend: str, tmp_path: Path
) -> None:
    """After a start with a wrong clock, all events are redelivered at the next start."""
    clock = Clock()
    clock.now += 2 * CLOCK_SET_BACK
    async with stage(tmp_path, clock) as on:
        ids = await on.publish(3)
        await on.join()
        await on.read(2)
        await on.store.nack(STREAM, GROUP, "c", ids[1], 5, "no")
    clock.now -= 2 * CLOCK_SET_BACK
    async with stage(tmp_path, clock) as on:
        assert await on.claim() == {ids[1]: 2}
        clock.now += 60
        assert await on.claim("e") == {ids[0]: 2, ids[1]: 3}
        assert await on.read() == ids[2:]


async def test_trimmed_events_are_not_redelivered(anyio_backend: str, tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        ids = await on.publish(3)
        await on.join()
        await on.read(2)
        await on.store.release(STREAM, GROUP, "c", ids[:2])
        assert await on.store.trim(STREAM, Trim(max_length=2)) == 1
        assert await on.claim() == {ids[1]: 1}


async def test_size_of_one_delivery_is_bounded(anyio_backend: str, tmp_path: Path) -> None:
    large = HANDFUL // 4
    async with stage(tmp_path) as on:
        ids = await on.publish(9, size=large)
        await on.join()
        assert await on.read() == ids[:4]
        assert [event.id for event in await on.stored()] == ids[:4]
        assert await on.read(1) == ids[4:5]
        await on.store.release(STREAM, GROUP, "c", ids[:5])
        assert list(await on.claim()) == ids[:4]
        assert list(await on.claim()) == ids[4:5]
        (group,) = await on.store.groups(STREAM)
        assert (group.lag, group.pending) == (4, 5)
