"""Tests of node/testing/nodes.py: connected nodes, and nodes that cannot connect."""

import pytest
from anyio import fail_after

from parley import HandshakeError, Node, NotTrustedError
from parley._crypto.identity import Identity
from parley._node.testing import FakeClock, connect_nodes, connected_nodes
from parley._node.trust.policies import OneOf, Pinned
from tests.node.network import config, new_node

pytestmark = pytest.mark.anyio


@pytest.mark.usefixtures("leaves_nothing")
async def test_two_new_nodes() -> None:
    with fail_after(5):
        async with connected_nodes() as pair:
            assert pair.peer.node_id == pair.server.node_id
            assert pair.back.node_id == pair.client.node_id
            assert pair.peer.node_id != pair.back.node_id
            assert pair.peer.encrypted
            pair.server.on_call("echo")(lambda call: call.data)
            pair.client.on_call("echo")(lambda call: call.data)
            assert await pair.peer.call("echo", 1, timeout=5) == 1
            assert await pair.back.call("echo", 2, timeout=5) == 2
        assert not pair.peer.is_open


async def test_nodes_of_the_test_s_own() -> None:
    client, server = new_node(role="client"), new_node(role="server")
    async with connected_nodes(client, server) as pair:
        assert (pair.client, pair.server) == (client, server)
        assert (pair.peer.role, pair.back.role) == ("server", "client")


async def test_the_clock_is_that_of_new_nodes() -> None:
    clock = FakeClock(start=77)
    async with connected_nodes(clock=clock) as pair:
        assert pair.peer.backend.now() == pair.back.backend.now() == 77


async def test_nodes_that_run_are_joined_and_left_running() -> None:
    with fail_after(5):
        async with new_node() as a, new_node() as b, new_node() as c:
            for node in (a, b, c):
                node.on_call("who")(lambda call, node=node: str(node.node_id))
            ab, ba = await connect_nodes(a, b)
            bc, _ = await connect_nodes(b, c)
            ca, _ = await connect_nodes(c, a, trust=Pinned(a.node_id))
            ids = [await peer.call("who", timeout=5) for peer in (ab, bc, ca, ba)]
            assert ids == [str(node.node_id) for node in (b, c, a, a)]
            assert [len(node.peers) for node in (a, b, c)] == [2, 2, 2]


@pytest.mark.usefixtures("leaves_nothing")
async def test_untrusted_node_raises_as_in_connect() -> None:
    stranger = Identity.create().node_id
    with fail_after(5):
        async with new_node() as a, new_node(OneOf({stranger})) as b:
            with pytest.raises(NotTrustedError):
                await connect_nodes(a, b)
            with pytest.raises(NotTrustedError):
                await connect_nodes(b, a, trust=Pinned(stranger))
            assert (a.peers, b.peers) == ([], [])


@pytest.mark.usefixtures("leaves_nothing")
async def test_nodes_without_a_common_algorithm() -> None:
    other = config(algorithms={"kex": ("x25519-mlkem768",)})
    with fail_after(5), pytest.raises(HandshakeError):
        async with connected_nodes(new_node(), Node(Identity.create(), config=other)):
            pytest.fail("they have no key exchange in common")


@pytest.mark.usefixtures("leaves_nothing")
async def test_the_body_s_own_error_comes_through() -> None:
    with fail_after(5), pytest.raises(ZeroDivisionError):
        async with connected_nodes():
            raise ZeroDivisionError
