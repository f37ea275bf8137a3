"""Named events between our node and the reference peer, either of them emitting, byte for
byte (section 10).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from parley import CallRefused, CallTimeout, NamedEvent, Payload, Peer, Tandem, UnreadRepliesError
from tests.interop.meeting import SIDES, Ours, our_node, with_bystander
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, TYPES, Event, cells_payload

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
    """What comes up to the End or Error of an event."""
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
            peer.send_event(1, 0, *TYPES["Emit"], payload)  # and nobody waits
            found[name] = answers(peer)
        acts.ping(peer)
        acts.close(peer)
        return found

    async with our_node() as ours:
        add_events(ours)
        assert await ours.meet(act, side) == {name: wanted for name, (_, wanted) in EMITS.items()}
        assert "a secret" not in str(EMITS)


async def test_an_event_on_a_stream_is_answered_there() -> None:
    def act(peer: ReferencePeer) -> Event:
        peer.handshake()
        stream = acts.open_stream(peer, "hold")
        peer.send("Emit", stream, ID, name="echo", data=b"there")
        found = acts.wait_for(peer, lambda e: e.type == TYPES["End"])
        assert found.stream == stream
        acts.close(peer)
        return found

    async with our_node() as ours:
        add_events(ours)
        found = await ours.meet(act)
        assert (found.async_id, found.cells()) == (ID, {CELLS["data"]: b"there"})


@pytest.mark.parametrize("credit", [1, 200])
async def test_replies_on_a_stream_wait_for_its_credit(credit: int) -> None:
    """Of a handler that replies from several tasks each goes on."""

    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        stream = acts.open_stream(peer, "hold", window=1)
        peer.send("Emit", stream, ID, name="many")
        said: list[int] = []
        while True:
            event = acts.wait_for(peer, lambda e: e.category == 4)
            assert (event.stream, event.async_id) == (stream, ID)
            acts.grant(peer, stream, len(event.payload) + 64 + credit)
            if event.type == TYPES["End"]:
                acts.close(peer)
                return said
            said.append(event.cells()[CELLS["data"]])

    async with our_node() as ours:

        @ours.node.on("many")
        async def many(event: NamedEvent) -> None:
            async def say(number: int) -> None:
                for _ in range(5):
                    await event.emit("many", number)

            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(say, number)

        assert sorted(await ours.meet(act)) == sorted([*range(4)] * 5)


async def test_cancel_ends_the_handler() -> None:
    def act(peer: ReferencePeer) -> list[tuple[str, bytes]]:
        peer.handshake()
        peer.send("Emit", 1, ID, name="hold")
        peer.send("Emit", 1, ID + 1, name="hold")
        acts.ping(peer)
        peer.send("Cancel", 1, 0, request=ID)
        found = answers(peer)
        peer.send("Emit", 1, ID, name="echo", data=b"the id is free")
        assert answers(peer) == end(data=b"the id is free")
        acts.close(peer)
        return found

    async with our_node() as ours:
        add_events(ours)
        assert await ours.meet(act) == error(18, "cancelled")
        await ours.until(lambda: len(ours.stopped) == len(ours.called))


async def test_of_1025_unanswered_events_one_is_refused() -> None:
    def act(peer: ReferencePeer) -> list[tuple[str, bytes]]:
        peer.handshake()
        for number in range(1, 1_026):
            peer.send("Emit", 1, number, name="hold")
        found = answers(peer, 1_025)
        peer.send("Emit", 1, 0, name="echo")
        peer.send("Cancel", 1, 0, request=500)
        assert answers(peer, 500) == error(18, "cancelled")
        acts.close(peer)
        return found

    async with with_bystander() as ours:
        add_events(ours)
        assert await ours.meet(act) == error(19, "overloaded")


# Our node emits.


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event; the meeting has a time-out."""
    while not condition():  # noqa: ASYNC110 - as it says
        await anyio.sleep(0.002)


async def emitting(
    act: Callable[[ReferencePeer, Event], object], application: Callable[[Peer], Awaitable[object]]
) -> Event:
    """Our node dials, and emits once; what it emitted."""

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
        reply(data=5)  # malformed: dropped, and so is the next
        reply()
        peer.send("Result", 1, event.async_id + 1, code=0)  # of nothing
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


@pytest.mark.parametrize(
    ("kind", "payload", "code", "data"),
    [
        ("Error", cells_payload(code=500, text="failed"), 500, "failed"),
        ("Error", cells_payload(code=20, text=""), 20, ""),
        ("Error", cells_payload(code=0, text="x"), 23, None),
        ("Error", b"junk", 23, None),
        ("End", b"junk", 23, None),
        ("End", cells_payload(data=1), 23, None),
        ("Result", cells_payload(code=0, data=5), 23, None),
        ("Result", cells_payload(code=5, data=5), 23, None),
    ],
)
async def test_what_is_no_success(kind: str, payload: bytes, code: int, data: object) -> None:
    async def application(peer: Peer) -> None:
        with pytest.raises(CallRefused) as caught:
            await peer.emit("ping").reply()
        assert (caught.value.code, caught.value.data) == (code, data)

    await emitting(lambda p, e: p.send_event(1, e.async_id, *TYPES[kind], payload), application)


async def test_our_timeout_cancels() -> None:
    def act(peer: ReferencePeer, event: Event) -> None:
        cancel = acts.wait_for(peer, lambda e: e.type == TYPES["Cancel"])
        assert (cancel.stream, cancel.async_id) == (1, 0)
        assert cancel.payload == cells_payload(request=event.async_id)
        peer.send("Error", 1, event.async_id, code=18, text="cancelled")

    async def application(peer: Peer) -> None:
        with pytest.raises(CallTimeout):
            await peer.emit("ping").reply(timeout=0.05)
        await until(lambda: not len(peer.asking))

    await emitting(act, application)


async def test_replies_beyond_a_mebibyte_end_the_event() -> None:
    def act(peer: ReferencePeer, event: Event) -> None:
        for _ in range(3):
            peer.send("Named Reply", 1, event.async_id, data=bytes(400_000))
        cancel = acts.wait_for(peer, lambda e: e.type == TYPES["Cancel"])
        assert cancel.payload == cells_payload(request=event.async_id)
        peer.send("Error", 1, event.async_id, code=18, text="cancelled")

    async def application(peer: Peer) -> None:
        async with peer.emit("ping").replies() as replies:
            await until(lambda: not len(peer.asking))  # nobody reads meanwhile
            assert [len((await anext(replies)).raw) for _ in range(2)] == [400_000] * 2
            with pytest.raises(UnreadRepliesError):
                await anext(replies)

    await emitting(act, application)
