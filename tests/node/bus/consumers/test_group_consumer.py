"""How many events are fetched at a time, and the limit of a reason."""

from collections.abc import Sequence

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.consumers import acks, group_consumer
from parley._node.bus.consumers.group_consumer import FIRST_FETCH
from parley._node.bus.dead_letters import LONGEST_ERROR
from parley._node.transport.conditions import Condition
from parley._node.transport.task_scope import SingleTask
from tests.node.bus.buses import GROUP, NAME, a_bus, publish
from tests.node.bus.model_store import ModelStore
from tests.node.network import eventually, settled, task_scope

pytestmark = pytest.mark.anyio


async def test_fetch_count_follows_the_processing_speed(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 500)
        async with bus.consume(NAME, GROUP, batch=40) as events:
            for _ in range(200):
                await anext(events)
            counts = [arguments[3] for arguments in store.asked("read")]
            assert counts[0] <= 2 * FIRST_FETCH
            assert max(counts) == 40
            # If events are processed slowly, each fetch is smaller and isn't made in advance.
            monkeypatch.setattr(group_consumer, "QUICK", 0.0)
            monkeypatch.setattr(group_consumer, "SLOW", 0.0)
            store.calls.clear()
            for _ in range(200):
                await anext(events)
            counts = [arguments[3] for arguments in store.asked("read")]
            assert counts[-1] == 1
            assert len(await bus.pending(NAME, GROUP, count=1000)) <= 40


class Slow(ModelStore):
    """A store that records acknowledgements only when permitted."""

    def __init__(self) -> None:
        super().__init__(BusConfig())
        self.gate = anyio.Event()

    async def ack(self, stream: str, group: str, ids: Sequence[str]) -> int:
        await self.gate.wait()
        return await super().ack(stream, group, ids)


async def test_delivery_waits_for_unrecorded_acknowledgements(anyio_backend: str) -> None:
    slow, taken = Slow(), []
    async with a_bus(slow) as (bus, _):
        await publish(bus, 100)

        async def consume() -> None:
            async with bus.consume(NAME, GROUP, batch=5) as events:
                async for event in events:
                    taken.append(event.data["n"])
                    if len(taken) == 100:
                        break

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(consume)
            await eventually(lambda: len(taken) > 10)
            await settled()
            # The unrecorded limit, the events that were ready, and the one being processed.
            assert len(taken) <= 16
            slow.gate.set()
        assert taken == list(range(100))


async def test_acknowledgements_of_a_batch_are_recorded_together(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "GATHER", 60.0)
    monkeypatch.setattr(group_consumer, "SLOW", 60.0)
    async with a_bus() as (bus, store):
        await publish(bus, 100)
        async with bus.consume(NAME, GROUP, batch=10) as events:
            for _ in range(51):
                await anext(events)
            await eventually(lambda: bus.counters.acknowledged == 50)
            sizes = [len(ids) for _, _, ids in store.asked("ack")]
            assert min(sizes) == 10


async def test_a_reason_is_bounded(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 2)
        async with bus.consume(NAME, GROUP) as events:
            await (await anext(events)).nack(9.0, "x" * (LONGEST_ERROR + 1))
        assert store.asked("nack")[0][-1] == "x" * LONGEST_ERROR


async def test_two_tasks_can_acknowledge_the_same_event(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        await publish(bus, 1)
        async with bus.consume(NAME, GROUP) as events:
            event = await anext(events)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(event.ack)
                tasks.start_soon(event.ack)
        assert bus.counters.acknowledged == 1
        assert await bus.pending(NAME, GROUP) == []


async def test_consumer_can_end_at_any_time(anyio_backend: str) -> None:
    async with task_scope() as loop:
        job, told = SingleTask(loop, Condition(loop.waiter)), []

        async def work() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.001)
                    told.append("rest")

        await job.end()
        for turns in (0, 1, 3):
            job.start(work)
            job.start(work)  # The task is running.
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await job.end()
            assert not job.running
        assert told == ["rest"] * 3
