"""What a caller may ask of an open connection, and what waits on it.

One rule: whatever may not be done now raises LocalProtocolError (`ConnectionClosedError`
if it is not open) and changes nothing. Knows the session; how it begins and ends is
`Connection`'s.
"""

from abc import ABC, abstractmethod

from node.protocol.account import Account
from node.protocol.codes import DATA, SIM, STREAM
from node.protocol.config import CoreConfig
from node.protocol.errors import LocalProtocolError
from node.protocol.flow import Flow, stream_flows
from node.protocol.limits import EVENT_COST, Limits
from node.protocol.multiplexer import Multiplexer
from node.protocol.outbox import Outbox
from node.protocol.session import Session, Wire
from node.protocol.streams import Streams


class OpenConnection(ABC):
    """The open connection's side of `Connection`."""

    config: CoreConfig
    account: Account
    answers: Account
    outbox: Outbox
    dropped = 0  # events of the other side that nobody took
    _session: Session | None
    _streams: Streams | None
    _wire: Wire

    @abstractmethod
    def _open(self) -> Session:
        """The session, if the connection is open.

        Raises:
            ConnectionClosedError: it is not.
        """

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait, and of events that wait to be encrypted: their payloads,
        and 64 for each, so that small ones count as what they hold."""
        outbox = self.outbox
        return self._wire.size + outbox.size + EVENT_COST * outbox.count

    @property
    def queued_events(self) -> int:
        """Events of all streams that wait to be encrypted."""
        return self.outbox.count

    def waiting_events(self, stream: int) -> int:
        """How many events of `stream` wait to be written."""
        return self.outbox.waiting(stream)

    def own_waiting(self, stream: int) -> None:
        """Copy what waits on `stream` out of the bytes of which it is a view."""
        self.outbox.own(stream)

    def has_credit(self, stream: int) -> bool:
        """Whether what is sent on `stream`, one from 2 up, would not wait for credit."""
        return self._session is not None and self._session.mux.has_credit(stream)

    def count_dropped(self, *, charged: bool = True) -> None:
        """Nobody takes an event of the other side. It is `charged` unless the reason is ours: no
        room, or an answer that nobody waits for any more. Beyond the allowance the other side's
        next event ends the connection (`overloaded`).
        """
        self.dropped += 1
        if charged and self._session is not None:
            self._session.count_dropped()

    def flow(self) -> Flow:
        """Credit and windows of all open streams; none where no connection is open."""
        if self._session is None or self._streams is None:
            return Flow({}, 0, 0, 0)
        mux = self._session.mux
        committed = self._streams.committed
        return Flow(stream_flows(self._streams), mux.unconsumed, committed, self.outbox.count)

    @property
    def limits(self) -> Limits:
        """The limits that were agreed; our own before and after."""
        return self._session.mux.limits if self._session else self.config.limits

    def send(
        self,
        stream: int,
        async_id: int,
        category: int,
        subcategory: int,
        payload: bytes,
        *,
        lbm: bool = True,
        seal: bool = False,
        releases: int = 0,
    ) -> int:
        """Queue an event of category 3 up on stream 1 or an open stream; returns the size
        of its payload as it is sent, with padding.

        `payload` is bytes of LBM, or with `lbm=False` the caller's own format (never
        padded); empty for none. With `seal` it is signed at once; `releases` is a stream
        of which nothing is written before it (`streams.hold`).

        Raises:
            ConnectionClosedError: not open. PayloadTooLargeError: above `max_payload`.
            LocalProtocolError: the stream is not open for sending, a number is out of
                range, or the payload is the single byte 0x00.
        """
        mux = self._open().mux
        if category < SIM:
            raise LocalProtocolError(f"events of category {category} are not the caller's")
        return mux.send(stream, async_id, category, subcategory, payload, lbm, seal, releases)

    def send_data(self, stream: int, data: bytes | memoryview) -> None:
        """Queue 2/5 Data, 1..max_payload bytes, on a stream from 2 up; raises as `send`.

        A view is one of bytes, and of what does not change until it was sent.
        """
        if not data or stream < 2:
            raise LocalProtocolError("Data is at least one byte, on a stream of its own")
        self._open().mux.send(stream, 0, STREAM, DATA, data, False, False)

    def open_stream(self, label: str, window: int | None = None, credit: int | None = None) -> int:
        """Open a stream; returns its id. `window` is what we are ready to hold, `credit`
        what the other side said it is, in bytes.

        Raises:
            ConnectionClosedError: not open. LocalProtocolError: `max_streams` are open.
        """
        return self._open().mux.open_stream(label, window, credit)

    @property
    def streams(self) -> Multiplexer:
        """For what is rarely asked: `hold` and `grant`; raises ConnectionClosedError."""
        return self._open().mux

    def finish_stream(self, stream: int) -> None:
        """End our direction of a stream, after what is queued on it; raises as `send`."""
        self._open().mux.finish(stream)

    def reset_stream(self, stream: int, code: int, text: str = "") -> None:
        """End both directions of a stream now; nothing happens if it is gone."""
        self._open().mux.reset(stream, code, text)

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        """Give back the `cost` of `count` EventReceived once the application has used them."""
        if cost and self._session is not None:
            self._session.mux.consume(stream, cost, count)

    def notify_writable(self, stream: int, *, credit: bool = False) -> None:
        """Report StreamWritable once, when nothing waits on `stream` any more; with
        `credit`, if nothing waits already, when it has credit."""
        self._open().mux.watch(stream, credit=credit)

    def ping(self, now: float) -> int:
        """Send a Ping; PongReceived carries its async id. Raises LocalProtocolError while 64
        are unanswered, and beyond 8,192 at once and 512 a second."""
        return self._open().ping(now)

    def update_keys(self, now: float) -> None:
        """Go to the next epoch in our direction; KeysUpdated reports it. Raises
        LocalProtocolError beyond 32 at once and one in 2 s."""
        self._open().update_keys(now)

    def rekey(self, now: float) -> None:
        """Agree on fresh keys for both directions; KeysUpdated reports each."""
        self._open().rekey(now)
