"""Connection limits of running nodes, and that refused connections are closed completely."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from parley import Call, HandshakeError, Node
from parley._node.errors import CallRefused
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.limits import Limits
from parley._node.transport.address import Address
from tests.inspection import connections_of
from tests.node.network import eventually, meeting, new_node, open_files

pytestmark = pytest.mark.anyio

LISTEN = "tcp://127.0.0.1:0"


@contextmanager
def strangers(address: str, count: int) -> Iterator[list[socket.socket]]:
    port = Address.parse(address).port
    dialled = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    try:
        for stranger in dialled:
            stranger.settimeout(5)
        yield dialled
    finally:
        for stranger in dialled:
            stranger.close()


async def seen(node: Node, count: int) -> None:
    """Wait until `count` connections were accepted or refused."""
    await eventually(lambda: len(connections_of(node)) + node.turned_away == count)


async def inside(node: Node, count: int) -> None:
    await eventually(lambda: len(connections_of(node)) == count)


async def test_more_connections_than_there_may_be(caplog: pytest.LogCaptureFixture) -> None:
    files = open_files()
    async with new_node() as alice, new_node(max_connections=3) as bob:
        address = await bob.listen(LISTEN)
        peer = await alice.connect(address)
        with strangers(address, 4) as dialled:
            await seen(bob, 5)
            assert bob.turned_away == 2
            # Closed without a Reject.
            assert await anyio.to_thread.run_sync(dialled[-1].recv, 1) == b""
            with pytest.raises(HandshakeError) as caught:
                await alice.connect(address)
            assert caught.value.code == CloseCode.CONNECTION_LOST
            assert await peer.ping() < 5
        await inside(bob, 1)
        again = await alice.connect(address)
        await again.close()
    assert open_files() - files == set()
    assert "rejected a connection from 127.0.0.1: too many connections" in caplog.text


async def test_more_connections_of_one_address_than_there_may_be() -> None:
    async with (
        new_node() as alice,
        new_node(connections_per_address=2, limit_loopback=True) as bob,
    ):
        address = await bob.listen(LISTEN)
        first = await alice.connect(address)
        with strangers(address, 3):
            await seen(bob, 4)
            assert bob.turned_away == 2
        await inside(bob, 1)
        await first.close()
        await inside(bob, 0)
        # Repeat it: connections that ended, even during the handshake, no longer count.
        with strangers(address, 3):
            await inside(bob, 2)
        await inside(bob, 0)


async def test_failed_handshake_no_longer_counts() -> None:
    async with new_node(max_connections=1) as bob:
        address = await bob.listen(LISTEN)
        for _ in range(3):
            with strangers(address, 1) as (stranger,):
                stranger.sendall(b"\x00" * 8)  # an event that is too short
                await inside(bob, 0)
        assert bob.turned_away == 0


async def test_data_waiting_for_a_peer_is_limited() -> None:
    small: dict[str, Any] = {
        "peer_memory": 98_000,
        "write_buffer": 49_000,
        "limits": Limits(max_payload=49_000),
    }
    async with meeting(**small) as met:
        release = anyio.Event()

        @met.server.on_call("hold")
        async def hold(call: Call) -> object:
            await release.wait()
            return call.data

        answers: list[object] = []

        async def ask() -> None:
            answers.append(await met.peer.call("hold", bytes(48_000)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await eventually(lambda: met.back.running_calls == 1)
            with pytest.raises(CallRefused) as caught:
                await met.peer.call("hold", bytes(48_000))
            assert caught.value.code == ResultCode.OVERLOADED
            release.set()
        assert answers == [bytes(48_000)]
