"""The limits of a running node can change, and no other settings."""

from dataclasses import replace
from typing import Any

import pytest

from parley import Call, Node, NodeConfig
from parley._crypto.identity import Identity
from parley._node.config import CHANGEABLE
from parley._node.protocol.limits import Limits
from parley._node.testing import connect_nodes
from parley.errors import ConfigError, ParleyError
from tests.inspection import accept, half_open_of, memory_of, once_of
from tests.node.network import config, meeting, new_node
from tests.node.tuned import changed as tuned_changed

pytestmark = pytest.mark.anyio


def changed(node: Node, **settings: Any) -> NodeConfig:
    return tuned_changed(node.config, **settings)


async def test_connection_limits_apply_immediately() -> None:
    async with meeting() as met:
        server = met.server
        server.change_limits(changed(server, max_connections=1))
        assert accept(server, "192.0.2.1") is not None
        assert accept(server, "192.0.2.1") is None
        assert server.turned_away == 1
        server.change_limits(changed(server, max_connections=9, handshakes_per_second=0.1))
        assert accept(server, "192.0.2.1") is not None
        assert accept(server, "192.0.2.1") is None
        server.change_limits(changed(server, half_open=1))
        assert accept(server, "192.0.2.1") is not None  # with a full burst again
        assert len(half_open_of(server)) == 1


async def test_agreed_limits_apply_from_the_next_connection() -> None:
    async with meeting() as met, new_node() as other:
        server = met.server

        @server.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        limits = replace(server.config.limits, max_payload=4_096)
        server.change_limits(changed(server, limits=limits, peer_memory=9 << 20))
        assert met.peer.limits.max_payload > 4_096
        peer, _ = await connect_nodes(other, server)
        assert peer.limits.max_payload == 4_096
        assert await peer.call("echo", "x") == "x"
        assert await met.peer.call("echo", "x" * 5_000) == "x" * 5_000


async def test_total_memory_limit_applies_immediately() -> None:
    async with meeting() as met:
        server = met.server
        server.change_limits(changed(server, memory=2 << 20, once_memory=1 << 20))
        assert (memory_of(server).limit, once_of(server).total.limit) == (2 << 20, 1 << 20)


@pytest.mark.parametrize(
    "settings", [{"role": "server"}, {"plaintext": "both"}, {"network_key": bytes(31) + b"1"}]
)
async def test_other_settings_cannot_change(settings: dict[str, Any]) -> None:
    assert not settings.keys() & CHANGEABLE
    async with new_node() as node:
        was = node.config
        with pytest.raises(ConfigError, match="it is not a limit"):
            node.change_limits(changed(node, max_connections=3, **settings))
        assert node.config is was


async def test_stopped_node_keeps_its_settings() -> None:
    node = Node(Identity.create(), config=config())
    with pytest.raises(ParleyError):
        node.change_limits(changed(node, limits=Limits()))
