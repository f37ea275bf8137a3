"""Tests of node/testing/proxy.py: nodes over TCP with a proxy between them."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio.lowlevel
import pytest
from anyio import connect_tcp, fail_after, to_thread

from parley import Node
from parley._node.errors import AddressError, HandshakeError
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyProxy
from parley._node.transport.address import Address
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio
BACKENDS = [
    pytest.param("asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
    pytest.param("trio"),
]


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@asynccontextmanager
async def proxied(server: Node) -> AsyncIterator[FaultyProxy]:
    """Run a proxy in front of a listening node."""
    async with FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy:
        yield proxy


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("scheme", ["tcp", "unix"])
async def test_it_is_dialled_like_its_target(scheme: str, tmp_path: Path) -> None:
    place = "tcp://127.0.0.1:0" if scheme == "tcp" else f"unix://{tmp_path}/socket"
    with fail_after(10):
        async with new_node() as client, new_node() as server:
            server.on_call("size")(lambda call: len(call.data))
            async with FaultyProxy(await server.listen(place)) as proxy:
                assert Address.parse(proxy.address).node_id == server.node_id
                peer = await client.connect(proxy.address)
                assert peer.node_id == server.node_id
                assert await peer.call("size", bytes(500_000), timeout=5) == 500_000
                assert proxy.to_server.passed > 500_000
                assert proxy.connections == 1
                await peer.close()
                await eventually(lambda: not proxy.connections)


@pytest.mark.usefixtures("leaves_nothing")
async def test_a_cut() -> None:
    with fail_after(10):
        async with new_node() as client, new_node() as server, proxied(server) as proxy:
            peer = await client.connect(proxy.address)
            await eventually(lambda: bool(server.peers))
            (back,) = server.peers
            proxy.cut()
            assert (await peer.closed()).code == CloseCode.CONNECTION_LOST
            assert (await back.closed()).code == CloseCode.CONNECTION_LOST
            proxy.to_server.cut(after=100)
            with pytest.raises(HandshakeError):
                await client.connect(proxy.address)
            await client.connect(proxy.address)


async def test_stall_longer_than_the_dial_timeout() -> None:
    with fail_after(10):
        async with new_node() as client, new_node() as server, proxied(server) as proxy:
            proxy.stall()
            with pytest.raises(HandshakeError) as caught:
                await client.connect(proxy.address, timeout=0.05)
            assert caught.value.code == CloseCode.TIMEOUT
            proxy.resume()
            await client.connect(proxy.address)


@pytest.mark.usefixtures("leaves_nothing")
async def test_a_target_that_does_not_answer() -> None:
    with fail_after(10):
        async with new_node() as client, new_node() as server:
            address = await server.listen("tcp://127.0.0.1:0")
            await server.aclose()
            async with FaultyProxy(address) as proxy:
                with pytest.raises(HandshakeError):
                    await client.connect(proxy.address)


def test_an_address_that_is_none() -> None:
    with pytest.raises(AddressError):
        FaultyProxy("nowhere")


@pytest.mark.usefixtures("leaves_nothing")
async def test_proxy_stops_while_connections_are_open() -> None:
    with fail_after(10):
        async with new_node() as server:
            address = await server.listen("tcp://127.0.0.1:0")
            async with FaultyProxy(address) as proxy:
                place = Address.parse(proxy.address)
                strangers = [await connect_tcp(place.host, place.port) for _ in range(5)]
                await eventually(lambda: proxy.connections == 5)
                proxy.stall()
            for stranger in strangers:
                await stranger.aclose()
            await anyio.lowlevel.checkpoint()


async def test_a_unix_socket_is_cut_while_bytes_come(tmp_path: Path) -> None:
    """The cut happens in the same turn of the loop in which bytes arrive; the loop reports no
    error.
    """
    cuts, path = 50, str(tmp_path / "socket")

    def drip(listener: socket.socket) -> None:
        for _ in range(cuts):
            accepted, _ = listener.accept()
            with accepted, suppress(OSError):
                while True:
                    accepted.sendall(b"x")

    async def come_and_be_cut(proxy: FaultyProxy) -> None:
        async with await connect_tcp("127.0.0.1", Address.parse(proxy.address).port) as client:
            proxy.to_server.cut(after=1)
            await client.receive()
            await client.send(b"x")
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    await client.receive()

    with fail_after(10), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        async with anyio.create_task_group() as tasks, FaultyProxy(f"unix://{path}") as proxy:
            tasks.start_soon(to_thread.run_sync, drip, listener)
            for _ in range(cuts):
                await come_and_be_cut(proxy)
