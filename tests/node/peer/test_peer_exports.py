"""Permitted requests of a peer behind a tunnel: exported names, at each request, by the current
path; all others get 20 (section 19).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from parley import Call, NamedEvent, Peer, Stream
from parley._node.bus.errors import BusRefusedError
from parley._node.bus.model import NewEvent
from parley._node.errors import CallRefused, StreamResetError
from parley._node.federation.exports import Exports
from parley._node.protocol.codes import (
    FEDERATION_LABEL,
    TUNNEL_LABEL,
    CloseCode,
    ResultCode,
)
from parley._node.testing import ConnectedNodes, connect_nodes
from tests.node.bus.remote.offered import between, new
from tests.node.network import meeting

pytestmark = pytest.mark.anyio

NAME = "shop.price"
LONG = "x" * 2_000  # of a payload that is not read to its end before it is asked who may


async def answer(call: Call) -> Any:
    return call.data


async def reply(event: NamedEvent) -> Any:
    return event.data


async def serve(stream: Stream) -> None:
    await stream.send(b"served")


def tunnel(met: ConnectedNodes) -> None:
    """Their connection goes through a tunnel now."""
    path = (met.client.node_id, met.server.node_id)
    met.peer.driver.path = met.back.driver.path = path


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    """The server offers one name of each kind, without exports."""
    async with meeting() as met:
        server = met.server
        server.on_call(NAME)(answer)
        server.on_call("once.*", once=True)(answer)
        server.on(NAME)(reply)
        server.on(NAME, namespace="shop")(reply)
        server.on_stream(NAME)(serve)
        server.topic(NAME)
        tunnel(met)
        yield met


async def call(peer: Peer, name: str) -> None:
    assert await peer.call(name, "data") == "data"


async def long_call(peer: Peer, name: str) -> None:
    assert await peer.call(name, LONG) == LONG


async def emit(peer: Peer, name: str) -> None:
    assert (await peer.emit(name, "data").reply()).data == "data"


async def emit_to_namespace(peer: Peer, name: str) -> None:
    assert (await peer.emit(name, "data", namespace="shop").reply()).data == "data"


async def subscribe(peer: Peer, name: str) -> None:
    async with peer.subscribe(name):
        pass


async def stream(peer: Peer, name: str) -> None:
    async with peer.open_stream(name) as opened:
        assert await opened.receive() == b"served"


Ask = Callable[[Peer, str], Awaitable[None]]
ASKING = [call, long_call, emit, emit_to_namespace, subscribe, stream]


async def code_of(ask: Ask, peer: Peer, name: str) -> int:
    """0, or the code by which it was refused."""
    try:
        await ask(peer, name)
    except (CallRefused, StreamResetError) as error:
        return error.code
    return 0


@pytest.mark.parametrize("ask", ASKING)
async def test_nothing_is_exported_by_default(met: ConnectedNodes, ask: Ask) -> None:
    # Nor does anybody learn what there is.
    for name in (NAME, "nothing.of.this.name"):
        assert await code_of(ask, met.peer, name) == ResultCode.NOT_AUTHORISED


@pytest.mark.parametrize("ask", ASKING)
async def test_what_is_exported_and_for_how_long(met: ConnectedNodes, ask: Ask) -> None:
    exports = met.server.handlers.exports
    exports.add(Exports(["other", "shop"]))
    assert await code_of(ask, met.peer, NAME) == ResultCode.NOT_AUTHORISED
    ours = Exports(["shop.*"])
    exports.add(ours)
    assert await code_of(ask, met.peer, NAME) == 0
    exports.remove(ours)
    assert await code_of(ask, met.peer, NAME) == ResultCode.NOT_AUTHORISED


@pytest.mark.parametrize("ask", ASKING)
async def test_it_is_asked_by_the_way_of_the_moment(met: ConnectedNodes, ask: Ask) -> None:
    met.back.driver.path = ()
    assert await code_of(ask, met.peer, NAME) == 0
    tunnel(met)
    assert await code_of(ask, met.peer, NAME) == ResultCode.NOT_AUTHORISED


async def test_both_ends_of_a_tunnel_ask(met: ConnectedNodes) -> None:
    met.client.on_call("ours")(answer)
    assert await code_of(call, met.back, "ours") == ResultCode.NOT_AUTHORISED
    met.client.handlers.exports.add(Exports(["ours"]))
    assert await code_of(call, met.back, "ours") == 0


async def test_an_export_gives_no_right_that_allow_keeps_back(met: ConnectedNodes) -> None:
    met.server.handlers.exports.add(Exports(["*"]))
    met.server.on_call("closed", allow=[met.server.node_id])(answer)
    assert await code_of(call, met.peer, "closed") == ResultCode.NOT_AUTHORISED
    assert await code_of(call, met.peer, "none") == ResultCode.TOPIC_NOT_FOUND


async def test_calls_that_are_made_once(met: ConnectedNodes) -> None:
    async def once(peer: Peer, name: str) -> None:
        assert await peer.call(name, "data", once=b"k" * 16) == "data"

    # The handshake of another connection announces that calls are remembered.
    peer, back = await connect_nodes(met.client, met.server)
    back.driver.path = met.back.live.path
    assert await code_of(once, peer, "once.a") == ResultCode.NOT_AUTHORISED
    met.server.handlers.exports.add(Exports(["once.a"]))
    assert await code_of(once, peer, "once.a") == 0


async def test_notes_go_on_when_the_session_moves(met: ConnectedNodes) -> None:
    met.back.driver.path = ()
    async with met.peer.subscribe(NAME) as notes:
        tunnel(met)
        await met.server.topics[NAME].publish(1)
        assert await anext(notes) == 1
    # Nor is it asked about who leaves.
    assert met.server.topics[NAME].subscribers == []


@pytest.mark.parametrize("label", [TUNNEL_LABEL, FEDERATION_LABEL])
async def test_reserved_labels_are_refused_whatever_is_exported(
    met: ConnectedNodes, label: str
) -> None:
    met.server.handlers.exports.add(Exports(["*"]))
    stream = met.peer.streams._open(label, frozenset())
    with pytest.raises(StreamResetError) as error:
        await stream.receive()
    assert error.value.code == CloseCode.NOT_AUTHORISED


# The bus.


def event(n: int, name: str = "orders.new") -> NewEvent:
    return new(n, name)


async def test_names_of_the_bus() -> None:
    async with between() as bus:
        tunnel(bus.nodes)
        store = await bus.asking()
        with pytest.raises(BusRefusedError, match="code 20"):
            await store.publish([event(1)], durable=True)
        with pytest.raises(BusRefusedError, match="code 20"):
            await store.streams()
        bus.nodes.server.handlers.exports.add(Exports(["orders.*"]))
        await store.publish([event(1)], durable=True)
        with pytest.raises(BusRefusedError, match="code 20"):
            await store.publish(
                [event(2), event(3, "people.new")], durable=True
            )  # A request is exported as a whole.
        with pytest.raises(BusRefusedError, match="code 20"):
            await store.streams()  # of all names
        bus.nodes.back.driver.path = ()
        await store.publish([event(4, "people.new")], durable=True)
        assert len(await store.streams()) == 2
        await store.aclose()


async def test_an_export_gives_no_right_to_the_bus() -> None:
    async with between(lambda request: request.name != "orders.new") as bus:
        tunnel(bus.nodes)
        bus.nodes.server.handlers.exports.add(Exports(["*"]))
        store = await bus.asking()
        with pytest.raises(BusRefusedError, match="code 20"):
            await store.publish([event(1)], durable=True)
        await store.aclose()
