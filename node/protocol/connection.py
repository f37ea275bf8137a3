"""One connection's core: bytes and time in, bytes and reports out. Does no I/O.

Whatever the other side sends, these methods raise nothing of it; it ends in a report, at
the latest `ConnectionEnded`. What a caller may not do raises LocalProtocolError
(`ConnectionClosedError` where the connection is not open) and changes nothing. `Opening`
does the handshake and makes the `Session`, which does the open connection; this file says
which of them is next. What a caller does is in `Speaker`; ends, and new transports, are in
`Lifetime`.
"""

from collections.abc import Callable

from parley._crypto.randomness import random_bytes
from parley._lbm.errors import LbmDecodeError
from parley._node.protocol.account import Account
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    SilenceError,
    violation,
)
from parley._node.protocol.foreigners import foreign_name
from parley._node.protocol.lifetime import Lifetime
from parley._node.protocol.observer import Observer
from parley._node.protocol.opening import Opening
from parley._node.protocol.session import Parts
from parley._node.protocol.states import ASKING, Signal, State

FLUSH_SIZE = 256 * 1024
NEVER = float("inf")
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
        total: Account | None = None,
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
            self.foreign = foreign_name(self.frames.rest())
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
