"""Tests of node/remote/requests.py: a handler's view of an event, and its replies."""

import logging

import anyio
import pytest
from anyio import create_task_group

from parley import CallRefused, FormatError, NamedEvent, Payload, Tandem
from parley._lbm.errors import LbmEncodeError
from parley._node.messaging.formats import FormatName
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.testing import ConnectedNodes
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


async def test_what_a_handler_sees(met: ConnectedNodes, anyio_backend: str) -> None:
    seen: list[object] = []

    @met.server.on("see", namespace="game")
    async def see(event: NamedEvent) -> None:
        seen.append((event.name, event.namespace, event.data, event.format, event.raw))
        seen.append((event.wants_reply, event.peer is met.back, repr(event)[:31]))

    await met.peer.emit("see", {"a": 1}, namespace="game").reply()
    assert seen == [
        ("see", "game", {"a": 1}, 16, b"\xa1\x61a\x01"),
        (True, True, "<NamedEvent 'see' of 'game' fro"),
    ]


@pytest.mark.parametrize(
    ("name", "format_id", "raw"),
    [
        ("lbm", 16, b"\xa1\x61a\xf6"),
        ("json", 3, b'{"a":null}'),
        ("msgpack", 0, b"\x81\xa1a\xc0"),
        ("cbor", 17, b"\xa1\x61a\xf6"),
    ],
)
async def test_formats_on_request(
    met: ConnectedNodes, anyio_backend: str, name: FormatName, format_id: int, raw: bytes
) -> None:
    @met.server.on("form")
    async def form(event: NamedEvent) -> list[object]:
        await event.emit("form", event.data, format=name)
        return [event.data, event.format, event.raw]

    first, last = [
        reply async for reply in met.peer.emit("form", {"a": None}, format=name).replies()
    ]
    assert last.data == [{"a": None}, format_id, raw]
    assert (first.data, first.format, first.raw) == ({"a": None}, format_id, raw)


async def test_raw_and_tandem(met: ConnectedNodes, anyio_backend: str) -> None:
    @met.server.on("raw")
    async def see(event: NamedEvent) -> list[object]:
        return [event.data, event.raw, event.format]

    @met.server.on("both")
    async def both(event: NamedEvent) -> list[object]:
        return [*event.tandem, event.format]

    assert (await met.peer.emit("raw", b"\0\1", format="raw").reply()).data == [
        b"\0\1",
        b"\0\1",
        None,
    ]
    assert (await met.peer.emit("both", Tandem(b"a", b"")).reply()).data == [b"a", b"", None]


async def test_what_is_not_what_it_says_is_the_handlers_failure(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    caught: list[str] = []

    @met.server.on("read")
    async def read(event: NamedEvent) -> None:
        for what in ("data", "tandem"):
            try:
                getattr(event, what)
            except FormatError as error:
                caught.append(type(error).__name__)

    await met.peer.emit("read", Payload(b"\xff", 3)).reply()
    await met.peer.emit("read", Payload(b"\xff", 99)).reply()
    assert caught == ["FormatError"] * 4


async def test_bincode_and_postcard_are_handed_up(met: ConnectedNodes, anyio_backend: str) -> None:
    met.server.on("bytes")(lambda event: [event.data, event.format])
    for format_id in (1, 2):
        reply = await met.peer.emit("bytes", Payload(b"\1\2", format_id)).reply()
        assert reply.data == [b"\1\2", format_id]


async def test_names_of_replies(met: ConnectedNodes, anyio_backend: str) -> None:
    """Only a name that is not the event's travels."""

    @met.server.on("tick")
    async def tick(event: NamedEvent) -> None:
        await event.emit("tick", 1)
        await event.emit("tock")
        await event.emit("", 3)

    replies = [reply async for reply in met.peer.emit("tick").replies()]
    assert [(reply.name, reply.data) for reply in replies] == [("", 1), ("tock", None), ("", 3)]


async def test_what_a_handler_may_not_say(met: ConnectedNodes, anyio_backend: str) -> None:
    caught: list[type[BaseException]] = []

    @met.server.on("try")
    async def attempt(event: NamedEvent) -> str:
        large = bytes(met.back.limits.max_payload)
        for data, form in ((large, None), ({1, 2}, None), ({1: 2}, "json"), ("x", "raw")):
            try:
                await event.emit("try", data, format=form)  # type: ignore[arg-type]  # that is the test
            except (PayloadTooLargeError, LbmEncodeError, FormatError) as error:
                caught.append(type(error))
        return "still here"

    (reply,) = [reply async for reply in met.peer.emit("try").replies()]
    assert reply.data == "still here"
    assert caught == [PayloadTooLargeError, LbmEncodeError, FormatError, FormatError]


@pytest.mark.parametrize("silent", [False, True], ids=["left", "silent"])
async def test_a_handler_that_talks_to_nobody_for_ever_can_be_ended(
    met: ConnectedNodes, anyio_backend: str, silent: bool
) -> None:
    """Without a wait in `emit` it would keep the loop, and with it the process."""
    stopped = anyio.Event()

    @met.server.on("talk")
    async def talk(event: NamedEvent) -> None:
        try:
            while True:
                await event.emit("talk", 1)
        finally:
            stopped.set()

    if silent:
        await met.peer.emit("talk")
        await met.peer.ping()
        await met.peer.close()
    else:
        async with met.peer.emit("talk").replies() as replies:
            await anext(replies)
    await stopped.wait()


async def test_what_is_said_after_the_end_goes_nowhere(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    kept: list[NamedEvent] = []
    met.server.on("keep")(kept.append)
    assert (await met.peer.emit("keep").reply()).data is None
    (event,) = kept
    assert not event.wants_reply
    await event.emit("keep", "late")
    await met.back.ping()
    assert met.peer.dropped == 0


async def test_several_tasks_of_a_handler_say_something(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    @met.server.on("many")
    async def many(event: NamedEvent) -> None:
        async def say(number: int) -> None:
            for _ in range(5):
                await event.emit("many", number)

        async with create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(say, number)

    said = sorted([int(str(reply.data)) async for reply in met.peer.emit("many").replies()])
    assert said == sorted([*range(4)] * 5)


async def test_a_failure_to_send_the_last_reply(
    met: ConnectedNodes, anyio_backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    met.server.on("bad")(lambda event: {1, 2})
    with caplog.at_level(logging.ERROR), pytest.raises(CallRefused) as caught:
        await met.peer.emit("bad").reply()
    assert (caught.value.code, caught.value.data) == (500, "the handler failed")
    assert "cannot be encoded" in caplog.text
    caplog.clear()
    await met.peer.emit("bad")
    await eventually(lambda: len(met.back.calls.incoming) == 0)
