"""An exception inside an `async with` of the public API is raised as itself, not in a group."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest

from parley._node.settings import FederationSettings
from parley._node.testing import ConnectedNodes
from parley._node.trust.policies import AnyPeer
from parley.console import Console, serve_console
from parley.dialects import SimProtoClient, SimProtoGateway
from parley.errors import BusUnavailableError
from parley.federation import Federation
from parley.testing import FaultyLink, FaultyProxy, MemoryNetwork, connected_nodes
from tests.node.network import meeting, new_node
from tests.sweep import sweep

pytestmark = pytest.mark.anyio

# The server's address, to dial it again.
Entered = Callable[[ConnectedNodes, str], AbstractAsyncContextManager[Any]]

ENTERED: dict[str, Entered] = {
    "node": lambda *_: new_node(),
    "peer": lambda met, _: met.peer,
    "link": lambda met, place: met.client.link(place, trust=AnyPeer()),
    "home": lambda met, place: met.client.home(place, trust=AnyPeer()),
    "stream": lambda met, _: met.peer.open_stream("bytes"),
    "subscription": lambda met, _: met.peer.subscribe("news"),
    "answer": lambda met, _: met.peer.call_stream("items"),
    "replies": lambda met, _: met.peer.emit("items").replies(),
    "federation": lambda met, _: Federation(met.server, FederationSettings()),
    "gateway": lambda met, _: SimProtoGateway(met.server),
    "client": lambda met, place: SimProtoClient(place.partition("#")[0]),
    "console": lambda met, _: Console(met.server),
    "page": lambda met, _: serve_console(Console(met.server), "127.0.0.1:0"),
    "nodes": lambda *_: connected_nodes(),
    "faulty link": lambda *_: FaultyLink(),
    "proxy": lambda *_: FaultyProxy("tcp://127.0.0.1:9"),
    "network": lambda *_: MemoryNetwork(),
}


@sweep("what", ENTERED)
async def test_exception_inside_propagates_unchanged(what: str) -> None:
    error = ValueError("a bug of the program")
    async with meeting() as met:
        place = await met.server.listen("memory://server")
        met.server.topic("news")
        with pytest.raises(ValueError, match="a bug of the program") as raised:
            async with ENTERED[what](met, place):
                raise error
        assert raised.value is error


class Unclosable:
    """Buses of a peer, whose store is gone."""

    async def aclose(self) -> None:
        raise BusUnavailableError("the disk is full")


async def test_error_while_a_node_stops_propagates_unchanged() -> None:
    with pytest.raises(BusUnavailableError, match="the disk is full"):
        async with meeting() as met:
            met.peer._buses = cast("Any", Unclosable())
