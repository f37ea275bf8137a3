"""The calls that every server answers, between two nodes in this process."""

from importlib.metadata import version

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._lbm.codec import Value
from parley._node.cli.serve.builtin import offer_builtin_calls
from parley._node.dialects.named.codec import Flavour
from parley._node.gateways.named import NamedClient, NamedGateway
from parley._node.messaging.formats import Format
from parley._node.messaging.payloads import Tandem
from parley._node.node import Node

pytestmark = pytest.mark.anyio

DATA: list[Value] = [None, "", b"", b"\xff", -0.0, 2**64 - 1, [{"a": [None, True]}], {}]


async def test_echo_and_info(anyio_backend: str) -> None:
    async with Node(Identity.create()) as server, Node(Identity.create()) as client:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
            for data in DATA:
                assert await peer.call("parley.echo", data) == data
                assert (await peer.emit("parley.echo", data).reply()).data == data
            info = await peer.call("parley.info")
            await peer.close()
    assert isinstance(info, dict)
    assert info["name"] == "parley"
    assert info["version"] == version("parley-node")
    assert info["node_id"] == str(server.node_id)
    assert info["caller"] == str(client.node_id)
    assert info["role"] == "peer"
    assert info["encrypted"] is True
    assert info["suite"] == peer.suite.names() if peer.suite else False
    assert info["peers"] == 1


@pytest.mark.parametrize("flavour", [Flavour.PLAIN, Flavour.TYPED])
async def test_an_event_in_the_dialect_is_echoed_byte_for_byte(
    anyio_backend: str, flavour: Flavour
) -> None:
    async with Node(Identity.create()) as server, NamedGateway(server, flavour=flavour) as gateway:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            async with NamedClient(
                await gateway.listen("tcp://127.0.0.1:0"), flavour=flavour
            ) as to:
                for raw in (
                    b"\xc0 of no format",
                    b'\x03{"a": 1}',
                    Tandem(b"1", b"2").encode(),
                    b"y",
                ):
                    assert (await to.emit("parley.echo", raw, format="raw").reply()).raw == raw
                nothing = await to.emit("parley.echo", b"", format="raw").reply()
    assert nothing.data is None if flavour == "typed" else nothing.raw == b""


async def test_a_native_event_is_echoed_in_its_format(anyio_backend: str) -> None:
    async with Node(Identity.create()) as server, Node(Identity.create()) as client:
        offer_builtin_calls(server)
        with anyio.fail_after(10):
            peer = await client.connect(await server.listen("tcp://127.0.0.1:0"))
            reply = await peer.emit("parley.echo", [1], format="json").reply()
            raw = await peer.emit("parley.echo", b"\x00", format="raw").reply()
    assert (reply.format, reply.raw) == (Format.JSON, b"[1]")
    assert (raw.format, raw.raw) == (None, b"\x00")
