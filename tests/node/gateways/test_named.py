"""The gateway: which clients it accepts, what it counts, and how it ends."""

from typing import Any

import anyio
import pytest

from parley import CallRefused, CallTimeout, NamedEvent, ParleyError
from parley._node.errors import ConfigError
from parley._node.gateways.named import FlavourName, NamedClient, NamedGateway
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway, joined
from tests.node.network import PATIENCE, new_node

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("flavour", FLAVOURS)


@both
async def test_an_event_without_a_handler_is_ignored_and_counted(flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client):
        served.node.on("here", namespace="known")(_echo)
        served.node.on("there")(_echo)
        for namespace, name in (("", "nowhere"), ("unknown", "there"), ("known", "there")):
            if flavour == "typed":
                reply = await client.emit(name, namespace=namespace).reply(timeout=PATIENCE)
                assert (reply.data, reply.last) == (None, True)
            else:
                with pytest.raises(CallTimeout):
                    await client.emit(name, namespace=namespace).reply(timeout=0.02)
        assert (await client.emit("there", 1).reply(timeout=PATIENCE)).data == 1
        assert served.ignored == 3
        (peer,) = served.peers
        assert peer.ignored == 3
    assert served.ignored == 3


@both
async def test_an_event_emitted_before_leaving_is_handled(flavour: FlavourName) -> None:
    left, heard = anyio.Event(), anyio.Event()
    async with gateway(flavour, clients=1) as served:

        @served.node.on("news")
        async def news(event: NamedEvent) -> str:
            await left.wait()
            await event.emit("too late")
            assert not event.wants_reply
            heard.set()
            return "this is never read"

        async with client_of(served) as client:
            await client.emit("news")
        # It counts as a client until its handler has ended.
        async with client_of(served) as client:
            await client.peer.closed()
        assert served.turned_away == 1
        left.set()
        with anyio.fail_after(PATIENCE):
            await heard.wait()
            await served.until(lambda: not served.clients)
        async with client_of(served) as client:
            served.node.on("ping")(_echo)
            assert (await client.emit("ping", 1).reply(timeout=PATIENCE)).data == 1


@both
async def test_closing_lets_handlers_finish(flavour: FlavourName) -> None:
    began, refused = anyio.Event(), anyio.Event()
    answers = []
    async with new_node() as node:
        node.on("echo")(_echo)

        @node.on("slow")
        async def slow(event: NamedEvent) -> str:
            began.set()
            await refused.wait()
            return "done"

        served = await NamedGateway(node, flavour=flavour).__aenter__()
        await served.listen("tcp://127.0.0.1:0")
        async with client_of(served) as client, anyio.create_task_group() as group:

            async def ask() -> None:
                answers.append((await client.emit("slow").reply(timeout=PATIENCE)).data)

            async def ask_on() -> None:
                while True:
                    await client.emit("echo", 1).reply(timeout=PATIENCE)
                    await began.wait()

            async def ask_until_refused() -> None:
                with pytest.raises(CallRefused) as caught:
                    await ask_on()
                answers.append(caught.value.code)
                refused.set()

            group.start_soon(ask)
            group.start_soon(ask_until_refused)
            await began.wait()
            await served.__aexit__(None, None, None)
        with pytest.raises(ParleyError, match="not running"):
            await served.listen("tcp://127.0.0.1:0")
    assert answers == [19, "done"]


@both
async def test_closing_stops_handlers_that_do_not_finish(flavour: FlavourName) -> None:
    async with new_node(drain_timeout=0.02) as node:
        async with NamedGateway(node, flavour=flavour) as served:
            began, stopped = anyio.Event(), anyio.Event()

            @node.on("stuck")
            async def stuck(event: NamedEvent) -> None:
                began.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    stopped.set()

            await served.listen("tcp://127.0.0.1:0")
            async with client_of(served) as client:
                await client.emit("stuck")
                await began.wait()
        assert stopped.is_set()


def test_settings_are_checked() -> None:
    node = new_node()
    for make in (
        lambda: NamedGateway(node, flavour="bitter"),  # type: ignore[arg-type]  # the point of it
        lambda: NamedGateway(node, format="lbm"),
        lambda: NamedClient("tcp://127.0.0.1:1", format="cbor"),
    ):
        with pytest.raises(ConfigError):
            make()


async def _echo(event: NamedEvent) -> Any:
    return event.data
