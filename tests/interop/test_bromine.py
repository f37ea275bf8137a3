"""The unmodified crate bromine, in the document's format (0.17) and in the typed one (0.22).

The other tests depend on the assertions about the crate here. If it differs from the document, the
test's name describes the difference.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

import anyio
import pytest
from anyio.abc import SocketStream

from tests.interop.bromine_peer import (
    PATIENCE,
    VERSIONS,
    Version,
    bromine_client,
    bromine_server,
)
from tests.reference.dialects.named import NamedEvent, read_event
from tests.reference.dialects.reading import INCOMPLETE, Wrong
from tests.vectors.load import Vector, read, unhex

# One process for all of them: the others need not wait while the program is built.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.bromine,
    pytest.mark.timeout(300),
]

ERROR: Final = b"\x01\xf4\x00\x00\x00\x13" + b'Message("as asked")'

both_versions = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(params=["tcp", "unix"])
def any_address(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address to listen at."""
    transport: Literal["tcp", "unix"] = request.param
    if transport == "tcp":
        yield "tcp://127.0.0.1:0"
        return
    # pytest's own directories are too deep for a socket's name.
    with TemporaryDirectory() as directory:
        yield f"unix://{directory}/bromine"


@both_versions
async def test_the_crate_meets_itself(
    anyio_backend: str, bromine_program: Path, version: Version, any_address: str
) -> None:
    value = {"a": [1, -2, 3.5, None, True, "é"]}
    async with (
        bromine_server(bromine_program, version, any_address) as (server, address),
        bromine_client(bromine_program, version, address) as client,
    ):
        pong = (await client.emit("ping", {"rmp": value}, wait="reply")).reply
        assert (pong["name"], pong["namespace"], pong["value"]) == ("pong", None, value)
        ping = await server.handled("ping")
        assert (ping["ref"], ping["data"]) == (None, pong["data"])
        assert pong["ref"] == ping["id"]

        moved = await client.emit("move", {"json": value}, namespace="game", wait="reply")
        assert (moved.reply["name"], moved.reply["namespace"]) == ("moved", "game")
        assert moved.reply["value"] == value

        war = await client.emit("raw", {"raw": "0001ff"}, wait="reply", read="raw")
        assert war.reply["data"] == "ff0100"

        pair = {"tandem": [{"rmp": "v"}, {"raw": "beef"}]}
        tandem = await client.emit("tandem", pair, wait="reply", read="tandem")
        assert tandem.reply["value"] == ["beef", "v"]

        failed = await client.emit("fail", wait="reply")
        assert failed.error == {"code": 500, "message": 'Message("as asked")'}

        # Without a wait the reply runs a handler of its name, here one that answers in turn.
        await client.emit("ask", {"json": "why"})
        assert (await client.handled("question"))["data"] == b'\x03"why"'.hex()
        assert (await client.handled("asked"))["data"] == b'\x03"why"'.hex()


async def test_only_the_typed_version_says_when_a_handler_is_done(
    anyio_backend: str, bromine_program: Path
) -> None:
    address = "tcp://127.0.0.1:0"
    async with (
        bromine_server(bromine_program, "0.22", address) as (_, address),
        bromine_client(bromine_program, "0.22", address) as client,
    ):
        many = await client.emit("many", {"rmp": 3}, wait="stream")
        assert [reply.get("value") for reply in many.replies] == [0, 1, 2, None]
        assert [reply["type"] for reply in many.replies] == [*["response"] * 3, "end"]
        last = await client.emit("final", {"rmp": "x"}, wait="stream")
        assert [(reply["type"], reply["value"]) for reply in last.replies] == [
            ("response", 0),
            ("end", "x"),
        ]


