"""Tests of node/transport/asyncio_backend.py: behaviour specific to asyncio's transports."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, TypeVar, cast, overload

import anyio
import pytest
from anyio import fail_after

from parley._node.errors import UnreachableError
from parley._node.transport import asyncio_backend
from parley._node.transport.address import Address
from parley._node.transport.asyncio_backend import (
    LONG_READ,
    WRITE_BUFFER,
    AsyncioBackend,
    AsyncioTransport,
)
from parley._node.transport.driver import Driver
from parley._node.transport.task_scope import TaskScope
from tests.node.network import PATIENCE, eventually, settled

pytestmark = pytest.mark.anyio

LISTEN = Address.parse("tcp://127.0.0.1:0")


@pytest.fixture(
    params=[pytest.param("asyncio"), pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")]
)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


class Noted:
    """A driver that records the calls of the transport."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = bytearray()
        self.ends = 0
        self.writable = 0

    def connected(self, transport: Any) -> None:
        self.transport = transport

    def received(self, data: bytes) -> None:
        self.data += data

    def ended(self) -> None:
        self.ends += 1

    def resume_writing(self) -> None:
        self.writable += 1

    @property
    def as_driver(self) -> Driver:
        return cast(Driver, self)


N = TypeVar("N", bound=Noted)


@overload
async def joined(backend: AsyncioBackend) -> tuple[Noted, socket.socket]: ...
@overload
async def joined(backend: AsyncioBackend, driver: N) -> tuple[N, socket.socket]: ...
async def joined(
    backend: AsyncioBackend, driver: Noted | None = None
) -> tuple[Noted, socket.socket]:
    """Return a connection whose other end is a plain socket."""
    driver = driver or Noted()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("tcp", "127.0.0.1", server.getsockname()[1])
        await backend.connect(address, lambda: driver.as_driver)
        other, _ = server.accept()
    other.settimeout(2)
    return driver, other


async def test_bytes_and_ends_both_ways() -> None:
    backend = AsyncioBackend()
    driver, other = await joined(backend)
    with other:
        assert driver.transport.write(b"abc")
        driver.transport.write_eof()
        await settled()
        assert other.recv(10) == b"abc"
        assert other.recv(10) == b""
        other.sendall(b"def")
        await eventually(lambda: driver.data == b"def")
        other.shutdown(socket.SHUT_WR)
        await eventually(lambda: driver.ends == 1)
        driver.transport.close()
        await eventually(lambda: driver.ends == 2)
        assert not driver.transport.write(b"too late")
        for late in ("write_eof", "close", "pause_reading", "resume_reading"):
            getattr(driver.transport, late)()
    assert backend.transports == set()


async def test_a_full_buffer_stops_the_writer_until_it_has_room() -> None:
    backend = AsyncioBackend()
    driver, other = await joined(backend)
    with other:
        sent = 0
        while driver.transport.write(bytes(1 << 18)):
            sent += 1 << 18
            await settled()
        sent += 1 << 18
        assert driver.writable == 0
        received = 0
        while received < sent:
            received += len(other.recv(1 << 16))
            if not driver.writable:
                await asyncio.sleep(0)
        await eventually(lambda: driver.writable > 0)
        assert driver.transport.write(b"more")
    await backend.aclose()


async def test_closing_does_not_wait_for_who_does_not_read() -> None:
    backend = AsyncioBackend()
    driver, other = await joined(backend)
    with other:
        while driver.transport.write(bytes(WRITE_BUFFER)):
            await settled()
        driver.transport.close()
        with fail_after(1):
            await backend.aclose()
    assert driver.ends == 1


async def test_a_flood_lets_others_have_their_turn() -> None:
    class ReadBuffer(Noted):
        """Records the turns of the loop in which many bytes arrived."""

        def __init__(self) -> None:
            super().__init__()
            self.turn = 0
            self.came: list[int] = []

        def received(self, data: bytes) -> None:
            super().received(data)
            if len(data) >= LONG_READ:
                self.came.append(self.turn)

    def count(driver: ReadBuffer) -> None:
        driver.turn += 1
        if len(driver.data) < len(flood):
            loop.call_soon(count, driver)

    loop, flood = asyncio.get_running_loop(), bytes(16 << 20)
    backend = AsyncioBackend()
    driver, other = await joined(backend, ReadBuffer())
    with other:
        loop.call_soon(count, driver)
        with fail_after(5):
            await loop.run_in_executor(None, other.sendall, flood)
            await eventually(lambda: driver.data == flood)
        assert driver.came
        assert len(driver.came) == len(set(driver.came))
        # If the driver pauses it in such a turn, it stays paused.
        driver.transport.pause_reading()
        driver.transport.data_received(flood)
        other.sendall(b"later")
        await anyio.sleep(0.02)
        assert len(driver.data) == 2 * len(flood)
        driver.transport.resume_reading()
        await eventually(lambda: driver.data.endswith(b"later"))
    await backend.aclose()


