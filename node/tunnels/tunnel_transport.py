"""`TunnelTransport`, one end of a tunnel as the transport of an inner connection, and
`TunnelWriter`, which it and splices use to send.

Neither has a task. Data received on the outer stream goes to the inner driver immediately. The
outer connection's queues contain only data that may be written now. Other data waits in the writer,
so that a stalled tunnel takes no space from the connection's calls.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import LocalError
from parley._node.protocol.flow_control import FIRST_TUNNEL_DATA, TUNNEL_WINDOW
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.tunnel_stream import TunnelStream
from parley._node.transport.driver import Driver
from parley._node.transport.transport import TransportProtocol

# Most pieces of one tunnel in the queues of its connection.
WAITING_PIECES: Final = 4
# Credit is returned in steps of this size.
GIVEN_BACK: Final = TUNNEL_WINDOW // 2
# All tunnels together fill at most this fraction (1 / N) of a connection's write buffer.
WRITE_BUFFER_PART: Final = 4


class TunnelWriter:
    """Writes bytes as Data to the stream of a tunnel; `pending` are the bytes that wait here.

    Each write may have a cost: the credit of another stream that its bytes used. `on_taken` is
    called when there may be space again, with the cost of the bytes that the connection accepted.
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
        self._put_cost = 0  # cost of queued bytes that `on_taken` has not reported
        self._waits = False
        self._finishing = False

    @property
    def is_done(self) -> bool:
        """Whether it was finished and no bytes wait."""
        return self._finishing and not self.pending

    def write(self, data: bytes, cost: int = 0) -> None:
        """Write bytes; bytes that can't be written now wait."""
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
        """Finish the direction after the waiting bytes."""
        self._finishing = True
        if not self.pending:
            self._stream.finish()

    def writable(self) -> None:
        """Continue: the connection accepted queued bytes, or there is credit or space again."""
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

    def wake(self) -> None:
        """Continue, as a waiter for space."""
        self.writable()

    def close(self) -> None:
        """Drop the waiting bytes and write nothing more."""
        self.pending.clear()
        self._finishing = False
        waiters = self._live.driver.write_waiters.waiters
        if self in waiters:
            waiters.remove(self)

    @property
    def _crowded(self) -> bool:
        """Whether the transport is so far behind that tunnels must not add to it."""
        live = self._live
        return live.core.outbox.size > live.driver.high_water // WRITE_BUFFER_PART

    def _put(self, data: bytes | bytearray) -> int:
        """Queue the bytes that may be written now and return how many these are."""
        core, stream = self._live.core, self._stream.id
        outbox, size, at = core.outbox, len(data), 0
        waiting = outbox.waiting(stream)
        if waiting >= WAITING_PIECES or self._crowded:
            return 0
        try:
            streams = core.streams
            left, most = streams.credit(stream), streams.largest_sent(stream)
            if waiting:
                left -= outbox.waiting_cost(stream)
            if left > 0 and size <= most:
                streams.send_data(stream, bytes(data))
                return size
            with memoryview(data) as view:
                while at < size and left > 0 and waiting < WAITING_PIECES:
                    end = min(at + most, size)
                    part = view[at:end]  # copied if it may change before it is encrypted
                    piece = part if type(data) is bytes else bytes(part)
                    streams.send_data(stream, piece)
                    waiting += 1
                    left -= end - at + EVENT_COST
                    at = end
        except LocalError:
            pass  # the stream has ended, and its receiver is notified
        return at

    def _wait(self) -> None:
        if self._waits:
            return
        self._waits = True
        core, stream = self._live.core, self._stream.id
        outbox = core.outbox
        with suppress(LocalError):
            spent = core.credit(stream) <= outbox.waiting_cost(stream)
            if spent and self._put_cost < GIVEN_BACK:
                core.streams.watch_credit(stream)  # an empty queue wouldn't help
            elif outbox.waiting(stream) or not self._crowded:
                core.notify_writable(stream)
            else:
                self._live.driver.write_waiters.waiters.append(self)


