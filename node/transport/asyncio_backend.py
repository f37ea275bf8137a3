"""The backend on asyncio and uvloop: protocols and futures, without a task for each connection."""

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import anyio

from parley._node.errors import UnreachableError
from parley._node.transport.address import Address
from parley._node.transport.backend import Accept, Listener
from parley._node.transport.driver import Driver
from parley._node.transport.fair_reads import FairScheduler
from parley._node.transport.loop import TaskStart
from parley._node.transport.memory import MemoryListener, connect_memory
from parley._node.transport.sockets import (
    SocketFile,
    check_socket_scheme,
    claim_unix_path,
    connect_error,
    listen_error,
    remote_name,
)
from parley._node.transport.transport import Attached, TransportProtocol

logger = logging.getLogger("parley.transport")

# Bytes in the loop's transport, beyond the kernel's buffer, from which on we stop writing.
WRITE_BUFFER = 256 * 1024
BACKLOG = 512
# Connections that asyncio accepts in one go. Without file descriptors, it logs a traceback for each
# of them, and in Python 3.11 retries once for each of them a second later.
ACCEPTED = 1
# Turns of the loop from an accepted socket to its transport.
ACCEPT_TURNS = 3
# Bytes received in one go, after which other connections run before more is read. uvloop would
# otherwise read up to 32 times 250 KiB from one connection.
LONG_READ = 128 * 1024
# Seconds for which closing waits until the loop has closed every socket, and until tasks have
# ended.
CLOSE_PATIENCE = 2.0
# How many tasks that don't end the log names.
MOST_NAMED = 10
# Coroutines of these files don't identify the handler that doesn't end.
_LIBRARIES = tuple(
    f"{directory}{os.sep}"
    for directory in (
        Path(anyio.__file__).parent,
        Path(asyncio.__file__).parent,
        Path(__file__).parents[1],
    )
)


class AsyncioWaiter(asyncio.Future[None]):
    def wake(self) -> None:
        if not self.done():
            self.set_result(None)