@both_versions
async def test_unlike_the_document_an_unknown_namespace_is_none(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with (
        bromine_server(bromine_program, version, "tcp://127.0.0.1:0") as (_, address),
        bromine_client(bromine_program, version, address) as client,
    ):
        answers = await client.emit("ping", {"rmp": 1}, namespace="nowhere", wait="reply")
        assert (answers.reply["name"], answers.reply["namespace"]) == ("pong", None)


@both_versions
async def test_an_event_without_a_handler_is_ended_by_the_typed_version_only(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    async with (
        bromine_server(bromine_program, version, "tcp://127.0.0.1:0") as (_, address),
        bromine_client(bromine_program, version, address) as client,
    ):
        if version == "0.17":
            answers = await client.emit("unheard of", wait="reply", timeout=0.2)
            assert answers.failed == "Timeout"
        else:
            reply = (await client.emit("unheard of", wait="reply", read="raw")).reply
            assert (reply["type"], reply["name"], reply["data"]) == ("end", "end", "")


@both_versions
async def test_the_bytes_of_the_crate_are_those_of_the_reference(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    ident = 0x1122334455667788
    typed = version == "0.22"
    value = b'\x03{"a":[1,2]}'
    told: list[tuple[NamedEvent, list[tuple[str, str, str, bytes]]]] = [
        (NamedEvent(ident, "ping", value), [("response", "", "pong", value)]),
        (NamedEvent(ident, "ping", b"\x00\xa2hi"), [("response", "", "pong", b"\x00\xa2hi")]),
        (NamedEvent(ident, "move", value, None, "game"), [("response", "game", "moved", value)]),
        (NamedEvent(ident, "many", b"\x00\x01", 9), [("response", "", "item", b"\x00\x00")]),
        (NamedEvent(ident, "raw", b"\x00\x01\xff"), [("response", "", "war", b"\xff\x01\x00")]),
        (NamedEvent(ident, "fail"), [("error", "", "error", ERROR)]),
    ]
    async with (
        bromine_server(bromine_program, version, "tcp://127.0.0.1:0") as (_, address),
        _raw(address) as stream,
    ):
        received = b""
        for event, answers in told:
            await stream.send(_in_flavour(event, typed).raw)
            expected = list(answers)
            if typed and answers[-1][0] != "error":
                expected.append(("end", "", "end", b""))
            for kind, namespace, name, data in expected:
                answer, received, raw = await _next_event(stream, received, typed=typed)
                assert answer == NamedEvent(
                    answer.id, name, data, ident, namespace, kind if typed else None
                )
                assert answer.raw == raw
        assert not received


@both_versions
async def test_the_crate_takes_and_refuses_what_the_vectors_do(
    anyio_backend: str, bromine_program: Path, version: Version
) -> None:
    typed = version == "0.22"
    taken = [unhex(vector["hex"]) for vector in _of_the_crate(version) if "fields" in vector]
    refused = [vector for vector in _of_the_crate(version) if vector.get("fails") == "closes"]
    assert len(taken) > 10
    assert len(refused) > 5
    last = _in_flavour(NamedEvent(1 << 63, "raw", b"last"), typed)
    async with bromine_server(bromine_program, version, "tcp://127.0.0.1:0") as (_, address):
        async with _raw(address) as stream:
            await stream.send(b"".join([*taken, last.raw]))
            received, answer = b"", last
            while answer.name != "war" or answer.ref_id != last.id:
                answer, received, _ = await _next_event(stream, received, typed=typed)
        for vector in refused:
            async with _raw(address) as stream:
                await stream.send(unhex(vector["hex"]))
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    pytest.fail(f"{vector['name']}: {(await stream.receive()).hex()}")


def _of_the_crate(version: Version) -> Iterator[Vector]:
    """Yield events of this version, except those refused for a limit that the crate lacks."""
    content = read("named_dialect")
    flavour = "typed" if version == "0.22" else "plain"
    for vector in content["vectors"]:
        if vector["kind"] == "event" and vector["flavour"] == flavour:
            total = int.from_bytes(unhex(vector["hex"])[:8])
            if total <= vector.get("limit", content["limit"]):
                yield vector


def _in_flavour(event: NamedEvent, typed: bool) -> NamedEvent:
    kind = "initiator" if typed else None
    return NamedEvent(event.id, event.name, event.data, event.ref_id, event.namespace, kind)


@asynccontextmanager
async def _raw(address: str) -> AsyncIterator[SocketStream]:
    host, port = address.removeprefix("tcp://").split(":")
    with anyio.fail_after(PATIENCE):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            yield stream


async def _next_event(
    stream: SocketStream, received: bytes, *, typed: bool
) -> tuple[NamedEvent, bytes, bytes]:
    """Return the next event, the following data, and its own bytes."""
    while True:
        try:
            event, rest = read_event(received, 1 << 20, typed=typed)
        except Wrong as wrong:
            if wrong.fails != INCOMPLETE:
                raise
            received += await stream.receive()
        else:
            return event, rest, received[: len(received) - len(rest)]
