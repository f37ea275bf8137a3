"""`TunnelWriter`: what goes out on one tunnel's stream, in pieces, as credit and room come.

In the connection's own queues stands only what may be written at once; the rest waits here, so that
a tunnel that stalls costs its connection nothing, and none fills the room that calls need.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.federation.limits import LARGEST_TUNNEL_DATA
from parley._node.protocol.codes import DATA, STREAM, CloseCode
from parley._node.protocol.errors import LocalProtocolError
from parley._node.protocol.flow_control import TUNNEL_WINDOW
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.driver import Driver
from parley._node.transport.transport import TransportProtocol

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


class TunnelOutlet:
    """An open tunnel, which begins or ends here with `stream`; `path` is its way, from the first
    server to the target, as far as it is known. It serves a driver from `attach` on, unless its
    stream is joined to another one. `on_closed` is called once, when it is over; `blame` whenever
    what comes through it is not from the target, or nothing.

    It keeps at most its window of what came while the driver reads nothing, and of what is to go
    out at most its window and one flush of the driver.
    """

    def __init__(self, stream: TunnelStream, path: tuple[NodeId, ...]) -> None:
        self.stream = stream
        self.path = path
        self.on_closed: Callable[[], None] = lambda: None
        self.blame: Callable[[], None] = lambda: None
        self._served: TransportProtocol | None = None
        self._writer = TunnelWriter(stream, self._has_room)
        self._held: list[bytes] = []
        self._used = 0  # of the credit, by what came and what is held
        self._paused = self._full = False
        self._due = False  # what is held is handed on in the loop's next turn
        self._eof = self._ended = self._closed = False

    def __repr__(self) -> str:
        return f"<TunnelOutlet to {self.path[-1].short}>"

    def attach(self, driver: Driver) -> None:
        """Serve a driver from now on."""
        self._served = driver
        driver.path, driver.blame = self.path, self.blame
        driver.connected(self)
        if not self._closed:
            self.stream.pass_to(self)

    # The driver's side.

    def serve(self, served: TransportProtocol | None) -> None:
        """Another driver from now on, or none."""
        self._served = served

    def write(self, data: bytes) -> bool:
        """Take bytes; False until `may_write`."""
        if self._closed or self._ended:
            return False
        self._writer.write(data)
        self._full = len(self._writer.pending) >= TUNNEL_WINDOW
        return not self._full

    def write_eof(self) -> None:
        """Finish the direction after what was written."""
        if not self._closed:
            self._writer.finish()

    def close(self) -> None:
        """End the tunnel: what is queued on the outer connection still goes out."""
        if self._closed:
            return
        self._closed = True
        if self._writer.pending:
            self.stream.reset(CloseCode.CANCELLED)  # the other side does not read
        else:
            self.stream.leave()
        self._writer.close()
        self._held.clear()
        self.on_closed()

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._paused = True

    def resume_reading(self) -> None:
        """Hand on again what comes, and first what was kept."""
        self._paused = False
        if self._held or self._eof:
            self.stream.live.backend.soon(self._hand_on)

    # The stream's side.

    def data_received(self, data: bytes, cost: int) -> None:
        """Data came. Behind a full piece there is mostly more in this turn of the loop, and the
        driver is given it as one."""
        self._held.append(data)
        self._used += cost
        if len(data) < LARGEST_TUNNEL_DATA:
            self._hand_on()
        elif not self._due:
            self._due = True
            self.stream.live.backend.soon(self._hand_on)

    def finished(self) -> None:
        """No more Data comes."""
        self._eof = True
        self._hand_on()

    def failed(self, code: int) -> None:
        """The tunnel is broken."""
        self._ended = True
        self.finished()

    def writable(self) -> None:
        """There is credit or room."""
        self._writer.writable()

    # Inside.

    def _hand_on(self) -> None:
        self._due = False
        served, held = self._served, self._held
        if self._paused or self._closed or served is None:
            return
        if held:
            data = held[0] if len(held) == 1 else b"".join(held)
            held.clear()
            served.received(data)
            if self._used >= GIVEN_BACK:
                used, self._used = self._used, 0
                self.stream.give_back(used)
        if self._eof and not held and not self._closed:
            self._eof = False
            served.ended()

    def _has_room(self, taken: int) -> None:
        if self._full and len(self._writer.pending) < TUNNEL_WINDOW:
            self._full = False
            if self._served is not None:
                self._served.may_write()
