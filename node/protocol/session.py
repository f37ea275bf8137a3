"""An open connection: channel, streams and keep-alive, and the events of stream 0.

One rule: it begins when the handshake is over and knows nothing of how; what ends it is
raised (a violation, a time-out) or returned (Close). Stream 0's own events are encrypted
at once into `Wire`, all others when `flush` gives them their turn.
"""

from collections.abc import Mapping
from typing import Any

from lbm import keys
from lbm.codec import Value, encode
from node.protocol.account import EVENT_WEIGHT, FRAMES_WEIGHT, Account
from node.protocol.allowance import Allowance
from node.protocol.channel import SecureChannel
from node.protocol.codes import (
    CLOSE,
    CONNECTION,
    PING,
    PONG,
    RESET,
    SEAL,
    STREAM,
    WINDOW,
    CloseCode,
)
from node.protocol.config import CoreConfig
from node.protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    overloaded,
    too_large,
    violation,
)
from node.protocol.event import NO_PAYLOAD, Event
from node.protocol.event_types import EVENT_TYPES
from node.protocol.handshake import Agreed
from node.protocol.keepalive import KeepAlive
from node.protocol.limits import (
    CONNECTION_STREAM_PAYLOAD,
    CONTROL_BUFFER,
    DROPPED_EVENTS,
    IDLE_EVENTS,
    PINGS,
    STREAM_CONTROL_BUFFER,
    WAITING_PONGS,
)
from node.protocol.multiplexer import Multiplexer
from node.protocol.observer import Observer
from node.protocol.outbox import Outbox
from node.protocol.plain_channel import Channel, PlainChannel
from node.protocol.reports import PongReceived, Report
from node.protocol.sealing import Receiver, Sender
from node.protocol.streams import Streams
from node.protocol.waker import Waker

Farewell = tuple[int, str]


class Wire:
    """Frames that are ready and wait for the transport, charged to `account`."""

    __slots__ = ("_account", "_waker", "frames", "size")

    def __init__(self, account: Account, waker: Waker) -> None:
        self._account = account
        self._waker = waker
        self.frames: list[bytes] = []
        self.size = 0

    def write(self, frames: bytes) -> None:
        """Add frames; empty bytes are nothing."""
        if frames:
            self.frames.append(frames)
            self.size += len(frames)
            self._account.charge(len(frames) + FRAMES_WEIGHT)
            self._waker.changed()

    def take(self) -> list[bytes]:
        """All frames, which are gone from here."""
        if not self.frames:
            return []
        frames, size = self.frames, self.size
        self.frames, self.size = [], 0
        self._account.release(size + FRAMES_WEIGHT * len(frames))
        return frames


