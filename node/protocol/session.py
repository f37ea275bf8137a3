"""An open connection (`Session`): everything between the handshake and Close."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.protocol.channel import PlainChannel, SecureChannel
from parley._node.protocol.codes import (
    BATCH,
    CLOSE,
    CONNECTION,
    DATA,
    PING,
    PONG,
    RECEIVED,
    RESET,
    SEAL,
    STREAM,
    WINDOW,
    CloseCode,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    LimitReachedError,
    LocalProtocolError,
    RemoteProtocolError,
    SilenceError,
    overloaded,
    too_large,
    violation,
)
from parley._node.protocol.event import NO_PAYLOAD, Event, parse_batch
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.frames import FrameReader
from parley._node.protocol.handshake import Agreed, expect
from parley._node.protocol.keepalive import AWAKE, KeepAlive
from parley._node.protocol.limits import (
    BATCH_SIZE,
    CONNECTION_STREAM_PAYLOAD,
    DROPPED_EVENTS,
    IDLE_EVENTS,
    OWN_PINGS,
    PINGS,
    SILENCE,
    TELL_ALONE,
    TELL_BYTES,
    WAITING_PONGS,
)
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget, unsealed_weight
from parley._node.protocol.multiplexer import Multiplexer
from parley._node.protocol.observer import DirectionState, Observer
from parley._node.protocol.rate_limit import TokenBucket
from parley._node.protocol.record_layer import RecordReader, RecordWriter
from parley._node.protocol.reports import PongReceived, Report
from parley._node.protocol.resumption import NEVER, Resumption
from parley._node.protocol.send_queue import OutgoingEvent, SendQueue, WriteBuffer
from parley._node.protocol.streams import Streams

CloseReason = tuple[int, str]

# The cost of events, after which `receive_some` returns. Short events cost 1 (about 10 us each), 16
# KiB of Data cost 1 more, and so do 512 bytes of a message, because decoding may take as long.
STEP_COST = 16
LONG_DATA_BITS = 14
LONG_MESSAGE_BITS = 9
# Events of category 1 that Received alone doesn't acknowledge. Otherwise two idle sides would
# answer each other forever.
_UNACKNOWLEDGED = frozenset({RECEIVED, PING, PONG, SEAL})


@dataclass(slots=True)  # not frozen, because creating it would take three times as long
class ConnectionParts:
    """The parts of a connection that its handshake and its session use."""

    config: CoreConfig
    initiator: bool
    account: MemoryBudget
    unsealed: MemoryBudget
    outbox: SendQueue
    wire: WriteBuffer
    reports: list[Report]
    observer: Observer | None


class Session:
    """An open connection: its channel and streams, bytes in and out, deadlines, and its transports.

    It exists from the end of the handshake. A violation or timeout is raised, a Close is returned.
    Events wait in the send queue until `flush`, except that events of stream 0 are encrypted
    immediately. `streams` outlives the session.
    """

    __deletable__ = ("channel",)  # for the compiled class: `end` deletes it, and with it the keys

    def __init__(
        self,
        parts: ConnectionParts,
        agreed: Agreed,
        directions: tuple[RecordWriter, RecordReader] | None,
        resumption: Resumption | None,
        control_buffer: int,
        now: float,
    ) -> None:
        config, outbox, reports = parts.config, parts.outbox, parts.reports
        observer, account = parts.observer, parts.account
        self._now = now
        self._initiator = parts.initiator
        self._outbox = outbox
        self._wire = parts.wire
        self._reports = reports
        self._observer = observer
        outbox.batch_size = min(BATCH_SIZE, agreed.limits.max_payload)
        # With deliver="sealed", reports of the streams wait here for a seal.
        self._held = reports if config.deliver == "opened" or directions is None else []
        self.drops = TokenBucket(DROPPED_EVENTS)
        self._flooded = False
        self._pings = TokenBucket(PINGS)
        self._idle = TokenBucket(IDLE_EVENTS)
        self._unsealed = parts.unsealed
        self._unsealed.limit = unsealed_weight(agreed.limits)
        self.control_buffer = control_buffer
        self.unwritten = 0  # bytes of Pongs, Windows and Resets that the transport hasn't accepted
        self.resumption = resumption
        self._pongs_waiting = 0
        self.keepalive = KeepAlive(now, config.idle_before_ping, config.ping_timeout)
        self.streams = Streams(parts.initiator, agreed.limits.max_streams, account)
        self.secure: SecureChannel | None = None
        self.channel: SecureChannel | PlainChannel = PlainChannel()
        if directions is not None:
            if observer is not None:
                observer.session_started(agreed, parts.initiator, self.checkpoint)
            self.channel = self.secure = SecureChannel(
                config, agreed, *directions, parts.initiator, reports, observer, now
            )
            directions[1].open_streams(self.streams.admit)
        self.mux = Multiplexer(
            config,
            agreed.limits,
            self.streams,
            outbox,
            self.control,
            self._forget,
            self._held,
            reports,
            account,
        )

    def begin(self) -> None:
        """As the responder, acknowledge, so that the peer knows that the session exists."""
        if self.resumption is not None and not self._initiator:
            self._acknowledge(self.resumption, 0, self._now)

    # Received events.

    def receive_some(self, frames: FrameReader, data: bytes, now: float) -> CloseReason | None:
        """Process a few events, or one costly one (sealed or long); the others stay in `frames`.
        Return code and text of a Close.

        Raises:
            RemoteProtocolError: the peer violated the protocol.
            LbmDecodeError: a payload is malformed.
        """
        self._now = self.keepalive.heard = now
        if self.keepalive.stage != AWAKE:
            self.keepalive.received(now)
        channel, mux = self.channel, self.mux
        before, left, closed, owed = frames.size + len(data), STEP_COST, None, False
        frames.feed(data)
        while frames.unread:
            encrypted = frames.take()
            if encrypted is None:
                break
            event, seal = channel.decrypt(encrypted)
            sealed = seal is not None
            if sealed or channel.tapped:
                channel.event_decrypted(event, encrypted, sealed)
            if self._flooded:
                raise _flood()
            count = 1
            stream, category, subcategory = event.stream, event.category, event.subcategory
            size = len(event.payload)
            if stream:
                channel.used = owed = True
                if subcategory == BATCH and category == STREAM:
                    count = self._batch_received(event)
                elif not mux.receive(event):
                    self.count_dropped()
            else:
                closed = self._receive_control(event, sealed)
                owed = owed or subcategory not in _UNACKNOWLEDGED or category != CONNECTION
            if self._held is not self._reports:
                self._hold(count, size, sealed)
            if self.unwritten > self.control_buffer:
                raise overloaded(
                    f"the peer does not read our answers: {self.unwritten} bytes are waiting"
                )
            if sealed and self.secure is not None:
                left = 0  # a signature was verified
            is_data = subcategory == DATA and category == STREAM
            left -= count + (len(encrypted) >> (LONG_DATA_BITS if is_data else LONG_MESSAGE_BITS))
            if closed is not None or left <= 0:
                break
        patience_ends = channel.patience_ends
        if frames.unread or patience_ends == NEVER or now > patience_ends:
            channel.was_read(now, frames.unread)
        resumption = self.resumption
        if resumption is not None:
            resumption.received = received = resumption.received + before - frames.size
            if owed and resumption.tell_due == NEVER:
                resumption.tell_due = now + TELL_ALONE
            if received - resumption.told >= TELL_BYTES and closed is None:
                self._acknowledge(resumption, received, now)
        return closed

    def _batch_received(self, batch: Event) -> int:
        """Process the events of a Batch as if they were received separately; return their
        number.
        """
        receive, size = self.mux.receive, len(batch.payload)
        if size > self.mux.limits.max_payload:
            raise too_large(f"a payload of {size} bytes")
        events = parse_batch(batch)
        for event in events:
            if self._flooded:
                raise _flood()
            if not receive(event):
                self.count_dropped()
        return len(events)

    def _hold(self, count: int, size: int, sealed: bool) -> None:
        """Charge for events that wait for a seal, or report all of them. `seal_events` limits their
        number, so a correct peer doesn't exceed the budget.
        """
        unsealed = self._unsealed
        if sealed:
            self._reports.extend(self._held)
            self._held.clear()
            unsealed.release(unsealed.held)
        else:
            unsealed.charge(size + EVENT_WEIGHT * count)

    # Sent events.

    def flush(self, limit: int, now: float) -> list[bytes]:
        """Return frames for the transport, about `limit` bytes at most."""
        self._now = now
        self._pongs_waiting = self.unwritten = 0
        mux, channel, outbox, wire = self.mux, self.channel, self._outbox, self._wire
        resumption = self.resumption
        if resumption is not None and (outbox.turns or wire.frames):
            # Add Received only to other events, because on its own it would need a seal.
            if (
                now >= resumption.ride_at
                and resumption.received > resumption.told
                and (outbox.turns or channel.seal_due != NEVER)
            ):
                self._acknowledge(resumption, resumption.received, now)
            kept = resumption.kept
            if kept.sent - kept.told + wire.size + limit > kept.buffer:
                limit = kept.writable(wire.size)
        out = wire.take() if wire.frames else []
        while outbox.turns and limit > 0:
            events = outbox.take(limit)
            frames = channel.encrypt(events, now)
            out += frames
            for framed in frames:
                limit -= len(framed)
            for event in events:
                if event.category == STREAM or event.stream in mux.watched:
                    mux.event_encrypted(event)
        if channel.seals_flushes:
            out.append(channel.flush_seal(now))
        return out

    def close_frames(self, closed: CloseReason, now: float) -> bytes:
        """Return the sealed Close, which is the last event."""
        code, text = closed
        cells: dict[int, Value] = {keys.CODE: code}
        if text:
            cells[keys.TEXT] = text
        close = OutgoingEvent(0, 0, CONNECTION, CLOSE, encode(cells), True)
        return b"".join(self.channel.encrypt((close,), now))

    def update_keys(self, now: float) -> None:
        """Send a plain KeyUpdate.

        Raises:
            LimitReachedError: more than 32 in a burst, and then one every 2 s.
        """
        self._wire.write(self._encrypted().update_keys(now))

    def rekey(self, now: float) -> None:
        self._wire.write(self._encrypted().rekey(now))

    def checkpoint(self) -> tuple[DirectionState, DirectionState]:
        if self.secure is None:
            raise LocalProtocolError("cannot return a checkpoint: the connection is not encrypted")
        return self.secure.checkpoint()

    def end(self, code: int, text: str, remote: bool) -> None:
        """Free all keys now. The session and its multiplexer refer to each other, so the keys would
        otherwise exist until the garbage collector runs.
        """
        if self._observer is not None and self.secure is not None:
            self._observer.session_ended(code, text, remote)
        if self.resumption is not None:
            self.resumption.kept.end()
        self.mux.end()
        self._unsealed.release(self._unsealed.held)
        self.secure = None
        del self.channel

    # Deadlines.

    def handle_deadline(self, now: float) -> None:
        """Do the work that is due: Pings, seals, key updates and rekeys.

        Raises:
            RemoteProtocolError: the peer missed a deadline.
        """
        self._now = now
        keepalive = self.keepalive
        if keepalive.expired(now):
            silent = keepalive.silent_for(now)
            raise SilenceError(
                CloseCode.TIMEOUT, f"no data from the peer for {silent:.0f} s, not even a Pong"
            )
        if keepalive.rest_due(now):
            keepalive.rests()
            if self.secure is not None:
                self.secure.drop_idle_keys()
        if keepalive.probe_due(now):
            keepalive.probe_sent(now)
            # If 64 Pings of the application are unanswered, they serve the same purpose.
            async_id = keepalive.new_ping(now)
            if async_id is not None:
                # Seal it, because a separate Seal would cost as much again.
                self.control(OutgoingEvent(0, async_id, CONNECTION, PING, NO_PAYLOAD, True))
        try:
            self._wire.write(self.channel.handle_deadline(now))
        except RemoteProtocolError as error:
            if keepalive.silent_for(now) < SILENCE:
                raise
            raise SilenceError(error.code, error.reason) from error
        resumption = self.resumption
        if resumption is not None and now >= resumption.tell_due:
            self._acknowledge(resumption, resumption.received, now, seal=True)

    # Loss of the transport, and resumption over another one.

    def suspend(self, reason: str, now: float) -> None:
        expect(self.resumption).kept.transport_lost()
        expect(self.secure).transport_lost(now)
        if self._observer is not None:
            self._observer.session_suspended(reason)

    def resume(self, position: int, first: bytes, now: float) -> None:
        """Continue over a new transport: send `first`, then all bytes from `position` on. New
        frames begin with Received, so that the peer soon gets an event that proves the transport.
        """
        resumption = expect(self.resumption)
        resumption.kept.rewind(position, first)
        self.keepalive.received(now)
        expect(self.secure).resume(now)
        self._now = now
        self._acknowledge(resumption, resumption.received, now)
        if self._observer is not None:
            self._observer.session_resumed(resumption.count)

    # Events of stream 0.

    def control(self, event: OutgoingEvent) -> None:
        """Encrypt an event of stream 0, or an Open, immediately."""
        frames = b"".join(self.channel.encrypt((event,), self._now))
        self._wire.write(frames)
        if not event.stream and (event.category == STREAM or event.subcategory == PONG):
            self.unwritten += len(frames)

    def ping(self, now: float) -> int:
        """Send a Ping; return its async ID.

        Raises:
            LimitReachedError: 64 Pings are unanswered, or more than 8,192 were sent in a burst,
                and then 512 per second.
        """
        self._now = now
        async_id = self.keepalive.new_ping(now)
        if async_id is None:
            raise LimitReachedError(
                f"cannot send Ping: {WAITING_PONGS} unanswered, or more than {OWN_PINGS.burst:g}"
            )
        self.control(OutgoingEvent(0, async_id, CONNECTION, PING, NO_PAYLOAD))
        return async_id

    def _acknowledge(
        self, resumption: Resumption, position: int, now: float, *, seal: bool = False
    ) -> None:
        """Send Received for `position`; `seal` it if no other event follows."""
        resumption.position_acknowledged(now, position)
        payload = encode({keys.RECEIVED: position})
        self.control(OutgoingEvent(0, 0, CONNECTION, RECEIVED, payload, seal))

    def _receive_control(self, event: Event, sealed: bool) -> CloseReason | None:
        category, subcategory, payload = event.category, event.subcategory, event.payload
        if len(payload) > CONNECTION_STREAM_PAYLOAD:
            raise too_large(f"{len(payload)} bytes of payload on stream 0")
        if category == CONNECTION and subcategory in (PING, PONG, SEAL):
            if payload != NO_PAYLOAD:
                raise violation(
                    f"{len(payload)} bytes of payload in event 1/{subcategory}; it must be empty"
                )
            self._without_payload(subcategory, event.async_id, sealed)
            return None
        kind = EVENT_TYPES.get(category << 8 | subcategory)
        if category > STREAM or kind is None or kind.cells is None:
            raise violation(f"event {category}/{subcategory} on stream 0")
        cells = kind.cells.read(payload)
        if category == STREAM:
            self._stream_control(subcategory, cells)
        elif subcategory == RECEIVED and self.resumption is not None:
            if not self.resumption.kept.told_more(cells[keys.RECEIVED]):
                self._count_idle("too many Received that acknowledge few bytes")
        elif subcategory == CLOSE:
            return cells[keys.CODE], cells.get(keys.TEXT, "")
        else:
            self._wire.write(self.channel.control(subcategory, cells, self._now))
        return None

    def _without_payload(self, subcategory: int, async_id: int, sealed: bool) -> None:
        if subcategory == PONG:
            round_trip = self.keepalive.pong(async_id, self._now)
            if round_trip is not None:
                self._reports.append(PongReceived(async_id, round_trip))
            else:
                self._count_idle("too many Pongs without a Ping")
        elif subcategory == SEAL:
            self.channel.control(subcategory, {}, self._now)
        elif not self._pings.take(self._now):
            raise overloaded(f"too many Pings: more than {PINGS.burst:g} at once")
        elif async_id:
            # Answer a sealed Ping with a sealed Pong, so that neither side has to send a separate
            # Seal.
            self.control(OutgoingEvent(0, async_id, CONNECTION, PONG, NO_PAYLOAD, sealed))
            self._pongs_waiting += 1
            if self._pongs_waiting > WAITING_PONGS:
                raise overloaded(f"{self._pongs_waiting} Pongs wait; at most {WAITING_PONGS}")

    def _stream_control(self, subcategory: int, cells: Mapping[int, Any]) -> None:
        mux = self.mux
        if subcategory == WINDOW:
            mux.window_received(cells)
        elif subcategory == RESET:
            mux.reset_received(cells)
        else:
            raise violation(f"event 2/{subcategory} on stream 0")
        if mux.expected:
            mux.expected -= 1
        else:
            self._count_idle("too many unnecessary Windows and Resets")

    def _count_idle(self, what: str) -> None:
        if not self._idle.take(self._now):
            raise overloaded(what)

    def count_dropped(self) -> None:
        """Count an event that no handler consumed. Above the rate limit, the peer's next event is
        `overloaded`.
        """
        self._flooded = not self.drops.take(self._now)

    def _forget(self, stream: int, sent: bool) -> None:
        self.channel.forget(stream, sent=sent)

    def _encrypted(self) -> SecureChannel:
        if self.secure is None:
            raise LocalProtocolError("cannot change keys: the connection is not encrypted")
        return self.secure


def _flood() -> RemoteProtocolError:
    return overloaded("too many events without a handler")
