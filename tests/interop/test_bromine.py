"""The crate bromine as it is, in the document's format (0.17) and in the typed one (0.22).

One rule: what is asserted of the crate here is what the other tests lean on; where it differs
from the document, the test's name says so.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest

from tests.interop.bromine_peer import VERSIONS, Version, bromine_client, bromine_server

# One process for all of them: the others need not wait while the program is built.
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.bromine,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("bromine"),
]

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
