"""Handlers and topics over SimProto: which guests may use them, and the answers."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from parley import Call, CallRefused, SubscribeRefused, SubscribeRequest, Supercategory
from parley._node.dialects.values import Rest
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.handlers.topic import Topic
from parley._node.transport.memory import memory_pair
from tests.node.gateways.simproto_sides import Raw, raw, served
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("topic", ["nobody", "fail", "refuse", "items", "odd"])
async def test_all_that_is_no_answer_is_1(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as sides:
        with pytest.raises(CallRefused) as refused:
            await sides.client.call(topic)
        assert (refused.value.code, refused.value.data) == (1, None)
        assert await sides.client.call("echo", b"still") == b"still"
    if topic not in ("nobody", "refuse"):
        assert [record.levelname for record in caplog.records if record.levelno > 30] == ["ERROR"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [("cbor", b"\xa1an\x05"), ("msgpack", b"\x81\xa1n\x05"), ("json", b'{"n":5}')],
)
async def test_answers_go_by_the_table(values: Rest, expected: bytes) -> None:
    async with served(values=values) as sides:
        assert await sides.client.call("text") == "grüße".encode()
        assert await sides.client.call("map") == expected
        assert await sides.client.call("echo", "text") == b"text"


async def test_permissions() -> None:
    async with served() as sides:

        def guests(peer: object, name: str) -> bool:
            return isinstance(peer, Guest) and name == "guests"

        @sides.node.on_call("guests", allow=guests)
        async def for_guests(call: Call) -> bytes:
            return b"come in"

        @sides.node.on_call("members", allow=sides.node.node_id)
        async def for_members(call: Call) -> bytes:
            return b"never"

        @sides.node.on_call("servers", supercategories=[Supercategory.CLIENT_TO_SERVER])
        async def for_clients(call: Call) -> bytes:
            return b"never"

        sides.node.topic("servers", supercategories=[Supercategory.CLIENT_TO_SERVER])
        assert await sides.client.call("guests") == b"come in"
        for topic in ("members", "servers"):
            with pytest.raises(CallRefused):
                await sides.client.call(topic)
        with pytest.raises(SubscribeRefused):
            await sides.client.subscribe("servers").__aenter__()


async def test_a_handler_that_yields_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as sides:
        for _ in range(3):
            with pytest.raises(CallRefused):
                await sides.client.call("items")
    assert sum("yields" in record.message for record in caplog.records) == 1


@asynccontextmanager
async def publishing(side: str) -> AsyncIterator[tuple[Topic, Raw]]:
    """Yield a topic of the server or of a client that offers it, and the peer that can request
    it.
    """
    if side == "server":
        async with served() as sides, raw(sides.address) as asking:
            yield sides.node.topic("news"), asking
    else:
        ours, theirs = memory_pair()
        async with SimProtoClient.over(ours) as client:
            yield client.registrar.topic("news"), Raw(theirs)


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.slow
async def test_requests_about_a_topic_take_effect_in_their_order(side: str) -> None:
    async with publishing(side) as (news, client):
        go = anyio.Event()

        @news.on_subscribe
        async def decide(request: SubscribeRequest) -> None:
            await go.wait()

        kinds = ("subscribe", "subscribe", "unsubscribe", "unsubscribe", "subscribe")
        asked = [await client.send(kind, "news") for kind in kinds]
        assert await client.ask("unsubscribe", "nobody") == ("topic not found", b"")
        go.set()
        answers = [await client.read() for _ in kinds]
        assert [(message.id, message.payload) for message in answers] == list(
            zip(asked, (b"\0", b"\2", b"\0", b"\2", b"\0"), strict=True)
        )
        assert len(news.subscribers) == 1


def giving(data: object) -> Callable[[SubscribeRequest], object]:
    return lambda request: data


async def test_a_subscription_with_data_that_is_too_long_or_has_no_form(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as sides:
        for name, data in (("long", b"x" * (1 << 20)), ("odd", object())):
            sides.node.topic(name).on_subscribe(giving(data))
            with pytest.raises(SubscribeRefused) as rejected:
                await sides.client.subscribe(name).__aenter__()
            assert rejected.value.data is None
            assert not sides.node.topics[name].subscribers
    assert sum(record.levelname == "ERROR" for record in caplog.records) == 2


async def test_handlers_of_a_disconnected_guest_are_cancelled() -> None:
    async with served() as sides:
        stopped = anyio.Event()

        @sides.node.on_call("stopped")
        async def stop(call: Call) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                stopped.set()

        async with raw(sides.address) as client:
            await client.send("rpc", "stopped")
            await eventually(lambda: any(peer.running_requests for peer in sides.gateway.peers))
        await stopped.wait()


async def test_draining_rejects_new_requests() -> None:
    async with served() as sides:
        sides.node.topic("news")
        sides.back.drain()
        with pytest.raises(CallRefused):
            await sides.client.call("echo")
        with pytest.raises(SubscribeRefused):
            await sides.client.subscribe("news").__aenter__()
