"""Tests of StreamTransport: any byte stream can serve a driver until it ends."""

from collections.abc import AsyncIterator
from typing import cast

import anyio
import pytest
from anyio import BrokenResourceError, EndOfStream, create_task_group, fail_after
from anyio.abc import ByteStream, TaskGroup

from parley._node.transport.backend import Backend
from parley._node.transport.memory import MemoryStream, memory_pair
from parley._node.transport.task_scope import current_backend
from parley._node.transport.transport import WRITE_BUFFER, StreamTransport
from tests.node.network import eventually, settled
from tests.node.transport.test_asyncio_backend import Noted

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tasks(anyio_backend: str) -> AsyncIterator[TaskGroup]:
    async with create_task_group() as tasks:
        yield tasks


@pytest.fixture
async def backend(tasks: TaskGroup) -> AsyncIterator[Backend]:
    backend = current_backend(tasks)
    yield backend
    with fail_after(2):
        await backend.aclose()


def served(backend: Backend) -> tuple[Noted, MemoryStream]:
    ours, theirs = memory_pair()
    driver = Noted()
    transport = StreamTransport(ours, driver.as_driver, backend)
    assert driver.transport is transport
    return driver, theirs


async def test_bytes_and_ends_both_ways(backend: Backend) -> None:
    driver, theirs = served(backend)
    assert driver.transport.write(b"abc")
    assert driver.transport.write(b"def")
    driver.transport.write_eof()
    received = bytearray()
    async for data in theirs:
        received += data
    assert received == b"abcdef"
    await theirs.send(b"ghi")
    await eventually(lambda: driver.data == b"ghi")
    await theirs.aclose()
    await eventually(lambda: driver.ends == 1)
    driver.transport.close()
    await settled()
    assert driver.ends == 1
    assert not driver.transport.write(b"too late")


async def test_close_closes_the_stream(backend: Backend) -> None:
    driver, theirs = served(backend)
    driver.transport.close()
    driver.transport.close()
    with fail_after(1), pytest.raises(EndOfStream):
        await theirs.receive()
    with pytest.raises(BrokenResourceError):
        await theirs.send(b"x")
    assert driver.ends == 0


async def test_close_does_not_wait_for_who_does_not_read(backend: Backend) -> None:
    driver, theirs = served(backend)
    driver.transport.write(bytes(1 << 20))
    await settled()
    driver.transport.close()
    with fail_after(1):
        while True:
            try:
                await theirs.receive()
            except EndOfStream:
                break
    assert driver.ends == 0


async def test_what_waits_is_bounded(backend: Backend) -> None:
    driver, theirs = served(backend)
    sent = 0
    while driver.transport.write(bytes(1 << 16)):
        sent += 1 << 16
        await settled()
    sent += 1 << 16
    assert WRITE_BUFFER <= sent <= WRITE_BUFFER + 3 * (1 << 16)
    assert driver.writable == 0
    received = 0
    while received < sent:
        received += len(await theirs.receive())
    await eventually(lambda: driver.writable == 1)
    assert driver.transport.write(b"more")


async def test_reading_pauses(backend: Backend) -> None:
    driver, theirs = served(backend)
    await settled()
    driver.transport.pause_reading()
    await theirs.send(b"a")  # for the receive in progress
    await settled()
    await theirs.send(b"b")
    await settled()
    assert driver.data == b"a"
    driver.transport.resume_reading()
    await eventually(lambda: driver.data == b"ab")
    driver.transport.pause_reading()
    await settled()
    driver.transport.close()
    with fail_after(1), pytest.raises(EndOfStream):
        await theirs.receive()


class Odd(ByteStream):
    """A stream that raises unexpected errors, or is slow."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.closed = 0

    async def _do(self, what: str) -> None:
        await anyio.lowlevel.checkpoint()
        if what == self.fails:
            raise ZeroDivisionError(what)
        await anyio.sleep_forever()

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await self._do("receive")
        return b""

    async def send(self, item: bytes) -> None:
        await self._do("send")

    async def send_eof(self) -> None:
        await self._do("send_eof")

    async def aclose(self) -> None:
        self.closed += 1
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("what", ["receive", "send", "send_eof"])
async def test_an_odd_failure_is_an_end_and_logged(
    backend: Backend, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream, driver = Odd(what), Noted()
    StreamTransport(stream, driver.as_driver, backend)
    if what == "send":
        driver.transport.write(b"x")
    elif what == "send_eof":
        driver.transport.write_eof()
    await eventually(lambda: driver.ends == 1)
    assert "ZeroDivisionError" in caplog.text
    driver.transport.close()
    await eventually(lambda: stream.closed == 1)


@pytest.mark.parametrize("what", ["send", "send_eof"])
async def test_a_stuck_stream_is_closed(backend: Backend, what: str) -> None:
    stream, driver = Odd("nothing"), Noted()
    StreamTransport(stream, driver.as_driver, backend)
    if what == "send":
        driver.transport.write(b"x")
    else:
        driver.transport.write_eof()
    await settled()
    driver.transport.close()
    await eventually(lambda: stream.closed == 1)


async def test_a_backend_that_closes_tells_the_driver(backend: Backend) -> None:
    drivers = [served(backend)[0] for _ in range(3)]
    await settled()
    drivers.append(served(backend)[0])  # its tasks haven't started
    await backend.aclose()
    assert [driver.ends for driver in drivers] == [1] * 4


class Reusing(MemoryStream):
    """A foreign stream that returns views of one buffer, which the next bytes overwrite."""

    buffer = bytearray(1 << 18)

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        data = await super().receive(max_bytes)
        self.buffer[: len(data)] = data
        return cast(bytes, memoryview(self.buffer)[: len(data)])


class Keeping(Noted):
    """Stores received objects without copying them."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def received(self, data: bytes) -> None:
        self.pieces.append(data)


async def test_what_a_stream_gave_may_be_overwritten(backend: Backend) -> None:
    """The driver stores a part of it, for example the beginning of a frame."""
    ours, theirs = memory_pair()
    driver = Keeping()
    StreamTransport(Reusing(ours._outgoing, ours._incoming), driver.as_driver, backend)
    await theirs.send(b"first")
    await eventually(lambda: len(driver.pieces) == 1)
    await theirs.send(b"other")
    await eventually(lambda: len(driver.pieces) == 2)
    assert driver.pieces == [b"first", b"other"]
