"""The limits for a peer, each exceeded: requests are refused, wait, or are forgotten."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from parley._node.bus.config import BusConfig
from parley._node.bus.data import encode_body
from parley._node.bus.model import NewEvent, Published, StreamInfo
from parley._node.bus.remote import channel, executor, limits
from parley._node.bus.remote.authorisation import BusRequest
from parley._node.bus.remote.channel import LateAnswer
from parley._node.bus.remote.executor import (
    DeliveryBatch,
    EventFetcher,
    OrphanedDeliveries,
    Unsettled,
)
from parley._node.bus.remote.messages import Join, ListStreams, Read, Touch, row_cost
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import Limits
from parley._node.protocol.memory_budget import MemoryBudget
from tests.node.bus.model_store import ModelStore
from tests.node.bus.remote.offered import GROUP, NAME, ask, between, new
from tests.node.network import PATIENCE, eventually, settled, task_scope

PLACE = (NAME, GROUP, "c")
JOIN = Join(*PLACE, "0-0")


class Gated(ModelStore):
    """A store that performs some operations only when permitted, and counts the waiting ones."""

    def __init__(self) -> None:
        super().__init__(BusConfig())
        self.asked = 0
        self.authoriser = anyio.Event()

    async def publish(self, events: Sequence[NewEvent], *, durable: bool) -> list[Published]:
        await self._pass()
        return await super().publish(events, durable=durable)

    async def streams(self) -> list[StreamInfo]:
        await self._pass()
        return await super().streams()

    async def release(self, stream: str, group: str, consumer: str, ids: Sequence[str]) -> None:
        await self._pass()
        await super().release(stream, group, consumer, ids)

    async def _pass(self) -> None:
        self.asked += 1
        await self.authoriser.wait()


# The serving side.


@pytest.mark.anyio
async def test_number_of_consumers_of_a_stream_is_bounded(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONSUMERS", 2)
    async with between() as bus:
        stream = bus.stream()
        joins = [Join(NAME, GROUP, consumer, "0-0") for consumer in "abc"]
        codes = [(await ask(stream, join)).code for join in (*joins, *joins[:2])]
        assert codes == [0, 0, ResultCode.OVERLOADED, 0, 0]
        for request in (Read(NAME, GROUP, "c", 1), Touch(NAME, "other", "a", ["1-0"])):
            assert (await ask(stream, request)).code == ResultCode.OVERLOADED
        assert len(await bus.store.consumers(NAME, GROUP)) == 2
        assert (await ask(bus.stream(), joins[2])).code == 0  # Another stream has its own limit.


@pytest.mark.anyio
async def test_number_of_concurrent_long_answers_is_bounded(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE_ANSWERS", 2)
    store, codes = Gated(), []
    async with between(store=store) as bus:
        stream = bus.stream()

        async def list_streams() -> None:
            codes.append((await ask(stream, ListStreams())).code)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(list_streams)
            await eventually(lambda: store.asked >= 2)
            assert (await ask(stream, JOIN)).code == 0  # Short requests overtake them.
            assert store.asked == 2
            store.authoriser.set()
        assert (codes, store.asked) == ([0] * 5, 5)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("after", "code"), [(0.0, ResultCode.NOT_AUTHORISED), (60.0, ResultCode.ACCEPTED)]
)
async def test_permission_is_rechecked_after_a_long_wait(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch, after: float, code: ResultCode
) -> None:
    monkeypatch.setattr(limits, "ASKED_AGAIN_AFTER", after)
    rights, codes = {"consume"}, []

    def allow(request: BusRequest) -> bool:
        return request.action in rights

    async with between(allow) as bus:
        stream = bus.stream()
        assert (await ask(stream, JOIN)).code == 0

        async def read() -> None:
            codes.append((await ask(stream, Read(*PLACE, 1, 30.0))).code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await eventually(lambda: any(one.waiting for one in bus.service.usages.values()))
            await settled()
            rights.clear()
            await bus.store.publish([new(1)], durable=True)
        assert codes == [code]
        (pending,) = await bus.store.pending(NAME, GROUP, 9, "0-0")
        assert (pending.due_in is None) == (
            code == ResultCode.ACCEPTED
        )  # Otherwise it is released.


@pytest.mark.anyio
async def test_listing_pages_are_bounded(anyio_backend: str) -> None:
    async with between() as bus:
        names = [f"a.b{n:04}" for n in range(limits.LARGEST_COUNT + 1)]

        async def streams() -> list[StreamInfo]:
            return [StreamInfo(name, 0, 0, None, None) for name in names]

        bus.store.streams = streams
        stream = bus.stream()
        first = await ask(stream, ListStreams())
        rest = await ask(stream, ListStreams(names[limits.LARGEST_COUNT - 1]))
        assert (len(first.rows or ()), first.more) == (limits.LARGEST_COUNT, True)
        assert ([row[0] for row in rest.rows or ()], rest.more) == (names[-1:], False)


@pytest.mark.anyio
async def test_largest_event_fits_into_an_answer(anyio_backend: str) -> None:
    async with between(limits=Limits(max_payload=1_024)) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        (probe,) = await bus.store.publish([new(1)], durable=True)
        await ask(stream, Read(*PLACE, 1))
        body = encode_body({"x": ""}, 100)
        room = 1_024 - limits.ANSWER_HEAD - row_cost([probe.id, NAME, body])
        codes = []
        for size in (room, room + 1):
            body = encode_body({"x": "x" * size}, 2_000)
            await bus.store.publish([NewEvent(NAME, {}, body)], durable=True)
            codes.append((await ask(stream, Read(*PLACE, 1))).code)
        assert codes == [ResultCode.ACCEPTED, ResultCode.PAYLOAD_TOO_LARGE]


def test_number_of_remembered_unsettled_events_is_bounded() -> None:
    ids = [f"{n}-0" for n in range(limits.HANDED + 1)]
    handed, left = Unsettled(MemoryBudget(1 << 20)), OrphanedDeliveries()
    handed.add(PLACE, ids)
    assert len(handed) == limits.HANDED
    assert handed.known(NAME, GROUP, ids[:2]) == ids[1:2]
    handed.leave(left)
    left.add(PLACE, ids[0])
    assert len(left) == limits.HANDED
    assert left.take(PLACE, 1) == ids[2:3]


@pytest.mark.anyio
async def test_blocked_store_does_not_prevent_the_end_of_a_stream(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_PATIENCE", 0.01)
    async with task_scope() as backend:
        store = Gated()
        store.authoriser.set()
        await store.open(backend)
        await store.publish([new(1)], durable=True)
        await store.join(*PLACE, "0-0")
        batch = DeliveryBatch(PLACE, await store.read(*PLACE, 1, 0.0))
        store.authoriser, store.asked = anyio.Event(), 0
        with anyio.fail_after(PATIENCE):
            await EventFetcher(store, backend, 1_000, MemoryBudget(1 << 20)).give_back(batch)
        assert store.asked == 1
        assert [one.due_in for one in await store.pending(NAME, GROUP, 9, "0-0")] == [None]


# The requesting side.


@pytest.mark.anyio
async def test_two_publish_requests_run_concurrently(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGEST_COUNT", 1)  # Of a request.
    store, done = Gated(), []
    async with between(store=store) as bus:
        peer = await bus.asking()

        async def publish(n: int) -> None:
            (published,) = await peer.publish([new(n)], durable=True)
            done.append(published.id)

        async with anyio.create_task_group() as tasks:
            for n in range(6):
                tasks.start_soon(publish, n)
            await eventually(lambda: store.asked >= 2)
            await settled()
            assert store.asked == 2
            store.authoriser.set()
        assert (store.asked, len(set(done))) == (6, 6)


@pytest.mark.anyio
async def test_cancellation_waits_briefly_for_a_late_answer(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PATIENCE", 0.01)
    async with task_scope() as backend:
        unanswered = LateAnswer(backend.waiter())
        unanswered.expected()
        store: Any = None  # No request needs it.
        give_back: Callable[..., Awaitable[None]] = unanswered.give_back
        with anyio.fail_after(PATIENCE):
            await give_back(store, Read(*PLACE, 1))
