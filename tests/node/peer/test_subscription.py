"""Subscriptions as their subscriber reads them: order, batches, leaving, and what ends them."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from parley import ParleyError, TopicPosition
from parley._lbm import keys
from parley._lbm.codec import Encodable, decode, encode
from parley._lbm.errors import LbmEncodeError
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.peer import subscription
from parley._node.peer.subscription import Subscription
from parley._node.protocol.codes import (
    NOTES,
    NOTIFY,
    RESULT,
    SIM,
    UNSUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.event import Event
from parley._node.protocol.reports import Report
from parley._node.testing import ConnectedNodes
from tests.inspection import intercepted, is_sim, stream_id_of, topic_tables
from tests.node.network import eventually, meeting, settled, started

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "tcp"])
async def met(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting(transport=request.param) as met:
        yield met


def streams_open(met: ConnectedNodes) -> int:
    """How many streams are not gone, on either side."""
    sides = (met.peer.core.streams, met.back.core.streams)
    return sum(len(side.stream_table.open) for side in sides)


async def publish(topic: Topic, *notes: Encodable) -> None:
    """Publish notes in one turn."""
    for note in notes:
        await topic.publish(note)


# Reading.


async def test_notes_come_in_order_one_by_one_and_in_batches(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        await publish(topic, *range(1_000))
        assert [await anext(sub) for _ in range(10)] == list(range(10))
        got: list[Any] = []
        async for notes in sub.batches():
            assert 1 <= len(notes) <= 4_096
            got += notes
            if len(got) == 990:
                break
        assert got == list(range(10, 1_000))
        await publish(topic, "after")
        assert await anext(sub) == "after"


async def test_headers_came_with_the_last_note(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        assert sub.headers == {}
        changed: dict[str, Encodable] = {"a": 1}
        await topic.publish(1)
        await topic.publish(2, headers=changed)
        changed["a"] = 5
        await topic.publish(3, headers={})
        assert [(await anext(sub), dict(sub.headers)) for _ in range(3)] == [
            (1, {}),
            (2, {"a": 1}),
            (3, {}),
        ]
        await topic.publish(4, headers={"b": [2]})
        assert await sub.next_batch() == [4]
        assert sub.headers == {"b": [2]}


async def test_what_is_read_gives_credit_back(met: ConnectedNodes) -> None:
    """Far more than the window passes, and all credit is there again at the end."""
    topic = met.server.topic("x", patience=10)
    async with met.peer.subscribe("x", window=10_000) as sub, anyio.create_task_group() as tasks:

        async def publish_all() -> None:
            for number in range(2_000):
                await topic.publish([number, bytes(500)])

        tasks.start_soon(publish_all)
        got: list[Any] = []
        async for note in sub:
            assert isinstance(note, list)
            got.append(note[0])
            if len(got) == 2_000:
                break
        assert got == list(range(2_000))
        assert sub.dropped == 0
    assert met.peer.core.streams.unconsumed == 0


async def test_two_tasks_do_not_read_one_subscription(met: ConnectedNodes) -> None:
    met.server.topic("x")
    async with met.peer.subscribe("x") as sub, anyio.create_task_group() as tasks:
        await started(tasks, lambda: anext(sub))
        with pytest.raises(anyio.BusyResourceError):
            await anext(sub)
        with pytest.raises(anyio.BusyResourceError):
            await anext(sub.batches())
        tasks.cancel_scope.cancel()


async def test_cancelling_a_read_loses_nothing(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        for number in range(20):
            with anyio.move_on_after(0.001):
                await anext(sub)
            await topic.publish(number)
            if number % 2:
                topic.flush()
            with anyio.move_on_after(0):
                assert await anext(sub) == number
                continue
            assert await anext(sub) == number


# Beginning.


async def test_a_subscription_is_made_once(met: ConnectedNodes) -> None:
    met.server.topic("x")
    sub = met.peer.subscribe("x")
    async with sub:
        with pytest.raises(ParleyError, match=r"cannot enter the subscription to .* again"):
            await sub.__aenter__()
    with pytest.raises(ParleyError, match=r"cannot enter the subscription to .* again"):
        await sub.__aenter__()


async def test_a_subscription_under_way_is_not_made_again(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    go_on = anyio.Event()
    topic.on_subscribe(lambda request: go_on.wait())
    sub = met.peer.subscribe("x")
    async with anyio.create_task_group() as tasks:
        entered = await started(tasks, sub.__aenter__)
        with pytest.raises(ParleyError, match=r"cannot enter the subscription to .* again"):
            await sub.__aenter__()
        go_on.set()
        await eventually(lambda: bool(entered))
    assert entered == [sub]
    await sub.__aexit__(None, None, None)


@pytest.mark.parametrize("window", [0, -1, 2**31])
async def test_a_window_out_of_range(met: ConnectedNodes, window: int) -> None:
    met.server.topic("x")
    with pytest.raises(ValueError, match="window"):
        await met.peer.subscribe("x", window=window).__aenter__()
    assert len(met.peer.outgoing) == 0
    assert topic_tables(met.peer.topics)["expected"] == 0
    async with met.peer.subscribe("x", window=2**31 - 1):
        assert met.peer.is_open


@pytest.mark.parametrize(("epoch", "number"), [(b"x", 3), ("12345678", 3), (bytes(8), -1)])
async def test_a_position_that_is_none(met: ConnectedNodes, epoch: Any, number: int) -> None:
    met.server.topic("x", keep=1)
    with pytest.raises(ValueError, match="expected a TopicPosition"):
        await met.peer.subscribe("x", after=TopicPosition(epoch, number)).__aenter__()
    assert topic_tables(met.peer.topics)["expected"] == 0


async def test_data_without_an_encoding(met: ConnectedNodes) -> None:
    with pytest.raises(LbmEncodeError):
        await met.peer.subscribe("x", {1, 2}).__aenter__()  # type: ignore[call-overload]  # the test
    assert topic_tables(met.peer.topics)["expected"] == 0


async def test_on_a_connection_that_is_over(met: ConnectedNodes) -> None:
    met.server.topic("x")
    await met.peer.close()
    with pytest.raises(PeerClosedError):
        await met.peer.subscribe("x").__aenter__()


async def test_a_connection_that_dies_while_subscribing(met: ConnectedNodes) -> None:
    met.server.topic("x").on_subscribe(lambda request: anyio.sleep_forever())
    async with anyio.create_task_group() as tasks:
        entered = await started(tasks, met.peer.subscribe("x").__aenter__)
        await met.back.close(CloseCode.OVERLOADED)
        await eventually(lambda: bool(entered))
    (error,) = entered
    assert isinstance(error, PeerClosedError)
    assert error.code == CloseCode.OVERLOADED
    assert topic_tables(met.peer.topics)["expected"] == 0


# Leaving.


async def test_leaving_tells_the_publisher_and_frees_the_stream(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        await publish(topic, 1, 2, 3)
        assert streams_open(met) == 2
        async for note in sub:
            assert note == 1
            break
    assert topic.subscribers == []
    await eventually(lambda: streams_open(met) == 0)
    assert topic_tables(met.peer.topics)["readers"] == 0
    assert met.peer.core.streams.unconsumed == 0
    with pytest.raises(anyio.ClosedResourceError):
        await anext(sub)
    with pytest.raises(anyio.ClosedResourceError):
        await sub.next_batch()
    await sub.__aexit__(None, None, None)  # Repeating it has no effect.


async def test_a_publisher_that_never_finishes_is_not_waited_for(
    met: ConnectedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream is reset after a while: further notes have no cost."""
    monkeypatch.setattr(subscription, "LEAVE_TIMEOUT", 0.05)
    topic = met.server.topic("t")
    with intercepted(met.back, is_sim(UNSUBSCRIBE)):
        async with met.peer.subscribe("t"):
            assert len(topic.subscribers) == 1
    await eventually(lambda: not topic.subscribers)
    # The publisher's end closes with its subscriber. The local end closes when the answering Reset
    # arrives: one flush of the publisher and one read later.
    assert not met.back.core.streams.stream_table.open
    await eventually(lambda: streams_open(met) == 0)


