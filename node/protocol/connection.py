"""One connection's core: bytes and time in, bytes and reports out. Does no I/O.

Whatever the other side sends, these methods raise nothing of it; it ends in a report, at
the latest `ConnectionEnded`. What a caller may not do raises LocalProtocolError
(`ConnectionClosedError` where the connection is not open) and changes nothing. `Opening`
does the handshake and makes the `Session`, which does the open connection; this file says
which of them is next. What a caller does is in `Speaker`; ends, and new transports, are in
`Lifetime`.
"""

import sys
from collections.abc import Callable

from parley._crypto.randomness import random_bytes
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.codes import DATA, SIM, STREAM, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    RemoteProtocolError,
    SilenceError,
    check_farewell,
    violation,
)
from parley._node.protocol.frames import FrameReader, sniff_protocol
from parley._node.protocol.handshake import RejectedError, known
from parley._node.protocol.handshake_driver import Opening
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
from parley._node.protocol.resume_attempt import ResumeAttempt
from parley._node.protocol.resumption import (
    NEVER,
    ClosedSession,
    ResumeRequest,
    Resumption,
    spend_mac,
)
from parley._node.protocol.send_queue import SendQueue, Wire
from parley._node.protocol.session import Farewell, Parts, Session
from parley._node.protocol.states import ASKING, HANDSHAKE, LIVE, READING, Signal, State, next_state
from parley._node.protocol.streams import Flow


