"""`RemoteStore` and `Peer.bus`: using another node's bus like a local one."""

from typing import Any

import anyio
import pytest

from parley._lbm.codec import encode
from parley._node.bus.config import BusConfig
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
    InvalidEventError,
)
from parley._node.bus.event import BusEvent
from parley._node.bus.model import NewEvent, Trim
from parley._node.bus.remote import channel, limits
from parley._node.bus.remote.messages import Answer, encode_answer
from parley._node.bus.remote.store import RemoteStore
from parley._node.handlers.registry import Entry
from parley._node.protocol.codes import BUS_LABEL, CloseCode, ResultCode
from parley._node.protocol.limits import Limits
from parley._node.remote.stream import Stream
from parley._node.testing import ConnectedNodes, connect_nodes
from tests.node.bus.remote.offered import GROUP, NAME, Between, between, new
from tests.node.network import eventually, meeting, settled, started
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

PLACE = (NAME, GROUP, "c")


async def test_all_methods_match_the_local_store(anyio_backend: str) -> None:
    async with between() as bus:
        peer, store = await bus.asking(), bus.store
        assert await peer.publish([], durable=True) == []
        first, second = await peer.publish([new(1), new(2, key="k")], durable=True)
        assert await peer.publish([new(3, key="k")], durable=False) == [
            second._replace(duplicate=True)
        ]
        assert await peer.history(NAME, "0-0", None, 9, 0.0) == await store.history(
            NAME, "0-0", None, 9, 0.0
        )
        assert [e.id for e in await peer.history(NAME, "0-0", first.id, 9, 1.0)] == [first.id]
        await peer.join(*PLACE, "0-0")
        (one,) = await peer.read(*PLACE, 1, 0.0)
        (two,) = await peer.read(*PLACE, 5_000, 90.0)
        assert (one.event.id, two.event.id) == (first.id, second.id)
        await peer.touch(*PLACE, [first.id])
        assert await peer.nack(*PLACE, first.id, 0.0, "e" * 1_000) is True
        assert await peer.nack(*PLACE, first.id, 0.0, "again") is False
        (again,) = await peer.claim(*PLACE, 1, 60.0)
        assert (again.event.id, again.attempt) == (first.id, 2)
        assert await peer.recover_pending(*PLACE, 1) == []
        await peer.release(*PLACE, [second.id])
        assert await peer.ack(NAME, GROUP, [first.id]) == 1
        (two,) = await peer.claim(*PLACE, 1, 60.0)
        assert two.attempt == 1
        dead = await peer.bury(*PLACE, second.id, "no")
        assert dead is not None
        assert await peer.bury(*PLACE, second.id, "no") is None
        for listed in ("streams", "groups", "consumers", "pending"):
            arguments = {"streams": (), "groups": (NAME,), "consumers": (NAME, GROUP)}.get(
                listed, (NAME, GROUP, 9, "0-0")
            )
            found = await getattr(peer, listed)(*arguments)
            expected = await getattr(store, listed)(*arguments)
            if listed == "consumers":
                found, expected = ([c._replace(idle=0.0) for c in x] for x in (found, expected))
            assert found == expected
        assert await peer.redeliver(NAME, GROUP, [first.id, "9-9"]) == [first.id]
        await peer.rewind(NAME, GROUP, "$")
        assert await peer.drop(NAME, [first.id]) == 1
        assert await peer.trim(NAME, Trim(max_length=0, approximate=True)) == 1
        assert await peer.remove_consumers(NAME, GROUP, 0.0) == [bus.prefix + "c"]
        assert await peer.remove_group(NAME, GROUP) is True
        assert await peer.remove_group(NAME, GROUP) is False
        await peer.aclose()


