"""How a connection ends, and how its session outlives a transport.

A session whose transport is gone is parted: it stands as it is until it goes on over another,
or its time is up (docs/protocol.md sections 11 and 17).
"""

import sys

from parley._node.protocol.account import Account
from parley._node.protocol.attempt import Attempt
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LocalProtocolError,
    RemoteProtocolError,
    check_farewell,
    violation,
)
from parley._node.protocol.frames import FrameReader
from parley._node.protocol.handshake import known
from parley._node.protocol.initiator import RejectedError
from parley._node.protocol.limits import CLOSE_LINGER, HANDSHAKE_EVENT_SIZE
from parley._node.protocol.opening import Opening
from parley._node.protocol.remains import Remains
from parley._node.protocol.reports import ConnectionEnded, Parted, Resumed
from parley._node.protocol.resume import ResumeRequest, spend_mac
from parley._node.protocol.resumption import NEVER
from parley._node.protocol.speaker import Speaker
from parley._node.protocol.states import HANDSHAKE, LIVE, READING, Signal, State, next_state


class Lifetime(Speaker):
    """The states of a connection, its transports and its end (see `Connection`)."""

    def __init__(self, config: CoreConfig, initiator: bool, total: Account | None) -> None:
        super().__init__(config, State.EXPECT_REPLY if initiator else State.EXPECT_HELLO, total)
        self.initiator = initiator
        # What follows from the state, of which it is asked for every event.
        self._reading = self.wants_data = True
        self._live = self._draining = self.ended = False
        self.unread = self.wants_eof = self.is_parted = False
        self.frames = FrameReader(HANDSHAKE_EVENT_SIZE)
        self._deadline = NEVER  # of the handshake, then of closing, or of being parted
        self.opening: Opening | None = None
        self._attempt: Attempt | None = None
        self._remains: Remains | None = None

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

    def attempt(self, now: float) -> Attempt:
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
        self._attempt = Attempt(resume, self._resumed, now)
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

    def take_remains(self) -> Remains | None:
        """What the other side may still ask for of a session that was closed here (by the
        responder), once: whoever knows the connection for longer shall not keep it. None if
        there is nothing."""
        remains, self._remains = self._remains, None
        return remains

    def refuse_resume(self, now: float) -> None:
        """The answer to ResumeAsked: there is no such session, or it is not to go on."""
        if self._state is not State.RESUMING:
            raise LocalProtocolError(f"no peer waits to resume in state {self._state.name}")
        self._fail(RemoteProtocolError(CloseCode.UNKNOWN_SESSION, "no such session"), now)

    def hand_over(self) -> bytes:
        """The answer to ResumeAsked: the session goes on over this transport, and this connection
        is over without a word or a report. Returns what came after the Resume."""
        if self._state is not State.RESUMING:
            raise LocalProtocolError(f"no peer waits to resume in state {self._state.name}")
        came = self.frames.rest()
        self.frames.clear()
        self.opening = None
        self._go(Signal.END)
        return came

    def say_last(self, data: bytes, now: float) -> None:
        """The answer to ResumeAsked where the session is closed: `data` of its remains, and no
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
        self.happened.append(Parted(reason))
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
                self._remains = Remains(resumption, self.wire.frames[:], until)
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