class AsyncioTransport(asyncio.Protocol):
    """A socket of asyncio."""

    def __init__(
        self, accept: Callable[[str], Attached | None], living: "set[AsyncioTransport]"
    ) -> None:
        self._accept = accept
        self._living = living
        self._transport: asyncio.Transport | None = None
        self._writing = True
        self._paused = False  # by the driver
        self._waits_for_turn = False
        self._served: TransportProtocol | None = None
        self.taken = False  # whether it got a driver

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._living.add(self)
        driver = None
        try:
            driver = self._accept(remote_name(transport.get_extra_info("peername")))
        except Exception:
            # Otherwise the loop would log it as well and leave the socket open.
            logger.exception(
                "a connection could not be accepted", extra={"event": "listener.accept-failed"}
            )
        self._accept = _nobody  # it refers to the listener
        if driver is None:
            self._transport.abort()
        else:
            self.taken = True
            self._served = driver
            driver.connected(self)

    def data_received(self, data: bytes) -> None:
        if self._served is not None:
            self._served.received(data)
        if len(data) >= LONG_READ and not self._waits_for_turn:
            self._let_others_read()

    def eof_received(self) -> bool:
        """Keep our side open until the driver closes it."""
        if self._served is not None:
            self._served.ended()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._living.discard(self)
        self._transport = None
        if self._served is not None:
            self._served.ended()

    def pause_writing(self) -> None:
        self._writing = False

    def resume_writing(self) -> None:
        self._writing = True
        if self._served is not None:
            self._served.resume_writing()

    # Called by the driver.

    def serve(self, served: TransportProtocol | None) -> None:
        self._served = served

    def write(self, data: bytes) -> bool:
        if self._transport is None:
            return False
        self._transport.write(data)
        return self._writing

    def write_eof(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.can_write_eof():
            with suppress(OSError):  # the peer disconnected, but the loop hasn't reported it yet
                transport.write_eof()

    def close(self) -> None:
        """Close immediately; the kernel still sends its buffered bytes."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size():
            transport.abort()  # the peer didn't read in time
        else:
            transport.close()

    def pause_reading(self) -> None:
        self._paused = True
        self._set_reading(False)

    def resume_reading(self) -> None:
        self._paused = False
        if not self._waits_for_turn:
            self._set_reading(True)

    def _let_others_read(self) -> None:
        self._waits_for_turn = True
        self._set_reading(False)
        asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if not self._paused:
            self._set_reading(True)

    def _set_reading(self, wanted: bool) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()


class AsyncioListener:
    """A server of asyncio; closing it doesn't close its connections."""

    def __init__(self, server: asyncio.Server, address: Address) -> None:
        self._server = server
        self._file = SocketFile(address)
        self.address = address

    async def aclose(self) -> None:
        try:
            # An asyncio server that closes loses the sockets that the loop is accepting, so accept
            # no more and wait for their transports. uvloop has no readers here, and loses none.
            loop = self._server.get_loop()
            accepting = [loop.remove_reader(each.fileno()) for each in self._server.sockets]
            if any(accepting):
                for _ in range(ACCEPT_TURNS):
                    await asyncio.sleep(0)
        finally:
            self._server.close()
            self._file.remove()


class AsyncioBackend:
    """`Backend` on the running asyncio loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.transports: set[AsyncioTransport] = set()
        # Not the loop's clock, which uvloop reads once a turn and in milliseconds.
        self.now = time.monotonic  # noqa: TID251 - this is where `now` comes from
        self.call_soon = self._loop.call_soon
        self.waiter = partial(AsyncioWaiter, loop=self._loop)
        self.scheduler = FairScheduler(self.now, self.call_soon)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(max(0.0, when - self.now()), callback)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = self._loop.create_task(cast(Any, function(*arguments)))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def start_tasks(self, begun: Iterable[TaskStart]) -> None:
        for function, request, one in begun:
            steps = function(request, one)
            try:
                if sys.version_info >= (3, 12):
                    task = asyncio.Task(steps, loop=self._loop, eager_start=True)
                else:
                    task = self._loop.create_task(steps)
            except (KeyboardInterrupt, SystemExit) as error:
                # Raised in a callback of the loop, because our caller may suppress it.
                self._loop.call_soon(_raise, error)
                continue
            one.runner = task
            if one.cancelled:  # cancelled in its first step
                task.cancel()
            if task.done():
                self._ended(task)
            else:
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a task failed", exc_info=error, extra={"event": "task.bug"})

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        if address.scheme == "memory":
            await connect_memory(address, accept, self)
            return
        check_socket_scheme(address)
        made: list[AsyncioTransport] = []

        def make() -> AsyncioTransport:
            made.append(AsyncioTransport(lambda _: accept(), self.transports))
            return made[-1]

        try:
            if address.scheme == "unix":
                _, transport = await self._loop.create_unix_connection(make, address.path)
            else:
                _, transport = await self._loop.create_connection(make, address.host, address.port)
        except OSError as error:
            raise connect_error(address, error) from error
        except asyncio.CancelledError:
            for transport in made:
                # uvloop does not report this if the connection succeeded at the last moment.
                transport.connection_lost(None)
            raise
        if not transport.taken:
            raise UnreachableError(
                f"cannot connect to {address.without_node_id()}: closed immediately"
            )

    async def listen(self, address: Address, accept: Accept) -> Listener:
        if address.scheme == "memory":
            return MemoryListener(address, accept, self)
        check_socket_scheme(address)

        def make() -> AsyncioTransport:
            return AsyncioTransport(accept, self.transports)

        try:
            if address.scheme == "unix":
                await claim_unix_path(address)
                server = await self._loop.create_unix_server(make, address.path, backlog=ACCEPTED)
                _lengthen_backlog(server)
                return AsyncioListener(server, address)
            server = await self._serve(make, address.host, address.port)
            _lengthen_backlog(server)
        except OSError as error:
            raise listen_error(address, error) from error
        return AsyncioListener(server, address.with_port(_port(server)))

    async def _serve(
        self, make: Callable[[], AsyncioTransport], host: str, port: int
    ) -> asyncio.Server:
        server = await self._loop.create_server(make, host, port, backlog=ACCEPTED)
        if not port and len(server.sockets) > 1:
            # A name with several addresses got a port for each; use the same port for all.
            port = _port(server)
            server.close()
            await server.wait_closed()
            server = await self._loop.create_server(make, host, port, backlog=ACCEPTED)
        return server

    async def aclose(self) -> None:
        """Cancel the tasks, close the sockets, and wait until both have ended.

        After `CLOSE_PATIENCE` seconds, tasks that ignore cancellation and sockets that the loop
        doesn't close are logged and abandoned.
        """
        try:
            await asyncio.sleep(0)
            deadline = self.now() + CLOSE_PATIENCE
            while self._tasks or self.transports:
                tasks = set(self._tasks)
                # A task that is cancelled before its first step doesn't run at all.
                await asyncio.sleep(0)
                self._end(tasks)
                if self.now() > deadline:
                    self._log_unended(tasks)
                    break
                if tasks:
                    await asyncio.wait(tasks, timeout=CLOSE_PATIENCE)
                await asyncio.sleep(0)
        finally:
            # A cancel scope of anyio doesn't shield from `asyncio.Task.cancel`.
            self._end(self._tasks)

    def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        for task in list(tasks):
            task.cancel()
        for transport in list(self.transports):
            transport.close()

    def _log_unended(self, tasks: set[asyncio.Task[Any]]) -> None:
        if self.transports:
            logger.error(
                "the event loop did not close %d sockets",
                len(self.transports),
                extra={"event": "transport.unclosed"},
            )
        if tasks:
            logger.error(
                "%d tasks ignore cancellation and are left running: %s",
                len(tasks),
                ", ".join(sorted(awaited_by(task) for task in islice(tasks, MOST_NAMED))),
                extra={"event": "transport.unended"},
            )


def _raise(error: BaseException) -> None:
    raise error


def _nobody(_: str) -> Driver | None:
    return None


def awaited_by(task: asyncio.Task[Any]) -> str:
    """Return where a task waits: its innermost coroutine outside Parley and the libraries."""
    coroutine: Any = task.get_coro()
    found = "a task"
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None)
        if code is not None and not code.co_filename.startswith(_LIBRARIES):
            frame = coroutine.cr_frame
            line = code.co_firstlineno if frame is None else frame.f_lineno
            found = f"{code.co_qualname} ({code.co_filename}:{line})"
        coroutine = getattr(coroutine, "cr_await", None)
    return found


def _lengthen_backlog(server: asyncio.Server) -> None:
    """Let `BACKLOG` connections wait in the kernel; asyncio's `backlog` sets both numbers."""
    for listening in server.sockets:
        with socket.socket(fileno=os.dup(listening.fileno())) as same:
            same.listen(BACKLOG)


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