async def test_lists_come_in_pages_and_ids_in_portions(anyio_backend: str) -> None:
    async with between(limits=Limits(max_payload=1_024)) as bus:
        peer = await bus.asking()
        await bus.offered.opened()
        names = [f"api.event_{n:02}" for n in range(40)]
        for name in names:
            await bus.store.join(name, GROUP, "c", "0-0")
        assert [one.name for one in await peer.streams()] == names
        ids = [one.id for one in await bus.store.publish([new(n) for n in range(60)], durable=True)]
        await peer.join(*PLACE, "0-0")
        found: list[str] = []
        while len(found) < 60:
            found += [one.event.id for one in await peer.read(*PLACE, 60, 0.0)]
        assert found == ids
        await peer.touch(*PLACE, ids)
        await peer.release(*PLACE, ids[30:])
        assert len(await peer.redeliver(NAME, GROUP, ids)) == 60
        assert await peer.ack(NAME, GROUP, ids) == 30
        assert await peer.drop(NAME, ids) == 60


async def test_invalid_foreign_names_are_left_out_of_listings(
    anyio_backend: str,
) -> None:
    """Other programs can choose any names for groups, consumers and keys in a Redis."""
    foreign = "\x1b]0;owned\x07"
    async with between() as bus:
        peer = await bus.asking()
        store = await bus.offered.opened()
        await store.join(NAME, foreign, foreign, "0-0")
        await store.join(NAME, GROUP, foreign, "0-0")
        await peer.join(*PLACE, "0-0")
        (published,) = await store.publish([new(1, key="two words")], durable=True)
        await store.read(NAME, GROUP, foreign, 1, 0.0)
        assert [one.name for one in await peer.groups(NAME)] == [GROUP]
        assert [one.name for one in await peer.consumers(NAME, GROUP)] == [f"{bus.prefix}c"]
        assert [one.consumer for one in await peer.pending(NAME, GROUP, 9, "0-0")] == ["?"]
        (stored,) = await peer.history(NAME, "0-0", None, 9, 0.0)
        assert (stored.id, stored.key) == (published.id, None)
        (taken,) = await peer.claim(*PLACE, 1, 0.0)
        assert taken.event.key is None
        await peer.ack(NAME, GROUP, [published.id])
        removed = await peer.remove_consumers(NAME, GROUP, 0.0)
        assert removed == [f"{bus.prefix}c"]
        assert await store.consumers(NAME, GROUP) == []


async def test_requests_too_large_for_the_connection(anyio_backend: str) -> None:
    async with between(limits=Limits(max_payload=1_024)) as bus:
        peer = await bus.asking()
        with pytest.raises(InvalidEventError, match="a node accepts 1,000"):
            await peer.publish([new(1)] * 1_001, durable=True)
        large = NewEvent(NAME, {}, '{"x":"' + "x" * 2_000 + '"}')
        with pytest.raises(InvalidEventError, match="cannot send this request"):
            await peer.publish([large], durable=True)
        with pytest.raises(InvalidEventError, match="code 23"):
            await peer.join(NAME, GROUP, "c" * (limits.LONGEST_CONSUMER + 1), "0-0")
        (published,) = await bus.store.publish([large], durable=True)
        with pytest.raises(InvalidEventError, match=published.id):
            await peer.history(NAME, "0-0", None, 1, 0.0)
        await peer.join(*PLACE, "0-0")
        assert await peer.read(*PLACE, 1, 0.0) == []
        await peer.publish([new(1)], durable=True)
        assert len(await peer.read(*PLACE, 9, 0.0)) == 1


# Answers of the other node.


async def answering(met: ConnectedNodes, answer: bytes) -> RemoteStore:
    """Yield a store whose other node returns this answer to all requests."""

    async def serve(stream: Stream) -> None:
        async for event in stream.events():
            await event.answer(1, payload=answer)

    met.server.handlers.reserved[BUS_LABEL] = Entry(BUS_LABEL, serve)
    store = RemoteStore(met.peer.live, met.peer.streams, BusConfig(timeout=0.2))
    await store.open(met.client.backend)
    return store


