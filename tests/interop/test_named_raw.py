"""Named events at a gateway, by a client without code of the project: valid and invalid.

The client blocks and runs in a thread. Whatever it does, a well-behaved client is still served.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync

from parley import NamedEvent
from parley._node.gateways.named import FlavourName, NamedGateway
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway
from tests.node.network import PATIENCE
from tests.reference.dialects import named
from tests.reference.dialects.named_raw import NamedRaw

pytestmark = pytest.mark.anyio

T = TypeVar("T")

both = pytest.mark.parametrize("flavour", FLAVOURS)


@asynccontextmanager
async def served(flavour: FlavourName, **limits: Any) -> AsyncIterator[NamedGateway]:
    """A gateway with handlers; afterwards it has no clients and serves as before."""
    async with gateway(flavour, **limits) as there:

        @there.node.on("echo")
        async def echo(event: NamedEvent) -> None:
            await event.emit("echoed", event.raw, format="raw")

        @there.node.on("big")
        async def big(event: NamedEvent) -> None:
            await event.emit("piece", bytes(100_000), format="raw")

        yield there
        with anyio.fail_after(PATIENCE):
            await there.until(lambda: not there.clients)
            async with client_of(there) as client:
                reply = await client.emit("echo", b"still", format="raw").reply()
                assert reply.raw == b"still"


async def by_raw(there: NamedGateway, act: Callable[[NamedRaw], T]) -> T:
    """Run a client's actions in a thread, over a separate socket."""

    def run() -> T:
        with closing(connected(there)) as sock:
            return act(NamedRaw(sock, typed=there.flavour == "typed"))

    return await run_sync(run, abandon_on_cancel=True)


def connected(there: NamedGateway) -> socket.socket:
    host, _, port = there.addresses[0].removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


@both
async def test_a_conversation(anyio_backend: str, flavour: FlavourName) -> None:
    typed = flavour == "typed"

    def talk(raw: NamedRaw) -> None:
        first = raw.emit("echo", b"\x00\xff")
        second = raw.emit("returned", named.tandem(b"a", b"b"), namespace="game")
        third = raw.emit("fail", b"")
        raw.emit("nobody", b"handles this")
        answers = {(event.ref_id, event.name): event for event in read(raw, 5 if typed else 3)}
        echoed, returned = answers[first, "echoed"], answers[second, "end" if typed else "reply"]
        assert (echoed.data, echoed.namespace) == (b"\x00\xff", "")
        assert named.read_formatted(returned.data) == ("messagepack", b"\xc4\x01b")
        failed = answers[third, "error"]
        assert named.read_error_payload(failed.data) == (500, "the handler failed")
        if typed:
            assert [event.kind for event in (echoed, returned, failed)] == [
                "response",
                "end",
                "error",
            ]
            assert (answers[first, "end"].kind, answers[first, "end"].data) == ("end", b"")
            assert answers[4, "end"].kind == "end"

    async with served(flavour) as there:

        @there.node.on("returned", namespace="game")
        async def returned(event: NamedEvent) -> bytes:
            return event.tandem.second

        @there.node.on("fail")
        async def fail(event: NamedEvent) -> None:
            raise RuntimeError

        await by_raw(there, talk)
        assert there.ignored == 1


def read(raw: NamedRaw, count: int) -> list[named.NamedEvent]:
    return [raw.read_event() for _ in range(count)]