class Session:
    """What is done between the handshake and the farewell. `verified` says that the last
    event was sealed, so that a signature was verified."""

    def __init__(
        self,
        config: CoreConfig,
        agreed: Agreed,
        directions: tuple[Sender, Receiver] | None,
        streams: Streams,
        initiator: bool,
        wire: Wire,
        outbox: Outbox,
        reports: list[Report],
        observer: Observer | None,
        account: Account,
        now: float,
    ) -> None:
        self._now = now
        self.verified = False
        self._wire = wire
        self._outbox = outbox
        self._unread = 0  # bytes of Windows and Resets that the transport has not taken
        self._reports = reports
        # With deliver="sealed" the streams' reports wait here for a seal.
        self._held = reports if config.deliver == "opened" or directions is None else []
        self._pings = Allowance(PINGS)
        self._idle = Allowance(IDLE_EVENTS)
        self._dropped = Allowance(DROPPED_EVENTS)
        self._flooded = False
        self._held_weight = 0
        self._account = account
        self._keepalive = KeepAlive(now, config.idle_before_ping, config.ping_timeout)
        self.secure: SecureChannel | None = None
        self._channel: Channel = PlainChannel()
        if directions is not None:
            self.secure = SecureChannel(
                config, agreed, *directions, initiator, reports, observer, now
            )
            self._channel = self.secure
        self.mux = Multiplexer(
            config,
            agreed.limits,
            streams,
            outbox,
            self.control,
            self._forget,
            self._held,
            reports,
            account,
        )

    # Events in.

    def reading_began(self, now: float) -> None:
        """Bytes came."""
        self._now = now
        self._keepalive.received(now)
        self._channel.reading_began(now)

    def reading_ended(self, now: float) -> None:
        """All that came has been read."""
        self._channel.reading_ended(now)

    def receive(self, data: bytes | memoryview) -> Farewell | None:
        """Take one event from the wire; returns code and text of a Close.

        Raises:
            RemoteProtocolError, LbmDecodeError: the connection is over.
        """
        event, vouched = self._channel.open(data)
        self.verified = vouched and self.secure is not None
        if self._flooded:
            raise overloaded("too many events that nobody takes")
        farewell = None
        wire = self._wire
        waiting = wire.size
        if event[0]:
            if not self.mux.receive(event):
                self.count_dropped()
        else:
            farewell = self._control_received(event)
        if self._held is not self._reports:
            self._hold(len(event[4]), vouched)
        answered = CONTROL_BUFFER < wire.size > waiting
        # What is owed to its streams is mostly written later, when its event was handled.
        if answered or self._unread > STREAM_CONTROL_BUFFER:
            raise overloaded("it makes us answer and does not read")
        return farewell

    def _hold(self, size: int, vouched: bool) -> None:
        """Charge for an event that waits for a seal, or hand on all that did."""
        account = self._account
        if vouched:
            self._reports.extend(self._held)
            self._held.clear()
            account.release(self._held_weight)
            self._held_weight = 0
            return
        self._held_weight += size + EVENT_WEIGHT
        account.charge(size + EVENT_WEIGHT)
        if account.held > account.limit:
            raise overloaded("too much waits for a seal")

    # Events out.

    def control(self, event: Event) -> None:
        """Encrypt and queue an event of stream 0, or an Open, at once."""
        frames = self._channel.protect(*event, False, self._now)
        self._wire.write(frames)
        if event.category == STREAM and not event.stream:
            self._unread += len(frames)

    def flush(self, limit: int, now: float) -> list[bytes]:
        """Frames for the transport, about `limit` bytes at most."""
        self._now = now
        self._keepalive.pongs_waiting = self._unread = 0
        out = self._wire.take()
        mux, protect = self.mux, self._channel.protect
        take, turns, watched = self._outbox.take, self._outbox.turns, mux.watched
        size = 0
        while turns and size < limit:
            waiting = take()
            if waiting is None:
                break
            stream, async_id, category, subcategory, payload, _, seal, _ = waiting
            frames = protect(stream, async_id, category, subcategory, payload, seal, now)
            if category == STREAM or stream in watched:
                mux.taken(waiting)
            out.append(frames)
            size += len(frames)
        last = self._channel.flush_seal(now)
        if last:
            out.append(last)
        return out

    def close_frames(self, farewell: Farewell, now: float) -> bytes:
        """Close, sealed; nothing may be encrypted after it."""
        code, text = farewell
        cells: dict[int, Value] = {keys.CODE: code}
        if text:
            cells[keys.TEXT] = text
        return self._channel.protect(0, 0, CONNECTION, CLOSE, encode(cells), True, now)

    def ping(self, now: float) -> int:
        """Send a Ping; returns its async id.

        Raises:
            LocalProtocolError: 64 Pings are unanswered, or there were too many lately.
        """
        self._now = now
        async_id = self._keepalive.new_ping(now)
        if async_id is None:
            raise LocalProtocolError("too many Pings")
        self.control(Event(0, async_id, CONNECTION, PING, NO_PAYLOAD))
        return async_id

    def update_keys(self, now: float) -> None:
        """A plain KeyUpdate of our direction."""
        self._wire.write(self._encrypted().update_keys(now))

    def rekey(self, now: float) -> None:
        """Offer a rekey."""
        self._wire.write(self._encrypted().rekey(now))

    def end(self) -> None:
        """The connection is over: free every key now.

        Session and multiplexer know each other, and would keep the keys until the garbage
        collector finds them. Nothing can be encrypted any more, nor sent in plain.
        """
        self.mux.end()
        self._account.release(self._held_weight)
        self.secure = None
        del self._channel

    # Time.

    def deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return min(self._keepalive.deadline(), self._channel.deadline())

    def handle_deadline(self, now: float) -> None:
        """Pings, seals, key updates and rekeys that became due.

        Raises:
            RemoteProtocolError: the other side took too long.
        """
        self._now = now
        keepalive = self._keepalive
        if keepalive.expired(now):
            raise RemoteProtocolError(CloseCode.TIMEOUT, "nothing came, not even a Pong")
        if keepalive.probe_due(now):
            keepalive.probe_sent(now)
            # With 64 Pings of the application unanswered those do as well.
            async_id = keepalive.new_ping(now)
            if async_id is not None:
                self.control(Event(0, async_id, CONNECTION, PING, NO_PAYLOAD))
        self._wire.write(self._channel.handle_deadline(now))

    # Stream 0.

    def _control_received(self, event: Event) -> Farewell | None:
        _, async_id, category, subcategory, payload = event
        if len(payload) > CONNECTION_STREAM_PAYLOAD:
            raise too_large(f"{len(payload)} bytes of payload on stream 0")
        if category == CONNECTION and subcategory in (PING, PONG, SEAL):
            if payload != NO_PAYLOAD:
                raise violation("a payload where there is none")
            self._without_payload(subcategory, async_id)
            return None
        kind = EVENT_TYPES.get(category << 8 | subcategory)
        if category > STREAM or kind is None or kind.cells is None:
            raise violation(f"event {category}/{subcategory} on stream 0")
        cells = kind.cells.read(payload)
        if category == STREAM:
            self._stream_control(subcategory, cells)
        elif subcategory == CLOSE:
            return cells[keys.CODE], cells.get(keys.TEXT, "")
        else:
            self._wire.write(self._channel.control(subcategory, cells, self._now))
        return None

    def _without_payload(self, subcategory: int, async_id: int) -> None:
        keepalive = self._keepalive
        if subcategory == PONG:
            round_trip = keepalive.pong(async_id, self._now)
            if round_trip is not None:
                self._reports.append(PongReceived(async_id, round_trip))
            else:
                self._count_idle("Pongs without a Ping")
        elif subcategory == SEAL:
            self._channel.control(subcategory, {}, self._now)
        elif not self._pings.take(self._now):
            raise overloaded("too many Pings")
        elif async_id:
            self.control(Event(0, async_id, CONNECTION, PONG, NO_PAYLOAD))
            keepalive.pongs_waiting += 1
            if keepalive.pongs_waiting > WAITING_PONGS:
                raise overloaded("too many Pongs wait")

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
            self._count_idle("Windows and Resets without a reason")

    def _count_idle(self, what: str) -> None:
        if not self._idle.take(self._now):
            raise overloaded(what)

    # Small things.

    def count_dropped(self) -> None:
        """Nobody takes an event of the other side; with too many of them its next one is
        `overloaded`, so that this can be said anywhere."""
        self._flooded = not self._dropped.take(self._now)

    def _forget(self, stream: int, sent: bool) -> None:
        self._channel.forget(stream, sent=sent)

    def _encrypted(self) -> SecureChannel:
        if self.secure is None:
            raise LocalProtocolError("an unencrypted connection has no keys")
        return self.secure
