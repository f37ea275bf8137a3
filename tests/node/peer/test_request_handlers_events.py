"""Tests of node/peer/emitters.py: handlers of named events, whatever they do."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio import create_task_group

from parley import CallRefused, NamedEvent, Node, Peer, Supercategory
from parley._crypto.identity import Identity
from parley._node.errors import PeerClosedError
from parley._node.messaging.named_events import REPLIES_MEMORY
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.testing import ConnectedNodes, FaultyLink, connect_nodes
from tests.node.network import config, eventually, meeting, new_node, started
from tests.node.tuned import tuned

pytestmark = pytest.mark.anyio

SECRET = "a secret of the server"


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting() as met:
        met.server.on("echo")(lambda event: event.data)
        yield met


async def data_of(met: ConnectedNodes, name: str, **options: str) -> list[object]:
    return [reply.data async for reply in met.peer.emit(name, **options).replies()]  # type: ignore[arg-type]  # namespaces


async def refusal(met: ConnectedNodes, name: str, **options: str) -> tuple[int, object]:
    with pytest.raises(CallRefused) as caught:
        await met.peer.emit(name, **options).reply()  # type: ignore[arg-type]  # namespaces
    return caught.value.code, caught.value.data


# Replies of a handler.


async def test_all_that_a_handler_may_be(met: ConnectedNodes) -> None:
    @met.server.on("async")
    async def asynchronous(event: NamedEvent) -> str:
        await event.emit("async", "first")
        return "last"

    @met.server.on("yields")
    async def yields(event: NamedEvent) -> AsyncIterator[object]:
        yield 1
        await event.emit("between", 2)
        yield None

    @met.server.on("says nothing")
    async def silent(event: NamedEvent) -> None:
        await event.emit("says nothing", "but this")

    met.server.on("sync")(lambda event: event.name)
    assert await data_of(met, "async") == ["first", "last"]
    assert await data_of(met, "yields") == [1, 2, None]
    assert await data_of(met, "says nothing") == ["but this"]
    assert await data_of(met, "sync") == ["sync"]


@pytest.mark.pure
@pytest.mark.parametrize("kind", ["at once", "after a reply", "yields", "sync"])
async def test_a_handler_that_fails(
    met: ConnectedNodes, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A code and a fixed sentence go over the wire, the details into the log."""
    sent: list[bytes] = []
    send = Connection.send

    @met.server.on("at once")
    async def at_once(event: NamedEvent) -> None:
        raise ValueError(SECRET)

    @met.server.on("after a reply")
    async def after(event: NamedEvent) -> None:
        await event.emit("x", 1)
        raise ValueError(SECRET)

    @met.server.on("yields")
    async def yields(event: NamedEvent) -> AsyncIterator[int]:
        yield 1
        raise ValueError(SECRET)

    @met.server.on("sync")
    def sync(event: NamedEvent) -> None:
        raise ValueError(SECRET)

    def note(core: Connection, *arguments: Any, **more: Any) -> int:
        sent.append(arguments[4])  # the payload
        return send(core, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(Connection, "send", note)
        with pytest.raises(CallRefused) as caught:
            await data_of(met, kind)
    assert (caught.value.code, caught.value.data) == (500, "the handler failed")
    assert SECRET in caplog.text
    assert SECRET.encode() not in b"".join(sent)
    assert len(sent) >= 2


async def test_a_handler_that_refuses(met: ConnectedNodes) -> None:
    @met.server.on("refuse")
    async def refuse(event: NamedEvent) -> None:
        raise CallRefused(404, event.data)

    for data, text in (("no such room", "no such room"), ({"a": 1}, "refused"), (None, "refused")):
        with pytest.raises(CallRefused) as caught:
            await met.peer.emit("refuse", data).reply()
        assert (caught.value.code, caught.value.data) == (404, text)


async def test_a_refusal_that_a_handler_met_is_its_failure(met: ConnectedNodes) -> None:
    @met.server.on("ask back")
    async def ask_back(event: NamedEvent) -> None:
        await event.peer.call("nobody")

    assert await refusal(met, "ask back") == (500, "the handler failed")


async def test_a_failure_that_nobody_waits_for(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    @met.server.on("fail")
    async def fail(event: NamedEvent) -> AsyncIterator[int]:
        yield 1
        raise ValueError(SECRET)

    with caplog.at_level(logging.ERROR):
        await met.peer.emit("fail")
        await eventually(lambda: SECRET in caplog.text)
    assert (await met.peer.emit("echo", 1).reply()).data == 1
    assert len(met.back.calls.incoming) == 0


# Who may, and how many.


async def test_patterns_and_namespaces(met: ConnectedNodes) -> None:
    met.server.on("chat.*")(lambda event: ["any", event.name])
    met.server.on("chat.join")(lambda event: ["join", event.name])
    met.server.on("*", namespace="all")(lambda event: [event.namespace, event.name])
    assert await data_of(met, "chat.leave") == [["any", "chat.leave"]]
    assert await data_of(met, "chat.join") == [["join", "chat.join"]]
    assert await data_of(met, "chat") == []
    assert await data_of(met, "chat.join", namespace="all") == [["all", "chat.join"]]
    assert await data_of(met, "chat.join", namespace="none") == []
    assert await data_of(met, "chat." + "x" * 2_000) == []
    assert met.back.dropped == 3


async def test_allow(met: ConnectedNodes) -> None:
    met.server.on("admin.*", allow=["admin"])(lambda event: "in")
    met.server.on("admin.see")(lambda event: "in")
    met.server.on("asks", allow=lambda peer, name: name == "none")(lambda event: "in")
    for name in ("admin.kick", "admin.see", "asks"):
        assert await refusal(met, name) == (20, "not authorised")
    await met.peer.emit("admin.kick")
    met.server.roles.assign(met.client.node_id, "admin")
    assert await data_of(met, "admin.kick") == ["in"]
    assert await data_of(met, "admin.see") == ["in"]


async def test_supercategories() -> None:
    async with meeting(client=config(role="client"), server=config(role="server")) as met:
        only = {Supercategory.SERVER_TO_CLIENT}
        met.server.on("down", supercategories=only)(lambda event: "in")
        met.client.on("down", supercategories=only)(lambda event: "in")
        assert await refusal(met, "down") == (22, "not allowed between these roles")
        assert (await met.back.emit("down").reply()).data == "in"
        await met.peer.emit("down")
        await met.peer.ping()
        assert met.back.dropped == 1


async def test_a_draining_node_takes_no_events(met: ConnectedNodes) -> None:
    met.back.live.draining = True
    assert await refusal(met, "echo") == (19, "overloaded")
    await met.peer.emit("echo")
    await met.peer.ping()
    assert met.back.dropped == 1


async def test_no_more_events_than_the_bound(met: ConnectedNodes) -> None:
    """Silent ones are dropped, others refused; events that are done make room."""
    go, ran = anyio.Event(), []

    @met.server.on("wait")
    async def wait(event: NamedEvent) -> None:
        ran.append(event.data)
        await go.wait()

    for number in range(UNANSWERED_REQUESTS + 5):
        await met.peer.emit("wait", number)
    await eventually(lambda: met.back.dropped == 5)
    assert await refusal(met, "echo") == (19, "overloaded")
    await eventually(lambda: len(ran) == UNANSWERED_REQUESTS)
    go.set()
    await eventually(lambda: len(met.back.calls.incoming) == 0)
    assert (await met.peer.emit("echo", 1).reply()).data == 1


# Ends.


async def test_handlers_end_with_the_connection(met: ConnectedNodes) -> None:
    ended: list[str] = []

    @met.server.on("wait")
    async def wait(event: NamedEvent) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(event.name)

    @met.server.on("talk")
    async def talk(event: NamedEvent) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.append(event.name)

    async with create_task_group() as tasks:
        outcome = await started(tasks, met.peer.emit("wait").reply)
        await met.peer.emit("talk")
        await met.peer.emit("wait")
        await met.peer.ping()
        await met.peer.close()
    assert [type(one) for one in outcome] == [PeerClosedError]
    await eventually(lambda: sorted(ended) == ["talk", "wait", "wait"])


async def test_a_closing_node_waits_for_events() -> None:
    async with meeting(drain_timeout=5.0) as met:
        go = anyio.Event()

        @met.server.on("slow")
        async def slow(event: NamedEvent) -> str:
            await go.wait()
            return "done"

        async with create_task_group() as tasks:
            outcome = await started(tasks, met.peer.emit("slow").reply)
            tasks.start_soon(met.server.aclose)
            await eventually(lambda: met.back.live.draining)
            go.set()
    assert [getattr(one, "data", one) for one in outcome] == ["done"]


async def test_an_emitter_that_reads_nothing_of_its_transport() -> None:
    """Data that waits for it is bounded by the write buffer, and others are served."""
    settings = tuned(algorithms={"kex": ("x25519",)}, write_buffer=100_000, drain_timeout=0.0)
    link = FaultyLink()
    server = Node(Identity.create(), config=settings)
    async with link, new_node() as ours, new_node(drain_timeout=0.0) as other, server:
        peer, back = await connect_nodes(ours, server, link=link)
        bystander, _ = await connect_nodes(other, server)
        said = 0

        @server.on("flood")
        async def flood(event: NamedEvent) -> None:
            nonlocal said
            while True:
                await event.emit("flood", bytes(10_000))
                said += 10_000

        server.on("echo")(lambda event: event.data)
        async with create_task_group() as tasks:
            link.to_client.stall()
            tasks.start_soon(drop_errors, peer)
            await eventually(lambda: not back.driver.can_send)
            before = said
            for number in range(10):
                assert (await bystander.emit("echo", number).reply()).data == number
            assert said == before < 100_000 + REPLIES_MEMORY
            back.live.drop(CloseCode.GOING_AWAY)
            link.heal()


async def drop_errors(peer: Peer) -> None:
    try:
        await anext(peer.emit("flood").replies())
    except PeerClosedError:
        return
