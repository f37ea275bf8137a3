"""The client: it connects or raises the reason, and has its own handlers."""

from math import inf
from typing import Any

import anyio
import pytest

from parley import CallTimeout, NamedEvent, Node, ParleyError, PeerClosedError, UnreachableError
from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.named import NamedClient
from parley._node.protocol.errors import LimitReachedError
from tests.node.gateways import restarts
from tests.node.gateways.named_sides import client_of, gateway
from tests.node.network import PATIENCE, started

pytestmark = pytest.mark.anyio


async def test_nobody_answers() -> None:
    async with gateway("plain") as served:
        address = served.addresses[0]
    client = NamedClient(address)
    with pytest.raises(UnreachableError):
        async with client:
            pytest.fail("connected")
    with pytest.raises(ParleyError, match="not connected"):
        client.emit("ping")
    with pytest.raises(UnreachableError, match="no answer within"):
        async with NamedClient(address, timeout=0.0):
            pytest.fail("connected")


async def test_replies_without_an_end_do_not_use_a_slot_forever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("parley._node.remote.emission.REPLY_TIMEOUT", 0.05)
    limits = DialectLimits(requests=2)
    async with gateway("plain") as served, client_of(served, limits=limits) as client:

        @served.node.on("ping")
        async def ping(event: NamedEvent) -> Any:
            return event.data

        for number in range(2):
            async for reply in client.emit("ping", number).replies():
                assert reply.data == number
                break  # the emitter doesn't report that it wants no further replies
        with pytest.raises(LimitReachedError, match="events already wait"):
            await client.emit("ping", 2).reply(timeout=PATIENCE)
        await anyio.sleep(0.2)
        assert (await client.emit("ping", 3).reply(timeout=PATIENCE)).data == 3
        async with client.emit("ping", 4).replies(timeout=inf) as replies:
            assert (await anext(replies)).data == 4


async def test_events_wait_for_the_connection_and_replies_end_with_it() -> None:
    def offer(node: Node) -> None:
        restarts.offer(node)

        @node.on("format")
        async def format_of(event: NamedEvent) -> Any:
            return event.format

    async with restarts.serving(restarts.named, offer) as served:
        await served.stop()
        client = NamedClient(served.address, flavour="typed", format="json", pauses=restarts.QUICK)
        with pytest.raises(ParleyError, match="async with"):
            await client.emit("echo", 1)
        async with client, anyio.create_task_group() as tasks:
            with pytest.raises(CallTimeout):
                await anext(client.emit("echo", 1).replies(timeout=0.02))

            async def emit() -> None:
                await client.emit("echo", 1)

            sent = await started(tasks, emit)
            assert not sent
            await served.start()
            reply = await client.emit("format", [2]).reply(timeout=PATIENCE)
            assert reply.data == 3  # JSON, the client's format
            assert sent == [None]

            async with client.emit("hang").replies() as replies:
                hanging = await started(tasks, replies.__anext__)
                await served.kill()
            assert isinstance(hanging[0], PeerClosedError)
            await served.start()
            assert (await client.emit("echo", 3).reply(timeout=PATIENCE)).data == 3


async def test_the_offering_is_for_each_connection() -> None:
    async with restarts.serving(restarts.named) as served:
        client = NamedClient(served.address, flavour="typed", pauses=restarts.QUICK)

        @client.registrar.on("question")
        async def question(event: NamedEvent) -> Any:
            return ["answered", event.data]

        async with client:
            for count in (1, 2):
                await client.ready()
                await served.server.until(lambda: bool(served.server.peers))
                (guest,) = served.server.peers
                reply = await guest.emit("question", count).reply(timeout=PATIENCE)
                assert reply.data == ["answered", count]
                await served.stop()
                await served.start()
