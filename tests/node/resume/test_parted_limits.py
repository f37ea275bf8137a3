"""How many sessions without a transport a node keeps, and how much of them."""

import logging
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from parley import Call, Node
from parley._node.protocol.connection import Connection
from parley._node.testing.proxy import FaultyProxy
from parley.errors import PeerClosedError
from tests.inspection import suspended_of
from tests.node.network import config, eventually, living, new_node

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def server_behind(**settings: Any) -> AsyncIterator[tuple[Node, FaultyProxy]]:
    """A server whose peers all come through a proxy."""
    with anyio.fail_after(10):
        async with (
            new_node(**{"resume": 20.0, **settings}) as server,
            FaultyProxy(await server.listen("tcp://127.0.0.1:0")) as proxy,
        ):
            yield server, proxy


async def echo(call: Call) -> Any:
    return call.data


async def cut_off(proxy: FaultyProxy, server: Node, peers: int) -> None:
    """All of them lose their transport and find no other."""
    await eventually(lambda: len(server.peers) == peers)
    proxy.stall()
    proxy.cut()
    await eventually(lambda: all(peer.is_suspended for peer in server.peers))


async def test_so_many_of_one_node_id() -> None:
    async with (
        server_behind(parted_per_id=2) as (server, proxy),
        new_node(resume=20.0) as client,
    ):
        for _ in range(4):
            await client.connect(proxy.address)
        await cut_off(proxy, server, 4)
        await eventually(lambda: len(server.peers) == 2)
        assert all(peer.is_suspended for peer in server.peers)


async def test_so_many_of_all() -> None:
    """The node id that has most gives way: the other one keeps its session."""
    async with (
        server_behind(parted_sessions=3) as (server, proxy),
        new_node(resume=20.0) as many,
        new_node(resume=20.0) as one,
    ):
        await one.connect(proxy.address)
        for _ in range(4):
            await many.connect(proxy.address)
        await cut_off(proxy, server, 5)
        await eventually(lambda: len(server.peers) == 3)
        ids = [peer.node_id for peer in server.peers]
        assert ids.count(one.node_id) == 1


# Sessions for each of `--rounds`, of which a quarter is kept: a thousand with 200.
SESSIONS: Final = 5
OF_ONE_ID: Final = 8  # as many as are kept
ANSWER: Final = 20_000  # Bytes that the caller has not acknowledged.


@pytest.mark.slow
async def test_memory_is_flat_however_many_there_were(
    rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # A record keeps its subject.
    most = SESSIONS * rounds // 4
    async with (
        new_node(resume=20.0, parted_sessions=most) as server,
        new_node(resume=20.0) as friend,
    ):
        server.on_call("echo")(echo)
        address = await server.listen("tcp://127.0.0.1:0")
        good = await friend.connect(address)
        cores, sizes = living(Connection), []
        tracemalloc.start()
        try:
            ids = SESSIONS * rounds // OF_ONE_ID
            for number in range(1, ids + 1):
                await come_and_go(server, address)
                assert len(suspended_of(server)) <= most
                if number in (ids // 2, ids):
                    assert len(suspended_of(server)) == most
                    assert living(Connection) - cores == most
                    sizes.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert suspended_of(server).held > most * ANSWER
        assert sizes[1] < 1.1 * sizes[0]
        assert await good.call("echo", 1) == 1


async def come_and_go(server: Node, address: str) -> None:
    """Sessions of a new node, each of which loses its transport for good."""
    async with new_node(resume=20.0) as client:
        for _ in range(OF_ONE_ID):
            peer = await client.connect(address)
            await peer.call("echo", bytes(ANSWER))
            peer.live.lost("it never comes back")
        await eventually(lambda: len(server.peers) == len(suspended_of(server)) + 1)


async def test_so_much_of_all() -> None:
    """No data may be kept at all: a session with unacknowledged data is not kept."""
    async with (
        server_behind(parted_memory=0) as (server, proxy),
        new_node(resume=20.0) as client,
    ):
        server.on_call("echo")(echo)
        peer = await client.connect(proxy.address)
        assert await peer.call("echo", 1) == 1
        await eventually(lambda: len(server.peers) == 1)
        back = server.peers[0]
        proxy.stall()
        proxy.cut()
        await back.closed()
        assert server.peers == []
        with pytest.raises(PeerClosedError):
            await back.call("echo", 1)
    assert config().parted_memory == 64 * 2**20


@pytest.mark.parametrize("when", ["before", "after"])
async def test_all_memory_of_a_suspended_session_counts(when: str) -> None:
    """Waiting data counts as well as sent data, also when it grows later. The session of the node
    ID with the most data ends.
    """
    async with (
        server_behind(parted_memory=1 << 20) as (server, proxy),
        new_node(resume=20.0) as greedy,
        new_node(resume=20.0) as other,
        anyio.create_task_group() as tasks,
    ):
        for client in (greedy, other):
            await client.connect(proxy.address)
        await eventually(lambda: len(server.peers) == 2)
        back, modest = sorted(server.peers, key=lambda peer: peer.node_id != greedy.node_id)
        failed = []

        async def call(number: int) -> None:
            with pytest.raises(PeerClosedError):
                await back.call("x", bytes(100_000))
            failed.append(number)

        def ask() -> None:
            for number in range(20):
                tasks.start_soon(call, number)

        proxy.stall()
        if when == "before":
            ask()
            await eventually(lambda: back.live.core.memory > 1 << 20)
        proxy.cut()
        if when == "after":
            await eventually(lambda: len(suspended_of(server)) == 2)
            assert suspended_of(server).held < 100_000
            ask()
        with anyio.fail_after(5):
            await back.closed()
        await eventually(lambda: len(failed) == 20)
        await eventually(lambda: modest.is_suspended)
        assert server.peers == [modest]
        assert suspended_of(server).held < 100_000
        assert back.live.core.memory == 0
        assert back.live.core.account.on_charge is None
        tasks.cancel_scope.cancel()
