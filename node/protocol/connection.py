"""One connection's core: bytes and time in, bytes and reports out. Does no I/O.

Whatever the other side sends, these methods raise nothing of it; it ends in a report, at
the latest `ConnectionEnded`. What a caller may not do raises LocalProtocolError
(`ConnectionClosedError` where the connection is not open) and changes nothing. `Opening`
does the handshake and makes the `Session`, which does the open connection; this file says
which of them is next, and ends both.
"""

from collections.abc import Callable

from crypto.randomness import random_bytes
from lbm.errors import LbmDecodeError
from node.protocol.account import SHARE, Account
from node.protocol.codes import DATA, SIM, STREAM, CloseCode
from node.protocol.config import CoreConfig
from node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    RemoteProtocolError,
    check_farewell,
    violation,
)
from node.protocol.flow import Flow
from node.protocol.frames import FrameReader
from node.protocol.initiator import RejectedError
from node.protocol.limits import (
    CLOSE_LINGER,
    EVENT_COST,
    HANDSHAKE_EVENT_SIZE,
    UNWRITTEN_PART,
    Limits,
)
from node.protocol.multiplexer import Multiplexer
from node.protocol.observer import DirectionState, Observer
from node.protocol.opening import Opening
from node.protocol.outbox import Outbox, Wire
from node.protocol.reports import ConnectionEnded, Report
from node.protocol.session import Farewell, Parts, Session
from node.protocol.states import HANDSHAKE, LIVE, READING, Signal, State, next_state
from node.protocol.streams import Streams

FLUSH_SIZE = 256 * 1024
NEVER = float("inf")


