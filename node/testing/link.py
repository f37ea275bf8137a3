"""A link between two nodes with faults on a test's command, in both directions.

It carries bytes without reading them; everything it started ends with its `async with`.
"""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import ByteStream, TaskGroup

from parley._node.errors import ParleyError
from parley._node.testing.faults import FaultyWay
from parley._node.transport.backend import Clock
from parley._node.transport.memory import MemoryStream, memory_pair
from parley._node.transport.task_scope import own_task_group


class FaultyLink:
    """`to_server` and `to_client` are its directions, each with faults of its own; the
    methods here are for both at once.

        async with FaultyLink() as link, ...:
            link.to_server.flip()

    It may carry several connections: then a fault meets whichever has the byte in
    question, and `stall`, `delay` and `cut` meet all. `clock` is that of delays, real
    time if None.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.to_server = FaultyWay(self.cut, clock)
        self.to_client = FaultyWay(self.cut, clock)
        self._tasks: TaskGroup | None = None
        self._entered = AsyncExitStack()
        self._joined: set[anyio.CancelScope] = set()

    @property
    def connections(self) -> int:
        """How many connections it carries now."""
        return len(self._joined)

    def delay(self, seconds: float) -> None:
        """See `FaultyWay.delay`."""
        self.to_server.delay(seconds)
        self.to_client.delay(seconds)

    def stall(self) -> None:
        """See `FaultyWay.stall`."""
        self.to_server.stall()
        self.to_client.stall()

    def resume(self) -> None:
        """See `FaultyWay.resume`."""
        self.to_server.resume()
        self.to_client.resume()

    def flip(self, after: int = 0, bit: int = 0) -> None:
        """Flip one bit on the way to the server: `to_server.flip`."""
        self.to_server.flip(after, bit)

    def cut(self) -> None:
        """Cut all connections now; what is on its way is lost. Later ones are carried."""
        for scope in self._joined:
            scope.cancel()

    def heal(self) -> None:
        """No fault any more, in both directions; see `FaultyWay.heal`."""
        self.to_server.heal()
        self.to_client.heal()

    def streams(self) -> tuple[MemoryStream, MemoryStream]:
        """A new connection in memory: the client's end and the server's.

        Raises:
            ParleyError: outside of its `async with`.
        """
        tasks = self._running()
        client, ours = memory_pair()
        theirs, server = memory_pair()
        tasks.start_soon(self._carry, ours, theirs, self._joining())
        return client, server

    async def join(self, client: ByteStream, server: ByteStream) -> None:
        """Carry bytes between two streams until both ended, or are cut; then close them."""
        await self._carry(client, server, self._joining())

    def _joining(self) -> anyio.CancelScope:
        # From now on a cut meets it, also if its task has not begun.
        scope = anyio.CancelScope()
        self._joined.add(scope)
        return scope

    async def _carry(
        self, client: ByteStream, server: ByteStream, scope: anyio.CancelScope
    ) -> None:
        async def carry(way: FaultyWay, source: ByteStream, sink: ByteStream) -> None:
            if not await way.carry(source, sink):
                scope.cancel()

        try:
            with scope:
                async with anyio.create_task_group() as both:
                    both.start_soon(carry, self.to_server, client, server)
                    both.start_soon(carry, self.to_client, server, client)
        finally:
            self._joined.discard(scope)
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(client)
                await anyio.aclose_forcefully(server)

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise ParleyError("the link is already running; make another one")
        self._tasks = await self._entered.enter_async_context(own_task_group("the link"))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self._tasks = None
        await self._entered.aclose()

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            raise ParleyError("the link is not running; enter it with `async with`")
        return self._tasks
