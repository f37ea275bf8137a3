"""`TunnelOutlet`: the end of a tunnel, as the transport of an inner connection.

It has no task: what comes on the outer stream is handed to the inner driver in the same moment, and
what that writes is queued on the outer connection.
"""

from collections.abc import Callable

from parley._crypto.identity import NodeId
from parley._node.federation.limits import LARGEST_TUNNEL_DATA
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.flow_control import TUNNEL_WINDOW
from parley._node.streams.tunnel_stream import TunnelStream
from parley._node.transport.driver import Driver
from parley._node.transport.gate import Served
from parley._node.tunnels.writer import GIVEN_BACK, TunnelWriter


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
        self._served: Served | None = None
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

    def serve(self, served: Served | None) -> None:
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
