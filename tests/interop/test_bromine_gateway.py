"""The crate bromine against ours: its clients at a gateway, its servers met by our client.

Both formats, over TCP and Unix sockets; what the crate's program answers is said in
bromine/src/peer.rs.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import pytest

from parley import (
    CallRefused,
    CallTimeout,
    Emission,
    FormattedPayload,
    NamedEvent,
    Reply,
    Tandem,
    formatted,
)
from parley._node.gateways.named import FlavourName
from parley.dialects import NamedClient, NamedGateway
from tests.interop.bromine_peer import (
    PATIENCE,
    VERSIONS,
    BrominePeer,
    Version,
    bromine_client,
    bromine_server,
)
from tests.node.network import new_node

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.bromine,
    pytest.mark.timeout(300),
]

FLAVOURS: Final[dict[Version, FlavourName]] = {"0.17": "plain", "0.22": "typed"}
VALUE: Final = {"a": [1, -2, 3.5, None, True, "é"]}

both_versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(params=["tcp", "unix"])
def any_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address to listen at."""
    if request.param == "tcp":
        yield "tcp://127.0.0.1:0"
        return
    # pytest's own directories are too deep for a socket's name.
    with TemporaryDirectory() as directory:
        yield f"unix://{directory}/events"


@asynccontextmanager
async def served(
    program: Path, version: Version, address: str = "tcp://127.0.0.1:0"
) -> AsyncIterator[tuple[NamedGateway, BrominePeer]]:
    """Connect a client of the crate to a gateway."""
    async with (
        new_node() as node,
        NamedGateway(node, flavour=FLAVOURS[version]) as gateway,
    ):
        place = await gateway.listen(address)
        async with bromine_client(program, version, place) as client:
            yield gateway, client


@asynccontextmanager
async def dialled(
    program: Path, version: Version, address: str = "tcp://127.0.0.1:0"
) -> AsyncIterator[tuple[NamedClient, BrominePeer]]:
    """Connect a client to a server of the crate."""
    async with (
        bromine_server(program, version, address) as (server, place),
        NamedClient(place, flavour=FLAVOURS[version]) as client,
    ):
        yield client, server


# Its client, our gateway.


@both_versions
async def test_a_client_of_the_crate_meets_our_handlers(
    anyio_backend: str, bromine_program: Path, version: Version, any_address: str
) -> None:
    async with served(bromine_program, version, any_address) as (gateway, client):
        node = gateway.node

        @node.on("ping")
        async def ping(event: NamedEvent) -> None:
            await event.emit("pong", event.data, format="json" if event.format == 3 else None)

        @node.on("move", namespace="game")
        async def move(event: NamedEvent) -> None:
            await event.emit("moved", [event.namespace, event.data])

        @node.on("raw")
        async def raw(event: NamedEvent) -> None:
            await event.emit("war", event.raw[::-1], format="raw")

        @node.on("tandem")
        async def tandem(event: NamedEvent) -> None:
            value, data = event.tandem
            assert FormattedPayload(value).data == "v"
            await event.emit("mednat", Tandem(data, value))

        for form in ("rmp", "json"):
            pong = (await client.emit("ping", {form: VALUE}, wait="reply")).reply
            assert (pong["name"], pong["namespace"], pong["value"]) == ("pong", None, VALUE)
            assert pong["data"].startswith("03" if form == "json" else "00")
        moved = await client.emit("move", {"rmp": 1}, namespace="game", wait="reply")
        assert moved.reply["value"] == ["game", 1]
        war = await client.emit("raw", {"raw": "0001ff"}, wait="reply", read="raw")
        assert war.reply["data"] == "ff0100"
        pair = {"tandem": [{"rmp": "v"}, {"raw": "beef"}]}
        mednat = await client.emit("tandem", pair, wait="reply", read="tandem")
        assert mednat.reply["value"] == ["beef", "v"]


@both_versions
async def test_what_a_handler_of_ours_returns_reaches_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with served(bromine_program, version) as (gateway, client):

        @gateway.node.on("sum")
        async def total(event: NamedEvent) -> Any:
            assert isinstance(event.data, list)
            return sum(event.data)

        reply = (await client.emit("sum", {"rmp": [1, 2, 3]}, wait="reply")).reply
        told = reply["value"], reply["name"], reply["type"]
        assert told == ((6, "reply", None) if version == "0.17" else (6, "end", "end"))


async def test_the_typed_version_reads_replies_to_our_end(
    anyio_backend: str, bromine_program: Path
) -> None:
    async with served(bromine_program, "0.22") as (gateway, client):

        @gateway.node.on("count")
        async def count(event: NamedEvent) -> AsyncIterator[int]:
            for number in range(20):
                yield number

        @gateway.node.on("last")
        async def last(event: NamedEvent) -> str:
            await event.emit("first", 1)
            return "last"

        counted = await client.emit("count", wait="stream")
        assert [reply.get("value") for reply in counted.replies] == [*range(20), None]
        assert [reply["type"] for reply in counted.replies] == [*["response"] * 20, "end"]
        answers = await client.emit("last", wait="stream")
        assert [(reply["type"], reply["value"]) for reply in answers.replies] == [
            ("response", 1),
            ("end", "last"),
        ]


async def test_the_older_version_takes_one_reply_and_handles_the_others(
    anyio_backend: str, bromine_program: Path
) -> None:
    async with served(bromine_program, "0.17") as (gateway, client):

        @gateway.node.on("many")
        async def many(event: NamedEvent) -> None:
            for number in range(3):
                await event.emit("item", number)

        first = (await client.emit("many", wait="reply")).reply
        assert (first["name"], first["value"]) == ("item", 0)
        others = [(await client.handled("item"))["data"] for _ in range(2)]
        assert sorted(others) == ["0001", "0002"]


