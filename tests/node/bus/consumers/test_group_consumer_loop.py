"""The consuming loop: the next event, leaving the loop, and exceptions in it."""

from collections.abc import Callable
from functools import partial

import anyio
import pytest

from parley._node.bus.consumers.group_consumer import Consumption
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusFullError,
    BusUnavailableError,
    NotPendingError,
)
from parley._node.bus.event import BusEvent
from parley._node.errors import ParleyError
from tests.node.bus.buses import GROUP, NAME, a_bus, attempts, fail, publish
from tests.node.network import PATIENCE, eventually, started

pytestmark = pytest.mark.anyio


async def test_next_event_acknowledges_the_previous_one(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        ids = await publish(bus, 300)
        got: list[str] = []
        async with bus.consume(NAME, GROUP) as events:
            async for event in events:
                got.append(event.id)
                if len(got) == 300:
                    break
            assert len(await bus.pending(NAME, GROUP, count=1000)) >= 1
        assert got == ids
        assert await bus.pending(NAME, GROUP) == []
        assert bus.counters.acknowledged == bus.counters.delivered == 300
        assert len(store.asked("ack")) < 30  # Both at the same time.


@pytest.mark.parametrize(
    ("reason", "history"),
    [
        (partial(ValueError, "no\nmatter"), "ValueError: no\\nmatter"),
        (KeyboardInterrupt, "KeyboardInterrupt"),
    ],
)
async def test_an_exception_refuses(
    anyio_backend: str, reason: Callable[[], BaseException], history: str
) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 5)
        error = reason()  # A new error each time, because an error keeps its traceback.
        with pytest.raises(type(error)):
            await fail(bus, error)
        assert store.asked("nack")[0][-1] == history
        # The remaining events were never started.
        assert await attempts(bus) == [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1)]
        assert bus.counters.failed == 1
        assert bus.counters.retried == 1


async def test_cancellation_refuses(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 3)
        with anyio.move_on_after(0.05):
            async with bus.consume(NAME, GROUP) as events:
                async for event in events:
                    if event.data["n"] == 1:
                        await anyio.sleep_forever()
        assert store.asked("nack")[0][-1] == "cancelled"
        assert await attempts(bus) == [(1, 2), (2, 1)]


async def test_cancelled_wait_loses_nothing(anyio_backend: str) -> None:
    async with a_bus() as (bus, _):
        got = []
        async with bus.consume(NAME, GROUP) as events:
            for number in range(6):
                with anyio.move_on_after(0.01 * (number % 2)):
                    got.append((await anext(events)).data["n"])
                await publish(bus, 1)
            while len(got) < 6:
                got.append((await anext(events)).data["n"])
        assert bus.counters.acknowledged == 6
        assert await bus.pending(NAME, GROUP) == []


async def test_first_acknowledgement_or_refusal_counts(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 3)
        async with bus.consume(NAME, GROUP) as events:
            first = await anext(events)
            await first.ack()
            assert [one.id for one in await bus.pending(NAME, GROUP)] != [first.id]
            await first.ack()
            with pytest.raises(NotPendingError):
                await first.nack()
            second = await anext(events)
            await second.nack(0.05, "later")
            with pytest.raises(NotPendingError):
                await second.ack()
            with pytest.raises(NotPendingError):
                await second.nack()
            third = await anext(events)
            assert (third.data["n"], third.attempt) == (2, 1)
            again = await anext(events)
            assert (again.data["n"], again.attempt) == (1, 2)
        assert await bus.pending(NAME, GROUP) == []
        assert store.asked("nack")[0][-2:] == (0.05, "later")