async def test_a_reset_by_the_other_side_is_an_end() -> None:
    backend = AsyncioBackend()
    driver, other = await joined(backend)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()
    await eventually(lambda: driver.ends > 0)
    await backend.aclose()


async def test_shutting_what_is_gone_already_is_no_error() -> None:
    """The loop reports the loss a turn later; until then the socket is neither open nor closed."""
    backend = AsyncioBackend()
    driver, other = await joined(backend)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    other.close()
    driver.transport.write_eof()
    await eventually(lambda: driver.ends > 0)
    await backend.aclose()


async def test_errors_are_translated() -> None:
    backend = AsyncioBackend()
    with pytest.raises(UnreachableError, match="there is no such socket"):
        await backend.connect(Address("unix", path="/proc/nowhere/at/all"), Noted)
    with pytest.raises(UnreachableError, match="the directory does not exist"):
        await backend.listen(Address("unix", path="/proc/nowhere/at/all"), Noted)  # type: ignore[arg-type]  # not called


async def test_a_dial_that_is_cancelled_at_any_moment_leaves_no_socket() -> None:
    """Uvloop doesn't report a connection that succeeded just then."""
    backend = AsyncioBackend()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        address = Address("tcp", "127.0.0.1", server.getsockname()[1])
        for turns in [*range(12)] * 10:
            driver = Noted()
            dialling = asyncio.create_task(backend.connect(address, lambda d=driver: d.as_driver))  # type: ignore[misc]  # bound now
            for _ in range(turns):
                await asyncio.sleep(0)
            dialling.cancel()
            await asyncio.wait([dialling])
            if dialling.cancelled() and driver.transport is not None:
                await eventually(lambda one=driver: one.ends > 0)  # type: ignore[misc]  # bound now
        for transport in list(backend.transports):
            transport.close()
        await eventually(lambda: not backend.transports)
    await backend.aclose()


async def test_sockets_that_a_loop_never_closes_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asyncio_backend, "CLOSE_PATIENCE", 0.02)
    backend = AsyncioBackend()
    backend.transports.add(AsyncioTransport(lambda _: None, backend.transports))
    with fail_after(5):
        await backend.aclose()
    assert "did not close 1 sockets" in caplog.text


async def test_a_task_that_ignores_cancellation_is_named_and_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley._node.transport.asyncio_backend.CLOSE_PATIENCE", 0.05)
    backend, over = AsyncioBackend(), asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    task = backend.spawn(stubborn)
    try:
        with anyio.fail_after(PATIENCE):
            await backend.aclose()
        assert not task.done()
    finally:
        over.set()
        await task
    record = next(one for one in caplog.records if vars(one)["event"] == "transport.unended")
    assert "stubborn (" in record.getMessage()
    assert __file__ in record.getMessage()


@pytest.mark.parametrize("turns", range(4))
async def test_a_close_that_asyncio_cancels_ends_tasks(turns: int) -> None:
    task_scope = TaskScope("x")
    backend = await task_scope.enter()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        try:
            begun.set()
            await anyio.sleep_forever()
        finally:
            ended.set()

    backend.spawn(wait)
    await begun.wait()
    closing = asyncio.create_task(task_scope.leave())
    await asyncio.sleep(0)  # it has started
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    with anyio.fail_after(PATIENCE):
        await ended.wait()


@pytest.mark.parametrize("turns", range(5))
async def test_closing_closes_sockets_that_the_loop_is_accepting(turns: int) -> None:
    backend = AsyncioBackend()
    listener = await backend.listen(LISTEN, lambda name: Noted().as_driver)
    with socket.create_connection(("127.0.0.1", listener.address.port)) as client:
        client.settimeout(PATIENCE)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.aclose()
        await backend.aclose()
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
