"""Servers reach each other through others: what is exported, which way, and what is refused."""

import pytest

from node.errors import CallRefused, ConfigError, TunnelRefusedError
from node.protocol.codes import ResultCode
from node.remote.requests import Call
from tests.node.server.ring import Servers, ring, servers

pytestmark = pytest.mark.anyio


def offer(five: Servers) -> None:
    """Each says who it is, to those that may ask."""
    for number, node in enumerate(five.nodes):

        @node.on_call("who")
        async def who(call: Call, number: int = number) -> list[int | None]:
            path = five.numbers(getattr(call.peer, "path", ()))
            return [number, *(path or ())]

        @node.on_call("secret")
        async def secret(call: Call) -> str:
            return "told"


async def test_a_call_goes_around_the_ring() -> None:
    async with servers(5, ring(5), exports=("who",)) as five:
        offer(five)
        await five.until(five.know_all)
        peer = await five.federations[0].reach(five.nodes[2].node_id)
        assert five.numbers(peer.path) == [0, 1, 2]
        assert peer.node_id == five.nodes[2].node_id
        assert await peer.call("who") == [2, 0, 1, 2]
        with pytest.raises(CallRefused) as caught:
            await peer.call("secret")
        assert caught.value.code == ResultCode.NOT_AUTHORISED
        await peer.close()
