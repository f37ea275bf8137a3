"""Sent and received events and replies: names, order, formats, limits."""

import socket
from collections.abc import AsyncIterator

import anyio
import pytest

from parley import (
    CallRefused,
    CallTimeout,
    FormatError,
    NamedEvent,
    Tandem,
    formatted,
)
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import Flavour
from parley._node.dialects.named.core import TURN_EVENTS
from parley._node.gateways.named import FlavourName
from parley._node.messaging.payloads import FormattedPayload
from parley._node.protocol.codes import ResultCode
from parley.dialects import NamedClient
from tests.node.dialects.named.events import ask, on_wire
from tests.node.gateways.named_sides import FLAVOURS, client_of, gateway, joined
from tests.node.gateways.relays import raw
from tests.node.network import PATIENCE, eventually

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("flavour", FLAVOURS)


@both
async def test_replies_come_in_their_order_with_their_names(flavour: FlavourName) -> None:
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

        async def read(name: str, count: int) -> list[tuple[str, object]]:
            async with client.emit(name).replies(timeout=PATIENCE) as replies:
                if flavour == "typed":
                    return [(reply.name, reply.data) async for reply in replies]
                # Without types, the last reply is not marked.
                given = [await anext(replies) for _ in range(count)]
                return [(reply.name, reply.data) for reply in given]

        last = "end" if flavour == "typed" else "reply"
        numbers: list[tuple[str, object]] = [("number", number) for number in range(3)]
        assert await read("count", 4) == [*numbers, (last, "done")]
        assert await read("yielded", 3) == [("reply", number) for number in range(3)]


async def test_without_types_the_reader_ends_the_replies() -> None:
    async with joined("plain") as (served, client):

        @served.node.on("twice")
        async def twice(event: NamedEvent) -> None:
            await event.emit("first", 1)
            await event.emit("second", 2)

        async with client.emit("twice").replies() as replies:
            assert [(await anext(replies)).data for _ in range(2)] == [1, 2]
            replies.close()
            assert [reply async for reply in replies] == []
        # Or until its timeout.
        assert [reply.name async for reply in client.emit("nobody").replies(timeout=0.02)] == []


@both
async def test_payloads_travel_as_they_were_asked_for(flavour: FlavourName) -> None:
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
        # A received payload can be sent on unchanged.
        assert (await client.emit("raw", reply).reply()).raw == reply.raw[::-1]
        for name in ("lbm", "cbor"):
            with pytest.raises(FormatError, match="support LBM and CBOR"):
                await client.emit("value", 1, format=name)  # type: ignore[arg-type]  # as above
        with pytest.raises(FormatError):
            await client.emit("value", object())  # type: ignore[arg-type]  # the point of it


@both
async def test_yielded_items_have_the_limits_of_replies(flavour: FlavourName) -> None:
    async with joined(flavour, longest_frame=1_024) as (served, client):

        @served.node.on("grow")
        async def grow(event: NamedEvent) -> AsyncIterator[object]:
            yield 1
            yield bytes(1_024)
            pytest.fail("no more is wanted")

        replies = client.emit("grow").replies(timeout=PATIENCE)
        assert (await anext(replies)).data == 1
        with pytest.raises(CallRefused) as caught:
            await anext(replies)
        assert caught.value.code == ResultCode.PAYLOAD_TOO_LARGE


@both
async def test_a_generator_ends_with_its_connection(flavour: FlavourName) -> None:
    left, ended = anyio.Event(), anyio.Event()
    async with gateway(flavour) as served:

        @served.node.on("tick")
        async def tick(event: NamedEvent) -> AsyncIterator[int]:
            try:
                yield 1
                await left.wait()
                yield 2
                pytest.fail("it is never read")
            finally:
                ended.set()

        async with client_of(served) as client:
            assert (await client.emit("tick").reply(timeout=PATIENCE)).data == 1
        with anyio.fail_after(PATIENCE):
            await served.until(lambda: not served.peers)
            left.set()
            await ended.wait()


@both
async def test_a_handler_that_never_waits_lets_others_run(flavour: FlavourName) -> None:
    async with joined(flavour) as (served, client):
        stop = False

        @served.node.on("talk")
        async def talk(event: NamedEvent) -> None:
            while not stop:
                await event.emit("word", bytes(1_000), format="raw")

        @served.node.on("stop")
        async def finish(event: NamedEvent) -> str:
            nonlocal stop
            stop = True
            return "stopped"

        async with client.emit("talk").replies() as replies:
            assert len((await anext(replies)).raw) == 1_000
            assert (await client.emit("stop").reply(timeout=PATIENCE)).data == "stopped"


@both
async def test_all_events_that_come_at_once_are_handled(flavour: FlavourName) -> None:
    """The peer processes 64 events in each turn of the loop, and must continue on its own."""
    count, numbers = 3 * TURN_EVENTS, list[int]()
    async with gateway(flavour) as served:

        @served.node.on("ping")
        async def ping(event: NamedEvent) -> None:
            numbers.append(len(event.raw))

        sent = b"".join(on_wire(ask(data=bytes(n)), Flavour[flavour.upper()]) for n in range(count))
        async with await raw(served.addresses[0]) as stream:
            await stream.send(sent)
            await eventually(lambda: numbers == list(range(count)))


async def test_an_emitter_waits_while_the_other_side_does_not_read() -> None:
    limits = DialectLimits(write_buffer=1_024)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"tcp://127.0.0.1:{deaf.getsockname()[1]}"
        async with NamedClient(address, limits=limits) as client:

            async def fill() -> None:
                while True:  # the sockets also have buffers
                    async with client.emit("a", bytes(1 << 19)).replies(timeout=0.05):
                        assert client.peer.driver.core.queued_bytes < 10 << 19

            with pytest.raises(CallTimeout):
                await fill()
            client.peer.drop()
