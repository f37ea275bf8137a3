"""The calls that every server answers, between two nodes in this process."""

from importlib.metadata import version

import anyio
import pytest

from crypto.identity import Identity
from lbm.codec import Value
from node.cli.builtin import offer_builtin_calls
from node.node import Node

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
