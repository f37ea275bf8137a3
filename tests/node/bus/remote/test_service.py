"""Peers that send invalid or too many requests on raw streams."""

from typing import Any

import anyio
import pytest

from parley._lbm.codec import encode
from parley._node.bus.config import BusConfig
from parley._node.bus.data import encode_body
from parley._node.bus.errors import (
    BusBusyError,
    BusClosedError,
    BusDamagedError,
    BusError,
    BusFullError,
    BusRefusedError,
    BusUnavailableError,
)
from parley._node.bus.identifiers import parse_id
from parley._node.bus.model import NewEvent
from parley._node.bus.remote import limits
from parley._node.bus.remote.messages import (
    REQUESTS,
    Ack,
    Bury,
    EventRow,
    Join,
    ListStreams,
    Nack,
    Own,
    Publish,
    Read,
    ReadHistory,
    Release,
    Touch,
    encode_request,
)
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.protocol.codes import BUS, BusType, CloseCode, ResultCode
from parley._node.protocol.limits import Limits
from tests.node.bus.model_store import ModelStore
from tests.node.bus.remote.offered import (
    GROUP,
    NAME,
    Between,
    ask,
    ask_raw,
    between,
    given,
    new,
)
from tests.node.network import eventually, meeting, settled, started

pytestmark = pytest.mark.anyio

JOIN = Join(NAME, GROUP, "c", "0-0")


def wait(seconds: float = 30.0, name: str = NAME) -> Read:
    return Read(name, GROUP, "c", 10, seconds)


async def held(bus: Between) -> list[str]:
    """Return the events that are pending with a consumer."""
    found = await bus.store.pending(NAME, GROUP, 100, "0-0")
    return [one.id for one in found if one.due_in is None]


# Malformed requests.


async def test_malformed_requests_are_answered(anyio_backend: str) -> None:
    async with between() as bus:
        stream = bus.stream()
        for kind in (1, 23, 255, *REQUESTS):
            for payload in (b"", b"\xff", b"\xa0\x00", encode({26: 1, 42: 1}), encode({300: 1})):
                if kind == BusType.STREAMS and payload in (b"", encode({300: 1})):
                    continue  # It requests all streams.
                assert (await ask_raw(stream, kind, payload)).code == ResultCode.MALFORMED
        assert (await ask(stream, ListStreams())).code == ResultCode.ACCEPTED


async def test_events_that_are_no_requests_are_dropped(
    anyio_backend: str,
) -> None:
    async with between() as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        back = bus.nodes.back
        number, payload = encode_request(given())
        core = bus.nodes.peer.core
        for category, async_id in ((BUS, 0), (64, 0), (64, 9)):
            core.send(stream.id, async_id, category, number, payload)
        core.send_data(stream.id, b"bytes")
        core.send(1, 5, BUS, number, payload)  # The main stream.
        other = bus.nodes.peer.open_stream("anything")
        core.send(other.id, 0, BUS, number, payload)
        await eventually(lambda: back.dropped == 6)
        assert (await bus.store.streams())[0].length == 0
        assert (await ask(stream, given())).code == ResultCode.ACCEPTED


async def test_client_serves_no_requests(anyio_backend: str) -> None:
    """Requests and bytes from a server to a client are ignored."""
    async with between() as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        back, (number, payload) = bus.nodes.back, encode_request(given())
        back.core.send(stream.id, 7, BUS, number, payload)
        back.core.send_data(stream.id, b"bytes")
        await eventually(lambda: bus.nodes.peer.dropped == 2)


async def test_a_node_without_a_bus_has_no_handler_for_it(anyio_backend: str) -> None:
    async with meeting() as met:

        @met.server.on_stream("*")
        async def anything(stream: Any) -> None:
            raise AssertionError("no pattern stands for the bus")

        with pytest.raises(StreamResetError) as caught:
            await ask(met.peer.streams.open_bus(), ListStreams())
        assert caught.value.code == CloseCode.NO_HANDLER


# Limits.


