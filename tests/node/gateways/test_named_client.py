"""The client: it connects or says why not, and has handlers of its own."""

from typing import Any

import pytest

from node import (
    Guest,
    NamedEvent,
    ParleyError,
    UnreachableError,
)
from node.gateways.named import FlavourName
from node.gateways.named_client import NamedClient
from tests.node.gateways.named_sides import FLAVOURS, gateway, joined
from tests.node.network import PATIENCE

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("flavour", FLAVOURS)


@both
async def test_the_server_emits_as_well(anyio_backend: str, flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client):

        @client.offering.on("question")
        async def question(event: NamedEvent) -> Any:
            return ["answered", event.data]

        @served.node.on("ask")
        async def ask(event: NamedEvent) -> Any:
            assert isinstance(event.peer, Guest)
            answer = await event.peer.emit("question", "why?").reply(timeout=PATIENCE)
            return answer.data

        reply = await client.emit("ask").reply(timeout=PATIENCE)
        assert reply.data == ["answered", "why?"]


async def test_nobody_answers(anyio_backend: str) -> None:
    async with gateway("plain") as served:
        address = served.addresses[0]
    client = NamedClient(address)
    with pytest.raises(UnreachableError):
        async with client:
            pytest.fail("connected")
    with pytest.raises(ParleyError, match="not connected"):
        client.emit("ping")
    with pytest.raises(UnreachableError, match="did not answer"):
        async with NamedClient(address, timeout=0.0):
            pytest.fail("connected")
