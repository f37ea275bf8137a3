"""A client of the relay: its inbox, its errors, its life."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from node.dialects.limits import RelayLimits
from node.dialects.relay.codec import RelayFault
from node.errors import AddressError, ParleyError, PeerClosedError, UnreachableError
from node.gateways.relay.client import RelayClient
from node.protocol.codes import CloseCode
from node.protocol.errors import PayloadTooLargeError
from tests.node.gateways.relays import clients_of, raw, read, relaying
from tests.node.network import PATIENCE, eventually, ground, settled


async def test_what_the_relay_reports_is_told_and_counted(
    anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
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


async def test_what_is_not_read_is_bounded_and_then_read_on(anyio_backend: str) -> None:
    async with (
        relaying(write_buffer=32 << 20) as (relay, address),
        clients_of(relay, address, 1) as (sender,),
        clients_of(relay, address, 1, limits=RelayLimits(client_memory=100_000)) as (reader,),
    ):
        for n in range(400):
            await sender.send(reader.uuid, n.to_bytes(4) + bytes(60_000))
        link = reader._connected()
        await eventually(lambda: not link.client.wants_data)
        waiting = sum(len(one.payload) for one in link.inbox)
        assert waiting < 100_000 + 600_000  # what one receive brings comes on top
        for n in range(400):
            [(_, payload, _)] = await read(reader)
            assert payload[:4] == n.to_bytes(4)
        assert relay.dropped == 0


@asynccontextmanager
async def somebody(
    serve: Callable[[SocketStream], Awaitable[None]],
) -> AsyncIterator[str]:
    """The address of a server that is not a relay."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        port = listener.extra_attributes[SocketAttribute.local_port]()
        with anyio.fail_after(PATIENCE):
            yield f"tcp://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def test_a_sender_waits_for_who_does_not_read(anyio_backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, anyio.fail_after(PATIENCE):
        async with RelayClient(f"tcp://127.0.0.1:{server.getsockname()[1]}") as client:
            with anyio.move_on_after(0.3) as scope:
                for _ in range(1_000):
                    await client.broadcast(bytes(65_536))
            assert scope.cancelled_caught
            link = client._connected()
            assert link.driver.core.queued_bytes <= link.driver.high_water + 70_000
            link.drop()


async def test_what_cannot_be_sent(anyio_backend: str) -> None:
    limits = RelayLimits(longest_frame=1_000)
    async with (
        relaying() as (relay, address),
        clients_of(relay, address, 1, limits=limits) as (client,),
    ):
        await client.broadcast(bytes(968))
        with pytest.raises(PayloadTooLargeError, match="at most 968"):
            await client.broadcast(bytes(969))
        with pytest.raises(ValueError, match="use broadcast"):
            await client.send(UUID(int=0), b"")


async def test_closed_by_us_it_ends_in_order(anyio_backend: str) -> None:
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


async def test_reading_ends_when_it_is_closed_by_another_task(anyio_backend: str) -> None:
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


async def test_a_lost_relay_is_an_error(anyio_backend: str) -> None:
    async def hang_up(stream: SocketStream) -> None:
        async with stream:
            assert await stream.receive(16)

    async with somebody(hang_up) as address, RelayClient(address) as client:
        with pytest.raises(PeerClosedError) as caught:
            await read(client)
        assert caught.value.code == CloseCode.CONNECTION_LOST


async def test_nobody_there(anyio_backend: str) -> None:
    client = RelayClient("tcp://127.0.0.1:9")
    with pytest.raises(UnreachableError):
        await client.__aenter__()
    with pytest.raises(AddressError):
        RelayClient("relay")


async def test_who_does_not_answer_in_time_is_not_there(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object) -> None:
        await anyio.sleep_forever()

    async with ground() as backend:
        monkeypatch.setattr(type(backend), "connect", connect)
    client = RelayClient("tcp://127.0.0.1:9", timeout=0.01)
    with pytest.raises(UnreachableError, match="did not answer in"):
        await client.__aenter__()
    assert not client.is_open


async def test_outside_of_its_block_it_is_not_connected(anyio_backend: str) -> None:
    async with relaying() as (_, address):
        client = RelayClient(address, UUID(int=3))
        assert repr(client) == f"<RelayClient {UUID(int=3)} at {address}>"
        assert not client.is_open
        with pytest.raises(ParleyError, match="not connected"):
            await client.broadcast(b"")
        async with client:
            with pytest.raises(ParleyError, match="running already"):
                await client.__aenter__()


async def test_left_by_an_error_it_hangs_up(anyio_backend: str) -> None:
    async with relaying() as (relay, address):
        with pytest.raises(ZeroDivisionError):
            async with clients_of(relay, address, 1):
                raise ZeroDivisionError
        await relay.until(lambda: not relay.clients)


async def test_each_has_a_uuid_of_its_own(anyio_backend: str) -> None:
    one, two = RelayClient("tcp://127.0.0.1:1"), RelayClient("tcp://127.0.0.1:1")
    assert one.uuid != two.uuid
    assert (one.uuid.version, one.uuid.variant) == (4, "specified in RFC 4122")


async def test_bytes_after_a_farewell_are_not_minded(anyio_backend: str) -> None:
    async with relaying() as (relay, address), await raw(address) as stream:
        await stream.send(bytes(16))
        for _ in range(3):
            await stream.send(bytes(1_000))
        await stream.send_eof()
        await eventually(lambda: not relay._guests)
