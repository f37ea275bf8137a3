"""`Splice`: joins the two streams of a tunnel at a server between its ends.

Data from one stream is written to the other immediately, without a task. The sender gets its credit
back only when the other connection has accepted the bytes, so that at most one window waits here in
each direction.
"""

from typing import Final

from parley._node.federation.limits import TUNNEL_IDLE, TUNNEL_LEFT
from parley._node.protocol.codes import CloseCode
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.loop import Loop
from parley._node.tunnels.tunnel_transport import TunnelWriter

_FINISHED: Final = -1


class Splice:
    """Joins the stream `before`, towards the origin, with the stream `after`, towards the target.

    `sides` receive the Data of each; `forward` and `back` count its bytes.
    """

    def __init__(self, before: TunnelStream, after: TunnelStream, loop: Loop) -> None:
        self._loop = loop
        self._over = loop.waiter()
        self._timeout = TUNNEL_IDLE
        self._code: int = CloseCode.CANCELLED  # code of the resets, unless `end` sets another
        self.sides = SpliceSide(self, before, after), SpliceSide(self, after, before)

    @property
    def forward(self) -> int:
        """Bytes of Data towards the target."""
        return self.sides[0].size

    @property
    def back(self) -> int:
        """Bytes of Data towards the origin."""
        return self.sides[1].size

    @property
    def buffered(self) -> int:
        """Bytes of both directions that wait here for credit."""
        return sum(len(side.writer.pending) for side in self.sides)

    async def run(self) -> None:
        """Forward Data until the tunnel ends; cancellation resets both streams.

        It ends when both directions are finished, a side is reset or lost, or no Data has passed
        for 10 minutes (30 s after one direction finished).
        """
        self._watch(-1)
        try:
            for side in self.sides:
                side.stream.pass_to(side)
            await self._over
        finally:
            self._timer.cancel()
            for side in self.sides:
                side.writer.close()
                if self._code != _FINISHED:
                    side.stream.reset(self._code)

    def end(self, code: int) -> None:
        """Reset both streams."""
        self._code = code
        self._over.wake()

    def half_closed(self) -> None:
        """Shorten the idle timeout, because one side has finished sending."""
        self._timeout = TUNNEL_LEFT
        self._timer.cancel()
        self._watch(-1)
        self.end_if_finished()

    def end_if_finished(self) -> None:
        """End the splice if both directions are finished."""
        if all(side.writer.is_done for side in self.sides):
            self.end(_FINISHED)

    def other_side(self, side: "SpliceSide") -> "SpliceSide":
        """Return the side that writes to the stream of `side`."""
        first, second = self.sides
        return second if side is first else first

    def _watch(self, passed: int) -> None:
        """End the splice if no Data has passed since the last check; otherwise check again
        later.
        """
        now = self.forward + self.back
        if now == passed:
            self.end(CloseCode.TIMEOUT)
        self._timer = self._loop.call_at(self._loop.now() + self._timeout, lambda: self._watch(now))


class SpliceSide:
    """Receives the Data of one `stream` and writes it to the other one with `writer`."""

    __slots__ = ("_give_back", "_splice", "size", "stream", "writer")

    def __init__(self, splice: Splice, stream: TunnelStream, other: TunnelStream) -> None:
        self._splice = splice
        self._give_back = stream.give_back
        self.stream = stream
        self.writer = TunnelWriter(other, self._taken)
        self.size = 0

    def data_received(self, data: bytes, cost: int) -> None:
        """Forward Data."""
        self.size += len(data)
        self.writer.write(data, cost)

    def finished(self) -> None:
        """Finish the other stream after its waiting bytes."""
        self.writer.finish()
        self._splice.half_closed()

    def failed(self, code: int) -> None:
        """Reset the other stream as well."""
        self._splice.end(code)

    def writable(self) -> None:
        """Continue to write bytes of the other stream to this one."""
        self._splice.other_side(self).writer.writable()

    def _taken(self, cost: int) -> None:
        if cost:
            self._give_back(cost)
        if self.writer.is_done:
            self._splice.end_if_finished()
