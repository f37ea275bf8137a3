"""The shell on trio: anyio's streams, a task that reads and one that writes each.

One rule: it is `Backend` for trio, and nothing more. Its tasks live in the node's task
group; what they do catches its own errors, so that one peer never ends a node.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import trio
from anyio.abc import ByteStream, SocketAttribute, TaskGroup

from node.transport.address import Address
from node.transport.driver import Driver
from node.transport.endpoints import (
    claim_unix_path,
    connect_error,
    listen_error,
    release_unix_path,
    remote_name,
)
from node.transport.stream_outlet import StreamOutlet

logger = logging.getLogger("parley.transport")

BACKLOG = 512


class TrioWaiter:
    """An event of trio's."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        """End the wait."""
        self._event.set()

    async def wait(self) -> None:
        """Until `wake`."""
        await self._event.wait()


class TrioListener:
    """A listening socket and the task that accepts."""

    def __init__(self, scope: anyio.CancelScope, closed: trio.Event, address: Address) -> None:
        self._scope = scope
        self._closed = closed
        self.address = address

    async def aclose(self) -> None:
        """Listen no more."""
        self._scope.cancel()
        await self._closed.wait()
        release_unix_path(self.address)


class TrioBackend:
    """`Backend` in the running trio loop."""

    def __init__(self, task_group: TaskGroup) -> None:
        self._task_group = task_group
        self._token = trio.lowlevel.current_trio_token()
        self._scopes: set[anyio.CancelScope] = set()
        self._empty: trio.Event | None = None
        self.now = trio.current_time

    def waiter(self) -> TrioWaiter:
        """A new wait."""
        return TrioWaiter()

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop's next turn."""
        self._token.run_sync_soon(callback)

    def at(self, when: float, callback: Callable[[], None]) -> anyio.CancelScope:
        """Call back at `when`: a task that sleeps."""

        async def ring() -> None:
            await trio.sleep_until(when)
            callback()

        return self.spawn(ring)

    def spawn(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> anyio.CancelScope:
        """A task in the node's task group, with a scope of its own."""
        scope = anyio.CancelScope()
        self._scopes.add(scope)

        async def run() -> None:
            try:
                with scope:
                    await function(*arguments)
            except Exception:
                # A mistake of ours must not take the node's other peers along.
                logger.exception("a task failed")
            finally:
                self._scopes.discard(scope)
                if not self._scopes and self._empty is not None:
                    self._empty.set()

        self._task_group.start_soon(run)
        return scope

    async def connect(self, address: Address, accept: Callable[[], Driver]) -> Driver:
        """Dial `address`."""
        stream: ByteStream
        try:
            if address.scheme == "unix":
                stream = await anyio.connect_unix(address.path)
            else:
                stream = await anyio.connect_tcp(address.host, address.port)
        except OSError as error:
            raise connect_error(address, error) from error
        driver = accept()
        StreamOutlet(stream, driver, self)
        return driver

    async def listen(self, address: Address, accept: Callable[[str], Driver]) -> TrioListener:
        """Listen on `address`."""
        listener: Any
        try:
            if address.scheme == "unix":
                await claim_unix_path(address)
                listener = await anyio.create_unix_listener(address.path, backlog=BACKLOG)
            else:
                listener = await anyio.create_tcp_listener(
                    local_host=address.host, local_port=address.port, backlog=BACKLOG
                )
        except OSError as error:
            raise listen_error(address, error) from error
        if address.scheme == "tcp":
            address = address.with_port(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's attributes, no query

        async def handle(stream: ByteStream) -> None:
            peer = stream.extra(SocketAttribute.remote_address, None)  # noqa: S610 - as above
            StreamOutlet(stream, accept(remote_name(peer)), self)

        closed = trio.Event()

        async def serve() -> None:
            try:
                await listener.serve(handle, self._task_group)
            finally:
                with anyio.CancelScope(shield=True):
                    await listener.aclose()
                closed.set()

        return TrioListener(self.spawn(serve), closed, address)

    async def aclose(self) -> None:
        """Cancel the tasks and wait until they are gone."""
        for scope in list(self._scopes):
            scope.cancel()
        if self._scopes:
            self._empty = trio.Event()
            await self._empty.wait()
