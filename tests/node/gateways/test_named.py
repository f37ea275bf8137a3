"""Named events through gateway and client: the handlers of a node, in both flavours."""

from collections.abc import AsyncIterator
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from node import (
    CallRefused,
    CallTimeout,
    FormatError,
    Guest,
    NamedEvent,
    Namespace,
    ParleyError,
    PeerClosedError,
    Supercategory,
    Tandem,
    UnreachableError,
    UnreadRepliesError,
    formatted,
    on_event,
)
from node.dialects.limits import NamedLimits
from node.errors import ConfigError, InsecureAddressError
from node.gateways.named import FlavourName, NamedGateway
from node.gateways.named_client import NamedClient
from node.messaging.payloads import FormattedPayload
from node.protocol.codes import CloseCode
from node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway, joined
from tests.node.network import PATIENCE, new_node

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("flavour", FLAVOURS)


class Game(Namespace):
    name = "game"

    @on_event("move")
    async def move(self, event: NamedEvent) -> Any:
        return [event.namespace, event.data]


@both
async def test_one_handler_serves_native_peers_and_clients(
    anyio_backend: str, flavour: FlavourName
) -> None:
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
async def test_replies_come_in_their_order_with_their_names(
    anyio_backend: str, flavour: FlavourName
) -> None:
    async with joined(flavour) as (served, client):

        @served.node.on("count")
        async def count(event: NamedEvent) -> str:
            for number in range(3):
                await event.emit("number", number)
            return "done"

        @served.node.on("yielded")
        async def yielded(event: NamedEvent) -> AsyncIterator[int]:
            for number in range(3):
                yield number

        # Without types nothing says which reply is the last.
        timeout = PATIENCE if flavour == "typed" else 0.2
        last = "end" if flavour == "typed" else "reply"
        replies = [reply async for reply in client.emit("count").replies(timeout=timeout)]
        assert [reply.data for reply in replies] == [0, 1, 2, "done"]
        assert [reply.name for reply in replies] == ["number"] * 3 + [last]
        replies = [reply async for reply in client.emit("yielded").replies(timeout=timeout)]
        assert [(reply.name, reply.data) for reply in replies] == [("reply", n) for n in range(3)]


async def test_without_types_who_reads_says_when_it_is_enough(anyio_backend: str) -> None:
    async with joined("plain") as (served, client):

        @served.node.on("twice")
        async def twice(event: NamedEvent) -> None:
            await event.emit("first", 1)
            await event.emit("second", 2)

        async with client.emit("twice").replies() as replies:
            assert [(await anext(replies)).data for _ in range(2)] == [1, 2]
            replies.close()
            assert [reply async for reply in replies] == []