@sweep(
    ("answer", "error"),
    [
        (Answer(ResultCode.HANDLER_FAILED), BusUnavailableError),
        (Answer(ResultCode.DEADLINE_EXCEEDED), BusUnavailableError),
        (Answer(ResultCode.CANCELLED), BusUnavailableError),
        (Answer(ResultCode.OVERLOADED), BusBusyError),
        (Answer(ResultCode.NOT_AUTHORISED), BusRefusedError),
        (Answer(ResultCode.PAYLOAD_TOO_LARGE), InvalidEventError),
        (Answer(ResultCode.MALFORMED), InvalidEventError),
        (Answer(ResultCode.INVALID_EVENT, "why"), InvalidEventError),
        (Answer(ResultCode.STORE_FULL), BusFullError),
        (Answer(ResultCode.STORE_DAMAGED), BusDamagedError),
        (Answer(12_345), BusUnavailableError),
        (Answer(), BusUnavailableError),  # Without its rows.
        (Answer(rows=[]), BusUnavailableError),  # Not one row for each event.
        (Answer(rows=[["x", True]]), BusUnavailableError),
        (Answer(rows=[["1-0"]]), BusUnavailableError),
        (b"\xff", BusUnavailableError),
        (encode({16: "0"}), BusUnavailableError),
    ],
)
async def test_meaning_of_each_result_code(
    anyio_backend: str, answer: Answer | bytes, error: type[BusError]
) -> None:
    async with meeting() as met:
        payload = answer if isinstance(answer, bytes) else encode_answer(answer)
        store = await answering(met, payload)
        with pytest.raises(BusError) as caught:
            await store.publish([new(1)], durable=True)
        assert type(caught.value) is error
        if isinstance(answer, Answer) and answer.text:
            assert "why" in str(caught.value)
        with pytest.raises(BusError):
            await store.trim(NAME, Trim())
        await store.aclose()


async def test_endless_pages_raise(anyio_backend: str) -> None:
    async with meeting() as met:
        row = ["a.b", 0, 0, None, None]
        store = await answering(met, encode_answer(Answer(rows=[row], more=True)))
        with pytest.raises(BusUnavailableError, match="malformed answer"):
            await store.streams()


