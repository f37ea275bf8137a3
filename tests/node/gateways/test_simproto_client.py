"""SimProto clients: how they connect, over which transports, and how they leave."""

import anyio
import pytest

from parley import Call, PeerClosedError, UnreachableError
from parley._node.errors import AddressError, ConfigError, ParleyError
from parley._node.protocol.codes import CloseCode
from parley._node.transport.memory import memory_pair
from parley.dialects import SimProtoClient, SimProtoGateway
from tests.node.gateways.simproto_sides import offer, served
from tests.node.network import PATIENCE, new_node, nothing_left

pytestmark = pytest.mark.anyio


async def test_over_a_pair_in_memory() -> None:
    with nothing_left(), anyio.fail_after(PATIENCE):
        async with (
            new_node(drain_timeout=0) as node,
            SimProtoGateway(node) as gateway,
            anyio.create_task_group() as tasks,
        ):
            offer(node)
            ours, theirs = memory_pair()
            tasks.start_soon(gateway.serve_stream, theirs)
            async with SimProtoClient.over(ours) as client:
                assert await client.call("echo", b"x" * 100_000) == b"x" * 100_000
                assert client.peer.node_id is None
        assert (await client.closed()).code == CloseCode.NORMAL


async def test_it_offers_what_a_node_has() -> None:
    async with new_node() as other, served() as sides:
        offer(other)

        @sides.node.on_call("ask back")
        async def ask_back(call: Call) -> object:
            return await call.peer.call("text")

        async with SimProtoClient(sides.address, registrar=other.registrar) as client:
            assert await client.call("ask back") == "grüße".encode()


async def test_no_server_at_the_address() -> None:
    with nothing_left():
        with pytest.raises(UnreachableError):
            await SimProtoClient("tcp://127.0.0.1:1").__aenter__()
        with pytest.raises(AddressError):
            SimProtoClient("echo")
        with pytest.raises(ConfigError):
            SimProtoClient("tcp://127.0.0.1:1", values="xml")  # type: ignore[arg-type]  # wrong


async def test_its_life() -> None:
    async with served() as sides:
        client = SimProtoClient(sides.address)
        assert [client.is_open] == [False]
        with pytest.raises(ParleyError, match="not connected"):
            await client.call("echo")
        async with client:
            assert [client.is_open] == [True]
            assert "127.0.0.1" in repr(client)
            with pytest.raises(ParleyError, match="running already"):
                await client.__aenter__()
            await client.close()
            assert (await client.closed()).code == CloseCode.NORMAL
            with pytest.raises(PeerClosedError):
                await client.call("echo")


async def test_an_exception_is_the_callers_own() -> None:
    async def fail(address: str) -> None:
        async with SimProtoClient(address) as client:
            await client.call("echo")
            raise RuntimeError("mine")

    with nothing_left():
        async with served() as sides:
            with pytest.raises(RuntimeError, match="mine"):
                await fail(sides.address)
