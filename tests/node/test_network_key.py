"""Nodes with different network keys, or without one: the errors on both sides."""

import logging

import pytest

from parley._node.errors import HandshakeError
from parley._node.protocol.codes import CloseCode
from parley._node.testing import connect_nodes
from tests.node.network import eventually, new_node

pytestmark = pytest.mark.anyio

ONE, OTHER = bytes([1]) * 32, bytes([2]) * 32
CASES = {
    "at the initiator alone": (
        ONE,
        None,
        (CloseCode.BAD_RECORD, "the peer does not have this node's network key"),
        "the peer uses a network key, but this node has none; set network_key",
    ),
    "at the responder alone": (
        None,
        ONE,
        (CloseCode.CONNECTION_LOST, "the other side closed the connection during the handshake"),
        "wrong network MAC: the peer has no network key",
    ),
    "another at each": (
        ONE,
        OTHER,
        (CloseCode.CONNECTION_LOST, "the other side closed the connection during the handshake"),
        "wrong network MAC: the peer has another network key",
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "raised", "logged"), CASES.values(), ids=CASES)
async def test_a_network_key_that_the_other_side_does_not_have(
    anyio_backend: str,
    caplog: pytest.LogCaptureFixture,
    ours: bytes | None,
    theirs: bytes | None,
    raised: tuple[CloseCode, str],
    logged: str,
) -> None:
    caplog.set_level(logging.INFO)
    async with new_node(network_key=ours) as client, new_node(network_key=theirs) as server:
        with pytest.raises(HandshakeError, match=raised[1]) as caught:
            await connect_nodes(client, server)
        assert caught.value.code == raised[0]
        await eventually(lambda: logged in caplog.text)


async def test_the_same_network_key_at_both(anyio_backend: str) -> None:
    async with new_node(network_key=ONE) as client, new_node(network_key=ONE) as server:
        peer, _ = await connect_nodes(client, server)
        assert await peer.ping() >= 0