async def test_leaving_ends_a_read_in_another_task(met: ConnectedNodes) -> None:
    met.server.topic("x")
    async with anyio.create_task_group() as tasks:
        async with met.peer.subscribe("x") as sub:
            reading = await started(tasks, lambda: anext(sub))
        await eventually(lambda: bool(reading))
    assert isinstance(reading[0], anyio.ClosedResourceError)


async def test_an_exception_leaves_without_waiting(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    with pytest.raises(KeyError):
        async with met.peer.subscribe("x"):
            raise KeyError
    await eventually(lambda: not topic.subscribers)
    await eventually(lambda: streams_open(met) == 0)


async def test_cancellation_leaves(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    with anyio.move_on_after(0.02):
        async with met.peer.subscribe("x") as sub:
            await anext(sub)
    await eventually(lambda: not topic.subscribers and streams_open(met) == 0)
    async with met.peer.subscribe("x") as sub:
        await topic.publish("new")
        assert await anext(sub) == "new"


async def test_cancelling_at_every_await_leaves_the_connection_usable(met: ConnectedNodes) -> None:
    """However far subscribing, reading and leaving came when it was cancelled."""
    topic = met.server.topic("x")
    for turns in range(25):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel(scope: anyio.CancelScope = scope, turns: int = turns) -> None:
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                tasks.start_soon(cancel)
                async with met.peer.subscribe("x") as sub:
                    await topic.publish(turns)
                    assert await anext(sub) == turns
        await eventually(lambda: not topic.subscribers and streams_open(met) == 0)
        await eventually(lambda: len(met.peer.outgoing) == 0)
    async with met.peer.subscribe("x") as sub:
        await topic.publish("usable")
        assert await anext(sub) == "usable"


# Requests on a subscription, and notes by other ways.


class Raw:
    """A publisher's stream, by hand: what our publisher never sends."""

    def __init__(self, met: ConnectedNodes, sub: Subscription) -> None:
        self.met = met
        self.stream = stream_id_of(sub)

    def send(
        self,
        cells: dict[int, Encodable] | bytes,
        async_id: int = 0,
        *,
        stream: int | None = None,
        subcategory: int = NOTIFY,
    ) -> None:
        payload = cells if isinstance(cells, bytes) else encode(cells)
        where = self.stream if stream is None else stream
        self.met.back.core.send(where, async_id, SIM, subcategory, payload)

    async def ask(self, cells: dict[int, Encodable] | bytes, stream: int | None = None) -> int:
        """The code that answers a Notify."""
        codes: list[int] = []

        def keep(event: Report) -> None:
            assert isinstance(event, Event)
            code = decode(event.payload)[keys.CODE]
            assert isinstance(code, int)
            codes.append(code)

        with intercepted(self.met.back, is_sim(RESULT), keep):
            self.send(cells, 9, stream=stream)
            await eventually(lambda: bool(codes))
        return codes[0]


async def test_notify_that_wants_an_answer(met: ConnectedNodes) -> None:
    met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        raw = Raw(met, sub)
        for stream in (None, 1):
            cells: dict[int, Encodable] = {keys.DATA: 5, keys.TOPIC: "x"}
            assert await raw.ask(cells, stream) == ResultCode.ACCEPTED
            assert await anext(sub) == 5
            assert await raw.ask(b"junk", stream) == ResultCode.MALFORMED
            assert await raw.ask({keys.HEADERS: 5}, stream) == ResultCode.MALFORMED
            assert await raw.ask({keys.TOPIC: 5}, stream) == ResultCode.MALFORMED
        assert await raw.ask({keys.DATA: 6}) == ResultCode.ACCEPTED
        assert await anext(sub) == 6
        assert await raw.ask({keys.DATA: 6}, 1) == ResultCode.NOT_SUBSCRIBED
        assert await raw.ask({keys.TOPIC: "y"}, 1) == ResultCode.NOT_SUBSCRIBED
        assert len(sub.inbox) == 0


async def test_notes_on_stream_1_are_bounded(met: ConnectedNodes) -> None:
    met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        raw = Raw(met, sub)
        cells: dict[int, Encodable] = {keys.DATA: bytes(100_000), keys.TOPIC: "x"}
        codes = [await raw.ask(cells, 1) for _ in range(4)]
        assert codes == [0, 0, ResultCode.OVERLOADED, ResultCode.OVERLOADED]
        dropped = met.peer.dropped
        raw.send(cells, stream=1)
        await eventually(lambda: met.peer.dropped == dropped + 1)
        for _ in range(2):
            assert await anext(sub) == bytes(100_000)
        assert await raw.ask(cells, 1) == ResultCode.ACCEPTED


async def test_notes_on_a_stream_of_something_else_use_its_credit(met: ConnectedNodes) -> None:
    met.server.topic("x")
    met.client.on_stream("bytes")(lambda stream: anyio.sleep_forever())
    async with met.peer.subscribe("x") as sub:
        raw = Raw(met, sub)
        stream = met.back.core.open_stream("bytes")
        await settled()
        left = met.back.core.streams.stream_table.open[stream_id_of(sub)].credit.left
        for number in range(300):
            raw.send({keys.DATA: [number, bytes(1_000)], keys.TOPIC: "x"}, stream=stream)
            note = await anext(sub)
            assert isinstance(note, list)
            assert note[0] == number
        await settled()
        assert met.back.core.streams.stream_table.open[stream_id_of(sub)].credit.left == left
        assert met.peer.core.streams.unconsumed == 0
        assert met.peer.is_open


async def test_malformed_notes_are_dropped_and_the_rest_is_read(met: ConnectedNodes) -> None:
    met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        raw = Raw(met, sub)
        for payload in (b"junk", b"", encode({keys.NOTES: 5})):
            raw.send(payload, subcategory=NOTES)
        raw.send({keys.NOTES: [0] * 4_097}, subcategory=NOTES)
        raw.send({keys.NOTES: []}, subcategory=NOTES)
        raw.send({keys.HEADERS: []})
        raw.send({keys.NOTES: [1] * 4_096}, 77, subcategory=NOTES)
        assert await sub.next_batch() == [1] * 4_096
        assert sub.inbox.malformed == 5
        assert met.peer.is_open


async def test_a_reset_by_the_publisher(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        await topic.publish(1)
        await settled()
        met.back.core.reset_stream(stream_id_of(sub), 99, "enough")
        assert await anext(sub) == 1
        with pytest.raises(StreamResetError, match="enough") as caught:
            await anext(sub)
        assert caught.value.code == 99
    await eventually(lambda: streams_open(met) == 0)
    assert met.peer.is_open


async def test_refused_after_a_reset_is_not_a_double_subscription(met: ConnectedNodes) -> None:
    """The publisher forgets a subscription with its stream."""
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        met.peer.topics.abandon(stream_id_of(sub))
        await eventually(lambda: not topic.subscribers)
        async with met.peer.subscribe("x") as again:
            await topic.publish(1)
            assert await anext(again) == 1


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_whoever_gave_up_subscribing_may_subscribe_again_at_once(
    met: ConnectedNodes, turns: int
) -> None:
    """The one that was given up may be accepted before its Cancel comes."""
    topic = met.server.topic("x")

    async def subscribe() -> None:
        async with met.peer.subscribe("x"):
            await anyio.sleep_forever()

    for _ in range(3):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(subscribe)
                for _ in range(turns):
                    await anyio.lowlevel.cancel_shielded_checkpoint()
                scope.cancel()
    async with met.peer.subscribe("x") as sub:
        await topic.publish("note")
        assert await anext(sub) == "note"
    await eventually(lambda: streams_open(met) == 0)
    assert topic_tables(met.peer.topics)["given up"] == 0


async def test_a_second_one_that_is_given_up_leaves_the_first_alone(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    async with met.peer.subscribe("x") as sub:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(met.peer.subscribe("x").__aenter__)
                await anyio.lowlevel.cancel_shielded_checkpoint()
                scope.cancel()
        await met.peer.ping()
        await topic.publish("note")
        assert await anext(sub) == "note"
