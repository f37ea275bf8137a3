"""The sans-IO core of one connection: it consumes bytes and time, and produces bytes and reports.

Peer input never makes these methods raise. Invalid input ends in a report, at the latest in
`ConnectionEnded`. A call that isn't allowed raises LocalError (`ConnectionClosedError` if the
connection isn't open) and changes nothing.

`HandshakeDriver` performs the handshake and creates the `Session`, which handles the open
connection. A session that loses its transport is suspended until it is resumed over another one or
times out (docs/protocol.md sections 11 and 17).
"""

import sys
from collections.abc import Callable
from typing import Final

from parley._crypto.randomness import random_bytes
from parley._lbm.errors import LbmDecodeError
from parley._lbm.padding import pad
from parley._node.protocol.codes import CHUNK, MAIN_STREAM, SIM, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    PayloadTooLargeError,
    RejectedError,
    RemoteProtocolError,
    SilenceError,
    check_close,
    violation,
)
from parley._node.protocol.event import NO_PAYLOAD
from parley._node.protocol.frames import FrameReader, sniff_protocol
from parley._node.protocol.handshake import expect
from parley._node.protocol.handshake_driver import HandshakeDriver
from parley._node.protocol.limits import (
    CLOSE_LINGER,
    EVENT_COST,
    HANDSHAKE_EVENT_SIZE,
    READ_ON,
    UNWRITTEN_PART,
    Limits,
)
from parley._node.protocol.memory_budget import SHARE, MemoryBudget
from parley._node.protocol.multiplexer import Multiplexer
from parley._node.protocol.observer import DirectionState, Observer
from parley._node.protocol.reports import ConnectionEnded, Report, Resumed, Suspended
from parley._node.protocol.request_ids import LAST_ASYNC_ID
from parley._node.protocol.resume_attempt import ResumeAttempt
from parley._node.protocol.resumption import (
    NEVER,
    ClosedSession,
    ResumeRequest,
    Resumption,
    spend_mac,
)
from parley._node.protocol.send_queue import OutgoingEvent, SendQueue, WriteBuffer
from parley._node.protocol.session import CloseReason, ConnectionParts, Session
from parley._node.protocol.states import (
    AWAITING_DECISION,
    HANDSHAKE,
    LIVE,
    READING,
    SENDING,
    SUSPENDED,
    Signal,
    State,
    next_state,
)
from parley._node.protocol.streams import Flow

# Bytes that are encrypted and written at a time. Several frames are joined into new bytes, but the
# frame of a full piece of a stream is written unchanged.
FLUSH_SIZE: Final = 64 * 1024
# The states before the first event of the peer was read.
FIRST = frozenset({State.EXPECT_HELLO, State.EXPECT_REPLY})


# Shown to the user of a node with a recovery key (rule 22.6).
REFUSED_ID: Final = (
    "authentication failed; a peer also refuses a node ID that has ended, and a peer of an older "
    "version one that covers a recovery key"
)