class TunnelTransport:
    """An open tunnel that begins or ends here with `stream`.

    `path` is its route from the first server to the target, as far as it is known. Closed callbacks
    run once, when the tunnel is over.

    It buffers at most one window of received data while the driver isn't reading, and at most one
    window and one flush of the driver to send.
    """

    def __init__(self, stream: TunnelStream, path: tuple[NodeId, ...]) -> None:
        self.stream = stream
        self.path = path
        self._blame: Callable[[], None] = lambda: None
        self._closed_callbacks: list[Callable[[], None]] = []
        self._driver: TransportProtocol | None = None
        self._writer = TunnelWriter(stream, self._on_taken)
        self._received: list[bytes] = []
        self._used = 0  # credit used by received data
        self._paused = self._full = False
        self._is_delivery_due = False  # in the loop's next turn
        self._eof = self._ended = self._closed = False

    def __repr__(self) -> str:
        return f"<TunnelTransport to {self.path[-1].short}>"

    def add_closed_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the tunnel is over."""
        self._closed_callbacks.append(callback)

    def set_blame(self, blame: Callable[[], None]) -> None:
        """Let the driver call `blame` whenever the tunnel carries no data, or data that isn't the
        target's."""
        self._blame = blame

    def attach(self, driver: Driver) -> None:
        """Become the transport of `driver`."""
        self._driver = driver
        driver.set_route(self.path, self._blame)
        driver.connected(self)
        if not self._closed:
            self.stream.pass_to(self)

    # Called by the driver.

    def serve(self, served: TransportProtocol | None) -> None:
        """Deliver received data to another driver, or to none."""
        self._driver = served

    def write(self, data: bytes) -> bool:
        """Send bytes; returns False if no more may follow until `may_write`."""
        if self._closed or self._ended:
            return False
        self._writer.write(data)
        self._full = len(self._writer.pending) >= TUNNEL_WINDOW
        return not self._full

    def write_eof(self) -> None:
        """Finish the direction after the bytes written so far."""
        if not self._closed:
            self._writer.finish()

    def close(self) -> None:
        """Close the tunnel. Data queued on the outer connection is still sent."""
        if self._closed:
            return
        self._closed = True
        if self._writer.pending:
            self.stream.reset(CloseCode.CANCELLED)  # the peer isn't reading
        else:
            self.stream.leave()
        self._writer.close()
        self._received.clear()
        callbacks, self._closed_callbacks = self._closed_callbacks, []
        for callback in callbacks:
            callback()

    def pause_reading(self) -> None:
        """Buffer received data until `resume_reading`."""
        self._paused = True

    def resume_reading(self) -> None:
        """Deliver the buffered data, then data as it arrives."""
        self._paused = False
        if self._received or self._eof:
            self.stream.live.backend.call_soon(self._deliver)

    # Called by the stream.

    def data_received(self, data: bytes, cost: int) -> None:
        """Deliver Data. A full piece is delivered in the loop's next turn together with the
        following ones, because more pieces usually follow.
        """
        self._received.append(data)
        self._used += cost
        if len(data) < FIRST_TUNNEL_DATA:
            self._deliver()
        elif not self._is_delivery_due:
            self._is_delivery_due = True
            self.stream.live.backend.call_soon(self._deliver)

    def finished(self) -> None:
        """Deliver the end of the data."""
        self._eof = True
        self._deliver()

    def failed(self, code: int) -> None:
        """End reading and writing: the stream was reset."""
        self._ended = True
        self.finished()

    def writable(self) -> None:
        """Continue to write: there is credit or space."""
        self._writer.writable()

    def _deliver(self) -> None:
        self._is_delivery_due = False
        driver, received = self._driver, self._received
        if self._paused or self._closed or driver is None:
            return
        if received:
            data = received[0] if len(received) == 1 else b"".join(received)
            received.clear()
            driver.received(data)
            if self._used >= GIVEN_BACK:
                used, self._used = self._used, 0
                self.stream.give_back(used)
        if self._eof and not received and not self._closed:
            self._eof = False
            driver.ended()

    def _on_taken(self, taken: int) -> None:
        if self._full and len(self._writer.pending) < TUNNEL_WINDOW:
            self._full = False
            if self._driver is not None:
                self._driver.resume_writing()