async def test_one_stream_too_many_is_reset(anyio_backend: str) -> None:
    async with between() as bus:
        streams = [bus.stream() for _ in range(limits.STREAMS)]
        for stream in streams:
            assert (await ask(stream, ListStreams())).code == 0
        with pytest.raises(StreamResetError) as caught:
            await ask(bus.stream(), ListStreams())
        assert caught.value.code == CloseCode.OVERLOADED
        await streams[0].aclose()
        crowds = bus.service.usages
        await eventually(lambda: [one.streams for one in crowds.values()] == [3])
        assert (await ask(bus.stream(), ListStreams())).code == 0


async def test_excess_waiting_reads_are_refused(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WAITING_READS", 2)
    async with between() as bus, anyio.create_task_group() as tasks:
        first, second = bus.stream(), bus.stream()
        await ask(first, JOIN)
        tasks.start_soon(ask, first, wait())
        tasks.start_soon(ask, second, ReadHistory(NAME, 1, "$", None, 30.0))
        await eventually(lambda: _waiting(bus) == 2)
        for stream in (first, second):  # The limit applies to the connection.
            assert (await ask(stream, wait())).code == ResultCode.OVERLOADED
        assert (await ask(first, wait(0.0))).code == ResultCode.ACCEPTED
        tasks.cancel_scope.cancel()


def _waiting(bus: Between) -> int:
    return sum(crowd.waiting for crowd in bus.service.usages.values())


async def test_excess_unanswered_requests_are_refused(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REQUESTS", 3)
    async with between() as bus, anyio.create_task_group() as tasks:
        stream = bus.stream()
        await ask(stream, JOIN)
        for _ in range(3):
            tasks.start_soon(ask, stream, wait())
        await eventually(lambda: _waiting(bus) == 3)
        assert (await ask(stream, ListStreams())).code == ResultCode.OVERLOADED
        tasks.cancel_scope.cancel()


async def test_reading_pauses_above_the_size_limit(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender runs out of credit, and continues as soon as the store does."""
    monkeypatch.setattr(limits, "IN_HAND", 2_000)
    store = Slow()
    async with between(store=store, limits=Limits(stream_window=2_048)) as bus:
        stream = bus.stream()
        body = encode_body({"x": "x" * 900}, 10_000)
        async with anyio.create_task_group() as tasks:
            done: list[int] = []

            async def publish() -> None:
                done.append((await ask(stream, given(body=body))).code)

            for _ in range(12):
                tasks.start_soon(publish)
            await eventually(lambda: store.publishing >= 2)
            await settled()
            assert store.publishing == 3  # The third request exceeded the limit.
            store.authoriser.set()
        assert done == [0] * 12


class Slow(ModelStore):
    """A store that publishes only when permitted."""

    def __init__(self) -> None:
        super().__init__(BusConfig())
        self.publishing = 0
        self.authoriser = anyio.Event()

    async def publish(self, events: Any, *, durable: bool) -> Any:
        self.publishing += 1
        await self.authoriser.wait()
        return await super().publish(events, durable=durable)


@pytest.mark.pure
async def test_answers_stop_when_the_peer_does_not_read(
    anyio_backend: str,
) -> None:
    """Events that it requested and that were not sent return to the group when it disconnects."""
    async with between(limits=Limits(stream_window=1_024)) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        body = encode_body({"x": "x" * 9_000}, 10_000)
        await bus.store.publish([NewEvent(NAME, {}, body)] * 20, durable=True)
        core, (number, payload) = bus.nodes.peer.core, encode_request(Read(NAME, GROUP, "c", 1))
        bus.nodes.peer.core.consume = lambda *_: None  # type: ignore[method-assign]
        for async_id in range(100, 112):
            core.send(stream.id, async_id, BUS, number, payload)
        await eventually(lambda: len(bus.store.table[NAME].groups[GROUP].pending) == 12)
        await settled()
        assert len(await held(bus)) == 12
        bus.nodes.peer.live.drop(CloseCode.NORMAL)
        await eventually(lambda: not bus.service.usages)
        # Events in queued answers stay pending until another consumer claims them.
        assert 1 <= len(await held(bus)) < 9


async def test_answer_size_follows_the_connection(anyio_backend: str) -> None:
    small = Limits(max_payload=1_024)
    async with between(limits=small) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        body = encode_body({"x": "x" * 300}, 1_000)
        await bus.store.publish([NewEvent(NAME, {}, body)] * 9, durable=True)
        seen: list[str] = []
        while len(seen) < 9:
            answer = await ask(stream, Read(NAME, GROUP, "c", 9))
            assert answer.rows
            assert len(answer.rows) <= 3
            seen += [row[0] for row in answer.rows]
        assert seen == sorted(set(seen), key=parse_id)
        assert (await ask(stream, Ack(NAME, GROUP, seen[:5]))).number == 5


# Cancellation, and the end of a stream.


async def test_cancel_ends_a_read_on_the_server(anyio_backend: str) -> None:
    async with between() as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        with anyio.move_on_after(0.05):
            await ask(stream, wait())
        await eventually(lambda: _waiting(bus) == 0)
        await bus.store.publish([new(1)], durable=True)
        answer = await ask(stream, Read(NAME, GROUP, "c", 1))
        assert [row[5] for row in answer.rows or []] == [1]


async def test_events_are_released_if_cancel_arrives_with_the_answer(anyio_backend: str) -> None:
    """The store answers and Cancel arrives at the same moment: no attempt is counted."""
    store = LateStore()
    async with between(store=store) as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        await store.publish([new(1)], durable=True)
        with anyio.move_on_after(0.05):
            await ask(stream, Read(NAME, GROUP, "c", 1))
        await anyio.sleep(0.02)  # Time for Cancel to arrive.
        store.authoriser.set()
        await eventually(lambda: store.released == 1)
        answer = await ask(stream, Read(NAME, GROUP, "c", 1, 0.01))
        assert answer.rows == []
        claimed = await store.claim(NAME, GROUP, "another", 1, 1_000.0)
        assert [one.attempt for one in claimed] == [1]


class LateStore(ModelStore):
    """A store that cannot be cancelled once it has fetched the events."""

    def __init__(self) -> None:
        super().__init__(BusConfig())
        self.authoriser = anyio.Event()
        self.released = 0

    async def read(self, *arguments: Any) -> Any:
        found = await super().read(*arguments)
        with anyio.CancelScope(shield=True):
            await self.authoriser.wait()
        return found

    async def release(self, *arguments: Any) -> None:
        self.released += 1
        await super().release(*arguments)


@pytest.mark.parametrize("end", ["finish", "reset", "close", "cut"])
async def test_the_end_of_a_stream_ends_its_reads(anyio_backend: str, end: str) -> None:
    async with between() as bus, anyio.create_task_group() as tasks:
        stream = bus.stream()
        await ask(stream, JOIN)
        outcome = await started(tasks, lambda: ask(stream, wait(), 30.0))
        await eventually(lambda: _waiting(bus) == 1)
        match end:
            case "finish":
                await stream.send_eof()
            case "reset":
                stream.reset()
            case "close":
                await bus.nodes.peer.close()
            case _:
                bus.nodes.peer.live.drop(CloseCode.NORMAL)
        await eventually(lambda: not bus.service.usages)
        await eventually(lambda: bool(outcome))
        # The server still answers before its own Finish.
        if end == "finish":
            assert getattr(outcome[0], "code", None) == ResultCode.CANCELLED
        else:
            assert isinstance(outcome[0], anyio.ClosedResourceError | PeerClosedError)
        await bus.store.publish([new(1)], durable=True)
        assert len(await bus.store.read(NAME, GROUP, "another", 10, 0.0)) == 1


async def test_own_returns_events_of_an_ended_stream(anyio_backend: str) -> None:
    async with between() as bus:
        first = bus.stream()
        await ask(first, JOIN)
        await bus.store.publish([new(n) for n in range(3)], durable=True)
        rows = (await ask(first, Read(NAME, GROUP, "c", 3))).rows or []
        ids = [row[0] for row in rows]
        await ask(first, Ack(NAME, GROUP, ids[:1]))
        first.reset()
        await eventually(lambda: not bus.service.usages)
        second = bus.stream()
        await ask(second, JOIN)
        # It was not delivered on this stream, so it is not acknowledged there.
        assert (await ask(second, Ack(NAME, GROUP, ids))).number == 0
        for expected in (ids[1], ids[2]):
            ((id, *_, attempt),) = (await ask(second, Own(NAME, GROUP, "c", 1))).rows or []
            assert (id, attempt) == (expected, 2)
        assert (await ask(second, Own(NAME, GROUP, "c", 1))).rows == []
        assert (await ask(second, Ack(NAME, GROUP, ids))).number == 2


# Events of other peers.


async def test_peer_cannot_use_consumers_of_another_peer(anyio_backend: str) -> None:
    async with between() as bus:
        stream = bus.stream()
        await ask(stream, JOIN)
        await bus.store.join(NAME, GROUP, "c", "0-0")
        await bus.store.publish([new(1)], durable=True)
        ((event, _),) = await bus.store.read(NAME, GROUP, "c", 1, 0.0)
        assert {one.name for one in await bus.store.consumers(NAME, GROUP)} == {
            "c",
            bus.prefix + "c",
        }
        assert (await ask(stream, Ack(NAME, GROUP, [event.id]))).number == 0
        assert (await ask(stream, Nack(NAME, GROUP, "c", event.id, 0.0, "no"))).number == 0
        assert (await ask(stream, Bury(NAME, GROUP, "c", event.id, "no"))).ids == []
        for request in (Release(NAME, GROUP, "c", [event.id]), Touch(NAME, GROUP, "c", [event.id])):
            assert (await ask(stream, request)).code == 0
        (pending,) = await bus.store.pending(NAME, GROUP, 1, "0-0")
        assert (pending.consumer, pending.attempt, pending.due_in) == ("c", 1, None)


# Errors of the store.


class Failing(ModelStore):
    """A store that raises the given error."""

    def __init__(self) -> None:
        super().__init__(BusConfig())
        self.error: Exception = BusError("secret")

    async def publish(self, events: Any, *, durable: bool) -> Any:
        raise self.error

    async def read(self, *arguments: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BusUnavailableError, ResultCode.DEADLINE_EXCEEDED),
        (BusClosedError, ResultCode.DEADLINE_EXCEEDED),
        (BusBusyError, ResultCode.OVERLOADED),
        (BusRefusedError, ResultCode.NOT_AUTHORISED),
        (BusFullError, ResultCode.STORE_FULL),
        (BusDamagedError, ResultCode.STORE_DAMAGED),
        (BusError, ResultCode.HANDLER_FAILED),
        (RuntimeError, ResultCode.HANDLER_FAILED),
    ],
)
async def test_an_error_of_the_store_is_a_code_without_details(
    anyio_backend: str, error: type[Exception], code: ResultCode
) -> None:
    store = Failing()
    store.error = error("secret")  # A new error each time, because an error keeps its traceback.
    async with between(store=store) as bus:
        stream = bus.stream()
        for request in (given(), Read(NAME, GROUP, "c", 1)):
            answer = await ask(stream, request)
            assert (answer.code, answer.text) == (code, "")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("[]", "not an object"),
        ("{", "not JSON"),
        ('{"a":' + 5_000 * "9" + "}", "not JSON: an integer has more than 4,300 digits"),
        ('{"a":NaN}', "not JSON"),
        ('{"a":"\\ud800"}', "not Unicode"),
        ('{"a":"' + "x" * 100 + '"}', "max_event_bytes"),
    ],
)
async def test_invalid_data_is_refused(anyio_backend: str, body: str, text: str) -> None:
    async with between(bus=BusConfig(max_event_bytes=64)) as bus:
        answer = await ask(bus.stream(), Publish([EventRow(NAME, body, None, 1)]))
        assert answer.code == ResultCode.INVALID_EVENT
        assert text in answer.text


async def test_published_data_is_reencoded(anyio_backend: str) -> None:
    async with between() as bus:
        await ask(bus.stream(), Publish([EventRow(NAME, ' { "a" : 1.0 } ', "key", 3)]))
        (event,) = await bus.store.history(NAME, "0-0", None, 1, 0.0)
        assert (event.body, event.key, event.version) == ('{"a":1.0}', "key", 3)