class Speaker:
    """The caller's side of a connection.

    `answers` is the account of what handlers have made and wait to have written, `unsealed` that of
    events that wait for a seal (`deliver="sealed"`). `happened` is what `reports` will return,
    `dropped` counts the events of the other side that nobody took.
    """

    def __init__(self, config: CoreConfig, state: State, total: MemoryBudget | None) -> None:
        self.config = config
        self.account = MemoryBudget(config.peer_memory, total, SHARE)
        self.answers = MemoryBudget(UNWRITTEN_PART * config.peer_memory, total)
        self.unsealed = MemoryBudget(0, total)  # the limit follows when limits are agreed
        self._state = state
        self.dropped = 0
        self.happened: list[Report] = []
        self.outbox = SendQueue(self.account)
        self.wire = Wire(self.account, self.outbox.waker)
        self._closing: Farewell = (CloseCode.NORMAL, "")
        self.session: Session | None = None

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
        if self.session is None:
            raise LocalProtocolError("there is no chain")
        return self.session.checkpoint()

    @property
    def resumption(self) -> Resumption | None:
        """How the session outlives its transport; None where that was not agreed."""
        return self.session.resumption if self.session else None

    @property
    def holds_back(self) -> bool:
        """Whether it sends less than its transport takes: `resume_buffer` bytes are kept, and
        nothing but events of stream 0 and Opens goes out until the other side tells more."""
        session = self.session
        if session is None or session.resumption is None:
            return False
        kept = session.resumption.kept
        return kept.held >= kept.buffer

    @property
    def memory(self) -> int:
        """Bytes that the connection holds, weighed as memory."""
        kept = self.resumption.kept.uncharged if self.resumption is not None else 0
        return self.account.held + self.answers.held + self.unsealed.held + kept

    def watch_memory(self, on_charge: Callable[[], None] | None) -> None:
        """Call `on_charge` whenever `memory` has grown; None ends that."""
        self.account.on_charge = self.answers.on_charge = self.unsealed.on_charge = on_charge

    # What waits, and what a caller may do.

    @property
    def queued_bytes(self) -> int:
        """Bytes of frames that wait, and of events that wait to be encrypted: their payloads,
        and 64 for each, so that small ones count as what they hold."""
        outbox = self.outbox
        return self.wire.size + outbox.size + EVENT_COST * outbox.count

    @property
    def limits(self) -> Limits:
        """The limits that were agreed; our own before and after."""
        return self.session.mux.limits if self.session else self.config.limits

    @property
    def streams(self) -> Multiplexer:
        """The streams, for what is asked of them alone; raises ConnectionClosedError."""
        return self._open().mux

    def flow(self) -> Flow:
        """Credit and windows of all open streams; none where no connection is open."""
        return self.session.mux.flow() if self.session else Flow({}, 0, 0, 0)

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
        session = self.session
        if session is None or self._state is not State.OPEN:
            session = self._open()
        if category < SIM:
            raise LocalProtocolError(f"events of category {category} are not the caller's")
        mux = session.mux
        return mux.send(stream, async_id, category, subcategory, payload, lbm, seal, releases)

    def send_data(self, stream: int, data: bytes | memoryview, join: int = 0) -> None:
        """Queue 2/5 Data, 1..max_payload bytes, on a stream from 2 up; raises as `send`. A view
        is one of bytes that do not change until they were sent. Data that waits last on the stream
        is made longer instead, up to `join` bytes."""
        if not data or stream < 2:
            size = len(data)
            reason = (
                f"{size} bytes of Data on stream {stream}: at least 1 byte, on stream 2 or above"
            )
            raise LocalProtocolError(reason)
        mux = self._open().mux
        before = self.outbox.extend(stream, data, join) if join else 0
        if before:
            before += EVENT_COST
            mux.expected += (before + len(data)) // READ_ON - before // READ_ON
        else:
            mux.send(stream, 0, STREAM, DATA, data, False, False)

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
        return self.credit(stream) > 0

    def credit(self, stream: int) -> int:
        """What may be sent on `stream`, one from 2 up, in bytes of cost; what waits in the outbox
        is not taken from it yet."""
        return self.session.mux.credit(stream) if self.session is not None else 0

    def consume(self, stream: int, cost: int, count: int = 1) -> None:
        """Give back the `cost` of `count` EventReceived once the application has used them."""
        if cost and self.session is not None:
            self.session.mux.consume(stream, cost, count)

    def free(self, cost: int, count: int = 1) -> None:
        """The caller bounds what it keeps of `count` EventReceived of this `cost` itself: they
        are charged no more. Their credit goes back with `give_back`."""
        if cost and self.session is not None:
            self.session.mux.free(cost, count)

    def give_back(self, stream: int, cost: int) -> None:
        """Give back the `cost` of what was freed once it is used."""
        if cost and self.session is not None:
            self.session.mux.give_back(stream, cost)

    def count_dropped(self, *, charged: bool = True) -> None:
        """Nobody takes an event of the other side. It is `charged` unless the reason is ours: no
        room, or an answer that nobody waits for any more. Beyond the allowance the other side's
        next event ends the connection (`overloaded`)."""
        self.dropped += 1
        if charged and self.session is not None:
            self.session.count_dropped()

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
        if self._state is not State.OPEN or self.session is None:
            raise ConnectionClosedError(self._closing[0], "the connection is not open")
        return self.session


