"""What goes wrong in one direction of a link, and exactly when: delay, stall, flip, cut.

Nothing is random. Positions are counted in bytes from the next one that passes, and at most one
piece of `PIECE` bytes is held.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import ByteStream

from parley._node.transport.backend import Clock

PIECE: Final = 65_536
# What a stream raises when it or its other end is gone.
GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class FaultyWay:
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
                piece, cut = self._taken(data)
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
                timer = self._clock.at(self._clock.now() + seconds, over.set)
                try:
                    await over.wait()
                finally:
                    timer.cancel()
        finally:
            self._delayed.discard(over)

    def _taken(self, data: bytes) -> tuple[bytes, bool]:
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
