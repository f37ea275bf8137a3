"""Events that fit into an answer, that wait for the next one, and that are too large for any."""

from typing import Any

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.data import encode_body
from parley._node.bus.model import NewEvent
from parley._node.bus.remote import limits
from parley._node.bus.remote.executor import DeliveryBatch, EventFetcher
from parley._node.protocol.memory_budget import MemoryBudget
from tests.node.bus.model_store import ModelStore
from tests.node.network import eventually, task_scope

pytestmark = pytest.mark.anyio

PLACE = ("a.b", "g", "c")


def of_size(*sizes: int) -> list[NewEvent]:
    """Return events whose data has so many characters."""
    return [NewEvent("a.b", {}, encode_body({"x": "x" * size}, 10**6)) for size in sizes]


async def store_with(backend: Any, *sizes: int) -> ModelStore:
    store = ModelStore(BusConfig())
    await store.open(backend)
    await store.publish(of_size(*sizes), durable=True)
    await store.join(*PLACE, "0-0")
    return store


async def read(fetching: EventFetcher, count: int = 100) -> DeliveryBatch:
    batch = DeliveryBatch(PLACE)
    await fetching.read(batch, count, 0.0)
    return batch


def sizes(batch: DeliveryBatch) -> list[int]:
    return [len(one.event.body) - 8 for one in batch.deliveries]


async def test_events_that_do_not_fit_come_with_the_next_answer(anyio_backend: str) -> None:
    async with task_scope() as backend:
        store = await store_with(backend, 10, 10, 900, 900, 900, 10)
        fetching = EventFetcher(store, backend, 2_000, MemoryBudget(1 << 20))
        found = [sizes(await read(fetching)) for _ in range(4)]
        assert found == [[10, 10, 900], [900], [900, 10], []]
        assert [one.attempt for one in await store.pending("a.b", "g", 9, "0-0")] == [1] * 6


async def test_answer_is_bounded_except_for_one_large_event(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ANSWER_SIZE", 2_000)
    async with task_scope() as backend:
        store = await store_with(backend, 900, 900, 9_000, 10)
        fetching = EventFetcher(store, backend, 10_000, MemoryBudget(1 << 20))
        found = [sizes(await read(fetching)) for _ in range(3)]
        assert found == [[900], [900], [9_000]]


async def test_a_smaller_count_leaves_the_rest_for_later(anyio_backend: str) -> None:
    async with task_scope() as backend:
        store = await store_with(backend, 1, 2, 3, 900, 900)
        fetching = EventFetcher(store, backend, 1_600, MemoryBudget(1 << 20))
        assert sizes(await read(fetching)) == [1, 2, 3, 900]
        await store.publish(of_size(4), durable=True)
        assert sizes(await read(fetching, 1)) == [900]
        assert sizes(await read(fetching, 1)) == [4]


async def test_kept_events_are_released_after_a_timeout_or_at_the_end(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with task_scope() as backend:
        store = await store_with(backend, 900, 900)
        fetching = EventFetcher(store, backend, 1_200, MemoryBudget(1 << 20))
        monkeypatch.setattr(limits, "KEPT_FOR", 0.01)
        assert sizes(await read(fetching)) == [900]
        pending = store.table["a.b"].groups["g"].pending
        await eventually(lambda: any(one.due is not None for one in pending.values()))
        claimed = await store.claim("a.b", "g", "another", 9, 1_000.0)
        assert [one.attempt for one in claimed] == [1]

        monkeypatch.setattr(limits, "KEPT_FOR", 100.0)
        await store.publish(of_size(900, 900), durable=True)
        fetching = EventFetcher(
            store, backend, 1_200, MemoryBudget(1 << 20)
        )  # It does not know the sizes yet.
        await read(fetching)
        await fetching.aclose()
        claimed = await store.claim("a.b", "g", "another", 9, 1_000.0)
        assert [one.attempt for one in claimed] == [1]


async def test_oversized_event_does_not_stop_the_group(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other consumers can receive it. Otherwise, it becomes a dead letter after some attempts."""
    monkeypatch.setattr(limits, "TOO_LARGE_DELAY", 0.0)
    async with task_scope() as backend:
        store = await store_with(backend, 10, 5_000, 20)
        fetching = EventFetcher(store, backend, 2_000, MemoryBudget(1 << 20))
        first = await read(fetching)
        assert (sizes(first), len(first.too_large)) == ([10, 20], 1)
        (due,) = [p for p in await store.pending("a.b", "g", 9, "0-0") if p.due_in is not None]
        for attempt in range(2, limits.TOO_LARGE_ATTEMPTS + 1):
            batch = DeliveryBatch(PLACE)
            await fetching.claim(batch, 1, 1_000.0)
            assert (sizes(batch), [one.attempt for one in batch.too_large]) == ([], [attempt])
        assert due.id not in [one.id for one in await store.pending("a.b", "g", 9, "0-0")]
        (letter,) = await store.history("a.b.dead", "0-0", None, 9, 0.0)
        assert "answers to this node take 2,000" in letter.body


async def test_a_dead_letter_is_never_buried_again(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TOO_LARGE_DELAY", 0.0)
    monkeypatch.setattr(limits, "TOO_LARGE_ATTEMPTS", 1)
    async with task_scope() as backend:
        store = ModelStore(BusConfig())
        await store.open(backend)
        (event,) = of_size(5_000)
        await store.publish([event._replace(name="a.b.dead")], durable=True)
        await store.join("a.b.dead", "g", "c", "0-0")
        batch = DeliveryBatch(("a.b.dead", "g", "c"))
        await EventFetcher(store, backend, 2_000, MemoryBudget(1 << 20)).read(batch, 1, 0.0)
        assert len(batch.too_large) == 1
        assert [one.length for one in await store.streams()] == [1]


async def test_history_returns_events_that_fit(anyio_backend: str) -> None:
    async with task_scope() as backend:
        store = await store_with(backend, 10, 900, 900, 5_000)
        fetching = EventFetcher(store, backend, 2_000, MemoryBudget(1 << 20))
        first, large = await fetching.history("a.b", "0-0", None, 9, 0.0)
        assert ([len(one.body) - 8 for one in first], large) == ([10, 900], None)
        second, large = await fetching.history("a.b", first[-1].id, None, 9, 0.0)
        assert (len(second), large) == (1, None)
        third, large = await fetching.history("a.b", second[-1].id, None, 9, 0.0)
        assert third == []
        assert large is not None
        with anyio.fail_after(1):
            await fetching.aclose()


async def test_kept_events_are_bounded(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events beyond the limit return to the group immediately."""
    monkeypatch.setattr(limits, "KEPT_SIZE", 1_500)
    async with task_scope() as backend:
        store = await store_with(backend, 900, 900, 900, 900)
        fetching = EventFetcher(store, backend, 1_100, MemoryBudget(1 << 20))
        assert sizes(await read(fetching)) == [900]
        due = [one.due_in for one in await store.pending("a.b", "g", 9, "0-0")]
        assert due == [None, 0, 0, 0]
        fetching = EventFetcher(store, backend, 1_100, MemoryBudget(1 << 20))
        await store.publish(of_size(900, 900), durable=True)
        assert sizes(await read(fetching)) == [900]
        assert fetching.size > 900
        assert sizes(await read(fetching)) == [900]
        assert fetching.size == 0