class Lifetime(Speaker):
    """The states of a connection, its transports and its end (see `Connection`)."""

    def __init__(self, config: CoreConfig, initiator: bool, total: MemoryBudget | None) -> None:
        super().__init__(config, State.EXPECT_REPLY if initiator else State.EXPECT_HELLO, total)
        self.initiator = initiator
        # What follows from the state, of which it is asked for every event.
        self._reading = self.wants_data = True
        self._live = self._draining = self.ended = False
        self.unread = self.wants_eof = self.is_parted = False
        self.frames = FrameReader(HANDSHAKE_EVENT_SIZE)
        self._deadline = NEVER  # of the handshake, then of closing, or of being parted
        self.opening: Opening | None = None
        self._attempt: ResumeAttempt | None = None
        self._remains: ClosedSession | None = None

    # Without a transport, and over another.

    @property
    def can_part(self) -> bool:
        """Whether the session could go on over another transport if it lost the one it has."""
        resumption = self.resumption
        return self._live and resumption is not None and resumption.can_part

    def part(self, now: float, reason: str) -> bool:
        """The transport is gone, or not wanted any more; returns whether the session waits for
        another. One that cannot has ended, `connection-lost`."""
        if self.can_part:
            self._part(now, reason)
            if self._draining and not self.initiator:
                self._close_parted(now)
        elif self._state is State.FAREWELL:
            self._go(Signal.END)
        elif self._state is not State.ENDED and not self.is_parted:
            if self.opening is not None:
                reason = self.opening.lost_because(reason)
            self._end(CloseCode.CONNECTION_LOST, reason=reason)
        return self.is_parted

    def attempt(self, now: float) -> ResumeAttempt:
        """The core of one attempt to go on over a new transport, for the initiator. A session
        that has a transport is parted from it; earlier attempts are void.

        Raises:
            ConnectionClosedError: the connection is over. LocalProtocolError: this side, or this
                session, cannot.
        """
        if self.can_part and self.initiator:
            self.part(now, "another transport is wanted")
        resumption = self.resumption
        if self._state in (State.FAREWELL, State.ENDED):
            raise ConnectionClosedError(self._closing[0], "the connection is over")
        if resumption is None or not self.is_parted or not self.initiator:
            reason = f"this session cannot be resumed from here in state {self._state.name}"
            raise LocalProtocolError(reason)
        resume = resumption.next_attempt(self.config.network_key)
        if self._attempt is not None:
            self._attempt.give_up()
        self._attempt = ResumeAttempt(resume, self._resumed, now)
        return self._attempt

    def accept_resume(self, resume: ResumeRequest, now: float) -> bool:
        """The other side asks to go on with this session over a new transport; returns whether
        it does. Otherwise refuse it (section 17); the session may have ended of it."""
        resumption = self.resumption
        if resumption is None or self.initiator:
            spend_mac(resume)
            return False
        count = resumption.find_count(resume)
        if count is None:
            return False
        if not resumption.could_have(resume.received):
            self._fail(violation("a Resume with a position that cannot be"), now)
            return False
        if self._live:
            self._part(now, "the other side came over a new transport")
        self._go_on(resume.received, resumption.accept(resume, count), now)
        return True

    def take_remains(self) -> ClosedSession | None:
        """What the other side may still ask for of a session that was closed here (by the
        responder), once: whoever knows the connection for longer shall not keep it. None if
        there is nothing."""
        remains, self._remains = self._remains, None
        return remains

    def refuse_resume(self, now: float) -> None:
        """The answer to ResumeRequested: there is no such session, or it is not to go on."""
        if self._state is not State.RESUMING:
            raise LocalProtocolError(f"no peer waits to resume in state {self._state.name}")
        self._fail(RemoteProtocolError(CloseCode.UNKNOWN_SESSION, "no such session"), now)

    def hand_over(self) -> bytes:
        """Answer ResumeRequested: the session continues over this transport, and this connection
        ends silently. Return the bytes that followed the Resume."""
        if self._state is not State.RESUMING:
            raise LocalProtocolError(f"no peer waits to resume in state {self._state.name}")
        came = self.frames.rest()
        self.frames.clear()
        self.opening = None
        self._go(Signal.END)
        return came

    def say_last(self, data: bytes, now: float) -> None:
        """The answer to ResumeRequested where the session is closed: `data` of its remains, and no
        more."""
        if self._state is not State.RESUMING:
            raise LocalProtocolError(f"no peer waits to resume in state {self._state.name}")
        self.wire.write(data)
        self._say_farewell(now)
        self._end(CloseCode.NORMAL, reason="the rest of a closed session was sent again")

    def _part(self, now: float, reason: str) -> None:
        session, resumption = known(self.session), known(self.resumption)
        session.part(reason, now)
        self.frames.clear()  # what is not decrypted comes again
        self.is_parted = True
        self._live = self._reading = self.wants_data = self.unread = False
        patience = resumption.closed_patience if self._draining else resumption.patience
        self._deadline = now + patience
        self.happened.append(Suspended(reason))
        self.outbox.waker.changed()

    def _resumed(self, attempt: int, received: int, mac: bytes, now: float) -> bool:
        """A Resumed came; returns whether it is right, and the session goes on."""
        resumption = self.resumption
        if resumption is None or not resumption.is_resumed(attempt, received, mac):
            return False
        resumption.count += 1
        self._attempt = None
        self._go_on(received, b"", now)
        return True

    def _go_on(self, position: int, first: bytes, now: float) -> None:
        known(self.session).resume(position, first, now)
        self.is_parted = False
        self._live = self._reading = self.wants_data = True
        if self._draining:
            self._deadline = now + self.config.close_drain
        self.happened.append(Resumed(known(self.resumption).count))
        self.outbox.waker.changed()

    def _close_parted(self, now: float) -> None:
        """The responder closes without a transport: its remains have the rest."""
        session = known(self.session)
        try:
            flushed = session.flush(sys.maxsize, now)
        except RemoteProtocolError as error:
            self._fail(error, now)
            return
        for frames in flushed:
            self.wire.write(frames)
        self.wire.write(session.close_frames(self._closing, now))
        self._say_farewell(now)
        self._end(*self._closing, reason="closed here without a transport")

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
            resumption = self.resumption
            if self.is_parted and resumption is not None:
                self._deadline = min(self._deadline, now + resumption.closed_patience)
            else:
                self._deadline = now + self.config.close_drain
            self._go(Signal.CLOSE_ASKED)
            if self.is_parted and not self.initiator:
                self._close_parted(now)

    def abort(self, now: float, code: CloseCode, reason: str) -> None:
        """End now: what is queued is dropped; Close or Reject carries `code` if it may be sent."""
        if self._state not in HANDSHAKE and not self._live and not self.is_parted:
            return
        if code < 0:
            self._end(code, reason=reason)
        else:
            self._fail(RemoteProtocolError(code, reason), now)

    # Endings.

    def _violated(self, error: RemoteProtocolError, now: float) -> None:
        """What came may not be; over a new transport it may have come from anybody."""
        session = self.session
        if session is not None and session.channel.trial is not None:
            self._part(now, f"nothing right came over the new transport: {error.reason}")
        else:
            self._fail(error, now)

    def _fail(self, error: RemoteProtocolError, now: float) -> None:
        """A violation, or an end that we decide on: say what the state allows, and end."""
        if isinstance(error, RejectedError):
            self._end(error.code, error.text, remote=True, reason=error.reason)
            return
        farewell = b""
        if self.opening is not None:
            farewell = self.opening.farewell(self._state, error)
        elif self.session is not None and (self._live or self.is_parted):
            farewell = self.session.close_frames((error.code, ""), now)
        if farewell:
            self.wire.write(farewell)
            self._say_farewell(now)
        self._end(error.code, reason=error.reason)

    def _refuse(self, reason: str, now: float) -> None:
        """The peer of a session is not trusted any more: it is told no more than in a handshake,
        and nothing where there is no transport."""
        said = None
        if self._live:
            said = CloseCode.AUTHENTICATION_FAILED
            self.wire.write(known(self.session).close_frames((said, ""), now))
            self._say_farewell(now)
            self._remains = None
        self._end(CloseCode.PEER_NOT_TRUSTED, reason=reason, said=said)

    def _out_of_time(self) -> None:
        """The time is up of a handshake, of a farewell, or without a transport."""
        if self._state is State.FAREWELL:
            self._go(Signal.END)
        elif self._draining:
            self._end(*self._closing, reason="closed here; no new transport came")
        elif self.is_parted:
            self._end(CloseCode.CONNECTION_LOST, reason="no new transport came in time")
        else:
            self._end(CloseCode.TIMEOUT, reason="the handshake took too long")

    def _drained_too_long(self, now: float) -> None:
        """Go on with Close; if the transport takes not even that, end."""
        if self.outbox:
            self.outbox.clear()
            self._deadline = now + CLOSE_LINGER
        else:
            self._end(*self._closing, reason="closed here; the other side does not read")

    def _say_farewell(self, now: float) -> None:
        """Something was said that is the last; without a transport nobody heard it yet."""
        resumption = self.resumption
        if resumption is not None:
            if not self.initiator:
                until = now + resumption.closed_patience
                self._remains = ClosedSession(resumption, self.wire.frames[:], until)
            self.wire.put_first(resumption.kept.take_again(NEVER))
        if not self.is_parted:
            self._go(Signal.SAID_FAREWELL)
            self._deadline = now + CLOSE_LINGER

    def _end(
        self,
        code: int,
        text: str = "",
        *,
        remote: bool = False,
        reason: str,
        said: int | None = None,
    ) -> None:
        """It is over; a farewell that was said may linger. `said` is the code of our Close, where
        that is another."""
        self.is_parted = False
        if self._state is not State.FAREWELL:
            self._go(Signal.END)
        self.frames.clear()
        self.opening = None
        self._closing = code, text
        self.outbox.clear()
        if self._attempt is not None:
            self._attempt.give_up()
        if self.session is not None:
            session, self.session = self.session, None
            # And with it every key. What observes a session repeats its Close.
            session.end(code if said is None else said, text, remote)
        self.happened.append(ConnectionEnded(int(code), text, remote, reason))

    def _go(self, signal: Signal) -> None:
        self._state = state = next_state(self._state, signal)
        self._reading = state in READING and not self.is_parted
        self._live = state in LIVE and not self.is_parted
        self._draining = state is State.DRAINING
        self.unread = self._reading and self.frames.unread
        self.wants_data = self._reading or state is State.FAREWELL
        self.wants_eof = state is State.FAREWELL and not self.wire.frames
        self.ended = state is State.ENDED
        if self.ended:
            self.wire.take()