@both_versions
async def test_a_failure_of_ours_is_an_error_of_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with served(bromine_program, version) as (gateway, client):

        @gateway.node.on("fail")
        async def fail(event: NamedEvent) -> None:
            raise RuntimeError("a secret")

        @gateway.node.on("refuse")
        async def refuse(event: NamedEvent) -> None:
            raise CallRefused(404, "no such cake")

        gateway.node.on("members", allow="member")(fail)
        errors = [
            (await client.emit(name, wait="reply")).error for name in ("fail", "refuse", "members")
        ]
        assert errors == [
            {"code": 500, "message": "the handler failed"},
            {"code": 404, "message": "no such cake"},
            {"code": 20, "message": "not authorised"},
        ]
        # An unexpected one is an event, which the crate passes to its handler `error`.
        await client.emit("fail")
        assert (await client.handled("error"))["ref"] is not None


@both_versions
async def test_an_event_nobody_handles_here_is_as_at_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with served(bromine_program, version) as (gateway, client):
        if version == "0.17":
            answers = await client.emit("unheard of", wait="reply", timeout=0.2)
            assert answers.failed == "Timeout"
        else:
            reply = (await client.emit("unheard of", wait="reply", read="raw")).reply
            assert (reply["type"], reply["name"], reply["data"]) == ("end", "end", "")
        assert gateway.ignored == 1


@both_versions
async def test_we_emit_to_a_client_of_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with served(bromine_program, version) as (gateway, client):

        @gateway.node.on("start")
        async def start(event: NamedEvent) -> Any:
            pong = await event.peer.emit("ping", event.data).reply(timeout=PATIENCE)
            moved = event.peer.emit("move", 1, namespace="game")
            return [pong.name, pong.data, (await moved.reply(timeout=PATIENCE)).data]

        reply = (await client.emit("start", {"rmp": VALUE}, wait="reply")).reply
        assert reply["value"] == ["pong", VALUE, 1]
        assert (await client.handled("ping"))["ref"] is None


@both_versions
async def test_many_events_of_the_crate_at_once(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with served(bromine_program, version) as (gateway, client):

        @gateway.node.on("echo")
        async def echo(event: NamedEvent) -> Any:
            return event.data

        async def ask(number: int) -> None:
            reply = (await client.emit("echo", {"rmp": number}, wait="reply")).reply
            assert reply["value"] == number

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(ask, number)


# Its server, our client.


@both_versions
async def test_our_client_meets_handlers_of_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version, any_address: str
) -> None:
    async with dialled(bromine_program, version, any_address) as (client, server):
        for form in ("msgpack", "json"):
            pong = await client.emit("ping", VALUE, format=form).reply(timeout=PATIENCE)
            assert (pong.name, pong.data) == ("pong", VALUE)
            assert pong.format == (3 if form == "json" else 0)
        moved = await client.emit("move", VALUE, namespace="game").reply(timeout=PATIENCE)
        assert (moved.name, moved.data) == ("moved", VALUE)
        assert (await server.handled("move", "game"))["ref"] is None
        war = await client.emit("raw", b"\x00\x01\xff", format="raw").reply(timeout=PATIENCE)
        assert war.raw == b"\xff\x01\x00"
        pair = Tandem(formatted("v", "msgpack"), b"\xbe\xef")
        mednat = await client.emit("tandem", pair).reply(timeout=PATIENCE)
        assert mednat.tandem == Tandem(b"\xbe\xef", formatted("v", "msgpack"))


@both_versions
async def test_our_client_reads_the_replies_of_the_crate(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    typed = version == "0.22"

    async def read(emission: Emission, count: int) -> list[Reply]:
        async with emission.replies(timeout=PATIENCE) as replies:
            if typed:
                return [reply async for reply in replies]
            return [await anext(replies) for _ in range(count)]  # No message marks the last one.

    async with dialled(bromine_program, version) as (client, _):
        many = await read(client.emit("many", 3), 3)
        assert [(reply.name, reply.data) for reply in many] == [("item", n) for n in range(3)]
        final = await read(client.emit("final", "x"), 2)
        last = "end" if typed else "last"
        assert [(reply.name, reply.data) for reply in final] == [("item", 0), (last, "x")]
        assert [reply.last for reply in final] == [False, typed]


@both_versions
async def test_a_failure_of_the_crate_is_refused_to_us(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with dialled(bromine_program, version) as (client, _):
        with pytest.raises(CallRefused) as caught:
            await client.emit("fail", namespace="game").reply(timeout=PATIENCE)
        assert (caught.value.code, caught.value.data) == (500, 'Message("as asked")')
        with pytest.raises(CallRefused):
            await anext(client.emit("fail").replies(timeout=PATIENCE))
        for name in ("nothing", "unheard of"):
            if version == "0.17":
                with pytest.raises(CallTimeout):
                    await client.emit(name).reply(timeout=0.1)
            else:
                reply = await client.emit(name).reply(timeout=PATIENCE)
                assert (reply.data, reply.last) == (None, True)


@both_versions
async def test_the_crate_asks_us_back(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    asked: list[Any] = []
    done = anyio.Event()
    async with dialled(bromine_program, version) as (client, _):

        @client.registrar.on("question")
        async def question(event: NamedEvent) -> None:
            await event.emit("answer", [event.data, "because"])

        @client.registrar.on("asked")
        async def heard(event: NamedEvent) -> None:
            asked.append(event.data)
            done.set()

        # No request waits for its reply here, so that it is an event.
        await client.emit("ask", "why?")
        with anyio.fail_after(PATIENCE):
            await done.wait()
    assert asked == [["why?", "because"]]
