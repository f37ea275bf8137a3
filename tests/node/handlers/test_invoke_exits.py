"""Application code that calls `sys.exit`, as argparse does, fails one request and is logged; the
node continues.
"""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import anyio
import pytest
from anyio.lowlevel import checkpoint

from parley._crypto.identity import Identity
from parley._node.bus.event import BusEvent
from parley._node.errors import CallRefused, NotTrustedError, PeerClosedError, StreamResetError
from parley._node.node import Node
from parley._node.protocol.codes import ResultCode
from parley._node.remote.requests import Call
from parley._node.testing import ConnectedNodes, connect_nodes, connected_nodes
from tests.node.network import PATIENCE, eventually

pytestmark = pytest.mark.anyio

FAILED = ResultCode.HANDLER_FAILED


def leaves(*_: object) -> NoReturn:
    sys.exit("usage: ...")


async def leaves_later(*_: object) -> NoReturn:
    await checkpoint()
    sys.exit(2)


async def leaves_between(_: Call) -> AsyncIterator[int]:
    yield 1
    sys.exit(2)


@pytest.fixture
async def pair(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    with anyio.fail_after(PATIENCE):
        async with connected_nodes() as pair:
            yield pair
            # It serves as before.
            pair.server.on_call("still")(lambda call: call.data)
            assert await pair.peer.call("still", 1) == 1


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages of errors with SystemExit."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.exc_info is not None and record.exc_info[0] is SystemExit
    ]


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("handler", [leaves, leaves_later])
async def test_a_call(handler: Callable[[Call], Any], once: bool, caplog: Any) -> None:
    server = Node(Identity.create())
    server.on_call("parse", once=once)(handler)
    server.on_call("still")(lambda call: call.data)
    with anyio.fail_after(PATIENCE):
        async with connected_nodes(server=server) as pair:
            with pytest.raises(CallRefused) as caught:
                await pair.peer.call("parse", once=once)
            assert caught.value.code == FAILED
            assert await pair.peer.call("still", 1) == 1
    assert logged(caplog) == ["the handler of 'parse' failed"]


async def test_an_answer_in_items(pair: ConnectedNodes, caplog: Any) -> None:
    pair.server.on_call("parse")(leaves_between)
    async with pair.peer.call_stream("parse") as answer:
        assert await anext(answer) == 1
        with pytest.raises(CallRefused) as caught:
            await anext(answer)
    assert caught.value.code == FAILED
    assert logged(caplog) == ["the handler of 'parse' failed"]


@pytest.mark.parametrize("function", [leaves, leaves_later])
async def test_what_decides_denies(
    function: Callable[..., Any], pair: ConnectedNodes, caplog: Any
) -> None:
    pair.server.on_call("secret", allow=function)(lambda call: None)
    pair.server.topic("news", allow=function)
    with pytest.raises(CallRefused) as caught:
        await pair.peer.call("secret")
    assert caught.value.code == ResultCode.NOT_AUTHORISED
    with pytest.raises(CallRefused):
        async with pair.peer.subscribe("news"):
            pass
    assert len(logged(caplog)) == 2


async def test_an_interceptor(pair: ConnectedNodes, caplog: Any) -> None:
    @pair.server.intercept("call", "subscribe")
    async def exits(one: object, proceed: object) -> None:
        sys.exit(2)

    pair.server.on_call("parse")(lambda call: None)
    pair.server.topic("news")
    with pytest.raises(CallRefused) as caught:
        await pair.peer.call("parse")
    assert caught.value.code == FAILED
    with pytest.raises(CallRefused) as caught:
        async with pair.peer.subscribe("news"):
            pass
    assert caught.value.code == FAILED
    assert len(logged(caplog)) == 2
    pair.server.handlers.interceptors.call_in.clear()  # for the call that follows


@pytest.mark.parametrize("handler", [leaves, leaves_later])
async def test_a_topic(handler: Callable[..., Any], pair: ConnectedNodes, caplog: Any) -> None:
    pair.server.topic("news").on_subscribe(handler)
    with pytest.raises(CallRefused) as caught:
        async with pair.peer.subscribe("news"):
            pass
    assert caught.value.code == FAILED
    assert logged(caplog) == ["the subscription handler of 'news' failed"]


async def test_a_tap(pair: ConnectedNodes, caplog: Any) -> None:
    topic = pair.server.topic("news")
    topic.tap(leaves)
    async with pair.peer.subscribe("news") as subscription:
        await topic.publish("one")
        assert await anext(subscription) == "one"
    assert logged(caplog) == ["a tap of topic 'news' failed"]


async def test_a_stream(pair: ConnectedNodes, caplog: Any) -> None:
    pair.server.on_stream("parse")(leaves_later)
    async with pair.peer.open_stream("parse") as stream:
        with pytest.raises(StreamResetError):
            await stream.receive()
    assert logged(caplog) == ["the handler of stream 'parse' failed"]


async def test_an_accept_hook(caplog: Any) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            Node(Identity.create(), trust=leaves_later) as server,
            Node(Identity.create()) as client,
        ):
            with pytest.raises((NotTrustedError, PeerClosedError)):
                await connect_nodes(client, server)
            await eventually(lambda: len(logged(caplog)) == 1)


@pytest.mark.parametrize("hook", [leaves, leaves_later])
async def test_a_hook_of_a_link(hook: Callable[..., Any], caplog: Any) -> None:
    with anyio.fail_after(PATIENCE):
        async with (
            Node(Identity.create()) as server,
            Node(Identity.create()) as client,
            client.link(await server.listen("memory://exits")) as link,
        ):
            link.on_up(hook)
            peer = await link.ready()
            await eventually(lambda: len(logged(caplog)) == 1)
            await peer.ping()


async def test_a_handler_of_a_bus(tmp_path: Path, caplog: Any) -> None:
    seen: list[int] = []
    with anyio.fail_after(PATIENCE):
        async with Node(Identity.create()) as node:
            bus = node.bus(f"sqlite:///{tmp_path}/bus.db")

            @bus.handler("shop.ordered", group="mailer")
            async def work(event: BusEvent) -> None:
                if event.data["n"] == 1:
                    sys.exit(2)
                seen.append(event.data["n"])

            await bus.publish("shop.ordered", {"n": 1})
            await bus.publish("shop.ordered", {"n": 2})
            await eventually(lambda: seen == [2])
            pending = await bus.pending("shop.ordered", "mailer")
            while len(pending) > 1:  # the second event is acknowledged in a moment
                await anyio.sleep(0.01)
                pending = await bus.pending("shop.ordered", "mailer")
            assert [event.attempt for event in pending] == [1]
    assert len(logged(caplog)) == 1