@pytest.mark.parametrize("fault", [BusUnavailableError("gone"), BusBusyError("held")])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("operation", ["ack", "nack"])
@pytest.mark.slow
async def test_acknowledgement_waits_for_the_store(
    anyio_backend: str, operation: str, fault: Exception, late: bool
) -> None:
    async with a_bus() as (bus, store):
        await publish(bus, 2)
        async with bus.consume(NAME, GROUP) as events:
            first = await anext(events)
            # If the first attempt was late, the store has recorded it and reports so the second
            # time.
            (store.late_faults if late else store.faults)[operation] = [fault]
            with anyio.fail_after(PATIENCE):
                await (first.ack() if operation == "ack" else first.nack(60.0))
            assert len(store.asked(operation)) == 2
            left = [one.id for one in await bus.pending(NAME, GROUP)]
            assert (first.id in left) == (operation == "nack")
            with pytest.raises(NotPendingError):
                await (first.nack() if operation == "ack" else first.ack())


@pytest.mark.parametrize("operation", ["ack", "nack"])
async def test_closing_the_bus_ends_a_waiting_acknowledgement(
    anyio_backend: str, operation: str
) -> None:
    async with anyio.create_task_group() as tasks, a_bus() as (bus, store):
        await publish(bus, 1)
        events = bus.consume(NAME, GROUP)
        await events.__aenter__()
        first = await anext(events)
        store.faults[operation] = [BusUnavailableError("gone") for _ in range(1_000)]
        said = await started(tasks, lambda: first.ack() if operation == "ack" else first.nack())
        await eventually(lambda: bool(store.asked(operation)))
        with anyio.fail_after(PATIENCE):
            await bus.aclose()
            await eventually(lambda: bool(said))
        assert [type(one) for one in said] == [BusClosedError]


async def test_one_task_reads(anyio_backend: str) -> None:
    async with a_bus() as (bus, _), anyio.create_task_group() as tasks:
        async with bus.consume(NAME, GROUP) as events:
            waiting = await started(tasks, lambda: anext(events))
            with pytest.raises(anyio.BusyResourceError):
                await anext(events)
            await publish(bus, 1)
            await eventually(lambda: bool(waiting))
        assert isinstance(waiting[0], BusEvent)


