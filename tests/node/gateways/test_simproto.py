"""SimProto gateways: which clients they serve, over which transports, and how they end."""

from contextlib import AsyncExitStack, suppress

import anyio
import anyio.lowlevel
import pytest

from parley import Call, CallRefused, Node, PeerClosedError, StreamResetError
from parley._node.dialects.limits import DialectLimits
from parley._node.errors import ConfigError, ParleyError
from parley._node.federation.exports import Exports
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import STREAMS_A_PEER, SimProtoGateway, offer_simproto
from parley._node.protocol.codes import CloseCode
from tests.node.gateways.simproto_sides import offer, served
from tests.node.network import PATIENCE, eventually, meeting, new_node, nothing_left
from tests.node.tunnels.tunnel_rows import row

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transport", ["tcp", "unix"])
async def test_calls_over_sockets(transport: str) -> None:
    with nothing_left():
        async with served(transport=transport) as sides:
            assert await sides.client.call("echo", b"hi") == b"hi"
            assert await sides.client.call("echo") is None
            assert await sides.back.ping() >= 0
            assert sides.gateway.addresses == [sides.address]
            assert repr(sides.gateway) == "<SimProtoGateway, 1 peers>"


async def test_one_handler_for_all_languages() -> None:
    seen: list[object] = []
    async with meeting() as met, SimProtoGateway(met.server) as gateway:

        @met.server.on_call("who")
        async def who(call: Call) -> str:
            seen.append(call.peer)
            return "grüße"

        address = await gateway.listen("tcp://127.0.0.1:0")
        async with SimProtoClient(address) as client:
            assert await met.peer.call("who") == "grüße"
            assert await client.call("who") == "grüße".encode()
    peer, guest = seen
    assert not isinstance(peer, Guest)
    assert isinstance(guest, Guest)
    assert (guest.dialect, guest.node_id, guest.role) == ("SimProto", None, "")
    assert not guest.encrypted


async def test_over_an_encrypted_stream() -> None:
    """The native connection's node ID identifies the guest, so that `allow=` can match it."""

    async def meet() -> None:
        async with meeting() as met:
            offer(met.server)
            offer_simproto(met.server)
            guests: list[Guest] = []

            @met.server.on_call("mine", allow=met.client.node_id)
            async def mine(call: Call) -> bytes:
                assert isinstance(call.peer, Guest)
                guests.append(call.peer)
                return b"yours"

            @met.server.on_call("others", allow=met.server.node_id)
            async def others(call: Call) -> bytes:
                return b"never"

            news = met.server.topic("news", allow=met.client.node_id)
            async with SimProtoClient.over(met.peer.open_stream("simproto")) as client:
                assert await client.call("echo", b"x" * 300_000) == b"x" * 300_000
                assert await client.call("mine") == b"yours"
                with pytest.raises(CallRefused) as refused:
                    await client.call("others")
                assert refused.value.code == 1
                assert guests[0].node_id == met.client.node_id
                assert guests[0].encrypted
                assert client.peer.node_id == met.server.node_id
                async with client.subscribe("news") as notes:
                    await news.publish("one")
                    assert await anext(aiter(notes)) == b"one"
            await eventually(lambda: not guests[0].is_open)
            assert met.peer.is_open

    with nothing_left():
        await meet()


async def test_through_a_tunnel_it_serves_exported_handlers() -> None:
    async with row(3) as made:
        offer_simproto(made.target)
        made.target.topic("news")
        paths: list[object] = []
        for name in ("open", "secret"):

            @made.target.on_call(name)
            async def answer(call: Call) -> bytes:
                paths.append(call.peer.path)
                return b"told"

        made.target.handlers.exports.clear()
        made.target.handlers.exports.add(Exports(["simproto", "open"]))
        peer = await made.reach()
        async with SimProtoClient.over(peer.open_stream("simproto")) as client:
            assert await client.call("open") == b"told"
            with pytest.raises(CallRefused):
                await client.call("secret")
            with pytest.raises(CallRefused):
                await client.subscribe("news").__aenter__()
        assert paths == [made.path]


async def test_a_peer_has_so_many_streams_of_it() -> None:
    with anyio.fail_after(PATIENCE):
        async with meeting() as met, AsyncExitStack() as clients:
            offer(met.server)
            offer_simproto(met.server)
            some = []
            for _ in range(STREAMS_A_PEER):
                stream = met.peer.open_stream("simproto")
                some.append(await clients.enter_async_context(SimProtoClient.over(stream)))
                assert await some[-1].call("echo", b"hi") == b"hi"
            more = met.peer.open_stream("simproto")
            with pytest.raises(StreamResetError) as reset:
                await more.receive()
            assert reset.value.code == CloseCode.OVERLOADED
            assert await some[0].call("echo", b"still") == b"still"
            await clients.aclose()

            async def served_again() -> bool:
                async with SimProtoClient.over(met.peer.open_stream("simproto")) as another:
                    try:
                        return await another.call("echo", b"room") == b"room"
                    except PeerClosedError:
                        return False

            while not await served_again():  # the node may notice later that they left
                await anyio.lowlevel.checkpoint()


async def test_clients_are_bounded() -> None:
    async with served(limits=DialectLimits(clients=1)) as sides:
        with pytest.raises(PeerClosedError):
            async with SimProtoClient(sides.address) as second:
                await second.call("echo")
        assert sides.gateway.turned_away == 1
        assert await sides.client.call("echo", b"still") == b"still"
        await sides.client.close()
        await eventually(lambda: not sides.gateway.peers)
        async with SimProtoClient(sides.address) as third:
            assert await third.call("echo", b"room") == b"room"


async def test_leaving_lets_handlers_answer() -> None:
    running, go = anyio.Event(), anyio.Event()
    answers: list[object] = []
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks, new_node(drain_timeout=5) as node:

            @node.on_call("slow")
            async def slow(call: Call) -> bytes:
                running.set()
                await go.wait()
                return b"done"

            async def ask(address: str) -> None:
                async with SimProtoClient(address) as client:
                    answers.append(await client.call("slow"))
                    answers.append((await client.closed()).code)

            async with SimProtoGateway(node) as gateway:
                tasks.start_soon(ask, await gateway.listen("tcp://127.0.0.1:0"))
                await running.wait()
                go.set()
            await eventually(lambda: len(answers) == 2)
    assert answers == [b"done", CloseCode.CONNECTION_LOST]


async def test_leaving_waits_for_notes_that_were_published() -> None:
    """This includes notes not yet sent because the limit of unacknowledged notes was reached."""
    got: list[object] = []
    reading = anyio.Event()

    async def read(address: str) -> None:
        async with SimProtoClient(address) as client, client.subscribe("news") as notes:
            reading.set()
            with suppress(PeerClosedError):
                while True:
                    got.append(await anext(notes))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks, new_node() as node:
            news = node.topic("news")
            async with SimProtoGateway(node) as gateway:
                tasks.start_soon(read, await gateway.listen("tcp://127.0.0.1:0"))
                await reading.wait()
                for number in range(300):
                    await news.publish(bytes(1_000) + b"%d" % number)
    assert got == [bytes(1_000) + b"%d" % number for number in range(300)]


def test_a_label_is_served_once() -> None:
    node: Node = new_node()
    offer_simproto(node, "sim")
    with pytest.raises(ParleyError):
        offer_simproto(node, "sim")
    with pytest.raises(ConfigError):
        offer_simproto(node, values="xml")  # type: ignore[arg-type]  # a wrong one
    with pytest.raises(ConfigError, match="xml"):
        SimProtoGateway(node, values="xml")  # type: ignore[arg-type]  # a wrong one
