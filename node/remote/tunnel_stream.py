"""One hop of a tunnel (docs/protocol.md section 19)."""

from collections.abc import Callable
from typing import Protocol

from parley._node.errors import PeerClosedError, StreamResetError
from parley._node.messaging.application_events import APPLICATION, Carries, StreamRequests
from parley._node.protocol.codes import CANCEL, SIM, TUNNEL, CloseCode
from parley._node.protocol.event import Event
from parley._node.protocol.flow_control import FIRST_TUNNEL_DATA
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream


class DataReceiver(Protocol):
    """Receives the data of an open tunnel.

    It limits its buffer and returns credit with `TunnelStream.give_back`.
    """

    def data_received(self, data: bytes, cost: int) -> None:
        """Process data that used `cost` of the credit."""

    def finished(self) -> None: ...

    def failed(self, code: int) -> None:
        """Called when the stream was reset with this code, or ended with its connection (1)."""

    def writable(self) -> None:
        """Called when the stream's queue is empty, or there is credit again."""


class TunnelStream(Stream):
    """A `tunnel` stream, on either side: one Dial, one Answer, then Data of 1 to 66,560 bytes.

    The data is passed to a `DataReceiver` as it arrives. Any other event, except a Cancel before
    the Answer, resets the stream (`protocol-error`).
    """

    def __init__(
        self,
        live: LiveConnection,
        requests: StreamRequests,
        on_over: Callable[[Stream], None],
        stream_id: int,
        label: str,
        answers: frozenset[tuple[int, int]] = frozenset(),
        carries: Carries = APPLICATION,
    ) -> None:
        super().__init__(live, requests, on_over, stream_id, label, answers, carries)
        self.active_at = 0.0  # When the last Data was sent or received.
        self._taker: DataReceiver | None = None
        self._met = False  # Whether the peer's only event has arrived.
        self._answered = False

    def pass_to(self, taker: DataReceiver) -> None:
        """Pass all data to `taker`, beginning with the data that has already arrived."""
        self._taker, self._answered = taker, True
        self.active_at = self.live.backend.now()
        for data, cost in self._bytes.take_all():
            self.live.core.free(cost)
            taker.data_received(data, cost)
        if self._events:
            self._violated()
        elif self._error is not None:
            taker.failed(_code_of(self._error))
        elif self._eof:
            taker.finished()
            self._forget_if_over()

    def accept(self) -> None:
        """Accept data, because the Answer is about to be sent."""
        self._answered = True

    def give_back(self, cost: int) -> None:
        self.live.core.give_back(self.id, cost)

    def finish(self) -> None:
        """Finish the sending direction after the queued data."""
        self._finish()

    def leave(self) -> None:
        """Finish the sending direction and stop reading; further data is answered with Reset."""
        self._taker = None
        if not self._closed:
            self._close()
            self._finish()

    def end(self, code: int) -> None:
        """Reset the stream and notify the receiver as if the peer had reset it."""
        self.reset(code)
        self.failed(StreamResetError(code, ""))

    # Called by the connection.

    def data_received(self, data: bytes, cost: int) -> None:
        taker, size = self._taker, len(data)
        too_long = size > FIRST_TUNNEL_DATA and size > self.live.core.streams.largest_received(
            self.id
        )
        if too_long or self._is_early:
            self.live.core.consume(self.id, cost)
            self._violated()
        elif taker is None or self._closed:
            super().data_received(data, cost)
        else:
            self.active_at = self.live.backend.now()
            self.live.core.free(cost)
            taker.data_received(data, cost)

    def event_received(self, event: Event) -> bool:
        """Process a Dial, an Answer or a Cancel; reset the stream for any other event."""
        is_cancel = (event.category, event.subcategory) == (SIM, CANCEL)
        if is_cancel and self._met and not self._answered:
            if not self._requests.claims(event):
                return False
            self.live.core.consume(self.id, event.cost)
            return True
        if self._met or self._taker is not None or event.category != TUNNEL:
            self._violated()
            return False
        self._met = True
        self._answered = (event.category, event.subcategory) in self.answers
        return super().event_received(event)

    def finished(self) -> None:
        super().finished()
        if self._taker is not None:
            self._taker.finished()

    def failed(self, error: StreamResetError | PeerClosedError) -> None:
        super().failed(error)
        if self._taker is not None:
            self._taker.failed(_code_of(error))

    def writable(self) -> None:
        super().writable()
        if self._taker is not None:
            self._taker.writable()

    @property
    def _is_early(self) -> bool:
        """Whether data must not arrive yet, because the Dial isn't answered."""
        return not (self._answered or self._closed)

    def _violated(self) -> None:
        self.end(CloseCode.PROTOCOL_ERROR)


def _code_of(error: StreamResetError | PeerClosedError) -> int:
    return error.code if isinstance(error, StreamResetError) else CloseCode.GOING_AWAY