async def test_entering_and_leaving(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        events = bus.consume(NAME, GROUP)
        with pytest.raises(ParleyError, match="async with"):
            await anext(events)
        async with events:
            pass
        with pytest.raises(anyio.ClosedResourceError):
            await anext(events)
        with pytest.raises(ParleyError, match="cannot enter"):
            await events.__aenter__()
        store.faults["join"] = [BusUnavailableError("gone")]
        with pytest.raises(BusUnavailableError):
            async with bus.consume(NAME, GROUP):
                pass
        async with bus.consume(NAME, GROUP):
            assert store.asked("join")[-1][2] == "me"  # The name of the failed consumer is free.


async def test_bus_closes_during_the_loop(anyio_backend: str) -> None:
    async with a_bus() as (bus, store), anyio.create_task_group() as tasks:
        await publish(bus, 2)
        busy, idle = bus.consume(NAME, GROUP), bus.consume("auth.other", GROUP)
        await busy.__aenter__()
        await idle.__aenter__()
        await anext(busy)
        waiting = await started(tasks, lambda: anext(idle))
        await bus.aclose()
        await eventually(lambda: bool(waiting))
        assert isinstance(waiting[0], BusClosedError)
        with pytest.raises(BusClosedError):
            await anext(busy)
        await busy.__aexit__(None, None, None)
        assert store.asked("nack")[0][-1] == "the bus was closed"
        assert len(store.asked("release")) == 1
        with pytest.raises(BusClosedError):
            await bus.publish(NAME, {})


async def test_attempts_end(anyio_backend: str) -> None:
    """At the last attempt an event becomes a dead letter immediately.

    An event that other consumers received more often becomes one when it is fetched.
    """
    async with a_bus() as (bus, store):
        await publish(bus, 2)
        for _ in range(2):
            with pytest.raises(ValueError, match="bad"):
                await fail(bus, ValueError("bad"), max_attempts=2)
        (letter,) = await bus.dead_letters(NAME)
        assert [failure.error for failure in letter.history] == ["ValueError: bad"] * 2
        with pytest.raises(ValueError, match="bad"):
            await fail(bus, ValueError("bad"))
        await publish(bus, 1)
        async with bus.consume(NAME, GROUP, max_attempts=1) as events:
            assert (await anext(events)).data == {"n": 0}
        assert store.asked("bury")[-1][-1] == "not processed after 1 attempts"
        assert bus.counters.dead_lettered == 2
        # A failing dead letter stays on its stream.
        for _ in range(7):
            with pytest.raises(ValueError, match="bad"):
                await fail(bus, ValueError("bad"), NAME + ".dead", max_attempts=1)
        assert len(await bus.dead_letters(NAME)) == 2


@pytest.mark.parametrize("error", [BusUnavailableError, BusBusyError, BusFullError])
@pytest.mark.slow
async def test_transient_errors_are_retried(anyio_backend: str, error: type[Exception]) -> None:
    async with a_bus() as (bus, store):
        async with bus.consume(NAME, GROUP) as events:
            for method in ("recover_pending", "claim", "read", "ack"):
                store.faults[method] = [error("not now")]
            await publish(bus, 1)
            assert (await anext(events)).attempt == 1
        assert await bus.pending(NAME, GROUP) == []
        assert not any(store.faults.values())


@pytest.mark.parametrize("error", [BusDamagedError, RuntimeError])
async def test_permanent_errors_end_the_loop(anyio_backend: str, error: type[Exception]) -> None:
    async with a_bus() as (bus, store):
        store.faults["claim"] = [error("torn")]
        with pytest.raises(ParleyError, match=r"torn|the store failed"):
            async with bus.consume(NAME, GROUP) as events:
                await anext(events)
        await publish(bus, 1)
        store.faults["ack"] = [error("torn")]
        with pytest.raises(ParleyError, match=r"torn|the store failed"):
            async with bus.consume(NAME, GROUP) as events:
                await anext(events)


async def test_leaving_times_out(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley._node.bus.consumers.group_consumer.LEAVE_TIMEOUT", 0.05)
    async with a_bus() as (bus, store):
        await publish(bus, 4)
        events = await bus.consume(NAME, GROUP).__aenter__()
        await anext(events)
        store.faults["ack"] = [BusUnavailableError("gone")] * 9
        with pytest.raises(BusUnavailableError, match="cannot record the outcomes"):
            await events.__aexit__(None, None, None)
        store.faults["release"] = [BusUnavailableError("gone")] * 9
        with pytest.raises(ValueError, match="its own"):
            await fail(bus, ValueError("its own"))


async def test_long_processing_sends_heartbeats(anyio_backend: str) -> None:
    """Events that were not started are also released, if there is no progress for a while."""
    async with a_bus() as (bus, store):
        ids = await publish(bus, 4)
        async with bus.consume(NAME, GROUP, reclaim_after=0.15) as events:
            await anext(events)
            await eventually(lambda: bool(store.asked("release")))
            assert set(store.asked("touch")[0][-1]) == set(ids)
            assert set(store.asked("release")[0][-1]) == set(ids[1:])
            await eventually(lambda: store.asked("touch")[-1][-1] == [ids[0]])
            # The consumer gets them again, one by one, in their order and with the first attempt.
            for number in (1, 2, 3):
                event = await anext(events)
                assert (event.data["n"], event.attempt) == (number, 1)
        assert await bus.pending(NAME, GROUP) == []


async def test_each_consumer_has_its_own_name(anyio_backend: str) -> None:
    async with a_bus() as (bus, store):
        loops: list[Consumption] = [bus.consume(NAME, GROUP) for _ in range(4)]
        async with loops[0], loops[1]:
            pass
        async with loops[2], bus.consume(NAME, "another"), loops[3]:
            pass
        names = [arguments[2] for arguments in store.asked("join")]
        assert names == ["me", "me-2", "me", "me", "me-2"]
