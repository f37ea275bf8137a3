"""Tests of node/remote/stream.py: bytes both ways, ends, resets, back-pressure, cancellation."""

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from random import Random  # noqa: TID251  (seeded, to choose the cancelled task)
from typing import cast

import anyio
import pytest
from anyio import (
    BusyResourceError,
    ClosedResourceError,
    EndOfStream,
    create_task_group,
    fail_after,
    move_on_after,
)

from parley import Call, Stream
from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LimitReachedError
from parley._node.protocol.limits import Limits
from parley._node.remote.stream import LARGEST_PIECE
from parley._node.testing import ConnectedNodes
from tests.inspection import received_bytes_of
from tests.node.network import eventually, living, meeting, settled, started

pytestmark = pytest.mark.anyio

MANY = bytes(range(256)) * 16384  # 4 MiB: more than a window and the waiting data.


@pytest.fixture
async def met(anyio_backend: str) -> AsyncIterator[ConnectedNodes]:
    async with meeting(limits=Limits()) as met:
        yield met


async def read_all(stream: Stream) -> bytes:
    return b"".join([data async for data in stream])


async def opened(met: ConnectedNodes) -> tuple[Stream, Stream]:
    """Both ends of a stream; the handler's is in the test's hands."""
    ends: list[Stream] = []
    done = anyio.Event()

    label = f"both {id(ends)}"  # one for each

    @met.server.on_stream(label)
    async def both(stream: Stream) -> None:
        ends.append(stream)
        await done.wait()

    ours = met.peer.open_stream(label)
    await eventually(lambda: bool(ends))
    return ours, ends[0]


def none_open(met: ConnectedNodes) -> bool:
    """Return whether neither side has a stream."""
    sessions = [peer.core.session for peer in (met.peer, met.back)]
    return not (
        met.peer.streams
        or met.back.streams
        or any(session and session.mux.stream_table.open for session in sessions)
    )


async def test_bytes_go_both_ways_and_both_ends_finish(met: ConnectedNodes) -> None:
    @met.server.on_stream("sink")
    async def sink(stream: Stream) -> None:
        await stream.send(sha256(await read_all(stream)).digest())

    async with met.peer.open_stream("sink") as stream:
        for start in range(0, len(MANY), 100_001):
            await stream.send(MANY[start : start + 100_001])
        await stream.send_eof()
        assert await read_all(stream) == sha256(MANY).digest()
    await eventually(lambda: none_open(met))
    del stream
    await settled()
    assert living(Stream) == 0


