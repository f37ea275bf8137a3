"""Stream 0 of an open connection: what the two sides say about it, and not over it.

Pings and Pongs, seals and new keys, credit and resets, how much was taken, and Close. Whatever is
said here is encrypted at once.
"""

from collections.abc import Mapping
from typing import Any

from parley._lbm import keys
from parley._lbm.codec import encode
from parley._node.protocol.allowance import Allowance
from parley._node.protocol.channel import PlainChannel, SecureChannel
from parley._node.protocol.codes import (
    CLOSE,
    CONNECTION,
    PING,
    PONG,
    RECEIVED,
    RESET,
    SEAL,
    STREAM,
    WINDOW,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import LocalProtocolError, overloaded, too_large, violation
from parley._node.protocol.event import NO_PAYLOAD, Event
from parley._node.protocol.event_types import EVENT_TYPES
from parley._node.protocol.keepalive import KeepAlive
from parley._node.protocol.limits import (
    CONNECTION_STREAM_PAYLOAD,
    IDLE_EVENTS,
    OWN_PINGS,
    PINGS,
    WAITING_PONGS,
)
from parley._node.protocol.multiplexer import Multiplexer
from parley._node.protocol.outbox import OutgoingEvent, Wire
from parley._node.protocol.reports import PongReceived, Report
from parley._node.protocol.resumption import Resumption

Farewell = tuple[int, str]


class StreamZero:
    """The events of stream 0, in and out. `Session` adds all others; `mux` has their streams."""

    # At the end of a session its channel goes, and a compiled class has to know that it may.
    __deletable__ = ("channel",)

    mux: Multiplexer

    def __init__(
        self,
        config: CoreConfig,
        wire: Wire,
        reports: list[Report],
        resumption: Resumption | None,
        now: float,
    ) -> None:
        self._now = now
        self._wire = wire
        self.unwritten = 0  # bytes of Pongs, Windows and Resets that the transport has not taken
        self._reports = reports
        self._pings = Allowance(PINGS)
        self._idle = Allowance(IDLE_EVENTS)
        self.resumption = resumption
        self.keepalive = KeepAlive(now, config.idle_before_ping, config.ping_timeout)
        self.channel: SecureChannel | PlainChannel = PlainChannel()

    # Out.

    def control(self, event: OutgoingEvent) -> None:
        """Encrypt and queue an event of stream 0, or an Open, at once."""
        frames = b"".join(self.channel.protect((event,), self._now))
        self._wire.write(frames)
        if not event.stream and (event.category == STREAM or event.subcategory == PONG):
            self.unwritten += len(frames)

    def ping(self, now: float) -> int:
        """Send a Ping; returns its async id.

        Raises:
            LocalProtocolError: 64 Pings are unanswered, or there were more than 8,192 at once
                and 512 a second.
        """
        self._now = now
        async_id = self.keepalive.new_ping(now)
        if async_id is None:
            raise LocalProtocolError(
                f"too many Pings: {WAITING_PONGS} unanswered, or more than {OWN_PINGS.burst:g}"
            )
        self.control(OutgoingEvent(0, async_id, CONNECTION, PING, NO_PAYLOAD))
        return async_id

    def _tell(
        self, resumption: Resumption, position: int, now: float, *, seal: bool = False
    ) -> None:
        """Say how much was taken; with `seal` nothing follows that would seal it."""
        resumption.tell(now, position)
        payload = encode({keys.RECEIVED: position})
        self.control(OutgoingEvent(0, 0, CONNECTION, RECEIVED, payload, seal))

    # In.

    def _control_received(self, event: Event, vouched: bool) -> Farewell | None:
        _, async_id, category, subcategory, payload = event
        if len(payload) > CONNECTION_STREAM_PAYLOAD:
            raise too_large(f"{len(payload)} bytes of payload on stream 0")
        if category == CONNECTION and subcategory in (PING, PONG, SEAL):
            if payload != NO_PAYLOAD:
                raise violation(
                    f"{len(payload)} bytes of payload in event 1/{subcategory}, which has none"
                )
            self._without_payload(subcategory, async_id, vouched)
            return None
        kind = EVENT_TYPES.get(category << 8 | subcategory)
        if category > STREAM or kind is None or kind.cells is None:
            raise violation(f"event {category}/{subcategory} on stream 0")
        cells = kind.cells.read(payload)
        if category == STREAM:
            self._stream_control(subcategory, cells)
        elif subcategory == RECEIVED and self.resumption is not None:
            if not self.resumption.kept.told_more(cells[keys.RECEIVED]):
                self._count_idle("positions that are little more than before")
        elif subcategory == CLOSE:
            return cells[keys.CODE], cells.get(keys.TEXT, "")
        else:
            self._wire.write(self.channel.control(subcategory, cells, self._now))
        return None

    def _without_payload(self, subcategory: int, async_id: int, vouched: bool) -> None:
        keepalive = self.keepalive
        if subcategory == PONG:
            round_trip = keepalive.pong(async_id, self._now)
            if round_trip is not None:
                self._reports.append(PongReceived(async_id, round_trip))
            else:
                self._count_idle("Pongs without a Ping")
        elif subcategory == SEAL:
            self.channel.control(subcategory, {}, self._now)
        elif not self._pings.take(self._now):
            raise overloaded(f"too many Pings: more than {PINGS.burst:g} at once")
        elif async_id:
            # A seal for a seal, so that neither side waits to send one alone.
            self.control(OutgoingEvent(0, async_id, CONNECTION, PONG, NO_PAYLOAD, vouched))
            keepalive.pongs_waiting += 1
            if keepalive.pongs_waiting > WAITING_PONGS:
                raise overloaded(f"{keepalive.pongs_waiting} Pongs wait; at most {WAITING_PONGS}")

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
