"""Named events between our node and the reference peer, either of them emitting, byte for
byte (section 10).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from parley import CallRefused, NamedEvent, Payload, Peer, Tandem
from tests.interop.meeting import SIDES, Ours, our_node
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

ID = 7
TANDEM = b"\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2bc"


def add_events(ours: Ours) -> None:
    """What our node does with events."""
    node = ours.node

    @node.on("echo")
    async def echo(event: NamedEvent) -> Payload:
        return Payload(event.raw, event.format)

    @node.on("echo", namespace="game")
    async def echo_value(event: NamedEvent) -> object:
        await event.emit("echo", event.name)
        await event.emit("other", event.namespace, format="json")
        await event.emit("echo", Tandem(b"a", b"bc"))
        await event.emit("echo")
        return event.data

    @node.on("fail")
    async def fail(event: NamedEvent) -> None:
        raise ValueError("a secret of the server")

    @node.on("refuse")
    async def refuse(event: NamedEvent) -> None:
        raise CallRefused(404, "no such room")

    @node.on("hold")
    async def hold(event: NamedEvent) -> None:
        ours.called.append((event.name, event.data))
        try:
            await anyio.sleep_forever()
        finally:
            ours.stopped.append(event.name)


def answers(peer: ReferencePeer, async_id: int = ID) -> list[tuple[str, bytes]]:
    """Return everything up to the End or Error of an event."""
    kinds = {TYPES[name]: name for name in ("Named Reply", "Error", "End")}
    found: list[tuple[str, bytes]] = []
    while not found or found[-1][0] == "Named Reply":
        event = acts.wait_for(peer, lambda e: e.type in kinds and e.async_id == async_id)
        assert event.stream == 1
        found.append((kinds[event.type], event.payload))
    return found


def end(**cells: Any) -> list[tuple[str, bytes]]:
    return [("End", cells_payload(**cells))]


def error(code: int, text: str) -> list[tuple[str, bytes]]:
    return [("Error", cells_payload(code=code, text=text))]


# The reference emits.

EMITS: dict[str, tuple[bytes, list[tuple[str, bytes]]]] = {
    "LBM": (
        cells_payload(name="echo", data={"a": [1, None]}, format=16),
        end(data={"a": [1, None]}, format=16),
    ),
    "nothing": (cells_payload(name="echo"), end(data=None, format=16)),
    "null": (cells_payload(name="echo", data=None, format=16), end(data=None, format=16)),
    "raw": (cells_payload(name="echo", data=b"\0\1"), end(data=b"\0\1")),
    "tandem": (cells_payload(name="echo", data=TANDEM), end(data=TANDEM)),
    "MessagePack": (
        cells_payload(name="echo", data=b"\x81\xa1a\x01", format=0),
        end(data=b"\x81\xa1a\x01", format=0),
    ),
    "postcard": (cells_payload(name="echo", data=b"\1", format=2), end(data=b"\1", format=2)),
    "an unknown format": (
        cells_payload(name="echo", data=b"\1", format=99),
        end(data=b"\1", format=99),
    ),
    "a namespace": (
        cells_payload(name="echo", namespace="game", data=b'{"a":1}', format=3),
        [
            ("Named Reply", cells_payload(data="echo", format=16)),
            ("Named Reply", cells_payload(data=b'"game"', format=3, name="other")),
            ("Named Reply", cells_payload(data=TANDEM)),
            ("Named Reply", cells_payload(data=None, format=16)),
            *end(data={"a": 1}, format=16),
        ],
    ),
    "nobody": (cells_payload(name="nobody", data=1, format=16), [("End", b"\xa0")]),
    "another namespace": (cells_payload(name="fail", namespace="x"), [("End", b"\xa0")]),
    "a handler that fails": (cells_payload(name="fail"), error(500, "the handler failed")),
    "what is not of its format": (
        cells_payload(name="echo", namespace="game", data=b"\xff", format=3),
        [
            ("Named Reply", cells_payload(data="echo", format=16)),
            ("Named Reply", cells_payload(data=b'"game"', format=3, name="other")),
            ("Named Reply", cells_payload(data=TANDEM)),
            ("Named Reply", cells_payload(data=None, format=16)),
            *error(500, "the handler failed"),
        ],
    ),
    "a handler that refuses": (cells_payload(name="refuse"), error(404, "no such room")),
    "no name": (cells_payload(data=b""), error(23, "malformed request")),
    "no data": (cells_payload(name="echo", format=3), error(23, "malformed request")),
}


@pytest.mark.parametrize("side", SIDES)
async def test_our_handlers_answer(side: Side) -> None:
    def act(peer: ReferencePeer) -> dict[str, list[tuple[str, bytes]]]:
        peer.handshake()
        found = {}
        for name, (payload, _) in EMITS.items():
            peer.send_event(1, ID, *TYPES["Emit"], payload)
            peer.send_event(1, 0, *TYPES["Emit"], payload)  # No request waits.
            found[name] = answers(peer)
        acts.ping(peer)
        acts.close(peer)
        return found

    async with our_node() as ours:
        add_events(ours)
        assert await ours.meet(act, side) == {name: wanted for name, (_, wanted) in EMITS.items()}
        assert "a secret" not in str(EMITS)


# Our node emits.


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition without an event; the meeting has a timeout."""
    while not condition():  # noqa: ASYNC110 - no event is set
        await anyio.sleep(0.002)


