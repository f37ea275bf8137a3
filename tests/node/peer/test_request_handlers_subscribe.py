"""What becomes of a Subscribe: accepted, with first data, or one of the codes of section 9."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from parley import CallRefused, Peer
from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.errors import CallTimeout, SubscribeRefused
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.messaging.call_codec import encode_result
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.protocol.codes import (
    CANCEL,
    SIM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ResultCode,
    Supercategory,
)
from parley._node.protocol.event import Event
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import Report
from parley._node.testing import ConnectedNodes
from tests.inspection import intercepted, is_sim, topic_tables
from tests.node.network import eventually, meeting, started

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "tcp"])
async def met(request: pytest.FixtureRequest, anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting(transport=request.param) as met:
        yield met


async def refused(peer: Peer, topic: str = "x", data: Any = None) -> CallRefused:
    """How a subscription is refused."""
    with pytest.raises(CallRefused) as caught:
        await peer.subscribe(topic, data).__aenter__()
    return caught.value


def nothing_there(met: ConnectedNodes, topic: Topic) -> bool:
    """Whether neither side has anything of a subscription."""
    ours, theirs = met.peer.topics, met.back.topics
    return not (
        topic.subscribers
        or any(topic_tables(theirs).values())
        or any(topic_tables(ours).values())
        or met.peer.core.streams.windows
        or met.peer.core.streams.stream_table.open
        or met.back.core.streams.stream_table.open
    )


# Accepted.


@pytest.mark.parametrize("data", [None, 0, {"price": 5}, [1, "two"], b"", False])
async def test_first_data_comes_with_the_acceptance(met: ConnectedNodes, data: Any) -> None:
    topic = met.server.topic("x")
    asked = []

    @topic.on_subscribe
    async def accept(request: SubscribeRequest) -> Any:
        await anyio.lowlevel.checkpoint()
        asked.append((request.topic, request.data, request.peer))
        assert repr(request) == f"<SubscribeRequest 'x' from {met.back}>"
        return data

    async with met.peer.subscribe("x", ["please"]) as sub:
        assert sub.data == data
        assert type(sub.data) is type(data)
        assert asked == [("x", ["please"], met.back)]
        await topic.publish(1)
        assert await anext(sub) == 1


async def test_a_handler_need_not_be_async(met: ConnectedNodes) -> None:
    met.server.topic("x").on_subscribe(lambda request: [request.data, "yes"])
    async with met.peer.subscribe("x", 5) as sub:
        assert sub.data == [5, "yes"]


async def test_one_handler_for_many_topics(met: ConnectedNodes) -> None:
    for name in ("prices.eur", "prices.usd", "news"):
        met.server.topic(name)

    @met.server.on_subscribe("prices.*")
    async def accept(request: SubscribeRequest) -> str:
        return request.topic.upper()

    async with met.peer.subscribe("prices.eur") as one, met.peer.subscribe("prices.usd") as two:
        assert (one.data, two.data) == ("PRICES.EUR", "PRICES.USD")
    async with met.peer.subscribe("news") as sub:
        assert sub.data is None


async def test_notes_published_while_it_is_decided_are_not_for_it(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")

    @topic.on_subscribe
    async def accept(request: SubscribeRequest) -> None:
        await topic.publish("too early")
        await anyio.lowlevel.checkpoint()

    async with met.peer.subscribe("x") as sub:
        await topic.publish("in time")
        assert await anext(sub) == "in time"


async def test_both_sides_subscribe_to_each_other(met: ConnectedNodes) -> None:
    ours, theirs = met.client.topic("x"), met.server.topic("x")
    async with met.peer.subscribe("x") as from_server, met.back.subscribe("x") as from_client:
        await ours.publish("of the client")
        await theirs.publish("of the server")
        assert await anext(from_client) == "of the client"
        assert await anext(from_server) == "of the server"


# Refused, with each code.


async def test_1_no_such_topic(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    for name in ("", "y", "x.y", "X", "topic:x"):
        error = await refused(met.peer, name)
        assert (error.code, error.data) == (ResultCode.TOPIC_NOT_FOUND, None)
    assert nothing_there(met, topic)


async def test_2_subscribed_already(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", keep=1)
    async with met.peer.subscribe("x") as sub:
        error = await refused(met.peer)
        assert (error.code, error.data) == (ResultCode.ALREADY_SUBSCRIBED, None)
        assert not isinstance(error, SubscribeRefused)
        await topic.publish("still here")
        assert await anext(sub) == "still here"
        assert len(topic.subscribers) == 1
    await eventually(lambda: nothing_there(met, topic))


async def test_2_two_subscribes_under_way_at_once(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    go_on = anyio.Event()

    @topic.on_subscribe
    async def accept(request: SubscribeRequest) -> Any:
        await go_on.wait()
        return request.data

    first, second = met.peer.subscribe("x", 1), met.peer.subscribe("x", 2, window=1_024)
    async with anyio.create_task_group() as tasks:
        one = await started(tasks, first.__aenter__)
        two = await started(tasks, second.__aenter__)
        go_on.set()
        await eventually(lambda: bool(one and two))
    (outcome,) = [got for got in (*one, *two) if isinstance(got, Exception)]
    assert isinstance(outcome, CallRefused)
    assert outcome.code == ResultCode.ALREADY_SUBSCRIBED
    sub = first if one == [first] else second
    await topic.publish(bytes(3_000))
    await topic.publish("for the one")
    assert await anext(sub) == bytes(3_000)
    assert await anext(sub) == "for the one"
    await sub.__aexit__(None, None, None)
    await eventually(lambda: nothing_there(met, topic))


@pytest.mark.parametrize("data", [None, "full", {"until": 5}])
async def test_3_rejected_with_data(met: ConnectedNodes, data: Any) -> None:
    topic = met.server.topic("x")

    @topic.on_subscribe
    async def reject(request: SubscribeRequest) -> None:
        raise SubscribeRefused(data)

    error = await refused(met.peer)
    assert isinstance(error, SubscribeRefused)
    assert (error.code, error.data) == (ResultCode.REJECTED, data)
    assert nothing_there(met, topic)


@pytest.mark.parametrize("answer", [{1, 2}, 2**64, "\ud800"])
async def test_16_first_data_without_an_encoding(met: ConnectedNodes, answer: Any) -> None:
    topic = met.server.topic("x")
    topic.on_subscribe(lambda request: answer)
    error = await refused(met.peer)
    assert (error.code, error.data) == (ResultCode.HANDLER_FAILED, "the handler failed")
    assert nothing_there(met, topic)


async def test_16_a_handler_that_fails(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    topic = met.server.topic("x")

    @topic.on_subscribe
    async def fail(request: SubscribeRequest) -> None:
        raise ValueError("a secret of the server")

    error = await refused(met.peer)
    assert (error.code, error.data) == (ResultCode.HANDLER_FAILED, "the handler failed")
    assert "a secret of the server" in caplog.text
    assert nothing_there(met, topic)


async def test_16_a_refusal_that_the_handler_met_itself(met: ConnectedNodes) -> None:
    @met.server.topic("x").on_subscribe
    async def ask(request: SubscribeRequest) -> Any:
        return await request.peer.call("nobody")

    assert (await refused(met.peer)).code == ResultCode.HANDLER_FAILED


async def test_16_a_rejection_with_data_that_has_no_encoding(met: ConnectedNodes) -> None:
    @met.server.topic("x").on_subscribe
    def reject(request: SubscribeRequest) -> None:
        raise SubscribeRefused({1, 2})

    assert (await refused(met.peer)).code == ResultCode.HANDLER_FAILED


async def test_17_and_18_no_answer_in_time(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    stopped = []

    @topic.on_subscribe
    async def hold(request: SubscribeRequest) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(request.data)

    with pytest.raises(CallTimeout):
        await met.peer.subscribe("x", 1, timeout=0.02).__aenter__()
    await eventually(lambda: stopped == [1])
    with anyio.move_on_after(0.02):
        await met.peer.subscribe("x", 2).__aenter__()
    await eventually(lambda: stopped == [1, 2])
    await eventually(lambda: nothing_there(met, topic))
    assert len(met.peer.outgoing) == 0


async def test_19_no_stream_is_free() -> None:
    async with meeting(limits=Limits(max_streams=1)) as met:
        first, second = met.server.topic("x"), met.server.topic("y")
        async with met.peer.subscribe("x") as sub:
            assert (await refused(met.peer, "y")).code == ResultCode.OVERLOADED
            assert second.subscribers == []
            await first.publish(1)
            assert await anext(sub) == 1
        await eventually(lambda: nothing_there(met, first))
        async with met.peer.subscribe("y"):
            assert len(second.subscribers) == 1


async def test_19_a_node_that_is_closing(met: ConnectedNodes) -> None:
    met.server.topic("x")
    met.back.live.draining = True
    assert (await refused(met.peer)).code == ResultCode.OVERLOADED
    assert (await refused(met.peer, "y")).code == ResultCode.TOPIC_NOT_FOUND


async def test_20_not_allowed(met: ConnectedNodes) -> None:
    topic = met.server.topic("x", allow=["reader"])
    asked = []
    topic.on_subscribe(lambda request: asked.append(request.data))
    assert (await refused(met.peer)).code == ResultCode.NOT_AUTHORISED
    assert asked == []
    assert nothing_there(met, topic)
    met.server.roles.assign(met.client.node_id, "reader")
    async with met.peer.subscribe("x"):
        assert asked == [None]


async def test_21_first_data_that_is_too_large() -> None:
    async with meeting(limits=Limits(max_payload=4_096)) as met:
        topic = met.server.topic("x")
        topic.on_subscribe(lambda request: bytes(int(str(request.data))))
        assert (await refused(met.peer, data=4_090)).code == ResultCode.PAYLOAD_TOO_LARGE
        assert nothing_there(met, topic)
        for size in (4_050, 4_061):
            async with met.peer.subscribe("x", size) as sub:
                assert sub.data == bytes(size)


async def test_22_wrong_supercategory(met: ConnectedNodes) -> None:
    met.server.topic("x", supercategories=[Supercategory.CLIENT_TO_SERVER])
    met.server.topic("y")
    met.server.on_subscribe("y", supercategories=[Supercategory.SERVER_TO_CLIENT])(lambda r: None)
    for name in ("x", "y"):
        assert (await refused(met.peer, name)).code == ResultCode.WRONG_SUPERCATEGORY


async def test_23_malformed(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    outcome = await asked_raw(met.peer, SUBSCRIBE, b"junk")
    assert outcome == ResultCode.MALFORMED
    assert nothing_there(met, topic)


async def asked_raw(peer: Peer, subcategory: int, payload: bytes) -> int:
    """The code that answers a request of our own making."""
    codes: list[int] = []
    call = peer.outgoing.ask(OutgoingCall(lambda: None), SIM, subcategory, payload, 0.0, None)
    call.on_final = lambda code, stream: codes.append(code)
    await eventually(lambda: bool(codes))
    return codes[0]


# Unsubscribe.


async def test_unsubscribe_of_what_is_not_subscribed(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    for name, expected in (("x", ResultCode.NOT_SUBSCRIBED), ("y", ResultCode.TOPIC_NOT_FOUND)):
        payload = encode({keys.TOPIC: name})
        assert await asked_raw(met.peer, UNSUBSCRIBE, payload) == expected
    assert await asked_raw(met.peer, UNSUBSCRIBE, b"junk") == ResultCode.MALFORMED
    assert nothing_there(met, topic)


# Who vanishes while it is decided.


async def test_a_peer_that_dies_while_it_is_decided(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    stopped = []

    @topic.on_subscribe
    async def hold(request: SubscribeRequest) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(1)

    async with anyio.create_task_group() as tasks:
        await started(tasks, met.peer.subscribe("x").__aenter__)
        await met.peer.close()
        await eventually(lambda: stopped == [1])
    assert topic.subscribers == []
    assert not any(topic_tables(met.back.topics).values())


async def test_a_handler_that_accepts_although_it_was_cancelled(met: ConnectedNodes) -> None:
    topic = met.server.topic("x")
    over = []

    @topic.on_subscribe
    async def stubborn(request: SubscribeRequest) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            over.append(1)
        return "accepted all the same"

    with pytest.raises(CallTimeout):
        await met.peer.subscribe("x", timeout=0.01).__aenter__()
    await eventually(lambda: over == [1])
    await eventually(lambda: nothing_there(met, topic))


async def test_an_acceptance_that_meets_its_cancel_is_abandoned(
    met: ConnectedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel while the acceptance is in transit: the stream is reset, and the topic free."""
    topic = met.server.topic("x")
    # The publisher never hears of Cancel, as if its answer had crossed it.
    go_on = anyio.Event()

    @topic.on_subscribe
    async def accept(request: SubscribeRequest) -> None:
        await go_on.wait()

    with intercepted(met.back, is_sim(CANCEL)):
        with anyio.move_on_after(0.02):
            await met.peer.subscribe("x").__aenter__()
        go_on.set()
        await eventually(lambda: len(met.peer.outgoing) == 0)
        await eventually(lambda: nothing_there(met, topic))
    async with met.peer.subscribe("x") as sub:
        await topic.publish("again")
        assert await anext(sub) == "again"


async def test_an_answer_that_names_another_stream(met: ConnectedNodes) -> None:
    """A publisher that is not ours answers with a stream that it did not open for it."""
    from_server = met.back.core

    async def answer(stream_named: int) -> CallRefused:
        async with anyio.create_task_group() as tasks:
            entered = await started(tasks, met.peer.subscribe("y").__aenter__)
            from_server.send(1, asked[-1], *encode_result(0, None, stream_named))
            await eventually(lambda: bool(entered))
        (error,) = entered
        assert isinstance(error, CallRefused)
        return error

    asked: list[int] = []

    other = from_server.open_stream("topic:other")
    right = from_server.open_stream("topic:y")

    def keep(event: Report) -> None:
        assert isinstance(event, Event)
        asked.append(event.async_id)

    with intercepted(met.back, is_sim(SUBSCRIBE), keep):
        for named in (0, 1, other, right + 2, 2**32 - 1):
            assert (await answer(named)).code == ResultCode.MALFORMED
    await eventually(lambda: not met.peer.core.streams.stream_table.open)
