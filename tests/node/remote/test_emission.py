"""Tests of node/remote/emission.py: events as their sender sees them, and leaving at any time."""

from collections.abc import AsyncIterator, Callable

import anyio
import pytest
from anyio import create_task_group

from parley import (
    CallRefused,
    CallTimeout,
    FormatError,
    NamedEvent,
    ParleyError,
    PeerClosedError,
    Replies,
    Reply,
    Tandem,
    UnreadRepliesError,
)
from parley._lbm.errors import LbmEncodeError
from parley._node.messaging.named_events import REPLIES_MEMORY, REPLIES_SIZE, OutgoingEmit
from parley._node.protocol.codes import END, NAMED, CloseCode
from parley._node.protocol.errors import PayloadTooLargeError
from parley._node.protocol.event import Event
from parley._node.testing import ConnectedNodes
from tests.node.network import eventually, meeting, nothing_left, settled, started

pytestmark = pytest.mark.anyio


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting() as met:

        @met.server.on("echo")
        async def echo(event: NamedEvent) -> object:
            return event.data

        @met.server.on("count")
        async def count(event: NamedEvent) -> str:
            for number in range(int(str(event.data))):
                await event.emit("number", number)
            return "done"

        yield met


class Held:
    """A handler that never ends; what became of it."""

    def __init__(self, met: ConnectedNodes, replies: int = 0) -> None:
        self.begun = 0
        self.stopped = 0
        self._replies = replies
        met.server.on("hold")(self)

    async def __call__(self, event: NamedEvent) -> None:
        self.begun += 1
        try:
            for number in range(self._replies):
                await event.emit("hold", number)
            await anyio.sleep_forever()
        finally:
            self.stopped += 1


def unanswered(met: ConnectedNodes) -> int:
    """Requests that either side still keeps."""
    return len(met.peer.outgoing) + len(met.back.calls.incoming)


# Sending.


async def test_an_event_that_wants_no_reply(met: ConnectedNodes, anyio_backend: str) -> None:
    seen: list[object] = []
    met.server.on("note")(lambda event: seen.append((event.data, event.wants_reply)))
    await met.peer.emit("note", {"a": 1})
    await eventually(lambda: len(seen) == 1)
    await met.peer.emit("note")
    await eventually(lambda: len(seen) == 2)
    assert seen == [({"a": 1}, False), (None, False)]
    assert unanswered(met) == 0


async def test_both_sides_emit(met: ConnectedNodes, anyio_backend: str) -> None:
    met.client.on("echo")(lambda event: ["client", event.data])
    assert (await met.back.emit("echo", 1).reply()).data == ["client", 1]
    assert (await met.peer.emit("echo", 2).reply()).data == 2


async def test_an_emission_goes_once(met: ConnectedNodes, anyio_backend: str) -> None:
    emission = met.peer.emit("echo", 1)
    await emission
    for again in (emission.reply, emission.replies().__aenter__):
        with pytest.raises(ParleyError, match="was already emitted"):
            await again()
    with pytest.raises(ParleyError, match="was already emitted"):
        await emission
    assert repr(emission) == "<Emission of 'echo'>"


async def test_what_cannot_be_sent(met: ConnectedNodes, anyio_backend: str) -> None:
    large = bytes(met.peer.limits.max_payload)
    with pytest.raises(PayloadTooLargeError):
        await met.peer.emit("echo", large)
    with pytest.raises(PayloadTooLargeError):
        await met.peer.emit("echo", large).reply()
    with pytest.raises(LbmEncodeError):
        await met.peer.emit("echo", {1, 2})  # type: ignore[arg-type]  # that is the test
    with pytest.raises(FormatError):
        await met.peer.emit("echo", {1: 2}, format="json").reply()
    with pytest.raises(FormatError):
        met.peer.emit("echo", "text", format="raw")
    with pytest.raises(FormatError):
        met.peer.emit("echo", 1, format="xml")  # type: ignore[arg-type]  # that is the test
    replies = met.peer.emit("echo", large).replies()
    with pytest.raises(PayloadTooLargeError):
        await anext(replies)
    assert unanswered(met) == 0
    assert (await met.peer.emit("echo", 1).reply()).data == 1


async def test_on_a_connection_that_is_over(met: ConnectedNodes, anyio_backend: str) -> None:
    emissions = [met.peer.emit("echo") for _ in range(3)]
    await met.peer.close()
    with pytest.raises(PeerClosedError):
        await emissions[0]
    with pytest.raises(PeerClosedError):
        await emissions[1].reply()
    with pytest.raises(PeerClosedError):
        async with emissions[2].replies():
            pass


