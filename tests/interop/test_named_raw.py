"""Named events at a gateway, by a client that has no code of the project: right and wrong.

The client blocks, and so runs in a thread of its own; whatever it does, a
well-behaved client is served on.
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest
from anyio.to_thread import run_sync

from parley import NamedEvent
from parley._node.gateways.named.gateway import NamedGateway
from parley._node.gateways.named.peer import FlavourName
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway
from tests.node.network import PATIENCE
from tests.reference.dialects import named
from tests.reference.dialects.named_raw import NamedRaw

pytestmark = pytest.mark.anyio

T = TypeVar("T")

both = pytest.mark.parametrize("flavour", FLAVOURS)


@asynccontextmanager
async def served(flavour: FlavourName, **limits: Any) -> AsyncIterator[NamedGateway]:
    """A gateway with a few handlers; at the end nobody is left, and it serves as before."""
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
    """What a client does in a thread, over a socket of its own."""

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


@both
async def test_a_violation_closes_its_connection_alone(
    anyio_backend: str, flavour: FlavourName
) -> None:
    def break_rules(wrong: bytes, raw: NamedRaw) -> bytes:
        raw.emit("echo", b"right")
        echoed = raw.read_event()
        if raw.typed:
            assert raw.read_event().kind == "end"
        raw.send_raw(wrong)
        assert echoed.data == b"right"
        return raw.closed()

    async with served(flavour) as there, client_of(there) as good:
        for wrong in (
            b"\xff" * 8,  # 2^64 - 1, and not a byte more
            b"\xff" * 100,
            bytes(10),
            b"\0\0\0\0\0\0\0\x1e\0\x1e\1" + bytes(29),
        ):
            assert await by_raw(there, partial(break_rules, wrong)) == b""
            assert (await good.emit("echo", b"on", format="raw").reply()).raw == b"on"


@both
async def test_a_cut_at_every_byte(anyio_backend: str, flavour: FlavourName) -> None:
    kind = "initiator" if flavour == "typed" else None
    whole = named.NamedEvent(1, "echo", b"data", None, "", kind).raw

    async with served(flavour) as there, client_of(there) as good:

        def cut() -> None:
            for size in range(len(whole)):
                with closing(connected(there)) as sock:
                    sock.sendall(whole[:size])

        await run_sync(cut)
        assert (await good.emit("echo", b"on", format="raw").reply()).raw == b"on"


@both
async def test_who_falls_silent_is_hung_up_on(anyio_backend: str, flavour: FlavourName) -> None:
    async with gateway(flavour, idle_timeout=0.1) as there:
        assert await by_raw(there, NamedRaw.closed) == b""

        def begin(raw: NamedRaw) -> bytes:
            raw.send_raw(bytes(7))
            return raw.closed()

        assert await by_raw(there, begin) == b""


@both
async def test_who_does_not_read_is_not_read(anyio_backend: str, flavour: FlavourName) -> None:
    most = 1 << 20
    async with served(flavour, write_buffer=most, events=16) as there, client_of(there) as good:

        def flood(raw: NamedRaw) -> int:
            raw.sock.settimeout(0.3)
            count = 0
            try:
                while True:
                    raw.emit("big", bytes(20_000))
                    count += 1
            except TimeoutError:
                return count

        def watch() -> None:
            bad = [peer for peer in there.peers if peer is not mine]
            assert all(peer.running <= 16 for peer in bad)
            # What may wait, and one answer of each handler that ran meanwhile.
            assert all(peer.driver.core.queued_bytes <= most + 17 * 101_000 for peer in bad)

        await good.emit("echo", b"on", format="raw").reply()
        (mine,) = there.peers
        async with anyio.create_task_group() as group:

            async def serve_on() -> None:
                while True:
                    assert (await good.emit("echo", b"on", format="raw").reply()).raw == b"on"
                    watch()

            group.start_soon(serve_on)
            count = await by_raw(there, flood)
            group.cancel_scope.cancel()
        assert count > 16


@both
async def test_a_flood_of_events_is_taken_as_it_can_be(
    anyio_backend: str, flavour: FlavourName
) -> None:
    running, most = 0, 0
    async with served(flavour, events=8) as there, client_of(there) as good:

        @there.node.on("count")
        async def count(event: NamedEvent) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.lowlevel.checkpoint()
            running -= 1
            if event.raw == b"last":
                await event.emit("counted", str(most).encode(), format="raw")

        def flood(raw: NamedRaw) -> bytes:
            for _ in range(2_000):
                raw.emit("count")
            last = raw.emit("count", b"last")
            while True:
                event = raw.read_event()
                if (event.ref_id, event.name) == (last, "counted"):
                    return event.data

        async with anyio.create_task_group() as group:

            async def serve_on() -> None:
                while True:
                    assert (await good.emit("echo", b"on", format="raw").reply()).raw == b"on"

            group.start_soon(serve_on)
            assert int(await by_raw(there, flood)) <= 8
            group.cancel_scope.cancel()
        assert there.ignored == 0


def read(raw: NamedRaw, count: int) -> list[named.NamedEvent]:
    return [raw.read_event() for _ in range(count)]