async def emitting(
    act: Callable[[ReferencePeer, Event], object], application: Callable[[Peer], Awaitable[object]]
) -> Event:
    """Dial from a node, emit once, and return the emission."""

    async def run(peer: Peer) -> None:
        await application(peer)
        await peer.close()

    def serve(peer: ReferencePeer) -> Event:
        peer.handshake()
        event = acts.wait_for(peer, lambda e: e.type == TYPES["Emit"])
        act(peer, event)
        assert acts.closed_with(peer) == "normal"
        return event

    async with our_node() as ours:
        return await ours.meet(serve, "responder", application=run, automatic=False)


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ({}, {"data": None, "format": 16}),
        ({"data": [1]}, {"data": [1], "format": 16}),
        ({"data": [1], "namespace": "game"}, {"data": [1], "format": 16, "namespace": "game"}),
        ({"data": [1], "format": "json"}, {"data": b"[1]", "format": 3}),
        ({"data": [1], "format": "msgpack"}, {"data": b"\x91\x01", "format": 0}),
        ({"data": [1], "format": "cbor"}, {"data": b"\x81\x01", "format": 17}),
        ({"data": b"x", "format": "raw"}, {"data": b"x"}),
        ({"data": Tandem(b"a", b"bc")}, {"data": TANDEM}),
    ],
)
async def test_our_events(options: dict[str, Any], cells: dict[str, Any]) -> None:
    async def silent(peer: Peer) -> None:
        await peer.emit("ping", **options)

    async def asking(peer: Peer) -> None:
        reply = await peer.emit("ping", **options).reply()
        assert (reply.data, reply.last) == (None, True)

    event = await emitting(lambda peer, event: None, silent)
    assert (event.stream, event.async_id) == (1, 0)
    assert event.payload == cells_payload(name="ping", **cells)
    asked = await emitting(lambda p, e: p.send_event(1, e.async_id, *TYPES["End"], b"\xa0"), asking)
    assert asked.async_id != 0
    assert asked.payload == event.payload


async def test_replies_of_every_kind() -> None:
    def act(peer: ReferencePeer, event: Event) -> None:
        def reply(**cells: Any) -> None:
            peer.send("Named Reply", 1, event.async_id, **cells)

        reply(data={"a": 1}, format=16)
        reply(data=b'{"a":1}', format=3, name="other")
        reply(data=b"raw")
        peer.send_event(1, event.async_id, *TYPES["Named Reply"], b"\xa0")
        reply(data=5)  # Malformed: dropped, as is the next.
        reply()
        peer.send("Result", 1, event.async_id + 1, code=0)  # Of no event.
        reply(data=b"\1", format=1)
        peer.send("End", 1, event.async_id, data="last", format=16)
        reply(data="late", format=16)

    async def application(peer: Peer) -> None:
        replies = [reply async for reply in peer.emit("ping").replies()]
        assert [reply.data for reply in replies] == [
            *({"a": 1}, {"a": 1}, b"raw", None, b"\1", "last"),
        ]
        assert [reply.name for reply in replies] == ["", "other", "", "", "", ""]
        assert [reply.format for reply in replies] == [16, 3, None, 16, 1, 16]
        await until(lambda: peer.dropped == 4)

    await emitting(act, application)
