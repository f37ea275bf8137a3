"""A federation starts and stops with its `async with`, however that ends, and leaves nothing
open.
"""

from contextlib import suppress

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._node.backoff import Backoff
from parley._node.errors import ConfigError, ParleyError, UnreachableError
from parley._node.node import Node
from parley._node.protocol.codes import FEDERATION_LABEL, TUNNEL_LABEL
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from parley._node.testing.nodes import MemoryNetwork
from tests.node.network import PATIENCE, eventually, new_node, nothing_left

pytestmark = pytest.mark.anyio


def settings(*members: Node, **others: str) -> FederationSettings:
    links = tuple(MemoryNetwork.address(one) for one in members)
    return FederationSettings(links=links, exports=("a",), **others)  # type: ignore[arg-type]  # texts


class GivenUpError(Exception):
    pass


async def leave(ours: Federation, theirs: Federation, how: str) -> None:
    """Enter a federation, and leave it once the link is up."""
    with anyio.CancelScope() as scope:
        async with ours:
            await eventually(lambda: ours.links[0].peer is not None and len(theirs.links) == 1)
            if how == "error":
                raise GivenUpError
            if how == "cancelled":
                scope.cancel()
                await anyio.sleep_forever()


async def live(how: str) -> None:
    one, other = new_node(), new_node()
    async with MemoryNetwork() as network, one, other:
        network.add(one, other)
        only = FederationSettings(members=(str(one.node_id),))
        async with Federation(other, only, dial=network.dial_from(other)) as theirs:
            for _ in range(2):  # with another one, the node is a server again
                ours = Federation(one, settings(other), dial=network.dial_from(one))
                with suppress(GivenUpError):
                    await leave(ours, theirs, how)
                assert not {FEDERATION_LABEL, TUNNEL_LABEL} & one.handlers.reserved.keys()
                assert not one.handlers.exported("a")
                assert one.handlers.accounts is None
                assert [link.peer for link in ours.links] == [None]
                await eventually(lambda: not one.peers)


async def test_stopped_federation_cannot_reach_servers() -> None:
    async with new_node() as one, new_node() as other:
        async with Federation(one, settings(other)) as federation:
            pass
        with pytest.raises(UnreachableError):
            await federation.reach(other.node_id)


@pytest.mark.parametrize("how", ["in order", "error", "cancelled"])
async def test_it_leaves_nothing(how: str) -> None:
    with nothing_left(), anyio.fail_after(PATIENCE):
        await live(how)


async def test_ready_returns_once_paths_exist() -> None:
    with anyio.fail_after(PATIENCE):
        async with MemoryNetwork() as network, new_node() as one, new_node() as other:
            network.add(one, other)
            network.close(one, other)
            quick = Backoff(first=0.01, longest=0.02)
            ours = Federation(one, settings(other), dial=network.dial_from(one), pauses=quick)
            theirs = Federation(other, FederationSettings(members=(str(one.node_id),)))
            with pytest.raises(ParleyError, match="not running"):
                await ours.ready()
            async with ours, theirs:
                for servers in ((), (other.node_id,)):
                    with pytest.raises(
                        UnreachableError, match=f"cannot reach {other.node_id.short}"
                    ):
                        await ours.ready(*servers, timeout=0.01)
                await theirs.ready()  # it doesn't dial
                network.open(one, other)
                await ours.ready()
                await ours.ready(other.node_id)
                await theirs.ready(one.node_id)


async def test_a_node_is_one_server_and_has_no_home_beside() -> None:
    async with new_node() as node, Federation(node, settings(accounts="any")):
        again = Federation(node, settings())
        with pytest.raises(ParleyError, match="cannot start a federation"):
            await again.__aenter__()
        assert FEDERATION_LABEL in node.handlers.reserved
    with pytest.raises(ParleyError):  # the node is not running
        await Federation(node, settings()).__aenter__()


def test_what_cannot_be() -> None:
    node = Node(Identity.create())
    with pytest.raises(ConfigError, match="this server's own node ID"):
        Federation(node, settings(node))
    too_much = tuple(f"{number:0>200}" for number in range(60))
    with pytest.raises(ConfigError, match="cannot make a card of"):
        Federation(node, FederationSettings(exports=too_much))
