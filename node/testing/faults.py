"""Faults on a connection, at exact positions: delays, stalls, bit flips and cuts.

The faults are deterministic. Positions are counted in bytes from the next byte that passes. At most
one piece of `PIECE` bytes is buffered.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import ByteStream, TaskGroup

from parley._node.errors import ParleyError
from parley._node.transport.backend import Clock
from parley._node.transport.memory import MemoryStream, memory_pair
from parley._node.transport.task_scope import own_task_group

PIECE: Final = 65_536
# The errors of a stream that is closed or whose other end is closed.
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class FaultyDirection:
    """One direction of a link. Without faults it forwards all bytes unchanged.

    `cut_now` cuts the whole link. `clock` times the delays, by default the event loop's clock.
    """

    def __init__(self, cut_now: Callable[[], None], clock: Clock | None = None) -> None:
        self._cut_now = cut_now
        self._clock = clock
        self._delay = 0.0
        self._delayed: set[anyio.Event] = set()
        self._stalled: anyio.Event | None = None
        self._flips: dict[int, int] = {}
        self._cut_at: int | None = None
        self.passed = 0

    # For tests. `passed` is the number of bytes forwarded so far.

    def delay(self, seconds: float) -> None:
        """Delay each piece by so many seconds.

        Pieces are forwarded one after another, so at most 64 KiB pass in `seconds`.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"cannot delay by {seconds} seconds; give a finite number from 0")
        self._delay = seconds

    def stall(self) -> None:
        """Forward nothing, not even the end of the stream, until `resume`."""
        if self._stalled is None:
            self._stalled = anyio.Event()

    def resume(self) -> None:
        """Resume forwarding after `stall`."""
        stalled, self._stalled = self._stalled, None
        if stalled is not None:
            stalled.set()

    def flip(self, after: int = 0, bit: int = 0) -> None:
        """Flip a bit of the byte that follows the next `after` bytes; bit 0 is the least
        significant.
        """
        if after < 0 or not 0 <= bit <= 7:
            raise ValueError(
                f"cannot flip bit {bit} after {after} bytes: bit must be 0 to 7, after at least 0"
            )
        place = self.passed + after
        self._flips[place] = self._flips.get(place, 0) ^ 1 << bit

    def cut(self, after: int = 0) -> None:
        """Cut the connection, in both directions, after the next `after` bytes."""
        if after < 0:
            raise ValueError(f"cannot cut after {after} bytes; give 0 or more")
        if after:
            self._cut_at = self.passed + after
        else:
            self._cut_now()

    def heal(self) -> None:
        """Remove all faults, including scheduled ones, and release delayed data."""
        self._delay = 0.0
        self._flips.clear()
        self._cut_at = None
        self.resume()
        for held in self._delayed:
            held.set()

    # For the link.

    async def carry(self, source: ByteStream, sink: ByteStream) -> bool:
        """Forward bytes and the end of the stream; return False if the connection was cut."""
        try:
            while True:
                try:
                    data = await source.receive(PIECE)
                except anyio.EndOfStream:
                    await self._hold()
                    await sink.send_eof()
                    return True
                await self._hold()
                piece, cut = self._let_pass(data)
                await sink.send(piece)
                if cut:
                    return False
        except GONE:
            return False

    async def _hold(self) -> None:
        if self._delay:
            await self._pause(self._delay)
        while self._stalled is not None:
            await self._stalled.wait()

    async def _pause(self, seconds: float) -> None:
        over = anyio.Event()
        self._delayed.add(over)
        try:
            if self._clock is None:
                with anyio.move_on_after(seconds):
                    await over.wait()
            else:
                timer = self._clock.call_at(self._clock.now() + seconds, over.set)
                try:
                    await over.wait()
                finally:
                    timer.cancel()
        finally:
            self._delayed.discard(over)

    def _let_pass(self, data: bytes) -> tuple[bytes, bool]:
        """Apply the faults to a piece; return the bytes to forward and whether to cut after
        them.
        """
        begin = self.passed
        cut = self._cut_at is not None and self._cut_at <= begin + len(data)
        if self._cut_at is not None and cut:
            data = data[: self._cut_at - begin]
            self._cut_at = None
        self.passed += len(data)
        places = [place for place in self._flips if place < self.passed]
        if places:
            flipped = bytearray(data)
            for place in places:
                flipped[place - begin] ^= self._flips.pop(place)
            data = bytes(flipped)
        return data, cut


class FaultyLink:
    """A connection with faults in both directions, for tests.

    `to_server` and `to_client` are its directions, each with separate faults. The methods of the
    link itself apply to both. It can carry several connections: a bit flip affects the connection
    that carries the byte, and `stall`, `delay` and `cut` affect all of them. `clock` times the
    delays, by default the event loop's clock.

    Example:

        from parley.testing import FaultyLink, connected_nodes

        link = FaultyLink()
        async with connected_nodes(link=link) as nodes:
            link.delay(0.05)
            assert await nodes.peer.ping() >= 0.1
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.to_server = FaultyDirection(self.cut, clock)
        self.to_client = FaultyDirection(self.cut, clock)
        self._tasks: TaskGroup | None = None
        self._entered = AsyncExitStack()
        self._joined: set[anyio.CancelScope] = set()

    @property
    def connections(self) -> int:
        """The number of connections that it carries now."""
        return len(self._joined)

    def delay(self, seconds: float) -> None:
        """See `FaultyDirection.delay`."""
        self.to_server.delay(seconds)
        self.to_client.delay(seconds)

    def stall(self) -> None:
        """See `FaultyDirection.stall`."""
        self.to_server.stall()
        self.to_client.stall()

    def resume(self) -> None:
        """See `FaultyDirection.resume`."""
        self.to_server.resume()
        self.to_client.resume()

    def flip(self, after: int = 0, bit: int = 0) -> None:
        """Flip one bit in the direction of the server; see `FaultyDirection.flip`."""
        self.to_server.flip(after, bit)

    def cut(self) -> None:
        """Cut all current connections and discard the data in transit. Later connections are
        unaffected.
        """
        for scope in self._joined:
            scope.cancel()

    def heal(self) -> None:
        """Remove all faults in both directions; see `FaultyDirection.heal`."""
        self.to_server.heal()
        self.to_client.heal()

    def streams(self) -> tuple[MemoryStream, MemoryStream]:
        """Create a new in-memory connection; return the ends of the client and of the server.

        Raises:
            ParleyError: the link is not running.
        """
        tasks = self._running()
        client, near = memory_pair()
        far, server = memory_pair()
        tasks.start_soon(self._carry, near, far, self._joining())
        return client, server

    async def join(self, client: ByteStream, server: ByteStream) -> None:
        """Forward bytes between two streams until both have ended or the link is cut; then close
        them.
        """
        await self._carry(client, server, self._joining())

    def _joining(self) -> anyio.CancelScope:
        # Registered immediately, so that a cut applies even before the task has started.
        scope = anyio.CancelScope()
        self._joined.add(scope)
        return scope

    async def _carry(
        self, client: ByteStream, server: ByteStream, scope: anyio.CancelScope
    ) -> None:
        async def carry(way: FaultyDirection, source: ByteStream, sink: ByteStream) -> None:
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
            raise ParleyError("the link is already running; create another one")
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
