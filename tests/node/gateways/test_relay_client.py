"""A client of the relay: its inbox, its errors, its end."""

import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import RelayFault, RelayMessage
from parley._node.errors import (
    PeerClosedError,
    RelayRefusedError,
)
from parley._node.gateways.relay.client import RelayClient
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import PayloadTooLargeError
from tests.node.gateways import restarts
from tests.node.gateways.relays import clients_of, read, relaying
from tests.node.network import PATIENCE, eventually, settled, started

pytestmark = pytest.mark.anyio


async def test_reported_errors_are_passed_on_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    told: list[RelayFault] = []

    def note(fault: RelayFault) -> None:
        told.append(fault)
        if len(told) == 2:
            raise ZeroDivisionError("a bug of the application's")

    async with (
        relaying() as (relay, address),
        clients_of(relay, address, 1, on_fault=note) as (client,),
    ):
        nowhere = UUID(int=9)
        for _ in range(3):
            await client.send(nowhere, b"")
        await eventually(lambda: client.faults == 3)
        assert told == [RelayFault(5, f"target UUID not connected: {nowhere}")] * 3
        assert client.is_open
        assert "ZeroDivisionError" in caplog.text


@asynccontextmanager
async def somebody(
    serve: Callable[[SocketStream], Awaitable[None]],
) -> AsyncIterator[str]:
    """Yield the address of a server that is not a relay."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra_attributes[SocketAttribute.local_port]()
        with anyio.fail_after(PATIENCE):
            yield f"tcp://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def test_a_sender_waits_for_a_client_that_does_not_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, anyio.fail_after(PATIENCE):
        async with RelayClient(f"tcp://127.0.0.1:{server.getsockname()[1]}") as client:
            with anyio.move_on_after(0.3) as scope:
                for _ in range(1_000):
                    await client.broadcast(bytes(65_536))
            assert scope.cancelled_caught
            await client.close()


async def test_what_cannot_be_sent() -> None:
    limits = DialectLimits(longest_frame=1_000)
    async with (
        relaying() as (relay, address),
        clients_of(relay, address, 1, limits=limits) as (client,),
    ):
        await client.broadcast(bytes(968))
        with pytest.raises(PayloadTooLargeError, match="the limit is 968"):
            await client.broadcast(bytes(969))
        with pytest.raises(ValueError, match="use broadcast"):
            await client.send(UUID(int=0), b"")


async def test_closed_by_us_it_ends_in_order() -> None:
    async with relaying() as (relay, address), clients_of(relay, address, 2) as (one, two):
        await one.send(two.uuid, b"last words")
        await one.close()
        assert not one.is_open
        with pytest.raises(StopAsyncIteration):
            await read(one)
        with pytest.raises(PeerClosedError) as caught:
            await one.broadcast(b"x")
        assert caught.value.code == CloseCode.NORMAL
        assert await read(two) == [(one.uuid, b"last words", False)]
        await relay.until(lambda: relay.clients == [two.uuid])


async def test_reading_ends_when_it_is_closed_by_another_task() -> None:
    got: list[bytes] = []

    async def listen(client: RelayClient) -> None:
        got.extend([one.payload async for one in client])

    async with (
        relaying() as (relay, address),
        clients_of(relay, address, 1) as (client,),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listen, client)
        await client.send(client.uuid, b"one")
        await settled()
        with pytest.raises(anyio.BusyResourceError):
            await read(client)
        await client.close()
        await eventually(lambda: got == [b"one"])


async def test_each_has_a_uuid_of_its_own() -> None:
    one, two = RelayClient("tcp://127.0.0.1:1"), RelayClient("tcp://127.0.0.1:1")
    assert one.uuid != two.uuid
    assert (one.uuid.version, one.uuid.variant) == (4, "specified in RFC 4122")


async def test_reading_goes_on_over_connections() -> None:
    async with (
        restarts.serving(restarts.relay) as served,
        RelayClient(served.address, pauses=restarts.QUICK) as client,
    ):
        await client.send(client.uuid, b"one")
        await client.send(client.uuid, b"two")
        assert await read(client) == [(client.uuid, b"one", False)]
        await settled()
        await served.kill()
        async with anyio.create_task_group() as tasks:
            sent = await started(tasks, lambda: client.broadcast(b""))
            await served.start()
        assert sent == [None]
        await client.send(client.uuid, b"three")
        assert await read(client) == [(client.uuid, b"two", False)]  # it had arrived
        assert client.cuts == 0
        assert await read(client) == [(client.uuid, b"three", False)]
        assert client.cuts == 1

        waiting: list[RelayMessage | BaseException | object]
        async with anyio.create_task_group() as tasks:
            waiting = await started(tasks, client.__anext__)
            await served.stop()
            await served.start()
            await client.send(client.uuid, b"four")
        assert [one.payload for one in waiting if isinstance(one, RelayMessage)] == [b"four"]
        assert client.cuts == 2
        await client.close()
        with pytest.raises(StopAsyncIteration):
            await read(client)
        with pytest.raises(PeerClosedError, match="was closed"):
            await client.broadcast(b"")
        assert client.is_over


async def test_a_taken_uuid_is_asked_for_again() -> None:
    async with relaying() as (relay, address), clients_of(relay, address, 1) as (first,):
        downs: list[Exception] = []
        async with RelayClient(address, first.uuid, pauses=restarts.QUICK) as second:
            second.on_down(downs.append)
            await eventually(lambda: len(downs) > 2)
            assert all(isinstance(one, RelayRefusedError) and one.code == 2 for one in downs)
            assert isinstance(second.error, RelayRefusedError)
            assert second.faults >= len(downs)
            await first.close()
            async with anyio.create_task_group() as tasks:
                got = await started(tasks, second.__anext__)
                while not got:
                    with suppress(PeerClosedError, RelayRefusedError):
                        await second.send(second.uuid, b"in at last")
                    await settled()
            assert second.cuts > 2


@asynccontextmanager
async def flooding(last: int) -> AsyncIterator[str]:
    """Yield the address of a server that sends six numbered messages of 10 kB on each connection.

    It then closes the connection; after message number `last` it stays open.
    """
    firsts = itertools.count(step=6)

    async def flood(stream: SocketStream) -> None:
        async with stream:
            to = await stream.receive(16)
            first = next(firsts)
            with suppress(anyio.BrokenResourceError):  # the client may disconnect at any moment
                for number in range(first, first + 6):
                    payload = number.to_bytes(4) + bytes(9_996)
                    await stream.send((10_032).to_bytes(4) + to + UUID(int=1).bytes + payload)
            if first + 5 >= last:
                with suppress(anyio.EndOfStream):
                    await stream.receive(1)

    async with somebody(flood) as address:
        yield address


async def numbers_of(client: RelayClient, count: int) -> list[int]:
    return [int.from_bytes((await anext(client)).payload[:4]) for _ in range(count)]


async def test_unread_messages_are_limited_across_connections() -> None:
    limits = DialectLimits(client_memory=100_000)
    async with (
        flooding(59) as address,
        RelayClient(address, limits=limits, pauses=restarts.QUICK) as client,
    ):
        await eventually(lambda: client.sessions == 2)
        await settled()
        # The client stops reading the second connection, or it would have opened a third.
        assert (client.sessions, client.is_open) == (2, True)
        assert await numbers_of(client, 60) == list(range(60))
        assert client.cuts == 9


async def test_reading_while_it_connects_frees_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = DialectLimits(client_memory=100_000)
    async with (
        flooding(17) as address,
        RelayClient(address, limits=limits, pauses=restarts.QUICK) as client,
    ):
        connect = type(client.backend).connect
        read_by_then: list[int] = []

        async def connect_slowly(self: Any, place: Any, accept: Any) -> None:
            await connect(self, place, accept)
            core = accept().core
            if client.sessions == 2:
                await eventually(lambda: not core.wants_data)
                await settled()
                read_by_then.extend(await numbers_of(client, len(client._inbox)))

        monkeypatch.setattr(type(client.backend), "connect", connect_slowly)
        await eventually(lambda: len(client._inbox) >= 10)
        client._guest().drop()
        await eventually(lambda: client.sessions == 3)
        assert read_by_then == list(range(len(read_by_then)))
        assert len(read_by_then) >= 10
        assert await numbers_of(client, 6) == list(range(12, 18))


async def test_left_before_it_was_connected_reading_ends() -> None:
    read_on: list[list[RelayMessage] | BaseException | object] = []

    async def read_all() -> None:
        read_on.append([message async for message in client])

    client = RelayClient("tcp://127.0.0.1:1", pauses=restarts.QUICK)
    async with anyio.create_task_group() as tasks, client:
        tasks.start_soon(read_all)
        await settled()
    assert read_on == [[]]