class Connection:
    """The sans-IO core of one connection, either side.

    `now` is seconds of any clock that never goes back, the same for all calls. `random`
    gives random bytes of a size. `total` is the account of all connections, if there is one;
    `answers` is that of what handlers have made and wait to have written.

    `wants_data` says whether bytes should be read: not while a peer is being decided on.
    `unread` says that `receive_some(b"")` has something to go on with, `wants_eof` that our
    sending side is to be shut, since the farewell is out. With `ended` the transport is to be
    closed. `happened` is what `reports` will return, `dropped` counts the events of the other
    side that nobody took.
    """

    def __init__(
        self,
        config: CoreConfig,
        *,
        initiator: bool,
        now: float,
        random: Callable[[int], bytes] = random_bytes,
        observer: Observer | None = None,
        total: Account | None = None,
    ) -> None:
        self.config = config
        self.account = Account(config.peer_memory, total, SHARE)
        self.answers = Account(UNWRITTEN_PART * config.peer_memory, total)
        self.initiator = initiator
        self._state = State.EXPECT_REPLY if initiator else State.EXPECT_HELLO
        # What follows from the state, of which it is asked for every event.
        self._reading = self.wants_data = True
        self._live = self.ended = self.unread = self.wants_eof = False
        self.dropped = 0
        self._frames = FrameReader(HANDSHAKE_EVENT_SIZE)
        self.happened: list[Report] = []
        self.outbox = Outbox(self.account)
        self._wire = Wire(self.account, self.outbox.waker)
        self._deadline = now + config.handshake_timeout  # of the handshake, then of closing
        self._closing: Farewell = (CloseCode.NORMAL, "")
        self._streams: Streams | None = None
        self._session: Session | None = None
        parts = Parts(
            config, initiator, self.account, self.outbox, self._wire, self.happened, observer
        )
        self._opening: Opening | None = Opening(parts, random(32))

    # State, as a caller sees it.

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    def reports(self) -> list[Report]:
        """What happened since the last call."""
        reports = self.happened[:]
        self.happened.clear()
        return reports

    def checkpoint(self) -> tuple[DirectionState, DirectionState]:
        """Both directions, ours first; raises LocalProtocolError where there is no chain."""
        if self._session is None:
            raise LocalProtocolError("there is no chain")
        return self._session.checkpoint()

    # Bytes in.

    def receive_data(self, data: bytes, now: float) -> None:
        """Take bytes from the transport; look at `reports` and `data_to_send` afterwards."""
        self.receive_some(data, now)
        while self.unread:
            self.receive_some(b"", now)

    def receive_some(self, data: bytes, now: float) -> None:
        """As `receive_data`, but give back control after a few events, or after one of the
        costly kind: of the handshake, under a seal, or long. The others stay `unread`."""
        if not self._reading:
            if self._state is State.DECIDING:
                self._frames.hold(data)  # what was under way when `wants_data` fell
            return
        try:
            if self._session is not None:
                farewell = self._session.receive_some(self._frames, data, now)
                if farewell is not None:
                    self._end(*farewell, remote=True, reason="the other side closed")
            elif self._opening is not None:
                event = next(self._frames.feed(data), None)
                if event is not None:
                    self._step(self._opening.receive(self._state, bytes(event)), now)
        except RemoteProtocolError as error:
            self._fail(error, now)
        except LbmDecodeError as error:
            self._fail(violation(f"a malformed payload: {error}"), now)
        self.unread = self._frames.unread and self._reading

    def receive_eof(self, now: float) -> None:
        """The transport ended: without Close that is never a clean end."""
        if self._state is State.FAREWELL:
            self._go(Signal.END)
        elif self._state is not State.ENDED:
            self._end(CloseCode.CONNECTION_LOST, reason="the transport ended without Close")

    # Bytes out.

    def data_to_send(self, now: float, limit: int = FLUSH_SIZE) -> bytes:
        """Encrypt and frame what waits, about `limit` bytes at most; if it is less, nothing
        more may be sent now, and empty is nothing at all."""
        session = self._session
        if session is None or not self._live:
            if self._opening is not None:
                self._opening.say_hello()
            out = self._wire.take()
            self.wants_eof = self._state is State.FAREWELL
        else:
            out = session.flush(limit, now)
            if self._state is State.DRAINING and not self.outbox:
                out.append(session.close_frames(self._closing, now))
                self._say_farewell(now)
                self._end(*self._closing, reason="closed here")
        return out[0] if len(out) == 1 else b"".join(out)

    # Time.

    def next_deadline(self) -> float:
        """When to call `handle_deadline`, in seconds of `now`; infinity for never."""
        session = self._session
        if session is not None and self._live:
            keepalive, channel = session.keepalive, session.channel
            due = min(keepalive.due, channel.seal_due, channel.keys_due, channel.patience_ends)
            return min(due, self._deadline) if self._state is State.DRAINING else due
        return NEVER if self._state is State.ENDED else self._deadline

    def handle_deadline(self, now: float) -> None:
        """Do what is due; calling it too early does nothing."""
        try:
            if self._session is not None and self._live:
                self._session.handle_deadline(now)
                if self._state is State.DRAINING and now >= self._deadline:
                    self._drained_too_long(now)
            elif now < self._deadline or self._state is State.ENDED:
                return
            elif self._state is State.FAREWELL:
                self._go(Signal.END)
            else:
                self._end(CloseCode.TIMEOUT, reason="the handshake took too long")
        except RemoteProtocolError as error:
            self._fail(error, now)

    # Of the open connection: what waits, and what a caller may do.

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait, and of events that wait to be encrypted: their payloads,
        and 64 for each, so that small ones count as what they hold."""
        outbox = self.outbox
        return self._wire.size + outbox.size + EVENT_COST * outbox.count

    @property
    def limits(self) -> Limits:
        """The limits that were agreed; our own before and after."""
        return self._session.mux.limits if self._session else self.config.limits

    @property
    def streams(self) -> Multiplexer:
        """The streams, for what is asked of them alone; raises ConnectionClosedError."""
        return self._open().mux

    def flow(self) -> Flow:
        """Credit and windows of all open streams; none where no connection is open."""
        return self._session.mux.flow() if self._session else Flow({}, 0, 0, 0)

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
        """Queue an event of category 3 up on stream 1 or an open stream; see `Multiplexer.send`."""
        session = self._session
        if session is None or self._state is not State.OPEN:
            session = self._open()
        if category < SIM:
            raise LocalProtocolError(f"events of category {category} are not the caller's")
        mux = session.mux
        return mux.send(stream, async_id, category, subcategory, payload, lbm, seal, releases)

    def send_data(self, stream: int, data: bytes | memoryview) -> None:
        """Queue 2/5 Data, 1..max_payload bytes, on a stream from 2 up; raises as `send`. A view
        is one of bytes that do not change until they were sent."""
        if not data or stream < 2:
            raise LocalProtocolError("Data is at least one byte, on a stream of its own")
        self._open().mux.send(stream, 0, STREAM, DATA, data, False, False)

    def open_stream(self, label: str, window: int | None = None, credit: int | None = None) -> int:
        """Open a stream; returns its id. `window` is what we are ready to hold, `credit` what the
        other side said it is, in bytes. Raises LocalProtocolError if `max_streams` are open."""
        return self._open().mux.open_stream(label, window, credit)

    def finish_stream(self, stream: int) -> None:
        """End our direction of a stream, after what is queued on it; raises as `send`."""
        self._open().mux.finish(stream)

    def reset_stream(self, stream: int, code: int, text: str = "") -> None:
        """End both directions of a stream now; nothing happens if it is gone."""
        self._open().mux.reset(stream, code, text)

    def has_credit(self, stream: int) -> bool:
        """Whether what is sent on `stream`, one from 2 up, would not wait for credit."""
        return self._session is not None and self._session.mux.has_credit(stream)

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        """Give back the `cost` of `count` EventReceived once the application has used them."""
        if cost and self._session is not None:
            self._session.mux.consume(stream, cost, count)

    def count_dropped(self, *, charged: bool = True) -> None:
        """Nobody takes an event of the other side. It is `charged` unless the reason is ours: no
        room, or an answer that nobody waits for any more. Beyond the allowance the other side's
        next event ends the connection (`overloaded`)."""
        self.dropped += 1
        if charged and self._session is not None:
            self._session.count_dropped()

    def notify_writable(self, stream: int, *, credit: bool = False) -> None:
        """Report StreamWritable once, when nothing waits on `stream` any more; with
        `credit`, if nothing waits already, when it has credit."""
        self._open().mux.watch(stream, credit=credit)

    def ping(self, now: float) -> int:
        """Send a Ping; PongReceived carries its async id."""
        return self._open().ping(now)

    def update_keys(self, now: float) -> None:
        """Go to the next epoch in our direction; KeysUpdated reports it."""
        self._open().update_keys(now)

    def rekey(self, now: float) -> None:
        """Agree on fresh keys for both directions; KeysUpdated reports each."""
        self._open().rekey(now)

    def _open(self) -> Session:
        if self._state is not State.OPEN or self._session is None:
            raise ConnectionClosedError(self._closing[0], "the connection is not open")
        return self._session

    # The handshake, and its question.

    def accept_peer(self, now: float) -> None:
        """The answer to PeerIdentified: the peer is trusted; the connection opens. What came
        with its Proof is `unread`."""
        if self._state is not State.DECIDING or self._opening is None:
            raise LocalProtocolError("nobody waits to be accepted")
        self._step(self._opening.accept(), now)

    def refuse_peer(self, reason: str, now: float) -> None:
        """The answer to PeerIdentified: the peer is not trusted. `reason` stays here."""
        if self._state is not State.DECIDING:
            raise LocalProtocolError("nobody waits to be refused")
        self._fail(RemoteProtocolError(CloseCode.PEER_NOT_TRUSTED, reason), now)

    def _step(self, signal: Signal, now: float) -> None:
        """The handshake went on; where it is over, the connection is open."""
        opening = self._opening
        if opening is not None and opening.agreed is not None:
            self._frames.limit = opening.frame_limit()
            self._session = opening.session(now)
            self._streams = self._session.streams
            self._opening = None  # and with it every secret of the handshake
        self._go(signal)

    # The end, as a caller wants it.

    def close(self, now: float, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End gracefully: what is queued goes first. During a handshake, at once.

        Raises:
            ValueError: `code` is not one that Close may carry, or `text` above 1,024 bytes.
        """
        check_farewell(code, text, CloseCode.INTERNAL_ERROR)
        if self._state in HANDSHAKE:
            self._end(code, reason="closed during the handshake")
        elif self._state is State.OPEN:
            self._closing = code, text
            self._deadline = now + self.config.close_drain
            self._go(Signal.CLOSE_ASKED)

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End now: what is queued is dropped; Close or Reject carries `code` if it may be sent."""
        if self._state not in HANDSHAKE and not self._live:
            return
        if code < 0:
            self._end(code, reason=reason)
        else:
            self._fail(RemoteProtocolError(code, reason), now)

    # Endings.

    def _fail(self, error: RemoteProtocolError, now: float) -> None:
        """A violation, or an end that we decide on: say what the state allows, and end."""
        if isinstance(error, RejectedError):
            self._end(error.code, error.text, remote=True, reason=error.reason)
            return
        farewell = b""
        if self._opening is not None:
            farewell = self._opening.farewell(self._state, error)
        elif self._session is not None and self._live:
            farewell = self._session.close_frames((error.code, ""), now)
        if farewell:
            self._wire.write(farewell)
            self._say_farewell(now)
        self._end(error.code, reason=error.reason)

    def _drained_too_long(self, now: float) -> None:
        """Go on with Close; if the transport takes not even that, end."""
        if self.outbox:
            self.outbox.clear()
            self._deadline = now + CLOSE_LINGER
        else:
            self._end(*self._closing, reason="closed here; the other side does not read")

    def _say_farewell(self, now: float) -> None:
        self._go(Signal.SAID_FAREWELL)
        self._deadline = now + CLOSE_LINGER

    def _end(self, code: int, text: str = "", *, remote: bool = False, reason: str) -> None:
        """It is over; a farewell that was said may linger."""
        if self._state is not State.FAREWELL:
            self._go(Signal.END)
        self._frames.clear()
        self._opening = None
        self._closing = code, text
        self.outbox.clear()
        if self._session is not None:
            session, self._session = self._session, None
            session.end(code, text, remote)  # and with it every key
        self.happened.append(ConnectionEnded(code, text, remote, reason))

    def _go(self, signal: Signal) -> None:
        self._state = state = next_state(self._state, signal)
        self._reading = state in READING
        self._live = state in LIVE
        self.unread = self._reading and self._frames.unread
        self.wants_data = self._reading or state is State.FAREWELL
        self.wants_eof = state is State.FAREWELL and not self._wire.frames
        self.ended = state is State.ENDED
        if self.ended:
            self._wire.take()