# One reply.


async def test_the_first_reply(met: ConnectedNodes, anyio_backend: str) -> None:
    reply = await met.peer.emit("count", 3).reply()
    assert (reply.data, reply.name, reply.last) == (0, "number", False)
    await eventually(lambda: unanswered(met) == 0)
    last = await met.peer.emit("count", 0).reply()
    assert (last.data, last.name, last.last) == ("done", "", True)


@pytest.mark.parametrize("name", ["nobody", "silent"])
async def test_no_reply_is_an_empty_one(met: ConnectedNodes, anyio_backend: str, name: str) -> None:
    met.server.on("silent")(lambda event: None)
    reply = await met.peer.emit(name, 1).reply()
    assert isinstance(reply, Reply)
    assert (reply.data, reply.format, reply.last) == (None, 16, True)
    assert met.back.dropped == (1 if name == "nobody" else 0)
    assert [reply async for reply in met.peer.emit(name).replies()] == []


async def test_the_rest_is_let_go_when_one_is_enough(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    """The handler continues, but its replies are neither kept nor awaited."""
    held = Held(met, replies=20)
    assert (await met.peer.emit("hold").reply()).data == 0
    await settled()
    emit = met.peer.outgoing.get(Event(1, 1, NAMED, END, b"", 0))
    assert isinstance(emit, OutgoingEmit)
    assert len(emit.replies) == 0
    assert (held.begun, held.stopped) == (1, 0)


async def test_a_timeout_cancels(met: ConnectedNodes, anyio_backend: str) -> None:
    held = Held(met)
    with pytest.raises(CallTimeout):
        await met.peer.emit("hold").reply(timeout=0.03)
    await eventually(lambda: held.stopped == 1)
    await eventually(lambda: unanswered(met) == 0)
    with pytest.raises(CallTimeout):
        async for _ in met.peer.emit("hold").replies(timeout=0.03):
            pass
    await eventually(lambda: held.stopped == 2)
    assert (await met.peer.emit("echo", 1).reply(timeout=None)).data == 1


# All replies.


async def test_all_replies_in_their_order(met: ConnectedNodes, anyio_backend: str) -> None:
    replies = [reply async for reply in met.peer.emit("count", 200).replies()]
    assert [reply.data for reply in replies] == [*range(200), "done"]
    assert [reply.last for reply in replies] == [False] * 200 + [True]
    async with met.peer.emit("count", 2).replies(timeout=5) as few:
        assert [reply.data async for reply in few] == [0, 1, "done"]
        assert [reply async for reply in few] == []


async def test_leaving_early_stops_the_handler(met: ConnectedNodes, anyio_backend: str) -> None:
    held = Held(met, replies=3)
    async with met.peer.emit("hold").replies() as replies:
        async for reply in replies:
            assert reply.data == 0
            break
    await eventually(lambda: held.stopped == 1)
    await eventually(lambda: unanswered(met) == 0)
    with pytest.raises(StopAsyncIteration):
        await anext(replies)


async def test_closing_ends_who_waits(met: ConnectedNodes, anyio_backend: str) -> None:
    held = Held(met)
    replies = met.peer.emit("hold").replies()
    async with create_task_group() as tasks:
        outcome = await started(tasks, replies.__anext__)
        with pytest.raises(anyio.BusyResourceError):
            await anext(replies)
        replies.close()
        await replies.aclose()
    assert [type(one) for one in outcome] == [StopAsyncIteration]
    await eventually(lambda: held.stopped == 1)


async def test_what_was_closed_before_is_never_sent(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    held = Held(met)
    replies = met.peer.emit("hold").replies()
    replies.close()
    assert [reply async for reply in replies] == []
    await met.peer.ping()
    assert held.begun == 0


async def test_an_error_comes_after_the_replies_before_it(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    @met.server.on("breaks")
    async def breaks(event: NamedEvent) -> None:
        await event.emit("breaks", 1)
        raise CallRefused(404, "no more")

    replies = met.peer.emit("breaks").replies()
    assert (await anext(replies)).data == 1
    for _ in range(2):
        with pytest.raises(CallRefused) as caught:
            await anext(replies)
        assert (caught.value.code, caught.value.data) == (404, "no more")


async def test_replies_that_nobody_reads(met: ConnectedNodes, anyio_backend: str) -> None:
    """Waiting replies are bounded, the handler is stopped, and calls continue."""
    stopped = anyio.Event()

    @met.server.on("flood")
    async def flood(event: NamedEvent) -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(10_000)
        finally:
            stopped.set()

    async with met.peer.emit("flood").replies() as replies:
        for number in range(20):
            assert (await met.peer.emit("echo", number).reply()).data == number
        await stopped.wait()
        read: list[Reply] = []
        with pytest.raises(UnreadRepliesError):
            await read_into(read, replies)
    assert REPLIES_SIZE // 2 < sum(len(reply.raw) for reply in read) <= REPLIES_SIZE
    await eventually(lambda: unanswered(met) == 0)


async def read_into(read: list[Reply], replies: Replies) -> None:
    async for reply in replies:
        read.append(reply)  # noqa: PERF401 - replies before an error also count


async def test_who_reads_gets_any_number_of_replies(
    met: ConnectedNodes, anyio_backend: str
) -> None:
    total = 0
    async for reply in met.peer.emit("much").replies():
        total += len(reply.raw)
    assert total == 0

    @met.server.on("much")
    async def much(event: NamedEvent) -> None:
        for _ in range(180):
            await event.emit("much", bytes(50_000), format="raw")
            await anyio.lowlevel.checkpoint()

    async for reply in met.peer.emit("much").replies():
        total += len(reply.raw)
    assert total == 180 * 50_000 > 2 * REPLIES_MEMORY


# Ends.


@pytest.mark.parametrize("turns", range(8))
async def test_an_emitter_that_is_cancelled_at_any_time(
    met: ConnectedNodes, anyio_backend: str, turns: int
) -> None:
    """No state remains on either side, and the connection is as before."""
    held = Held(met)
    ways: list[Callable[[], object]] = [
        met.peer.emit("hold").reply,
        met.peer.emit("echo", 1).reply,
        lambda: collect(met, "hold"),
        lambda: collect(met, "count"),
    ]
    for way in ways:
        async with create_task_group() as tasks:
            tasks.start_soon(way)  # type: ignore[arg-type]  # they are all coroutine functions
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    await eventually(lambda: unanswered(met) == 0)
    await eventually(lambda: held.stopped == held.begun)
    assert (await met.peer.emit("echo", "on").reply()).data == "on"


async def collect(met: ConnectedNodes, name: str) -> None:
    async with met.peer.emit(name, 5).replies() as replies:
        async for _ in replies:
            pass


@pytest.mark.parametrize("graceful", [True, False])
async def test_the_connection_ends_while_one_waits(
    met: ConnectedNodes, anyio_backend: str, graceful: bool
) -> None:
    held = Held(met, replies=1)
    async with create_task_group() as tasks:
        replies = met.peer.emit("hold").replies()
        assert (await anext(replies)).data == 0
        first = await started(tasks, replies.__anext__)
        met.server.on("still")(lambda event: anyio.sleep_forever())
        second = await started(tasks, met.peer.emit("still").reply)
        if graceful:
            await met.back.close(CloseCode.GOING_AWAY, "so long")
        else:
            met.back.live.drop(CloseCode.GOING_AWAY)
    for (error,) in (first, second):
        assert isinstance(error, PeerClosedError)
        assert error.code == CloseCode.GOING_AWAY
    await eventually(lambda: held.stopped == 1)


async def come_and_go() -> None:
    async with meeting() as met:
        held = Held(met, replies=2)
        assert (await met.peer.emit("hold").reply()).data == 0
        async with met.peer.emit("hold").replies() as replies:
            await anext(replies)
        async with create_task_group() as tasks:
            await started(tasks, met.peer.emit("hold").replies().__anext__)
            tasks.cancel_scope.cancel()
    assert held.stopped == held.begun == 3


@pytest.mark.slow
async def test_nothing_is_left_of_emissions(anyio_backend: str) -> None:
    with nothing_left():
        await come_and_go()


async def test_a_reply_of_another_format(met: ConnectedNodes, anyio_backend: str) -> None:
    @met.server.on("forms")
    async def forms(event: NamedEvent) -> Tandem:
        await event.emit("json", {"a": 1}, format="json")
        await event.emit("raw", b"x", format="raw")
        await event.emit("both", Tandem(b"a", b"b"))
        return Tandem(b"c", b"")

    replies = [reply async for reply in met.peer.emit("forms").replies()]
    assert [reply.format for reply in replies] == [3, None, None, None]
    assert [reply.name for reply in replies] == ["json", "raw", "both", ""]
    assert replies[0].data == {"a": 1}
    assert (replies[0].raw, replies[1].data) == (b'{"a":1}', b"x")
    assert [reply.tandem for reply in replies[2:]] == [(b"a", b"b"), (b"c", b"")]