@both
async def test_a_failure_is_a_code_and_a_fixed_sentence(
    anyio_backend: str, flavour: FlavourName, caplog: pytest.LogCaptureFixture
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
async def test_an_event_without_a_handler_is_ignored_and_counted(
    anyio_backend: str, flavour: FlavourName
) -> None:
    async with joined(flavour) as (served, client):
        served.node.on("here", namespace="known")(_echo)
        served.node.on("there")(_echo)
        for namespace, name in (("", "nowhere"), ("unknown", "there"), ("known", "there")):
            if flavour == "typed":
                reply = await client.emit(name, namespace=namespace).reply(timeout=PATIENCE)
                assert (reply.data, reply.last) == (None, True)
            else:
                with pytest.raises(CallTimeout):
                    await client.emit(name, namespace=namespace).reply(timeout=0.05)
        assert served.ignored == 3
        (peer,) = served.peers
        assert peer.ignored == 3
    assert served.ignored == 3


@both
async def test_payloads_travel_as_they_were_asked_for(
    anyio_backend: str, flavour: FlavourName
) -> None:
    tandem = Tandem(formatted({"a": 1}, "json"), b"\x00\xff")
    async with joined(flavour) as (served, client):

        @served.node.on("value")
        async def value(event: NamedEvent) -> None:
            await event.emit("value", event.data, format="json" if event.format == 3 else None)

        @served.node.on("raw")
        async def raw(event: NamedEvent) -> None:
            await event.emit("raw", event.raw[::-1], format="raw")

        @served.node.on("tandem")
        async def swapped(event: NamedEvent) -> None:
            first, second = event.tandem
            await event.emit("tandem", Tandem(second, first))

        for name in ("msgpack", "json"):
            reply = await client.emit("value", {"k": [1, None, "é"]}, format=name).reply()
            assert (reply.data, reply.raw[0]) == ({"k": [1, None, "é"]}, 3 if name == "json" else 0)
        reply = await client.emit("raw", b"\x01\x02\x03", format="raw").reply()
        assert reply.raw == b"\x03\x02\x01"
        reply = await client.emit("tandem", tandem).reply()
        assert reply.tandem == Tandem(*reversed(tandem))
        assert FormattedPayload(reply.tandem.second).data == {"a": 1}
        # What came may be sent on as it is.
        assert (await client.emit("raw", reply).reply()).raw == reply.raw[::-1]
        for name in ("lbm", "cbor"):
            with pytest.raises(FormatError, match="neither LBM nor CBOR"):
                await client.emit("value", 1, format=name)  # type: ignore[arg-type]  # as above
        with pytest.raises(FormatError):
            await client.emit("value", object())  # type: ignore[arg-type]  # the point of it


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


@both
async def test_a_reply_that_nobody_waits_for_is_an_event(
    anyio_backend: str, flavour: FlavourName
) -> None:
    heard = anyio.Event()
    async with joined(flavour) as (served, client):

        @client.offering.on("pong")
        async def pong(event: NamedEvent) -> None:
            assert event.data == 2
            heard.set()

        @served.node.on("ping")
        async def ping(event: NamedEvent) -> None:
            assert event.wants_reply
            await event.emit("pong", 1)
            await event.emit("pong", 2)

        assert (await client.emit("ping").reply(timeout=PATIENCE)).data == 1
        with anyio.fail_after(PATIENCE):
            await heard.wait()


@both
async def test_a_guest_has_no_rights_but_those_of_a_function(
    anyio_backend: str, flavour: FlavourName
) -> None:
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
async def test_who_waits_learns_of_the_end(anyio_backend: str, flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client):
        began, over = anyio.Event(), anyio.Event()

        @served.node.on("stuck")
        async def stuck(event: NamedEvent) -> None:
            began.set()
            await over.wait()

        async with anyio.create_task_group() as group:

            async def wait() -> None:
                with pytest.raises(PeerClosedError):
                    await client.emit("stuck").reply(timeout=PATIENCE)

            async def wait_for_replies() -> None:
                with pytest.raises(PeerClosedError):
                    await anext(client.emit("stuck").replies())

            group.start_soon(wait)
            group.start_soon(wait_for_replies)
            await began.wait()
            for peer in served.peers:
                peer.drop()
        await client.peer.closed()
        over.set()
        assert not client.is_open
        with pytest.raises(PeerClosedError):
            await client.emit("stuck")
        with pytest.raises(PeerClosedError):
            await client.emit("stuck").reply()


@both
async def test_who_emits_and_leaves_has_been_heard(
    anyio_backend: str, flavour: FlavourName
) -> None:
    left, heard = anyio.Event(), anyio.Event()
    async with gateway(flavour, clients=1) as served:

        @served.node.on("news")
        async def news(event: NamedEvent) -> str:
            await left.wait()
            await event.emit("too late")
            assert not event.wants_reply
            heard.set()
            return "nobody reads this"

        async with client_of(served) as client:
            await client.emit("news")
        # Its place is taken until its handler is done.
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
async def test_closing_lets_handlers_finish(anyio_backend: str, flavour: FlavourName) -> None:
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
async def test_closing_stops_handlers_that_do_not_finish(
    anyio_backend: str, flavour: FlavourName
) -> None:
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


async def test_an_exception_leaves_at_once(anyio_backend: str) -> None:
    async with new_node() as node:
        node.on("echo")(_echo)
        served = NamedGateway(node)

        async def fail() -> None:
            async with served:
                await served.listen("tcp://127.0.0.1:0")
                async with client_of(served) as client:
                    await client.emit("echo", 1).reply(timeout=PATIENCE)
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert not served.peers


async def test_events_over_a_unix_socket(anyio_backend: str) -> None:
    async with new_node() as node, NamedGateway(node) as served:
        node.on("echo")(_echo)
        # pytest's own directories are too deep for a socket's name.
        with TemporaryDirectory() as directory:
            address = await served.listen(f"unix://{directory}/events")
            assert served.addresses == [address]
            async with NamedClient(address) as client:
                assert (await client.emit("echo", [1]).reply(timeout=PATIENCE)).data == [1]


async def test_only_this_machine_is_served_unless_told(anyio_backend: str) -> None:
    async with new_node() as node, NamedGateway(node) as served:
        with pytest.raises(InsecureAddressError):
            await served.listen("tcp://0.0.0.0:0")
        assert await served.listen("tcp://0.0.0.0:0", allow_insecure=True)


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


def test_settings_are_checked() -> None:
    node = new_node()
    for make in (
        lambda: NamedGateway(node, flavour="bitter"),  # type: ignore[arg-type]  # the point of it
        lambda: NamedGateway(node, format="lbm"),
        lambda: NamedClient("tcp://127.0.0.1:1", format="cbor"),
    ):
        with pytest.raises(ConfigError):
            make()


@both
async def test_replies_that_nobody_reads_are_bounded(
    anyio_backend: str, flavour: FlavourName
) -> None:
    async with gateway(flavour) as served:

        @served.node.on("flood")
        async def flood(event: NamedEvent) -> None:
            for _ in range(100):
                await event.emit("piece", bytes(100), format="raw")

        served.node.on("echo")(_echo)
        async with client_of(served, limits=NamedLimits(waiting_bytes=1_024)) as client:
            async with client.emit("flood").replies() as replies:
                # What came after the bound was passed are events without a handler.
                assert (await client.emit("echo", 1).reply(timeout=PATIENCE)).data == 1
                with pytest.raises(UnreadRepliesError):
                    [reply async for reply in replies]
            assert client.is_open


@both
async def test_what_is_too_long_is_not_sent(anyio_backend: str, flavour: FlavourName) -> None:
    async with joined(flavour, longest_frame=1_024, longest_name=8) as (served, client):
        served.node.on("echo")(_echo)

        @served.node.on("named")
        async def named(event: NamedEvent) -> str:
            with pytest.raises(LocalProtocolError, match="at most 8 bytes"):
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