async def test_receive_gives_at_most_what_was_asked_for(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await ours.send(b"abcdefg")
    await ours.send(b"hij")
    await ours.send_eof()
    assert await theirs.receive(3) == b"abc"
    assert await theirs.receive(1) == b"d"
    pieces = [await theirs.receive(4)]
    while True:
        try:
            pieces.append(await theirs.receive(2))
        except EndOfStream:
            break
    assert b"".join(pieces) == b"efghij"
    assert all(pieces)


@pytest.mark.parametrize("size", [0, -1])
async def test_less_than_one_byte_cannot_be_received(met: ConnectedNodes, size: int) -> None:
    ours, theirs = await opened(met)
    await ours.send(b"abc")
    with pytest.raises(ValueError, match="at least 1"):
        await theirs.receive(size)
    assert await theirs.receive() == b"abc"


async def test_any_kind_of_bytes_is_sent_as_it_was(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    data = bytearray(b"abc")
    await ours.send(data)
    data[:] = b"xyz"
    await ours.send(memoryview(b"def"))
    await ours.send(b"")
    await ours.send(b"\0")
    await ours.send_eof()
    assert await read_all(theirs) == b"abcdef\0"


async def test_each_direction_finishes_on_its_own(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await ours.send_eof()
    await ours.send_eof()
    with pytest.raises(ClosedResourceError):
        await ours.send(b"x")
    with pytest.raises(EndOfStream):
        await theirs.receive()
    await theirs.send(b"still")
    assert await ours.receive() == b"still"
    await theirs.send_eof()
    with pytest.raises(EndOfStream):
        await ours.receive()
    await eventually(lambda: none_open(met))


async def test_a_closed_stream_neither_sends_nor_receives(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await theirs.send(b"unread")
    await settled()
    await ours.aclose()
    await ours.aclose()
    for use in (ours.receive(), ours.send(b"x"), ours.send(b"")):
        with pytest.raises(ClosedResourceError):
            await use
    await ours.send_eof()
    with pytest.raises(EndOfStream):
        await theirs.receive()
    error = await failure(lambda: forever(lambda: theirs.send(b"that nobody will read")))
    assert isinstance(error, StreamResetError)
    assert error.code == CloseCode.CANCELLED
    await eventually(lambda: none_open(met))


async def test_what_is_sent_at_once_comes_in_one_event(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    for number in range(10):
        await ours.send(bytes([number]) * 1_000)
    await eventually(lambda: bool(received_bytes_of(theirs)))
    assert len(received_bytes_of(theirs)) == 1
    assert await theirs.receive() == b"".join(bytes([number]) * 1_000 for number in range(10))


async def test_full_pieces_are_separate_events(met: ConnectedNodes) -> None:
    pieces = [bytes([number]) * (1 << 16) for number in range(3)]
    ours, theirs = await opened(met)
    for piece in pieces:
        await ours.send(piece)
    await eventually(lambda: len(received_bytes_of(theirs)) == 3)
    assert [await theirs.receive() for _ in pieces] == pieces


async def test_closing_ends_the_waits_of_other_tasks(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        reading = await started(tasks, ours.receive)
        writing = await started(tasks, lambda: ours.send(MANY))
        assert not reading
        assert not writing
        with fail_after(2):
            await ours.aclose()
            await eventually(lambda: bool(reading and writing))
    assert isinstance(reading[0], ClosedResourceError)
    assert isinstance(writing[0], ClosedResourceError)
    received = await read_all(theirs)
    assert MANY.startswith(received)


async def test_a_cancelled_close_has_closed(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    await anyio.aclose_forcefully(ours)
    with fail_after(2), pytest.raises(EndOfStream):
        await theirs.receive()
    await theirs.send_eof()
    await eventually(lambda: none_open(met))


async def test_two_cannot_receive_nor_send_at_once(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        reading = await started(tasks, ours.receive)
        writing = await started(tasks, lambda: ours.send(MANY))
        for use in (ours.receive, lambda: ours.send(b"x"), ours.send_eof):
            with pytest.raises(BusyResourceError):
                await use()
        assert not reading
        assert not writing
        await theirs.send(b"for the first")
        received = 0
        while received < len(MANY):
            received += len(await theirs.receive())
    assert reading == [b"for the first"]
    assert writing == [None]


@pytest.mark.parametrize("code", [CloseCode.NORMAL, CloseCode.CANCELLED, 64, 2**32 - 1])
async def test_reset_ends_both_ways_on_both_sides(met: ConnectedNodes, code: int) -> None:
    ours, theirs = await opened(met)
    await ours.send(b"will not be read")
    await settled()
    async with create_task_group() as tasks:
        reading = await started(tasks, ours.receive)
        theirs.reset(code, "that is enough")
        await eventually(lambda: bool(reading))
    for error in [reading[0], *[await failure(use) for use in uses(ours)]]:
        assert isinstance(error, StreamResetError)
        assert (error.code, error.text) == (code, "that is enough")
    for use in uses(theirs):
        assert isinstance(await failure(use), ClosedResourceError)
    theirs.reset()
    ours.reset()
    await ours.send_eof()
    await ours.aclose()
    await eventually(lambda: none_open(met))


def uses(stream: Stream) -> list[Callable[[], Awaitable[object]]]:
    return [stream.receive, lambda: stream.send(b"x"), lambda: stream.send(b"")]


async def forever(use: Callable[[], Awaitable[object]]) -> None:
    while True:
        await use()


async def failure(use: Callable[[], Awaitable[object]]) -> Exception:
    try:
        await use()
    except Exception as error:
        return error
    raise AssertionError("it did not fail")


async def test_a_reset_that_cannot_be_said_changes_nothing(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    for code, text in [(36, ""), (-1, ""), (2**32, ""), (32, "x" * 5_000)]:
        with pytest.raises(ValueError, match=r"code|text"):
            ours.reset(code, text)
    await ours.send(b"fine")
    assert await theirs.receive() == b"fine"


async def test_leaving_by_an_exception_resets(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    with suppress(ZeroDivisionError):
        async with ours:
            await ours.send(b"x")
            raise ZeroDivisionError
    error = await failure(lambda: forever(theirs.receive))
    assert isinstance(error, StreamResetError)
    assert error.code == CloseCode.CANCELLED
    await eventually(lambda: none_open(met))


@pytest.mark.parametrize(
    ("label", "code"),
    [("nobody", CloseCode.NO_HANDLER), ("", CloseCode.NO_HANDLER), ("topic:x", CloseCode.REFUSED)],
)
async def test_a_stream_without_handler_is_reset(
    met: ConnectedNodes, label: str, code: int
) -> None:
    stream = met.peer.open_stream(label)
    with pytest.raises(StreamResetError) as caught:
        await stream.receive()
    assert caught.value.code == code
    await eventually(lambda: none_open(met))


async def test_a_failing_handler_resets_its_stream(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    @met.server.on_stream("bad")
    async def bad(stream: Stream) -> None:
        await stream.receive()
        raise ValueError("the password is swordfish")

    stream = met.peer.open_stream("bad")
    await stream.send(b"x")
    with pytest.raises(StreamResetError) as caught:
        await stream.receive()
    assert (caught.value.code, caught.value.text) == (CloseCode.INTERNAL_ERROR, "")
    assert "swordfish" in caplog.text
    await eventually(lambda: none_open(met))


async def test_the_end_of_another_stream_ends_a_handler_s_own(met: ConnectedNodes) -> None:
    """As when a proxy's other side is reset: no operation may wait forever."""
    met.client.on_call("x")(lambda call: None)

    @met.server.on_stream("proxy")
    async def proxy(stream: Stream) -> None:
        other = met.back.open_stream("nobody")
        await other.receive()

    stream = met.peer.open_stream("proxy")
    with fail_after(2), pytest.raises(StreamResetError) as caught:
        await stream.receive()
    assert caught.value.code == CloseCode.CANCELLED
    await eventually(lambda: none_open(met))


async def test_a_handler_that_returns_has_finished(met: ConnectedNodes) -> None:
    @met.server.on_stream("short")
    async def short(stream: Stream) -> None:
        await stream.send(b"short")

    stream = met.peer.open_stream("short")
    assert await read_all(stream) == b"short"
    await stream.aclose()
    await eventually(lambda: none_open(met))


async def test_a_slow_reader_slows_its_sender_and_nobody_else(met: ConnectedNodes) -> None:
    met.server.on_call("echo")(lambda call: call.data)
    slow, theirs = await opened(met)

    @met.server.on_stream("sink")
    async def sink(stream: Stream) -> None:
        await read_all(stream)

    sent = 0

    async def write() -> None:
        nonlocal sent
        while sent < 4 << 20:
            await slow.send(bytes(1 << 16))
            sent += 1 << 16

    async with create_task_group() as tasks:
        writing = await started(tasks, write)
        with fail_after(5):
            async with met.peer.open_stream("sink") as fast:
                await fast.send(MANY * 2)
            assert await met.peer.call("echo", 1) == 1
        window = met.peer.limits.stream_window
        # Data in transit: the window, one event over it, and the waiting data.
        assert sent <= window + 5 * LARGEST_PIECE + (1 << 16)
        assert not writing
        held = sum(len(data) for data, _ in received_bytes_of(theirs).items)
        assert held <= window + LARGEST_PIECE + 64
        received = 0
        while received < 4 << 20:
            received += len(await theirs.receive(50_000))
    assert writing == [None]


async def test_as_many_streams_as_were_agreed() -> None:
    async with meeting(limits=Limits(max_streams=3)) as met:
        streams = [met.peer.open_stream("nobody") for _ in range(3)]
        with pytest.raises(LimitReachedError):
            met.peer.open_stream("one more")
        for stream in streams:
            with pytest.raises(StreamResetError):
                await stream.receive()
        await eventually(lambda: none_open(met))
        assert met.peer.open_stream("again").label == "again"


@pytest.mark.parametrize("how", ["close", "lost"])
async def test_the_end_of_the_connection_ends_streams(met: ConnectedNodes, how: str) -> None:
    reader, _ = await opened(met)
    writer, _ = await opened(met)
    code = CloseCode.GOING_AWAY if how == "close" else CloseCode.CONNECTION_LOST
    async with create_task_group() as tasks:
        reading = await started(tasks, reader.receive)
        writing = await started(tasks, lambda: writer.send(MANY))
        assert not reading
        assert not writing
        if how == "close":
            tasks.start_soon(met.back.close, code)
        else:
            met.peer.driver.ended()
        await eventually(lambda: bool(reading and writing))
    for error in [reading[0], writing[0], *[await failure(use) for use in uses(reader)]]:
        assert isinstance(error, PeerClosedError)
        assert error.code == code
    await reader.aclose()
    writer.reset()
    await writer.send_eof()
    assert not met.peer.streams


async def test_sending_while_the_connection_closes(met: ConnectedNodes) -> None:
    """Close waits for queued data; further data is refused."""
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        writing = await started(tasks, lambda: ours.send(MANY))
        closing = await started(tasks, met.peer.close)
        assert not closing
        other = met.peer.streams.add(2, "of theirs")
        with pytest.raises(PeerClosedError):
            await other.send(b"x")
        # A reader that waits meets Close before it can look again at what became of the writer.
        while not (writing and closing):
            with move_on_after(0.05), suppress(PeerClosedError):
                await theirs.receive()
    assert isinstance(writing[0], PeerClosedError)
    assert closing == [None]


async def test_a_stream_opened_while_we_close_harms_nothing(
    met: ConnectedNodes, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = await opened(met)
    async with create_task_group() as tasks:
        await started(tasks, lambda: ours.send(MANY))
        closing = await started(tasks, lambda: met.peer.close(CloseCode.GOING_AWAY))
        nobodys = met.back.open_stream("nobody")
        await settled()
        assert not closing
        while not closing:
            with move_on_after(0.05):
                try:
                    await theirs.receive()
                except PeerClosedError:
                    break
    with pytest.raises(PeerClosedError) as caught:
        await nobodys.receive()
    assert caught.value.code == CloseCode.GOING_AWAY
    assert "internal error" not in caplog.text


@pytest.mark.parametrize("seed", range(12))
async def test_cancelled_anywhere_the_connection_stays_usable(
    met: ConnectedNodes, seed: int
) -> None:
    """Calls and streams are cancelled at random points; what follows must be right."""
    random = Random(seed)
    met.server.on_call("echo")(lambda call: call.data)

    @met.server.on_call("slow")
    async def slow(call: Call) -> None:
        await anyio.sleep(random.random() / 50)

    @met.server.on_stream("echo")
    async def echo(stream: Stream) -> None:
        async for data in stream:
            await stream.send(data)

    async def use_stream() -> None:
        async with met.peer.open_stream("echo") as stream:
            await stream.send(MANY[: random.randrange(1, 200_000)])
            await stream.send_eof()
            await read_all(stream)

    async def use_stream_badly() -> None:
        stream = met.peer.open_stream("echo")
        try:
            await stream.send(MANY[: random.randrange(1, 600_000)])
            await stream.receive()
        finally:
            await stream.aclose()

    uses = [
        lambda: met.peer.call("echo", MANY[: random.randrange(1, 5000)]),
        lambda: met.peer.call("slow", timeout=random.random() / 50),
        use_stream,
        use_stream_badly,
        met.peer.ping,
    ]

    async def use() -> None:
        for _ in range(4):
            with move_on_after(random.random() / 100):
                try:
                    await random.choice(uses)()
                except TimeoutError:
                    continue

    async with create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(use)
    assert await met.peer.call("echo", 1, timeout=5) == 1
    with fail_after(5):
        await use_stream()
        await met.peer.ping()
    await eventually(lambda: none_open(met))
    await eventually(lambda: not len(met.peer.outgoing))
    assert met.back.running_calls == 0
    assert met.peer.is_open


@pytest.mark.parametrize("item", [5, [1, 2, 3], "abc", None])
async def test_what_is_not_bytes_is_not_sent(met: ConnectedNodes, item: object) -> None:
    ours, theirs = await opened(met)
    with pytest.raises(TypeError):
        await ours.send(cast(bytes, item))
    await ours.send_eof()
    assert await read_all(theirs) == b""


async def test_what_changes_after_send_was_sent_as_it_was(met: ConnectedNodes) -> None:
    ours, theirs = await opened(met)
    item = bytearray(b"a" * 200_000)
    await ours.send(item)
    item[:] = b"b" * len(item)
    await ours.send_eof()
    assert set(await read_all(theirs)) == {ord("a")}


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_waits_keeps_no_more_than_itself(met: ConnectedNodes, cancelled: bool) -> None:
    """A peer that doesn't read must not make the node keep all data that it is sent."""
    ours, theirs = await opened(met)
    size = len(MANY) if cancelled else met.peer.limits.stream_window
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with move_on_after(0.05):
            for _ in range(4):  # the first is taken by the window
                await ours.send(b"".join((bytes(size - 1), b"x")))
        await settled()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    waiting = met.peer.core.queued_bytes
    assert waiting > 0
    # The reader's side, in the same process, holds its window, and what the pipe holds.
    assert held < waiting + met.peer.limits.stream_window + 400_000
    theirs.reset()  # The waiting data would delay the Close for seconds.