FLUSH_SIZE = 256 * 1024
# In these nothing of the other side was understood yet.
FIRST = frozenset({State.EXPECT_HELLO, State.EXPECT_REPLY})


class Connection(Lifetime):
    """The sans-IO core of one connection, either side.

    `now` is seconds of any clock that never goes back, the same for all calls. `random`
    gives random bytes of a size. `total` is the account of all connections, if there is one;
    `answers` is that of what handlers have made and wait to have written.

    `wants_data` says whether bytes should be read: not while a peer is being decided on.
    `unread` says that `receive_some(b"")` has something to go on with, `wants_eof` that our
    sending side is to be shut, since the farewell is out. With `ended` the transport is to be
    closed. While `is_parted` there is no transport; what is asked of the session waits for one.
    `happened` is what `reports` will return, `dropped` counts the events of the other side that
    nobody took. `foreign` is what the other side turned out to be, if that is known and no node.
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
        super().__init__(config, initiator, total)
        self.foreign = ""
        self._deadline = now + config.handshake_timeout
        parts = Parts(
            config,
            initiator,
            self.account,
            self.unsealed,
            self.outbox,
            self.wire,
            self.happened,
            observer,
        )
        self.opening = Opening(parts, random(32))

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
            if self._state in ASKING:
                self.frames.feed(data)  # what was under way when `wants_data` fell
            return
        try:
            if self.session is not None:
                farewell = self.session.receive_some(self.frames, data, now)
                if farewell is not None:
                    self._end(*farewell, remote=True, reason="the other side closed")
            elif self.opening is not None:
                self.frames.feed(data)
                event = self._first_event() if self._state in FIRST else self.frames.take()
                if event is not None:
                    self._step(self.opening.receive(self._state, bytes(event)), now)
        except RemoteProtocolError as error:
            self._violated(error, now)
        except LbmDecodeError as malformed:
            self._violated(violation(f"a malformed payload: {malformed}"), now)
        self.unread = self.frames.unread and self._reading

    def _first_event(self) -> bytes | memoryview | None:
        """The first event of the other side, if it is there; raises as `FrameReader.take`."""
        try:
            return self.frames.take()
        except RemoteProtocolError as error:
            self.foreign = sniff_protocol(self.frames.rest())
            if not self.foreign:
                raise
            raise RemoteProtocolError(error.code, f"it is {self.foreign}, not a node") from error

    def receive_eof(self, now: float) -> None:
        """The transport ended: without Close that is never a clean end."""
        self.part(now, "the transport ended without Close")

    # Bytes out.

    def data_to_send(self, now: float, limit: int = FLUSH_SIZE) -> bytes:
        """Encrypt and frame what waits, about `limit` bytes at most; if it is less, nothing
        more may be sent now, and empty is nothing at all."""
        session = self.session
        if session is None or not self._live:
            return b"" if self.is_parted else self._say_rest()
        resumption = session.resumption
        if resumption is not None and resumption.kept.again:
            again = resumption.kept.take_again(limit)
            rest = limit - len(again)
            return again + self.data_to_send(now, rest) if rest > 0 else again
        try:
            out = session.flush(limit, now)
        except RemoteProtocolError as error:
            self._fail(error, now)
            return self._say_rest()
        drained = self._draining and not self.outbox
        if drained:
            out.append(session.close_frames(self._closing, now))
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        if resumption is not None and data:
            kept = resumption.kept  # here and not in a method: it is done for each flush
            kept.chunks.append(data)
            kept.sent = sent = kept.sent + len(data)
            if sent - kept.told > kept.paid:
                kept.added()
        if drained:
            self._say_farewell(now)
            self._end(*self._closing, reason="closed here")
        return data

    def _say_rest(self) -> bytes:
        """What is said outside of a session: the handshake's, and the last word."""
        if self.opening is not None:
            self.opening.say_hello()
        out = self.wire.take()
        self.wants_eof = self._state is State.FAREWELL
        return b"".join(out)

    # Time.

    def next_deadline(self) -> float:
        """When to call `handle_deadline`, in seconds of `now`; infinity for never."""
        session = self.session
        if session is not None and self._live:
            keepalive, channel, resumption = session.keepalive, session.channel, session.resumption
            due = min(keepalive.due, channel.seal_due, channel.keys_due, channel.patience_ends)
            if resumption is not None and resumption.tell_due < due:
                due = resumption.tell_due
            return min(due, self._deadline) if self._draining else due
        return NEVER if self._state is State.ENDED else self._deadline

    def handle_deadline(self, now: float) -> None:
        """Do what is due; calling it too early does nothing."""
        try:
            if self.session is not None and self._live:
                self.session.handle_deadline(now)
                if self._draining and now >= self._deadline:
                    self._drained_too_long(now)
            elif now >= self._deadline and self._state is not State.ENDED:
                self._out_of_time()
        except SilenceError as silence:
            if self.can_part:
                self.part(now, silence.reason)
            else:
                self._fail(silence, now)
        except RemoteProtocolError as error:
            self._fail(error, now)

    # The handshake, and its question.

    def accept_peer(self, now: float) -> None:
        """The answer to PeerIdentified: the peer is trusted; the connection opens. What came
        with its Proof is `unread`."""
        if self._state is not State.DECIDING or self.opening is None:
            raise LocalProtocolError(f"no peer waits to be accepted in state {self._state.name}")
        self._step(self.opening.accept(), now)

    def refuse_peer(self, reason: str, now: float) -> None:
        """The answer to PeerIdentified, or of an open connection at any time: the peer is not
        trusted. `reason` stays here; what waits is dropped, and nobody comes back to it."""
        if self._state is State.DECIDING:
            self._fail(RemoteProtocolError(CloseCode.PEER_NOT_TRUSTED, reason), now)
        elif self.session is not None:
            self._refuse(reason, now)
        else:
            raise LocalProtocolError(f"there is no peer to refuse in state {self._state.name}")

    def _step(self, signal: Signal, now: float) -> None:
        """The handshake went on; where it is over, the connection is open."""
        opening = self.opening
        if opening is not None and opening.agreed is not None:
            self.frames.limit = limit = opening.frame_limit()
            self.session = opening.session(limit, now)
            self.opening = None  # and with it every secret of the handshake
        self._go(signal)
