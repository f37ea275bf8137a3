"""Guests are unauthenticated, so no node ID or role in `allow=` ever matches them.

Only a guest whose connection runs over an encrypted native connection is identified.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from parley import Call, CallRefused, Node, SubscribeRefused
from parley._node.gateways.named import NamedClient, NamedGateway
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway, offer_simproto
from parley._node.protocol.codes import ResultCode
from parley._node.remote.requests import NamedEvent
from parley.dialects import Guest
from tests.node.network import PATIENCE, meeting, new_node

MEMBER: Final = "member"
PLACE: Final = "tcp://127.0.0.1:0"


def rules(node: Node) -> dict[str, Any]:
    """Return the permissions that `allow=` can name, by name."""
    node.roles.assign(node.node_id, MEMBER)
    return {
        "id": node.node_id,
        "text": str(node.node_id),
        "role": MEMBER,
        "several": [node.node_id, MEMBER, "peer"],
        "nobody": [],
    }


@asynccontextmanager
async def node_with_rules() -> AsyncIterator[tuple[Node, list[str]]]:
    """Return a node with a call, a topic and an event for each permission, and a list of the
    handlers that ran.
    """
    ran: list[str] = []

    def handler(name: str) -> Callable[[Any], None]:
        return lambda request: ran.append(name)

    with anyio.fail_after(PATIENCE):
        async with new_node() as node:
            for name, allow in rules(node).items():
                node.on_call(name, allow=allow)(handler(name))
                node.on(name, allow=allow)(handler(name))
                node.topic(name, allow=allow)
            yield node, ran


async def test_no_id_and_no_role_lets_a_simproto_client_in(anyio_backend: str) -> None:
    async with node_with_rules() as (node, ran), SimProtoGateway(node) as gateway:
        async with SimProtoClient(await gateway.listen(PLACE)) as client:
            for name in rules(node):
                with pytest.raises(CallRefused):
                    await client.call(name, bytes(node.node_id))
                with pytest.raises(SubscribeRefused):
                    await client.subscribe(name, str(node.node_id)).__aenter__()
        assert ran == []


async def test_no_id_and_no_role_lets_an_emitter_in(anyio_backend: str) -> None:
    async with node_with_rules() as (node, ran), NamedGateway(node) as gateway:
        async with NamedClient(await gateway.listen(PLACE)) as client:
            for name in rules(node):
                with pytest.raises(CallRefused) as caught:
                    await client.emit(name, str(node.node_id)).reply(timeout=PATIENCE)
                assert caught.value.code == ResultCode.NOT_AUTHORISED
        assert ran == []


async def test_a_function_is_told_that_it_is_a_guest(anyio_backend: str) -> None:
    seen: list[tuple[Any, ...]] = []

    def look(peer: Any, name: str) -> bool:
        seen.append((type(peer).__mro__[1], peer.node_id, peer.encrypted, peer.role, name))
        return True

    with anyio.fail_after(PATIENCE):
        async with (
            new_node() as node,
            SimProtoGateway(node) as simproto,
            NamedGateway(node) as named,
        ):
            node.on_call("call", allow=look)(_nothing)
            node.topic("topic", allow=look)
            node.on("event", allow=look)(_nothing)
            async with SimProtoClient(await simproto.listen(PLACE)) as client:
                await client.call("call")
                async with client.subscribe("topic"):
                    pass
            async with NamedClient(await named.listen(PLACE)) as emitter:
                await emitter.emit("event", 1).reply(timeout=PATIENCE)
    assert seen == [(Guest, None, False, "", name) for name in ("call", "topic", "event")]


async def test_an_unencrypted_connection_carries_nobody(anyio_backend: str) -> None:
    """With SimProto over a stream, the guest has the peer's ID only if the peer has proved one."""
    async with meeting(plaintext="only") as met:
        assert not met.back.encrypted
        offer_simproto(met.server)
        guests: list[Any] = []

        @met.server.on_call("anyone")
        async def anyone(call: Call) -> None:
            guests.append(call.peer)

        met.server.on_call("mine", allow=met.client.node_id)(_nothing)
        async with SimProtoClient.over(met.peer.open_stream("simproto")) as client:
            await client.call("anyone")
            with pytest.raises(CallRefused):
                await client.call("mine")
        assert [(guest.node_id, guest.encrypted) for guest in guests] == [(None, False)]


def _nothing(request: Call | NamedEvent) -> str:
    return "nothing"
