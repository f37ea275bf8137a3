"""`TunnelWriter`: what goes out on one tunnel's stream, in pieces, as credit and room come.

In the connection's own queues stands only what may be written at once; the rest waits here, so that
a tunnel that stalls costs its connection nothing, and none fills the room that calls need.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from parley._node.federation.limits import LARGEST_TUNNEL_DATA
from parley._node.protocol.codes import DATA, STREAM
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.flow_control import TUNNEL_WINDOW
from parley._node.protocol.limits import EVENT_COST
from parley._node.streams.tunnel_stream import TunnelStream

# Pieces of one tunnel in the queues of its connection.
WAITING_PIECES: Final = 4
# Credit that is given back together.
GIVEN_BACK: Final = TUNNEL_WINDOW // 2
# The part of a connection's write buffer that tunnels fill, all together.
WRITE_BUFFER_PART: Final = 4


class TunnelWriter:
    """Bytes in, Data out. `pending` are the bytes that wait here. Each write may have a cost: what
    its bytes took of the credit of another stream. `on_taken` is called when there may be room
    again, with the cost of what the connection has taken meanwhile.
    """

    __slots__ = (
        "_finishing",
        "_live",
        "_on_taken",
        "_pending_cost",
        "_put_cost",
        "_stream",
        "_waits",
        "pending",
    )

    def __init__(self, stream: TunnelStream, on_taken: Callable[[int], None]) -> None:
        self._stream = stream
        self._live = stream.live
        self._on_taken = on_taken
        self.pending = bytearray()
        self._pending_cost = 0
        self._put_cost = 0  # of what was queued, and nobody was told of
        self._waits = False
        self._finishing = False

    @property
    def is_done(self) -> bool:
        """Whether it was finished, and nothing waits here."""
        return self._finishing and not self.pending

    def write(self, data: bytes, cost: int = 0) -> None:
        """Take bytes; what cannot be written now waits."""
        self._stream.active_at = self._live.backend.now()
        put = 0 if self.pending else self._put(data)
        if put < len(data):
            self.pending += memoryview(data)[put:]
            self._pending_cost += cost
            self._wait()
        else:
            self._put_cost += cost
            if self._put_cost >= GIVEN_BACK:
                self._wait()

    def finish(self) -> None:
        """Finish the direction behind what waits."""
        self._finishing = True
        if not self.pending:
            self._stream.finish()

    def writable(self) -> None:
        """What was queued is taken, or there is credit or room again."""
        self._waits = False
        pending, taken = self.pending, 0
        if not self._live.core.outbox.waiting(self._stream.id):
            taken, self._put_cost = self._put_cost, 0
        if pending:
            put = self._put(pending)
            del pending[:put]
            cost = min(put, self._pending_cost) if pending else self._pending_cost
            self._pending_cost -= cost
            self._put_cost += cost
        if pending or self._put_cost >= GIVEN_BACK:
            self._wait()
        if self._finishing and not pending:
            self._stream.finish()
        self._on_taken(taken)

    wake = writable  # as one of those who wait for room

    def close(self) -> None:
        """Nothing is to be written any more."""
        self.pending.clear()
        self._finishing = False
        waiters = self._live.driver.rooms.waiters
        if self in waiters:
            waiters.remove(self)

    # Inside.

    @property
    def _crowded(self) -> bool:
        """Whether so much waits for the transport that tunnels add nothing."""
        live = self._live
        return live.core.outbox.size > live.driver.high_water // WRITE_BUFFER_PART

    def _put(self, data: bytes | bytearray) -> int:
        """Queue what may be written now; returns how many bytes that is."""
        core, stream = self._live.core, self._stream.id
        outbox, size, at = core.outbox, len(data), 0
        waiting = outbox.waiting(stream)
        if waiting >= WAITING_PIECES or self._crowded:
            return 0
        try:
            streams = core.streams
            left = streams.credit(stream)
            if waiting:
                left -= outbox.waiting_cost(stream)
            if left > 0 and size <= LARGEST_TUNNEL_DATA:
                streams.send(stream, 0, STREAM, DATA, bytes(data), False, False)
                return size
            with memoryview(data) as view:
                while at < size and left > 0 and waiting < WAITING_PIECES:
                    end = min(at + LARGEST_TUNNEL_DATA, size)
                    part = view[at:end]  # copied where it may change before it is encrypted
                    piece = part if type(data) is bytes else bytes(part)
                    streams.send(stream, 0, STREAM, DATA, piece, False, False)
                    waiting += 1
                    left -= end - at + EVENT_COST
                    at = end
        except LocalProtocolError:
            pass  # the stream has ended, and its taker is told so
        return at

    def _wait(self) -> None:
        if self._waits:
            return
        self._waits = True
        core, stream = self._live.core, self._stream.id
        outbox = core.outbox
        with suppress(LocalProtocolError):
            spent = core.credit(stream) <= outbox.waiting_cost(stream)
            if spent and self._put_cost < GIVEN_BACK:
                core.streams.watch_credit(stream)  # that the queue is empty would help nobody
            elif outbox.waiting(stream) or not self._crowded:
                core.notify_writable(stream)
            else:
                self._live.driver.rooms.waiters.append(self)