async def test_listing_is_bounded(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a listing whose names ascend without end."""
    monkeypatch.setattr(limits, "LONGEST_LISTING", 2)
    async with between() as bus:
        store = await bus.asking()
        for number in range(3):
            assert len(await store.streams()) == number
            await store.publish([new(1, name=f"a.b{number}")], durable=True)
        with pytest.raises(BusUnavailableError, match="malformed answer"):
            await store.streams()


async def test_no_answer_in_time_is_unknown(anyio_backend: str) -> None:
    async with meeting() as met:

        async def serve(stream: Stream) -> None:
            async for event in stream.events():
                await event.wait_cancelled()

        met.server.handlers.reserved[BUS_LABEL] = Entry(BUS_LABEL, serve)
        store = RemoteStore(met.peer.live, met.peer.streams, BusConfig(timeout=0.05))
        await store.open(met.client.backend)
        with pytest.raises(BusUnavailableError, match="no answer in 0"):
            await store.groups(NAME)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (CloseCode.NO_HANDLER, BusRefusedError),
        (CloseCode.NOT_AUTHORISED, BusRefusedError),
        (CloseCode.REFUSED, BusUnavailableError),
        (CloseCode.OVERLOADED, BusBusyError),
        (CloseCode.INTERNAL_ERROR, BusUnavailableError),
    ],
)
async def test_reset_raises_and_the_next_request_opens_a_stream(
    anyio_backend: str, code: CloseCode, error: type[BusError]
) -> None:
    async with between() as bus:
        handlers = bus.nodes.server.handlers
        service = handlers.reserved[BUS_LABEL]
        handlers.reserved[BUS_LABEL] = Entry(BUS_LABEL, lambda stream: _reset(stream, code))
        peer = await bus.asking()
        with pytest.raises(error) as caught:
            await peer.groups(NAME)
        assert type(caught.value) is error
        handlers.reserved[BUS_LABEL] = service
        assert await peer.groups(NAME) == []


async def _reset(stream: Stream, code: CloseCode) -> None:
    stream.reset(code)


async def test_closing_ends_waiting_requests(anyio_backend: str) -> None:
    async with between() as bus, anyio.create_task_group() as tasks:
        peer = await bus.asking()
        await peer.join(*PLACE, "0-0")
        reading = await started(tasks, lambda: peer.read(*PLACE, 1, 30.0))
        await peer.aclose()
        await eventually(lambda: bool(reading))
        assert [type(one) for one in reading] == [BusClosedError]
        for ask in (peer.streams, lambda: peer.publish([new(1)], durable=True)):
            with pytest.raises(BusClosedError):
                await ask()
        await peer.aclose()


async def test_the_end_of_the_connection_is_unknown(anyio_backend: str) -> None:
    async with between() as bus, anyio.create_task_group() as tasks:
        peer = await bus.asking()
        await peer.join(*PLACE, "0-0")
        reading = await started(tasks, lambda: peer.read(*PLACE, 1, 30.0))
        bus.nodes.back.live.drop(CloseCode.NORMAL)
        await eventually(lambda: bool(reading))
        assert [type(one) for one in reading] == [BusUnavailableError]
        with pytest.raises(BusClosedError):
            await peer.streams()
        nodes = bus.nodes
        with pytest.raises(BusClosedError):
            await RemoteStore(nodes.peer.live, nodes.peer.streams, BusConfig()).open(
                nodes.client.backend
            )


async def test_no_stream_is_free(anyio_backend: str) -> None:
    async with between(limits=Limits(max_streams=1)) as bus:
        await bus.asking()
        with pytest.raises(BusBusyError):
            await bus.asking()


async def test_excess_waiting_reads_wait(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "WAITING", 2)
    async with between() as bus, anyio.create_task_group() as tasks:
        peer = await bus.asking()
        await peer.join(*PLACE, "0-0")
        for _ in range(4):
            tasks.start_soon(peer.read, *PLACE, 1, 0.02)
        await settled()
        assert sum(crowd.waiting for crowd in bus.service.usages.values()) <= 2
        assert await peer.groups(NAME)  # Requests that do not wait overtake them.


async def test_more_requests_than_may_be_unanswered_wait(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "UNANSWERED", 2)
    monkeypatch.setattr(limits, "REQUESTS", 2)  # One more would be refused.
    async with between() as bus:
        peer = await bus.asking()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(peer.groups, NAME)


async def test_small_windows_lose_nothing(anyio_backend: str) -> None:
    small = Limits(stream_window=1_024, max_payload=1_024)
    async with between(limits=small) as bus:
        peer = await bus.asking()
        async with anyio.create_task_group() as tasks:
            for n in range(100):
                tasks.start_soon(_publish, peer, n)
        await peer.join(*PLACE, "0-0")
        seen = 0
        while seen < 100:
            found = await peer.read(*PLACE, 100, 1.0)
            seen += await peer.ack(NAME, GROUP, [one.event.id for one in found])
        assert (await bus.store.groups(NAME))[0].pending == 0


async def _publish(peer: RemoteStore, n: int) -> None:
    await peer.publish([new(n)], durable=True)


# In an application.


async def again(bus: Between) -> Any:
    """Return another connection between the same nodes."""
    peer, _ = await connect_nodes(bus.nodes.client, bus.nodes.server)
    return peer


async def test_disconnected_consumer_continues(anyio_backend: str) -> None:
    """No event is lost; unacknowledged events are redelivered with the next attempt."""
    async with between() as bus:
        config = BusConfig(consumer="worker-1")
        first = await bus.asking()
        await first.join(NAME, GROUP, "worker-1", "0-0")
        await first.publish([new(n) for n in range(6)], durable=True)
        found = await first.read(NAME, GROUP, "worker-1", 3, 0.0)
        await first.ack(NAME, GROUP, [found[0].event.id])
        bus.nodes.back.live.drop(CloseCode.NORMAL)
        await bus.nodes.peer.closed()
        await eventually(lambda: not bus.service.usages)
        seen: list[tuple[int, int]] = []
        peer = await again(bus)
        async with peer.bus(config).consume(NAME, group=GROUP, reclaim_after=60.0) as events:
            async for event in events:
                seen.append((event.data["n"], event.attempt))
                if len(seen) == 5:
                    break
        assert seen == [(1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]
        assert (await bus.store.groups(NAME))[0].pending == 0
        await peer.close()


@pytest.mark.parametrize("key", [None, "k"])
async def test_publish_outcome_is_unknown_when_the_connection_ends(
    anyio_backend: str, key: str | None
) -> None:
    """With a key it retries, but the outcome of the first attempt stays unknown."""
    async with between() as bus:
        publish = bus.store.publish

        async def cut(*arguments: Any, **options: Any) -> Any:
            answer = await publish(*arguments, **options)
            bus.nodes.back.live.drop(CloseCode.NORMAL)
            return answer

        bus.store.publish = cut
        lent = bus.nodes.peer.bus()
        with pytest.raises(BusUnavailableError, match="the connection ended: closed"):
            await lent.publish(NAME, {"n": 1}, idempotency_key=key)
        assert (await bus.store.streams())[0].length == 1
        with pytest.raises(BusClosedError, match="the connection ended: closed"):
            await lent.publish(NAME, {"n": 2}, idempotency_key=key)


async def test_end_of_the_connection_raises_in_the_consumer(anyio_backend: str) -> None:
    async with between() as bus, anyio.create_task_group() as tasks:
        lent = bus.nodes.peer.bus()
        async with lent.consume(NAME, group=GROUP) as events:
            waiting = await started(tasks, lambda: anext(events))
            bus.nodes.back.live.drop(CloseCode.NORMAL)
            await eventually(lambda: bool(waiting))
        assert isinstance(waiting[0], BusClosedError)
        assert str(waiting[0]) == "the connection ended: closed (normal)"


async def test_handler_ended_by_its_connection_is_logged(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with between() as bus:
        lent = bus.nodes.peer.bus()

        @lent.handler(NAME, group=GROUP)
        async def handle(event: BusEvent) -> None:
            """Never called."""

        await eventually(lambda: bool(bus.service.usages))
        bus.nodes.back.live.drop(CloseCode.NORMAL)
        await eventually(lambda: lent.is_closed)
    said = (
        f"stopping the handler of {NAME} for group {GROUP}: the connection ended: closed (normal)"
    )
    assert caplog.messages.count(said) == 1


async def test_a_publisher_that_reconnects_publishes_once(anyio_backend: str) -> None:
    async with between() as bus:
        await bus.offered.opened()
        first = await bus.nodes.peer.bus().publish(NAME, {"n": 1}, idempotency_key="k")
        bus.nodes.back.live.drop(CloseCode.NORMAL)
        await bus.nodes.peer.closed()
        peer = await again(bus)
        assert await peer.bus().publish(NAME, {"n": 1}, idempotency_key="k") == first
        assert (await bus.store.streams())[0].length == 1
        await peer.close()


async def test_a_bus_ends_with_its_connection(anyio_backend: str) -> None:
    async with between() as bus:
        lent = bus.nodes.peer.bus()
        await lent.publish(NAME, {"n": 1})
        another = bus.nodes.peer.bus()
        await another.aclose()
        await bus.nodes.peer.bus().publish(NAME, {"n": 2})
        bus.nodes.back.live.drop(CloseCode.NORMAL)
        await eventually(lambda: lent.is_closed)
        with pytest.raises(BusClosedError):
            await lent.publish(NAME, {"n": 3})


async def test_server_schemas_apply_to_peers(anyio_backend: str) -> None:
    async with between() as bus:
        schema = {"properties": {"n": {"type": "integer"}}}
        bus.offered.schemas.add(NAME, schema, "publish")
        lent = bus.nodes.peer.bus()
        await lent.publish(NAME, {"n": 1})
        with pytest.raises(InvalidEventError, match="'x' is not of type 'integer'"):
            await lent.publish(NAME, {"n": "x"})