class Connection:
    """The sans-IO core of one connection, used by both sides.

    `now` is the time in seconds of a monotonic clock, the same clock in all calls. `random` returns
    the given number of random bytes. `total` is the memory budget shared by all connections, if
    any.

    Attributes: state: the state; the flags below are derived from it and from the buffers.
    wants_data: whether to read from the transport. wants_eof: whether to shut down the sending side
    of the transport. ended: whether to close the transport. is_suspended: whether the session has
    no transport; sent events are queued. unread: whether `receive_some(b"")` can continue with
    buffered bytes. happened: the reports that `reports` returns next. dropped: number of received
    events that no handler consumed. foreign: the name of the other protocol that the peer uses, if
    recognised. answers: the memory of handlers' results that have not been written yet. unsealed:
    the memory of events that wait for a seal (`deliver="sealed"`).
    """

    def __init__(
        self,
        config: CoreConfig,
        *,
        initiator: bool,
        now: float,
        random: Callable[[int], bytes] = random_bytes,
        observer: Observer | None = None,
        total: MemoryBudget | None = None,
    ) -> None:
        self.config = config
        self.initiator = initiator
        self.account = MemoryBudget(config.peer_memory, total, SHARE)
        self.answers = MemoryBudget(UNWRITTEN_PART * config.peer_memory, total)
        self.unsealed = MemoryBudget(0, total)  # its limit is set once limits are agreed
        self.state = State.EXPECT_REPLY if initiator else State.EXPECT_HELLO
        self.wants_data = self._reading = True
        self._live = self._draining = self.ended = self.is_suspended = False
        self.unread = self.wants_eof = False
        self.foreign = ""
        self.dropped = 0
        self.happened: list[Report] = []
        self.outbox = SendQueue(self.account)
        self.wire = WriteBuffer(self.account, self.outbox.waker)
        self.frames = FrameReader(HANDSHAKE_EVENT_SIZE)
        # The deadline of the handshake, then of closing or of a suspended session.
        self._deadline = now + config.handshake_timeout
        self._closing: CloseReason = (CloseCode.NORMAL, "")
        self._attempt: ResumeAttempt | None = None
        self._closed_session: ClosedSession | None = None
        self.session: Session | None = None
        parts = ConnectionParts(
            config,
            initiator,
            self.account,
            self.unsealed,
            self.outbox,
            self.wire,
            self.happened,
            observer,
        )
        self.handshake: HandshakeDriver | None = HandshakeDriver(parts, random(32))

    # Received bytes.

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes from the transport. Afterwards check `reports` and `data_to_send`."""
        self.receive_some(data, now)
        while self.unread:
            self.receive_some(b"", now)

    def receive_some(self, data: bytes, now: float) -> None:
        """Like `receive_data`, but return after a few events or one costly one (of the handshake,
        sealed or long). Further events stay `unread`.
        """
        if not self._reading:
            if self.state in AWAITING_DECISION:
                self.frames.feed(data)  # the read was in progress when `wants_data` became False
            return
        try:
            if self.session is not None:
                closed = self.session.receive_some(self.frames, data, now)
                if closed is not None:
                    code, text = closed
                    recoverable = self.config.identity.primary_key.commitment is not None
                    # An unencrypted connection has no identities.
                    shown = self.session.secure is not None
                    if code == CloseCode.AUTHENTICATION_FAILED and recoverable and shown:
                        text = text or REFUSED_ID
                    self._end(code, text, remote=True, reason="closed by the peer")
            elif self.handshake is not None:
                self.frames.feed(data)
                event = self._first_event() if self.state in FIRST else self.frames.take()
                if event is not None:
                    self._step(self.handshake.receive(self.state, bytes(event)), now)
        except RemoteProtocolError as error:
            self._violated(error, now)
        except LbmDecodeError as malformed:
            self._violated(violation(f"malformed payload: {malformed}"), now)
        self.unread = self.frames.unread and self._reading

    def _first_event(self) -> bytes | memoryview | None:
        """Return the peer's first event once it is complete; raises the same errors as
        `FrameReader.take`.
        """
        try:
            return self.frames.take()
        except RemoteProtocolError as error:
            self.foreign = sniff_protocol(self.frames.unread_bytes())
            if not self.foreign:
                raise
            raise RemoteProtocolError(
                error.code, f"the peer is {self.foreign}, not a Parley node"
            ) from error

    def receive_eof(self, now: float) -> None:
        """Handle the end of the transport. Without a Close, it is always an unclean end."""
        self.transport_lost(now, "the transport ended without Close")

    # Bytes to send.

    def data_to_send(self, now: float, limit: int = FLUSH_SIZE) -> bytes:
        """Encrypt and frame queued events, up to about `limit` bytes. A shorter result means that
        everything that may be sent now was returned.
        """
        session = self.session
        if session is None or not self._live:
            return b"" if self.is_suspended else self._take_written()
        resumption = session.resumption
        if resumption is not None and resumption.kept.again:
            again = resumption.kept.take_again(limit)
            left = limit - len(again)
            return again + self.data_to_send(now, left) if left > 0 else again
        try:
            out = session.flush(limit, now)
        except RemoteProtocolError as error:
            self._fail(error, now)
            return self._take_written()
        drained = self._draining and not self.outbox
        if drained:
            out.append(session.close_frames(self._closing, now))
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        if resumption is not None and data:
            resumption.kept.add(data)
        if drained:
            self._close_sent(now)
            self._end(*self._closing, reason="closed locally")
        return data

    def _take_written(self) -> bytes:
        """Return the frames of the handshake, or the last frames of the connection."""
        if self.handshake is not None:
            self.handshake.send_hello()
        out = self.wire.take()
        self.wants_eof = self.state is State.CLOSING
        return b"".join(out)

    # Time.

    def next_deadline(self) -> float:
        """Return the time at which to call `handle_deadline`, in seconds of `now`; infinity means
        never.
        """
        session = self.session
        if session is not None and self._live:
            channel, resumption = session.channel, session.resumption
            due = session.keepalive.due
            # Called for each flush, where `min` takes twice as long.
            if channel.seal_due < due:
                due = channel.seal_due
            if channel.keys_due < due:
                due = channel.keys_due
            if channel.patience_ends < due:
                due = channel.patience_ends
            if resumption is not None and resumption.tell_due < due:
                due = resumption.tell_due
            return min(due, self._deadline) if self._draining else due
        return NEVER if self.state is State.ENDED else self._deadline

    def handle_deadline(self, now: float) -> None:
        """Do the work that is due. Calling it early is harmless."""
        try:
            if self.session is not None and self._live:
                self.session.handle_deadline(now)
                if self._draining and now >= self._deadline:
                    self._drained_too_long(now)
            elif now >= self._deadline and self.state is not State.ENDED:
                self._timed_out()
        except SilenceError as silence:
            if self.can_suspend:
                self.transport_lost(now, silence.reason)
            else:
                self._fail(silence, now)
        except RemoteProtocolError as error:
            self._fail(error, now)

    # The handshake, and the decision about the peer.

    def accept_peer(self, now: float) -> None:
        """Trust the peer of PeerIdentified and open the connection. Bytes after its Proof are
        `unread`.
        """
        if self.state is not State.DECIDING or self.handshake is None:
            raise LocalProtocolError(
                f"cannot accept the peer in state {self.state.name}: no decision is pending"
            )
        self._step(self.handshake.accept(), now)

    def refuse_peer(self, reason: str, now: float) -> None:
        """Reject the peer of PeerIdentified, or end an open connection, because the peer isn't
        trusted. `reason` isn't sent. Queued events are dropped, and the session can't be resumed.
        """
        if self.state is State.DECIDING:
            self._fail(RemoteProtocolError(CloseCode.PEER_NOT_TRUSTED, reason), now)
        elif self.session is not None:
            sent = None
            if self._live:
                sent = CloseCode.AUTHENTICATION_FAILED  # the same code as after a refused handshake
                self.wire.write(self.session.close_frames((sent, ""), now))
                self._close_sent(now)
                self._closed_session = None
            self._end(CloseCode.PEER_NOT_TRUSTED, reason=reason, sent_code=sent)
        else:
            raise LocalProtocolError(
                f"cannot refuse the peer in state {self.state.name}: no decision is pending"
            )

    def _step(self, signal: Signal, now: float) -> None:
        """Take a step of the handshake; after the last one, the session begins."""
        handshake = self.handshake
        if handshake is not None and handshake.agreed is not None:
            self.frames.limit = limit = handshake.frame_limit()
            self.session = handshake.session(limit, now)
            self.handshake = None  # this also drops every secret of the handshake
        self._go(signal)

    # The state, for the caller.

    def reports(self) -> list[Report]:
        """Return the reports since the last call."""
        reports = self.happened[:]
        self.happened.clear()
        return reports

    def checkpoint(self) -> tuple[DirectionState, DirectionState]:
        """Return the state of both directions, the sending one first.

        Raises:
            LocalProtocolError: the connection isn't open, or isn't encrypted.
        """
        if self.session is None:
            raise LocalProtocolError("cannot return a checkpoint: the connection is not encrypted")
        return self.session.checkpoint()

    @property
    def accepts_events(self) -> bool:
        """Whether events can be sent. A suspended session queues them."""
        return self.state in SENDING

    @property
    def resumption(self) -> Resumption | None:
        """The resumption state of the session; None if resumption wasn't agreed."""
        return self.session.resumption if self.session else None

    @property
    def holds_back(self) -> bool:
        """Whether sending is restricted: `resume_buffer` bytes are unacknowledged, so only events
        of stream 0 and Opens are sent.
        """
        session = self.session
        if session is None or session.resumption is None:
            return False
        kept = session.resumption.kept
        return kept.held >= kept.buffer

    @property
    def memory(self) -> int:
        """The approximate memory of the connection, in bytes."""
        kept = self.resumption.kept.uncharged if self.resumption is not None else 0
        return self.account.held + self.answers.held + self.unsealed.held + kept

    def watch_memory(self, on_charge: Callable[[], None] | None) -> None:
        """Call `on_charge` whenever `memory` has grown. None removes the callback."""
        self.account.on_charge = self.answers.on_charge = self.unsealed.on_charge = on_charge

    @property
    def queued_bytes(self) -> int:
        """Bytes of queued frames, plus the payload and 64 bytes for each event that isn't encrypted
        yet.
        """
        outbox = self.outbox
        return self.wire.size + outbox.size + EVENT_COST * outbox.count

    @property
    def limits(self) -> Limits:
        """The agreed limits of an open connection; otherwise the local ones."""
        return self.session.mux.limits if self.session else self.config.limits

    @property
    def streams(self) -> Multiplexer:
        """The streams; raises ConnectionClosedError."""
        return self._require_open().mux

    def flow(self) -> Flow:
        """Return credit and windows of all open streams; empty if the connection isn't open."""
        return self.session.mux.flow() if self.session else Flow({}, 0, 0, 0)

    # Events, streams, credit and keys of the open connection.

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
        """Queue an event of category 3 or above on stream 1 or an open stream. Return the payload's
        size, including padding.

        `payload` is LBM; empty bytes mean no payload. Without `lbm` it has the caller's own format
        and is never padded. With `seal` the event is signed immediately. `releases` is a held
        stream to release (`Multiplexer.hold`).

        Raises:
            PayloadTooLargeError: the payload is longer than `max_payload`.
            LocalError: the stream is not open for sending, a number is out of range, or the payload
                is the single byte 0x00.
        """
        session = self.session
        if session is None or self.state is not State.OPEN:
            session = self._require_open()
        if category < SIM:
            raise LocalProtocolError(f"cannot send event of category {category}: expected 3 to 255")
        if not (category <= 255 and 1 <= subcategory <= 255 and 0 <= async_id <= LAST_ASYNC_ID):
            raise LocalProtocolError(
                f"cannot send event {category}/{subcategory} with async ID {async_id}: expected a "
                f"type up to 255/255 and an async ID up to {LAST_ASYNC_ID}"
            )
        mux, config = session.mux, self.config
        most = mux.limits.max_payload
        if not payload:
            payload = NO_PAYLOAD
        elif payload == NO_PAYLOAD:
            refused = f"cannot send event {category}/{subcategory}"
            raise LocalProtocolError(
                f"{refused}: the payload 0x00 is reserved for an absent payload"
            )
        elif lbm and config.padding.rule != "off":
            payload = pad(payload, config.padding, most)
        size, cost, credit = len(payload), 0, None
        if size > most:
            raise PayloadTooLargeError(
                f"cannot send a payload of {size} bytes: {most} bytes were agreed (max_payload)"
            )
        if stream != MAIN_STREAM:
            credit = mux.stream_table.get_local(stream).credit
            if category != SIM or subcategory != CHUNK:
                cost = size + EVENT_COST
        self.outbox.put(
            OutgoingEvent(stream, async_id, category, subcategory, payload, seal, cost, releases),
            credit,
        )
        mux.expected += 1 + (size + EVENT_COST) // READ_ON
        return size

    def send_data(self, stream: int, data: bytes | memoryview, join: int = 0) -> None:
        """Queue 2/5 Data of 1..max_payload bytes on a stream from 2 up; raises the same errors as
        `send`.

        The bytes of a view must not change until they are sent. If Data is queued last on the
        stream, `data` is appended to it, up to `join` bytes, instead of queueing another event.
        """
        if not data or stream < 2:
            raise LocalProtocolError(
                f"{len(data)} bytes of Data on stream {stream}: at least 1 byte, on stream 2 or "
                "above"
            )
        mux = self._require_open().mux
        before = self.outbox.extend(stream, data, join) if join else 0
        if before:
            before += EVENT_COST
            mux.expected += (before + len(data)) // READ_ON - before // READ_ON
        else:
            mux.send_data(stream, data)

    def open_stream(self, label: str, window: int | None = None, credit: int | None = None) -> int:
        """Open a stream and return its ID. `window` is the number of bytes that we accept, `credit`
        the number that the peer is known to accept.

        Raises:
            LimitReachedError: `max_streams` streams are open.
        """
        return self._require_open().mux.open_stream(label, window, credit)

    def finish_stream(self, stream: int) -> None:
        """End the sending direction of a stream after its queued events; raises the same errors as
        `send`.
        """
        self._require_open().mux.finish(stream)

    def reset_stream(self, stream: int, code: int, text: str = "") -> None:
        """End both directions of a stream immediately. Does nothing if the stream is closed."""
        self._require_open().mux.reset(stream, code, text)

    def has_credit(self, stream: int) -> bool:
        """Return whether an event on `stream` (2 or above) can be sent without waiting for
        credit.
        """
        return self.credit(stream) > 0

    def credit(self, stream: int) -> int:
        """Return the number of bytes that may be sent on `stream` (2 or above), including queued
        ones.
        """
        return self.session.mux.credit(stream) if self.session is not None else 0

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        """Grant the `cost` of `count` events again, because the application has used them."""
        if cost and self.session is not None:
            mux = self.session.mux
            mux.free(cost, count)
            mux.give_back(stream, cost)

    def free(self, cost: int, count: int = 1) -> None:
        """Stop charging `count` events of this `cost`, because the caller limits them itself. Grant
        their credit with `give_back`.
        """
        if cost and self.session is not None:
            self.session.mux.free(cost, count)

    def give_back(self, stream: int, cost: int) -> None:
        """Grant the `cost` of freed events again once they are used."""
        if cost and self.session is not None:
            self.session.mux.give_back(stream, cost)

    def count_dropped(self, *, charged: bool = True) -> None:
        """Count a received event that no handler consumed. It is `charged` to the peer unless the
        cause is local: a full buffer, or a result that is no longer expected. Above the rate limit,
        the peer's next event ends the connection (`overloaded`).
        """
        self.dropped += 1
        if charged and self.session is not None:
            self.session.count_dropped()

    def notify_writable(self, stream: int, *, credit: bool = False) -> None:
        """Report StreamWritable once when the queue of `stream` is empty. With `credit`, wait for
        credit if the queue is already empty.
        """
        self._require_open().mux.watch(stream, credit=credit)

    def ping(self, now: float) -> int:
        """Send a Ping; PongReceived carries its async id."""
        return self._require_open().ping(now)

    def update_keys(self, now: float) -> None:
        """Switch to the next sending epoch; KeysUpdated reports it."""
        self._require_open().update_keys(now)

    def rekey(self, now: float) -> None:
        """Agree on new keys for both directions; KeysUpdated reports each."""
        self._require_open().rekey(now)

    def _require_open(self) -> Session:
        if self.state not in SENDING or self.session is None:
            raise ConnectionClosedError(self._closing[0], "the connection is not open")
        return self.session

    # Suspension, and resumption over another transport.

    @property
    def can_suspend(self) -> bool:
        """Whether the session could be resumed if it lost its transport now."""
        resumption = self.resumption
        return self._live and resumption is not None and resumption.can_suspend

    def transport_lost(self, now: float, reason: str) -> bool:
        """Suspend the session and return True, or end it with `connection-lost` if it can't be
        resumed.
        """
        if self.can_suspend:
            self._suspend(now, reason)
            if self._draining and not self.initiator:
                self._close_suspended(now)
        elif self.state is State.CLOSING:
            self._go(Signal.END)
        elif self.state is not State.ENDED and not self.is_suspended:
            if self.handshake is not None:
                reason = self.handshake.lost_because(reason)
            self._end(CloseCode.CONNECTION_LOST, reason=reason)
        return self.is_suspended

    def start_attempt(self, now: float) -> ResumeAttempt:
        """Return the core of a new attempt to resume, as the initiator. If the session still has a
        transport, that is given up; earlier attempts are cancelled.

        Raises:
            ConnectionClosedError: the connection has ended.
            LocalProtocolError: this side, or this session, can't resume.
        """
        if self.can_suspend and self.initiator:
            self.transport_lost(now, "replaced by another transport")
        resumption = self.resumption
        if self.state in (State.CLOSING, State.ENDED):
            raise ConnectionClosedError(self._closing[0], "the connection has ended")
        if resumption is None or not self.is_suspended or not self.initiator:
            reason = f"this session cannot be resumed from here in state {self.state.name}"
            raise LocalProtocolError(reason)
        resume = resumption.next_attempt(self.config.network_key)
        if self._attempt is not None:
            self._attempt.cancel()
        self._attempt = ResumeAttempt(resume, self._resumed, now)
        return self._attempt

    def accept_resume(self, resume: ResumeRequest, now: float) -> bool:
        """Resume this session over a new transport. Return False and reject it (section 17) if the
        peer's Resume is invalid; in that case the session may have ended.
        """
        resumption = self.resumption
        if resumption is None or self.initiator:
            spend_mac(resume)
            return False
        count = resumption.find_count(resume)
        if count is None:
            return False
        if not resumption.could_have(resume.received):
            self._fail(violation("invalid Resume: impossible position"), now)
            return False
        if self._live:
            self._suspend(now, "the peer reconnected over a new transport")
        self._continue(resume.received, resumption.accept(resume, count), now)
        return True

    def take_closed_session(self) -> ClosedSession | None:
        """Return the response to a Resume of a session that was closed locally. Returns it only
        once (responder).
        """
        closed, self._closed_session = self._closed_session, None
        return closed

    def refuse_resume(self, now: float) -> None:
        """Reject ResumeRequested, because the session doesn't exist or can't be resumed."""
        self._require_resuming()
        self._fail(RemoteProtocolError(CloseCode.UNKNOWN_SESSION, "no such session"), now)

    def hand_over(self) -> bytes:
        """Accept ResumeRequested: the session takes over this transport, and this connection ends
        silently. Return the bytes that followed the Resume.
        """
        self._require_resuming()
        received = self.frames.unread_bytes()
        self.frames.clear()
        self.handshake = None
        self._go(Signal.END)
        return received

    def send_closed_session(self, data: bytes, now: float) -> None:
        """Respond to ResumeRequested of a closed session with `data` (`ClosedSession.answer`)."""
        self._require_resuming()
        self.wire.write(data)
        self._close_sent(now)
        self._end(
            CloseCode.NORMAL, reason="the remaining bytes of a closed session were sent again"
        )

    def _require_resuming(self) -> None:
        if self.state is not State.RESUMING:
            raise LocalProtocolError(
                f"cannot answer a Resume in state {self.state.name}: none is pending"
            )

    def _suspend(self, now: float, reason: str) -> None:
        session, resumption = expect(self.session), expect(self.resumption)
        session.suspend(reason, now)
        self.frames.clear()  # the peer sends bytes that aren't decrypted again
        patience = resumption.closed_patience if self._draining else resumption.patience
        self._deadline = now + patience
        self._go(Signal.TRANSPORT_LOST)
        self.happened.append(Suspended(reason))
        self.outbox.waker.changed()

    def _resumed(self, attempt: int, received: int, mac: bytes, now: float) -> bool:
        """Process a Resumed. Return whether it is valid, in which case the session continues."""
        resumption = self.resumption
        if resumption is None or not resumption.is_resumed(attempt, received, mac):
            return False
        resumption.count += 1
        self._attempt = None
        self._continue(received, b"", now)
        return True

    def _continue(self, position: int, first: bytes, now: float) -> None:
        expect(self.session).resume(position, first, now)
        self._go(Signal.TRANSPORT_RESUMED)
        if self._draining:
            self._deadline = now + self.config.close_drain
        self.happened.append(Resumed(expect(self.resumption).count))
        self.outbox.waker.changed()

    def _close_suspended(self, now: float) -> None:
        """Close as the responder without a transport; `ClosedSession` stores the remaining
        bytes.
        """
        session = expect(self.session)
        try:
            flushed = session.flush(sys.maxsize, now)
        except RemoteProtocolError as error:
            self._fail(error, now)
            return
        for frames in flushed:
            self.wire.write(frames)
        self.wire.write(session.close_frames(self._closing, now))
        self._close_sent(now)
        self._end(*self._closing, reason="closed locally without a transport")

    # The end.

    def close(self, now: float, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Close gracefully after queued events. During a handshake, end immediately.

        Raises:
            ValueError: `code` is not allowed in Close, or `text` is longer than 1,024 bytes.
        """
        check_close(code, text, CloseCode.INTERNAL_ERROR)
        if self.state in HANDSHAKE:
            self._end(code, reason="closed during the handshake")
        elif self.state in SENDING:
            self._closing = code, text
            resumption = self.resumption
            if self.is_suspended and resumption is not None:
                self._deadline = min(self._deadline, now + resumption.closed_patience)
            else:
                self._deadline = now + self.config.close_drain
            self._go(Signal.CLOSE_REQUESTED)
            if self.is_suspended and not self.initiator:
                self._close_suspended(now)

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End immediately and drop queued events. Send `code` in Close or Reject if the state
        allows it.
        """
        if self.state in (State.CLOSING, State.ENDED):
            return
        if code < 0:
            self._end(code, reason=reason)
        else:
            self._fail(RemoteProtocolError(code, reason), now)

    def _violated(self, error: RemoteProtocolError, now: float) -> None:
        """Handle a violation. Over an unproven new transport it may come from anyone, so only
        suspend.
        """
        session = self.session
        if session is not None and session.channel.trial is not None:
            self._suspend(now, f"invalid data over the new transport: {error.reason}")
        else:
            self._fail(error, now)

    def _fail(self, error: RemoteProtocolError, now: float) -> None:
        """End because of a violation or a local decision, and send the event that the state
        allows.
        """
        if isinstance(error, RejectedError):
            self._end(error.code, error.text, remote=True, reason=error.reason)
            return
        frames = b""
        if self.handshake is not None:
            frames = self.handshake.failure_frames(self.state, error)
        elif self.session is not None:
            frames = self.session.close_frames((error.code, ""), now)
        if frames:
            self.wire.write(frames)
            self._close_sent(now)
        self._end(error.code, reason=error.reason)

    def _timed_out(self) -> None:
        """Handle the deadline of a handshake, of closing, or of a suspended session."""
        if self.state is State.CLOSING:
            self._go(Signal.END)
        elif self._draining:
            self._end(*self._closing, reason="closed locally; the session was not resumed in time")
        elif self.is_suspended:
            self._end(CloseCode.CONNECTION_LOST, reason="the session was not resumed in time")
        else:
            self._end(CloseCode.TIMEOUT, reason="the handshake took too long")

    def _drained_too_long(self, now: float) -> None:
        """Send Close next; end if the transport doesn't accept even that."""
        if self.outbox:
            self.outbox.clear()
            self._deadline = now + CLOSE_LINGER
        else:
            self._end(*self._closing, reason="closed locally; the peer does not read")

    def _close_sent(self, now: float) -> None:
        """Handle a written Close or Reject. Without a transport, store it for a Resume."""
        resumption = self.resumption
        if resumption is not None:
            if not self.initiator:
                until = now + resumption.closed_patience
                self._closed_session = ClosedSession(resumption, self.wire.frames[:], until)
            self.wire.put_first(resumption.kept.take_again(NEVER))
        if not self.is_suspended:
            self._go(Signal.CLOSE_SENT)
            self._deadline = now + CLOSE_LINGER

    def _end(
        self,
        code: int,
        text: str = "",
        *,
        remote: bool = False,
        reason: str,
        sent_code: int | None = None,
    ) -> None:
        """End the connection; frames that were written may still be sent. `sent_code` is the code
        of the Close that was sent, if it differs from `code`.
        """
        if self.state is not State.CLOSING:
            self._go(Signal.END)
        self.frames.clear()
        self.handshake = None
        self._closing = code, text
        self.outbox.clear()
        if self._attempt is not None:
            self._attempt.cancel()
        if self.session is not None:
            session, self.session = self.session, None
            # This frees every key. An observer of the session records the code of its Close.
            session.end(code if sent_code is None else sent_code, text, remote)
        self.happened.append(ConnectionEnded(int(code), text, remote, reason))

    def _go(self, signal: Signal) -> None:
        """Change the state and the flags derived from it."""
        self.state = state = next_state(self.state, signal)
        self._reading = state in READING
        self._live = state in LIVE
        self._draining = state in (State.DRAINING, State.SUSPENDED_DRAINING)
        self.is_suspended = state in SUSPENDED
        self.unread = self._reading and self.frames.unread
        self.wants_data = self._reading or state is State.CLOSING
        self.wants_eof = state is State.CLOSING and not self.wire.frames
        self.ended = state is State.ENDED
        if self.ended:
            self.wire.take()
