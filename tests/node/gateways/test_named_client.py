"""The client: it connects or says why not, and has handlers of its own."""

from math import inf
from typing import Any

import anyio
import pytest

from node.dialects.limits import NamedLimits
from node.gateways.named.client import NamedClient
from node.gateways.named.peer import FlavourName
from node.protocol.errors import LocalProtocolError
from parley import NamedEvent, ParleyError, UnreachableError
from parley.dialects import Guest
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway, joined
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


async def test_replies_without_an_end_do_not_hold_their_place_for_ever(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.remote.emission.REPLY_TIMEOUT", 0.05)
    limits = NamedLimits(events=2)
    async with gateway("plain") as served, client_of(served, limits=limits) as client:

        @served.node.on("ping")
        async def ping(event: NamedEvent) -> Any:
            return event.data

        for number in range(2):
            async for reply in client.emit("ping", number).replies():
                assert reply.data == number
                break  # without a word that no more are wanted
        with pytest.raises(LocalProtocolError, match="wait for replies already"):
            await client.emit("ping", 2).reply(timeout=PATIENCE)
        await anyio.sleep(0.2)
        assert (await client.emit("ping", 3).reply(timeout=PATIENCE)).data == 3
        async with client.emit("ping", 4).replies(timeout=inf) as replies:
            assert (await anext(replies)).data == 4
