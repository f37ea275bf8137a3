"""`Joint`: two streams of a tunnel, joined at a server between.

What comes on one goes out on the other in the same moment: no task for an event, and nothing is
read. Credit goes back on one side only for what the other has taken, so that at most a window waits
here in each direction.
"""

from typing import Final

from parley._node.federation.limits import TUNNEL_IDLE, TUNNEL_LEFT
from parley._node.protocol.codes import CloseCode
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.loop import Loop
from parley._node.tunnels.tunnel_transport import TunnelWriter

_FINISHED: Final = -1


class Joint:
    """`before` is the stream towards the origin, `after` the one towards the target; `forward` and
    `back` count the bytes of Data that came from each."""

    def __init__(self, before: TunnelStream, after: TunnelStream, loop: Loop) -> None:
        self._streams = before, after
        self._loop = loop
        self._over = loop.waiter()
        self._patience = TUNNEL_IDLE
        self._code: int = CloseCode.CANCELLED  # why it ended, if nobody says anything else
        there, here = _Side(self, before, after), _Side(self, after, before)
        there.opposite, here.opposite = here, there
        self._sides = there, here

    @property
    def forward(self) -> int:
        """Bytes of Data towards the target."""
        return self._sides[0].size

    @property
    def back(self) -> int:
        """Bytes of Data towards the origin."""
        return self._sides[1].size

    @property
    def held(self) -> int:
        """Bytes that wait here for credit, of both directions."""
        return sum(len(side.onward.pending) for side in self._sides)

    async def run(self) -> None:
        """Join them, until both directions are finished, one side is reset or gone, or nothing has
        passed for 10 minutes, 30 s once one is finished; whoever is cancelled resets both."""
        self._watch(-1)
        try:
            for stream, side in zip(self._streams, self._sides, strict=True):
                stream.pass_to(side)
            await self._over.wait()
        finally:
            self._timer.cancel()
            for stream, side in zip(self._streams, self._sides, strict=True):
                side.onward.close()
                if self._code != _FINISHED:
                    stream.reset(self._code)

    def end(self, code: int) -> None:
        """Reset both sides."""
        self._code = code
        self._over.wake()

    def left(self) -> None:
        """One side sends no more: the other one may not keep the tunnel for much longer."""
        self._patience = TUNNEL_LEFT
        self._timer.cancel()
        self._watch(-1)
        self.finished()

    def finished(self) -> None:
        """A direction has ended; perhaps the other one had before."""
        if all(side.onward.is_done for side in self._sides):
            self.end(_FINISHED)

    def _watch(self, passed: int) -> None:
        """Look again in a while; end if no more has `passed` since."""
        now = self.forward + self.back
        if now == passed:
            self.end(CloseCode.TIMEOUT)
        self._timer = self._loop.at(self._loop.now() + self._patience, lambda: self._watch(now))


class _Side:
    """Takes what comes on one of the streams, and writes it to the other (`onward`)."""

    __slots__ = ("_give_back", "_joint", "onward", "opposite", "size")

    opposite: "_Side"

    def __init__(self, joint: Joint, stream: TunnelStream, other: TunnelStream) -> None:
        self._joint = joint
        self._give_back = stream.give_back
        self.onward = TunnelWriter(other, self._taken)
        self.size = 0

    def data_received(self, data: bytes, cost: int) -> None:
        """Data came: it goes on."""
        self.size += len(data)
        self.onward.write(data, cost)

    def finished(self) -> None:
        """No more comes: neither does it on the other stream, behind what waits."""
        self.onward.finish()
        self._joint.left()

    def failed(self, code: int) -> None:
        """Reset: the other one is, too."""
        self._joint.end(code)

    def writable(self) -> None:
        """What came on the other stream can go on here."""
        self.opposite.onward.writable()

    def _taken(self, cost: int) -> None:
        if cost:
            self._give_back(cost)
        if self.onward.is_done:
            self._joint.finished()
