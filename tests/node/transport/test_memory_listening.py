"""Tests of `memory://NAME`: nodes of one event loop that listen and connect without a socket."""

import threading

import anyio
import pytest

from parley import Call, Stream
from parley._node.errors import HandshakeError, UnreachableError
from parley._node.transport.memory import listeners
from parley.trust import AnyPeer
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio


async def test_a_name_is_listened_on_and_dialled() -> None:
    async with new_node() as server, new_node() as client:

        @server.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        @server.on_stream("bytes")
        async def send_back(stream: Stream) -> None:
            await stream.send(await stream.receive())

        address = await server.listen("memory://echo")
        assert address == f"memory://echo#{server.node_id}"
        assert server.addresses == [address]
        peer = await client.connect(address)
        assert await peer.call("echo", "hello") == "hello"
        stream = peer.open_stream("bytes")
        await stream.send(bytes(100_000))
        assert len(await stream.receive()) > 0
        assert [one.name for one in server.peers] == ["memory"]
        again = await client.connect("memory://echo", trust=AnyPeer())
        assert again.node_id == server.node_id
    assert listeners.get({}) == {}


async def test_a_link_goes_on_with_whoever_listens_at_the_name() -> None:
    async with new_node() as client:
        link = client.link("memory://later", trust=AnyPeer())
        async with new_node() as server, link:
            await server.listen("memory://later")
            peer = await link.ready(5)
            assert peer.node_id == server.node_id


async def test_a_session_goes_on_over_memory_too() -> None:
    async with new_node(resume=60.0) as server, new_node(resume=60.0) as client:
        peer = await client.connect(await server.listen("memory://resumed"))
        await peer.ping()
        peer.redial()
        await eventually(lambda: peer.resumes == 1)
        assert await peer.ping() >= 0


async def test_nobody_listens() -> None:
    async with new_node() as client:
        with pytest.raises(UnreachableError, match=r"memory://nobody: no node listens there"):
            await client.connect("memory://nobody", trust=AnyPeer())


async def test_a_name_is_taken_until_its_listener_ends() -> None:
    async with new_node() as one:
        async with new_node() as other:
            await other.listen("memory://taken")
            with pytest.raises(UnreachableError, match="memory://taken: the address is in use"):
                await one.listen("memory://taken")
        await one.listen("memory://taken")


async def test_a_limit_turns_connections_away_as_on_any_address() -> None:
    async with new_node(max_connections=1) as server, new_node() as client:
        address = await server.listen("memory://small")
        await client.connect(address)
        with pytest.raises(HandshakeError):
            await client.connect(address)
        assert server.turned_away == 1


async def test_another_thread_has_names_of_its_own() -> None:
    async with new_node() as server:
        await server.listen("memory://mine")
        said: list[str] = []

        async def elsewhere() -> None:
            async with new_node() as node:
                try:
                    await node.connect("memory://mine", trust=AnyPeer())
                except UnreachableError as error:
                    said.append(str(error))

        thread = threading.Thread(target=anyio.run, args=(elsewhere,))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)
        assert said == ["cannot connect to memory://mine: no node listens there in this event loop"]
