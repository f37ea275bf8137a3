"""What goes wrong in one direction of a link, and exactly when: delay, stall, flip, cut.

Nothing is random. Positions are counted in bytes from the next one that passes, and at most one
piece of `PIECE` bytes is held.
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
# What a stream raises when it or its other end is gone.
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class FaultyDirection:
    """One direction. Without a word from the test it carries every byte as it came.

    `cut_now` cuts the whole link; `clock` is that of delays, the loop's if None.
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

    # What the test says. `passed` is how many bytes went through so far.

    def delay(self, seconds: float) -> None:
        """Hold each piece for so long. Pieces go one after another, so that no more than
        64 KiB pass in `seconds`."""
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"the delay is {seconds}; it must be 0 seconds or more")
        self._delay = seconds

    def stall(self) -> None:
        """Let nothing through, not even the end, until `resume`."""
        if self._stalled is None:
            self._stalled = anyio.Event()

    def resume(self) -> None:
        """Go on after `stall`."""
        stalled, self._stalled = self._stalled, None
        if stalled is not None:
            stalled.set()

    def flip(self, after: int = 0, bit: int = 0) -> None:
        """Flip `bit` (0 is worth 1) of the byte that comes after `after` more bytes."""
        if after < 0 or not 0 <= bit <= 7:
            raise ValueError(
                f"cannot flip bit {bit} after {after} bytes: bit is 0 to 7, after 0 or more"
            )
        place = self.passed + after
        self._flips[place] = self._flips.get(place, 0) ^ 1 << bit

    def cut(self, after: int = 0) -> None:
        """Cut the connection, in both directions, when `after` more bytes have passed."""
        if after < 0:
            raise ValueError(f"after is {after}; it must be 0 or more")
        if after:
            self._cut_at = self.passed + after
        else:
            self._cut_now()

    def heal(self) -> None:
        """No fault any more: let go what is held, forget what was to come."""
        self._delay = 0.0
        self._flips.clear()
        self._cut_at = None
        self.resume()
        for held in self._delayed:
            held.set()

    # What the link asks for.

    async def carry(self, source: ByteStream, sink: ByteStream) -> bool:
        """Carry bytes until the source ends, and its end too; False if it was cut."""
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
        """What of a piece passes, faults and all, and whether the cut comes after it."""
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
    """`to_server` and `to_client` are its directions, each with faults of its own; the
    methods here are for both at once.

        async with FaultyLink() as link, ...:
            link.to_server.flip()

    It may carry several connections: then a fault meets whichever has the byte in
    question, and `stall`, `delay` and `cut` meet all. `clock` is that of delays, real
    time if None.
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.to_server = FaultyDirection(self.cut, clock)
        self.to_client = FaultyDirection(self.cut, clock)
        self._tasks: TaskGroup | None = None
        self._entered = AsyncExitStack()
        self._joined: set[anyio.CancelScope] = set()

    @property
    def connections(self) -> int:
        """How many connections it carries now."""
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
        """Flip one bit on the way to the server: `to_server.flip`."""
        self.to_server.flip(after, bit)

    def cut(self) -> None:
        """Cut all connections now; what is on its way is lost. Later ones are carried."""
        for scope in self._joined:
            scope.cancel()

    def heal(self) -> None:
        """No fault any more, in both directions; see `FaultyDirection.heal`."""
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
