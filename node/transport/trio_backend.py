"""The backend on trio: anyio's streams, each with a task that reads and one that writes.

The tasks run in the node's task group and catch their own errors.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import Any, cast

import anyio
import trio
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from parley._node.errors import UnreachableError
from parley._node.logs import RateLimitedLogger
from parley._node.transport.address import Address
from parley._node.transport.backend import Accept, Listener
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
from parley._node.transport.transport import Attached, StreamTransport

logger = logging.getLogger("parley.transport")

BACKLOG = 512
# Seconds for which closing waits for tasks before it logs that they don't end.
CLOSE_PATIENCE = 2.0
# Seconds to wait after accepting failed, which usually means that file descriptors are exhausted.
ACCEPT_PAUSE = 0.1


class TrioWaiter:
    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, None, None]:
        return self._event.wait().__await__()


class TrioListener:
    """Listening sockets, each with a task that accepts."""

    def __init__(self, tasks: "list[tuple[anyio.CancelScope, trio.Event]]", address: Address):
        self._tasks = tasks
        self._file = SocketFile(address)
        self.address = address

    async def aclose(self) -> None:
        for scope, _ in self._tasks:
            scope.cancel()
        for _, closed in self._tasks:
            await closed.wait()
        self._file.remove()


class TrioBackend:
    """`Backend` in the running trio loop."""

    def __init__(self, task_group: TaskGroup) -> None:
        self._task_group = task_group
        self._token = trio.lowlevel.current_trio_token()
        self.scopes: set[anyio.CancelScope] = set()
        self._empty: trio.Event | None = None
        self.now = trio.current_time
        self.scheduler = FairScheduler(self.now, self.call_soon)

    def waiter(self) -> TrioWaiter:
        return TrioWaiter()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._token.run_sync_soon(callback)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> anyio.CancelScope:
        """Start a task that sleeps until `when`."""

        async def ring() -> None:
            await trio.sleep_until(when)
            callback()

        return self.spawn(ring)

    def start_tasks(self, begun: Iterable[TaskStart]) -> None:
        for function, request, one in begun:
            one.runner = self.spawn(function, request, one)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> anyio.CancelScope:
        # Cancelling the node's owner doesn't cancel these tasks, because peers must get a Close.
        scope = anyio.CancelScope(shield=True)
        self.scopes.add(scope)

        async def run() -> None:
            try:
                with scope:
                    await function(*arguments)
            except Exception:
                # A bug in Parley must not affect the node's other peers.
                logger.exception("a task failed", extra={"event": "task.bug"})
            finally:
                self.scopes.discard(scope)
                if not self.scopes and self._empty is not None:
                    self._empty.set()

        if self._empty is not None:
            scope.cancel()  # the whole node is being cancelled
        self._task_group.start_soon(run)
        return scope

    async def connect(self, address: Address, accept: Callable[[], Attached | None]) -> None:
        if address.scheme == "memory":
            await connect_memory(address, accept, self)
            return
        check_socket_scheme(address)
        stream: ByteStream
        try:
            if address.scheme == "unix":
                stream = await anyio.connect_unix(address.path)
            else:
                stream = await anyio.connect_tcp(address.host, address.port)
        except OSError as error:
            raise connect_error(address, error) from error
        driver = accept()
        if driver is None:
            await anyio.aclose_forcefully(stream)
            raise UnreachableError(
                f"cannot connect to {address.without_node_id()}: the connection is no longer needed"
            )
        StreamTransport(stream, driver, self)

    async def listen(self, address: Address, accept: Accept) -> Listener:
        if address.scheme == "memory":
            return MemoryListener(address, accept, self)
        check_socket_scheme(address)
        listeners: Sequence[SocketListener]
        try:
            if address.scheme == "unix":
                await claim_unix_path(address)
                listeners = [await anyio.create_unix_listener(address.path, backlog=BACKLOG)]
            else:
                several = await anyio.create_tcp_listener(
                    local_host=address.host, local_port=address.port, backlog=BACKLOG
                )
                listeners = cast("Sequence[SocketListener]", several.listeners)
        except OSError as error:
            raise listen_error(address, error) from error
        if address.scheme == "tcp":
            address = address.with_port(listeners[0].extra(SocketAttribute.local_port))  # noqa: S610 - anyio's attributes, not a query
        tasks = []
        for listener in listeners:
            closed = trio.Event()
            tasks.append((self.spawn(self._serve, listener, accept, closed), closed))
        return TrioListener(tasks, address)

    async def _serve(
        self,
        listener: SocketListener,
        accept: Accept,
        closed: trio.Event,
    ) -> None:
        failures = RateLimitedLogger()
        try:
            while True:
                try:
                    stream = await listener.accept()
                except (OSError, anyio.BrokenResourceError):
                    # The listener continues, because the next connection may succeed.
                    failures.log(
                        logger,
                        logging.WARNING,
                        self.now(),
                        "a connection could not be accepted",
                        exc_info=True,
                        extra={"event": "listener.accept-failed"},
                    )
                    await trio.sleep(ACCEPT_PAUSE)
                else:
                    await self._accepted(stream, accept)
        finally:
            with anyio.CancelScope(shield=True):
                await listener.aclose()
            closed.set()

    async def _accepted(self, stream: ByteStream, accept: Accept) -> None:
        driver = None
        peer = stream.extra(SocketAttribute.remote_address, None)  # noqa: S610 - as above
        try:
            driver = accept(remote_name(peer))
        except Exception:
            logger.exception(
                "a connection could not be accepted", extra={"event": "listener.accept-failed"}
            )
        if driver is None:
            await anyio.aclose_forcefully(stream)
        else:
            StreamTransport(stream, driver, self)

    async def aclose(self) -> None:
        """Cancel the tasks and wait for them."""
        for scope in list(self.scopes):
            scope.cancel()
        if self.scopes:
            self._empty = trio.Event()
            with anyio.move_on_after(CLOSE_PATIENCE) as scope:
                await self._empty.wait()
            if scope.cancelled_caught:
                # trio can't abandon a task, so wait for it.
                logger.error(
                    "waiting for %d tasks that ignore cancellation",
                    len(self.scopes),
                    extra={"event": "transport.unended"},
                )
                await self._empty.wait()
