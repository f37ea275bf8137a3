"""`LiveConnection`: one native connection, for everything that speaks on it.

It joins the core, the driver and the loop with the facts of the handshake and of the end.
Whatever is queued in the core is flushed by the driver; nothing here asks for that.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.config import NodeConfig
from parley._node.errors import NotTrustedError, PeerClosedError, handshake_error
from parley._node.logs import one_line
from parley._node.metrics.metrics import Metrics
from parley._node.protocol.codes import CloseCode, Supercategory
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import ConnectionClosedError, LocalProtocolError
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from parley._node.remote import access_log as access
from parley._node.remote.remote import Remote
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, wait_within
from parley._node.transport.driver import Driver
from parley._node.transport.loop import Waiter

# How a session ends of which anything was changed on the way, at the end that notices it first.
_GARBLED: Final = (CloseCode.BAD_RECORD, CloseCode.FRAME_TOO_LARGE, CloseCode.PROTOCOL_ERROR)


# Seconds between two measurements, and the largest estimate: a peer that delays its Pongs must not
# be able to use up the time of everything that waits for it.
MEASURE_INTERVAL: Final = 10.0
LARGEST_ROUND_TRIP: Final = 2.0


class RoundTrip:
    """An upper estimate of the round-trip time, and `latest`, the last one measured: in seconds, 0
    until the first measurement."""

    __slots__ = ("_awaited", "_measured", "_sent_at", "_smoothed", "_variation", "latest")

    def __init__(self) -> None:
        self.latest = 0.0
        self._smoothed = 0.0
        self._variation = 0.0
        self._measured = False
        self._sent_at: float | None = None
        self._awaited: int | None = None  # the async id of the Ping that measures it

    @property
    def estimate(self) -> float:
        """The smoothed round-trip time plus four times its variation, at most 2 s."""
        return min(self._smoothed + 4 * self._variation, LARGEST_ROUND_TRIP)

    def is_due(self, now: float) -> bool:
        """Whether to send a Ping: none is unanswered, and the last one was sent 10 s ago."""
        if self._awaited is not None:
            return False
        return self._sent_at is None or now - self._sent_at >= MEASURE_INTERVAL

    def sent(self, async_id: int, now: float) -> None:
        """A Ping was sent to measure it."""
        self._awaited, self._sent_at = async_id, now

    def answered(self, async_id: int, seconds: float) -> None:
        """Take the round-trip time of a Pong, whatever its Ping was sent for."""
        if async_id == self._awaited:
            self._awaited = None
        self.latest = seconds
        if not self._measured:
            self._measured = True
            self._smoothed, self._variation = seconds, seconds / 2
            return
        self._variation += (abs(self._smoothed - seconds) - self._variation) / 4
        self._smoothed += (seconds - self._smoothed) / 8


class Resumer(Protocol):
    """What makes new transports for a session that was dialled here."""

    def begin(self) -> None:
        """The session is parted."""

    def now(self, by: int | None = None) -> None:
        """Make one now, also while it is not; `by` one of several ways."""

    def stop(self) -> None:
        """The session is over."""


class LiveConnection:
    """One connection, from its first byte to its last.

    Attributes:
        remote: the other node, as handlers see it.
        name: the address dialled, or where the connection came from, for the log.
        agreed: what the handshake agreed on, once it is over.
        supercategory: that of what the other side sends, from then on.
        ended: how the connection ended, once it has.
        refused: why we do not trust the other side, or not any more, in the policy's own words.
        gone: whether its transport is closed.
        draining: whether nothing new is taken, since it will be closed.
        rekeys: the number of the last rekey of each direction (received, sent).
        round_trip: the estimated round-trip time, from all Pongs.
        resumes: how often the session went on over a new transport.
        asks_anew: whether a session that the other side says it does not know is put to the proof
            by a new one, and then ends; otherwise it is kept to its time.
        parted_by: why it lost its transport the last time.
        parted_for: how long it was without one the last time, in seconds.
        found_by: the tags under which its node finds the session, should it be dialled again.
        unknown: whether the other side said, unproved, that it does not know the session, which
            is without a transport since.
        redialling: what dials again, if this side dialled and may.
        made_at: when it was made, by the loop's clock.
        became: the session that goes on over the transport of this connection, which was only
            for that.
        changes: notified when one of these changed, after `on_change` was called.
    """

    __slots__ = (
        "_parted_at",
        "agreed",
        "asks_anew",
        "backend",
        "became",
        "changes",
        "config",
        "core",
        "draining",
        "driver",
        "ended",
        "found_by",
        "gone",
        "made_at",
        "metrics",
        "name",
        "on_change",
        "parted_by",
        "parted_for",
        "pings",
        "redialling",
        "refused",
        "rekeys",
        "remote",
        "resumes",
        "round_trip",
        "supercategory",
        "unknown",
    )

    def __init__(
        self,
        core: Connection,
        remote: Remote,
        backend: Backend,
        config: NodeConfig,
        name: str,
        metrics: Metrics,
        on_change: Callable[[], None],
    ) -> None:
        self.core = core
        self.remote = remote
        self.backend = backend
        self.config = config
        self.name = name
        self.metrics = metrics
        self.on_change = on_change
        self.agreed: Agreed | None = None
        self.round_trip = RoundTrip()
        self.supercategory = Supercategory.PEER_TO_PEER
        self.ended: ConnectionEnded | None = None
        self.refused: NotTrustedError | None = None
        self.gone = False
        self.draining = False
        self.rekeys = [0, 0]
        self.changes = Condition(backend.waiter)
        self.resumes = 0
        self.asks_anew = True
        self.parted_by = ""
        self.parted_for = 0.0
        self.found_by: tuple[bytes, ...] = ()
        self.unknown = False
        self.redialling: Resumer | None = None
        self.became: LiveConnection | None = None
        self.made_at = backend.now()
        self._parted_at = 0.0
        self.pings: dict[int, tuple[Waiter, list[float]]] = {}

    def __repr__(self) -> str:
        return f"<LiveConnection {self.name}>"

    def attach(
        self,
        on_reports: Callable[[list[Any]], None],
        next_deadline: Callable[[], float],
        handle_deadline: Callable[[float], None],
        on_closed: Callable[[], None],
    ) -> None:
        """Create the driver, which calls these handlers: the last step of a new connection."""
        self.driver = Driver(
            self.core,
            self.backend,
            on_reports,
            next_deadline,
            handle_deadline,
            on_closed,
            self.config.write_buffer,
        )

    @property
    def node_id(self) -> NodeId | None:
        """The node id that the other side proved; None without encryption."""
        identity = self.agreed.identity if self.agreed else None
        return identity.node_id if identity else None

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The way that its transport takes through a federation (section 19), from the first server
        to the target; empty for a direct one. Only the neighbour in it is proven."""
        return self.driver.path

    @property
    def limits(self) -> Limits:
        """The limits that both sides keep."""
        return self.agreed.limits if self.agreed else self.core.config.limits

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over and the connection is not."""
        return self.agreed is not None and self.ended is None

    @property
    def is_suspended(self) -> bool:
        """Whether it has lost its transport and waits for another."""
        return self.core.is_suspended and self.ended is None

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
        if self.ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self.ended.code, self.ended.text)

    def changed(self) -> None:
        """One of its facts changed."""
        self.on_change()
        self.changes.notify()

    async def room(self, timeout: float | None = None) -> float | None:
        """Wait while too much waits to be written; returns what is left of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        if self.driver.can_send:
            return timeout
        return await wait_within(self.driver.wait_writable, timeout, self.backend.now)

    # Stream 0.

    async def ping(self) -> float:
        """As `Peer.ping`."""
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self.pings[async_id] = waiter, answer
        try:
            await waiter.wait()
        finally:
            self.pings.pop(async_id, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def measure_round_trip(self) -> None:
        """Send a Ping for `round_trip`, unless one is unanswered or was sent within 10 s."""
        now = self.backend.now()
        if self.round_trip.is_due(now):
            with suppress(LocalProtocolError):  # the connection is closed, or too many Pings wait
                self.round_trip.sent(self.core.ping(now), now)

    def pong_received(self, async_id: int, round_trip: float) -> None:
        """A Pong came, after so many seconds."""
        self.round_trip.answered(async_id, round_trip)
        waiting = self.pings.get(async_id)
        if waiting is not None:
            waiting[1].append(round_trip)
            waiting[0].wake()

    async def rekey(self) -> int:
        """As `Peer.rekey`."""
        number = min(self.rekeys) + 1
        try:
            self.core.rekey(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        await self.changes.until(lambda: min(self.rekeys) >= number or not self.is_open)
        if min(self.rekeys) < number:
            raise self.closed_error()
        return number

    def update_keys(self) -> None:
        """As `Peer.update_keys`."""
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error

    # Without a transport, and with another.

    def parted(self, reason: str) -> None:
        """The session lost its transport."""
        self._parted_at = self.backend.now()
        self.metrics.parted += 1
        self.parted_by = reason
        text = one_line(reason)
        told = {"event": "connection.parted", **access.party(self.remote), "reason": text}
        access.logger.info("%s parted: %s", self.remote, text, extra=told)
        if self.redialling is not None:
            self.redialling.begin()
        self.changed()

    def resumed(self) -> None:
        """The session goes on over a new transport."""
        self.resumes += 1
        self.metrics.resumed += 1
        self.unknown = False
        self.parted_for = self.backend.now() - self._parted_at
        told = {
            "event": "connection.resumed",
            **access.party(self.remote),
            "seconds": self.parted_for,
        }
        access.logger.info(
            "%s resumed after %.1f s",
            self.remote,
            self.parted_for,
            extra=told,
        )
        self.changed()

    def redial(self) -> None:
        """As `Peer.redial`."""
        if not self.is_open:
            raise self.closed_error()
        if self.redialling is None or self.core.resumption is None:
            raise LocalProtocolError(
                f"cannot redial {self.name}: only the side that dialled a session can do so, and "
                "only if both sides can resume it"
            )
        self.redialling.now()

    def lost(self, reason: str) -> None:
        """End a session that shall not go on over any transport; the other side is not told."""
        self.core.abort(self.backend.now(), CloseCode.CONNECTION_LOST, reason)
        self.driver.step()

    # Its beginning and its end.

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: a side refused the other. HandshakeError: they could not agree.
        """
        await self.changes.until(
            lambda: self.agreed is not None or self.ended is not None or self.became is not None
        )
        ended = self.ended
        if self.agreed is None and ended is not None:
            raise self.refused or handshake_error(ended.code, ended.text, ended.reason)

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        while self.ended is None:
            await self.changes.until(lambda: self.ended is not None)
        return self.ended

    def drop(self, code: CloseCode) -> None:
        """End a connection that is not wanted any more: a handshake at once and in silence, an open
        connection with Close. Where that was said, it lingers as it would have: should it not be
        out yet, the other side would keep the session for a transport that never comes."""
        now = self.backend.now()
        if self.core.state is State.CLOSING:
            if self.agreed is None:
                self.core.receive_eof(now)  # Reject was said: it need not linger
        else:
            self.core.close(now, code)
        self.driver.step()

    def refuse(self, refusal: NotTrustedError) -> None:
        """The other side is not trusted any more: end now, with a Close where there is a transport,
        and let nobody come back, nor for what is left of a session that is over."""
        self.refused = refusal
        if self.ended is None:
            self.core.refuse_peer(refusal.text, self.backend.now())
            self.driver.step()
        self.changed()

    def connection_ended(self, ended: ConnectionEnded) -> None:
        """The connection is over: nothing answers any more."""
        self.ended = ended
        if ended.code in _GARBLED:
            self.driver.blame()
        if self.redialling is not None:
            self.redialling.stop()
        for waiter, _ in self.pings.values():
            waiter.wake()
