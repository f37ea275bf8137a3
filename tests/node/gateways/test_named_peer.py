"""Peers in both flavours: the handlers of a node, and their errors."""

from typing import Any

import anyio
import pytest

from parley import CallRefused, NamedEvent, Namespace, Supercategory, on_event
from parley._node.dialects.named.codec import BromineEvent, BromineType
from parley._node.gateways.named import FlavourName
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from tests.node.gateways.named_sides import FLAVOURS, joined
from tests.node.network import PATIENCE, eventually, new_node

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("flavour", FLAVOURS)


class Game(Namespace):
    name = "game"

    @on_event("move")
    async def move(self, event: NamedEvent) -> Any:
        return [event.namespace, event.data]


@both
async def test_one_handler_serves_native_peers_and_clients(flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client), new_node() as other:

        @served.node.on("double")
        async def double(event: NamedEvent) -> Any:
            assert isinstance(event.data, int)
            return event.data * 2

        served.node.add_namespace(Game())
        address = await served.node.listen("tcp://127.0.0.1:0")
        peer = await other.connect(address)
        for emitter in (client, peer):
            reply = await emitter.emit("double", 21).reply(timeout=PATIENCE)
            assert reply.data == 42
            moved = await emitter.emit("move", {"x": 1}, namespace="game").reply(timeout=PATIENCE)
            assert moved.data == ["game", {"x": 1}]


@both
async def test_a_reply_has_a_namespace_of_its_own(flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client), new_node() as other:

        @served.node.on("turn")
        async def turn(event: NamedEvent) -> Any:
            await event.emit("move", "e4", namespace="white")
            await event.emit("turn", "e5", namespace="black")
            await event.emit("clock", 1)
            return "over"

        peer = await other.connect(await served.node.listen("tcp://127.0.0.1:0"))
        for emitter in (client, peer):
            async with emitter.emit("turn").replies(timeout=PATIENCE) as replies:
                got = [await anext(replies) for _ in "123"]
            assert [(reply.namespace, reply.data) for reply in got] == [
                ("white", "e4"),
                ("black", "e5"),
                ("", 1),
            ]


@pytest.mark.pure  # A compiled core raises TypeError for values of wrong types.
async def test_invalid_names_are_rejected_when_created() -> None:
    async with joined("typed") as (served, client), new_node() as other:
        refused = anyio.Event()

        @served.node.on("odd")
        async def odd(event: NamedEvent) -> None:
            with pytest.raises(LocalProtocolError, match="invalid namespace None: expected text"):
                await event.emit("x", namespace=None)  # type: ignore[arg-type]  # the mistake
            refused.set()

        peer = await other.connect(await served.node.listen("tcp://127.0.0.1:0"))
        for emitter in (client, peer):
            with pytest.raises(LocalProtocolError, match="invalid namespace None: expected text"):
                emitter.emit("x", namespace=None)  # type: ignore[arg-type]  # the mistake
            with pytest.raises(LocalProtocolError, match="invalid event name"):
                emitter.emit(b"x")  # type: ignore[arg-type]  # the mistake
        await peer.emit("odd")
        with anyio.fail_after(PATIENCE):
            await refused.wait()


async def test_a_name_that_is_too_long_is_logged_where_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with joined("typed", longest_name=8) as (served, client):
        with pytest.raises(
            LocalProtocolError, match="namespace has 1,025 bytes: the limit is 1,024"
        ):
            await client.emit("x", namespace="n" * 1_025)
        await client.emit("nine char")
        await client.peer.closed()
        await eventually(lambda: not served.peers)
    (line,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "a name of 9 bytes exceeds the limit of 8 (longest_name)" in line.getMessage()


@both
async def test_a_failure_is_a_code_and_a_fixed_sentence(
    flavour: FlavourName, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(flavour) as (served, client):

        @served.node.on("fail")
        async def fail(event: NamedEvent) -> None:
            raise RuntimeError("a secret")

        @served.node.on("refuse")
        async def refuse(event: NamedEvent) -> None:
            raise CallRefused(404, "no such cake")

        @served.node.on("odd")
        async def odd(event: NamedEvent) -> Any:
            return object()

        @served.node.on("long")
        async def long(event: NamedEvent) -> Any:
            return bytes(2 << 20)

        answers = {}
        for name in ("fail", "refuse", "odd", "long"):
            with pytest.raises(CallRefused) as caught:
                await client.emit(name).reply(timeout=PATIENCE)
            answers[name] = caught.value.code, caught.value.data
        with pytest.raises(CallRefused):
            await anext(client.emit("fail").replies(timeout=PATIENCE))
    assert answers == {
        "fail": (500, "the handler failed"),
        "refuse": (404, "no such cake"),
        "odd": (500, "the handler failed"),
        "long": (21, "the payload is too large"),
    }
    assert "a secret" in caplog.text


@both
async def test_a_guest_has_no_rights_but_those_of_a_function(flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client):
        node = served.node
        node.on("members", allow="member")(_echo)
        node.on("ids", allow=node.node_id)(_echo)
        node.on("roles", supercategories=list(Supercategory))(_echo)
        node.on("anyone", allow=lambda peer, name: peer.node_id is None)(_echo)
        codes = {}
        for name in ("members", "ids", "roles"):
            with pytest.raises(CallRefused) as caught:
                await client.emit(name).reply(timeout=PATIENCE)
            codes[name] = caught.value.code
        assert codes == {"members": 20, "ids": 20, "roles": 22}
        assert (await client.emit("anyone", 1).reply(timeout=PATIENCE)).data == 1


@both
async def test_a_reply_that_is_too_long_is_not_sent(flavour: FlavourName) -> None:
    async with joined(flavour, longest_frame=1_024, longest_name=8) as (served, client):
        served.node.on("echo")(_echo)

        @served.node.on("named")
        async def named(event: NamedEvent) -> str:
            with pytest.raises(LocalProtocolError, match="name has 12 bytes: the limit is 8 "):
                await event.emit("far too long", 1)
            with pytest.raises(PayloadTooLargeError):
                await event.emit("piece", bytes(1_024))
            return "caught"

        reply = await client.emit("named").reply(timeout=PATIENCE)
        assert reply.data == "caught"
        await client.emit("echo", bytes(2_000))
        ended = await client.peer.closed()
        assert ended.code == CloseCode.CONNECTION_LOST
        assert not served.peers


async def _echo(event: NamedEvent) -> Any:
    return event.data


async def test_a_handler_that_is_cancelled_before_it_began_keeps_no_place() -> None:
    async with joined("plain") as (served, _):
        served.node.on("wait")(_never)
        await served.until(lambda: bool(served.peers))
        (peer,) = served.peers
        event = BromineEvent(1, BromineType.INITIATOR, None, "", "wait", b"")
        peer._take(event, served.backend.now())
        peer.stop_handlers()
        with anyio.fail_after(PATIENCE):
            await peer.drained()


async def _never(event: NamedEvent) -> None:
    await anyio.sleep_forever()
