"""One native connection: its core, driver and loop, and facts about its handshake and end."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from parley._crypto.identity import NodeId
from parley._node.config import NodeConfig
from parley._node.errors import NotTrustedError, PeerClosedError, handshake_error
from parley._node.logs import one_line
from parley._node.metrics.metrics import Metrics
from parley._node.protocol.codes import CloseCode, Supercategory, supercategory
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import ConnectionClosedError, LocalError, LocalProtocolError
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.limits import Limits
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from parley._node.remote import access_log as access
from parley._node.remote.remote import Remote
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition, wait_within
from parley._node.transport.driver import Driver, NextDeadline
from parley._node.transport.loop import Waiter
from parley._node.transport.transport import WriteBarrier

# The codes of sessions whose data was modified in transit; which one depends on the side that
# notices it first.
_GARBLED: Final = (CloseCode.BAD_RECORD, CloseCode.FRAME_TOO_LARGE, CloseCode.PROTOCOL_ERROR)


# Seconds between two measurements, and the largest estimate: a peer that delays its Pongs must not
# be able to use up the time of everything that waits for it.
MEASURE_INTERVAL: Final = 10.0
LARGEST_ROUND_TRIP: Final = 2.0


class RoundTrip:
    """An upper estimate of the round-trip time, as in RFC 6298.

    `latest` is the last measurement in seconds, 0 before the first.
    """

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
        """Whether to send a Ping: none is unanswered, and the last was sent 10 s ago."""
        if self._awaited is not None:
            return False
        return self._sent_at is None or now - self._sent_at >= MEASURE_INTERVAL

    def sent(self, async_id: int, now: float) -> None:
        """Note that a Ping was sent."""
        self._awaited, self._sent_at = async_id, now

    def answered(self, async_id: int, seconds: float) -> None:
        """Add the round-trip time of a Pong, whatever its Ping was for."""
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
    """Makes new transports for a session that this side dialled."""

    def begin(self) -> None:
        """Called when the session is suspended."""

    def now(self, by: int | None = None) -> None:
        """Dial now, even if the session has a transport; `by` selects one of several routes."""

    def stop(self) -> None: ...


class LiveConnection:
    """One connection, from its first byte to its last.

    Attributes:
        remote: the other node, as handlers see it.
        name: the dialled address, or the address of an accepted connection, for the log.
        agreed: the result of the handshake, once it has completed.
        supercategory: the supercategory of the other side's events.
        ended: how the connection ended, once it has.
        refused: why the other side is not trusted, or no longer is.
        gone: whether its transport is closed.
        draining: whether new requests are refused because it will be closed.
        rekeys: the number of the last rekey in each direction (received, sent).
        round_trip: the estimated round-trip time, from all Pongs.
        resumes: how often the session was resumed.
        asks_anew: whether to make a new session as a test if the other side doesn't know this
            session; it then ends. Otherwise it is kept until it expires.
        suspended_by: why it last lost its transport.
        suspended_for: for how many seconds it was last suspended.
        found_by: the tags by which the node finds the session when it is resumed.
        unknown: whether the other side claimed, without proof, not to know the suspended session.
        redialling: resumes the session, if this side dialled it and it can be resumed.
        made_at: when it was created, by the loop's clock.
        became: the resumed session that took over the transport of this connection.
        changes: notified when one of these changed, after `on_change` was called with `remote`.
    """

    __slots__ = (
        "_suspended_at",
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
        "pings",
        "redialling",
        "refused",
        "rekeys",
        "remote",
        "resumes",
        "round_trip",
        "supercategory",
        "suspended_by",
        "suspended_for",
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
        on_change: Callable[[Remote], None],
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
        self.suspended_by = ""
        self.suspended_for = 0.0
        self.found_by: tuple[bytes, ...] = ()
        self.unknown = False
        self.redialling: Resumer | None = None  # set by `use_resumer`
        self.became: LiveConnection | None = None
        self.made_at = backend.now()
        self._suspended_at = 0.0
        self.pings: dict[int, tuple[Waiter, list[float]]] = {}

    def __repr__(self) -> str:
        return f"<LiveConnection {self.name}>"

    def attach(
        self,
        on_reports: Callable[[list[Any]], None],
        deadlines: NextDeadline,
        handle_deadline: Callable[[float], None],
        on_closed: Callable[[], None],
        barrier: WriteBarrier,
    ) -> None:
        """Create the driver, which calls these handlers: the last step of a new connection."""
        self.driver = Driver(
            self.core,
            self.backend,
            on_reports,
            deadlines,
            handle_deadline,
            on_closed,
            self.config.write_buffer,
            barrier,
        )

    def handshake_completed(self, agreed: Agreed) -> None:
        """Set the result of the handshake."""
        self.agreed = agreed
        self.supercategory = supercategory(agreed.remote_role, agreed.local_role)

    def transport_closed(self) -> None:
        """Record that the transport is closed for good."""
        self.gone = True

    def use_resumer(self, resumer: Resumer) -> None:
        """Resume the session with `resumer` whenever it is suspended."""
        self.redialling = resumer

    @property
    def node_id(self) -> NodeId | None:
        """The node ID that the peer has proved; None without encryption."""
        identity = self.agreed.identity if self.agreed else None
        return identity.node_id if identity else None

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The node IDs on the path of its transport through a federation (section 19).

        From the first server to the target; empty for a direct connection. Only the neighbour is
        authenticated.
        """
        return self.driver.path

    @property
    def limits(self) -> Limits:
        """The agreed limits."""
        return self.agreed.limits if self.agreed else self.core.config.limits

    @property
    def is_open(self) -> bool:
        """Whether the handshake has completed and the connection has not ended."""
        return self.agreed is not None and self.ended is None

    @property
    def is_suspended(self) -> bool:
        """Whether it has lost its transport and can be resumed."""
        return self.core.is_suspended and self.ended is None

    def closed_error(self) -> PeerClosedError:
        """Return the error for requests after the end."""
        if self.ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self.ended.code, self.ended.text)

    def changed(self) -> None:
        self.on_change(self.remote)
        self.changes.notify()

    async def wait_writable(self, timeout: float | None = None) -> float | None:
        """Wait until the connection can send; return the rest of `timeout`.

        Raises:
            CallTimeout: it took longer.
        """
        if self.driver.can_send:
            return timeout
        return await wait_within(self.driver.wait_writable, timeout, self.backend.now)

    # Stream 0.

    async def ping(self) -> float:
        waiter = self.backend.waiter()
        try:
            async_id = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self.pings[async_id] = waiter, answer
        try:
            await waiter
        finally:
            self.pings.pop(async_id, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def measure_round_trip(self) -> None:
        """Send a Ping for `round_trip`, if one is due."""
        now = self.backend.now()
        if self.round_trip.is_due(now):
            with suppress(LocalError):  # the connection is closed, or too many Pings wait
                self.round_trip.sent(self.core.ping(now), now)

    def pong_received(self, async_id: int, round_trip: float) -> None:
        self.round_trip.answered(async_id, round_trip)
        waiting = self.pings.get(async_id)
        if waiting is not None:
            waiting[1].append(round_trip)
            waiting[0].wake()

    async def rekey(self) -> int:
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
        try:
            self.core.update_keys(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error

    # Suspension and resumption.

    def suspended(self, reason: str) -> None:
        """Record that the session lost its transport."""
        self._suspended_at = self.backend.now()
        self.metrics.suspended += 1
        self.suspended_by = reason
        text = one_line(reason)
        told = {"event": "connection.suspended", **access.party(self.remote), "reason": text}
        access.logger.info("%s suspended: %s", self.remote, text, extra=told)
        if self.redialling is not None:
            self.redialling.begin()
        self.changed()

    def resumed(self) -> None:
        """Record that the session was resumed over a new transport."""
        self.resumes += 1
        self.metrics.resumed += 1
        self.unknown = False
        self.suspended_for = self.backend.now() - self._suspended_at
        told = {
            "event": "connection.resumed",
            **access.party(self.remote),
            "seconds": self.suspended_for,
        }
        access.logger.info(
            "%s resumed after %.1f s",
            self.remote,
            self.suspended_for,
            extra=told,
        )
        self.changed()

    def redial(self) -> None:
        if not self.is_open:
            raise self.closed_error()
        if self.redialling is None or self.core.resumption is None:
            raise LocalProtocolError(
                f"cannot redial {self.name}: only the side that dialled a session can do so, and "
                "only if both sides can resume it"
            )
        self.redialling.now()

    def lost(self, reason: str) -> None:
        """End a session that cannot be resumed, without informing the peer."""
        self.core.abort(self.backend.now(), CloseCode.CONNECTION_LOST, reason)
        self.driver.step()

    # Opening and closing.

    async def opened(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            NotTrustedError: one side does not trust the other.
            HandshakeError: the handshake failed for another reason.
        """
        await self.changes.until(
            lambda: self.agreed is not None or self.ended is not None or self.became is not None
        )
        ended = self.ended
        if self.agreed is None and ended is not None:
            raise self.refused or handshake_error(ended.code, ended.text, ended.reason)

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns how it ended."""
        while self.ended is None:
            await self.changes.until(lambda: self.ended is not None)
        return self.ended

    def drop(self, code: CloseCode) -> None:
        """End a connection: silently during the handshake, otherwise with Close.

        A core that is already closing lingers, so that its Close is sent: otherwise the other side
        would keep the session for a transport that never comes.
        """
        now = self.backend.now()
        if self.core.state is State.CLOSING:
            if self.agreed is None:
                self.core.receive_eof(now)  # After a Reject, it need not linger.
        else:
            self.core.close(now, code)
        self.driver.step()

    def refuse(self, refusal: NotTrustedError) -> None:
        """End the connection because the other side is no longer trusted, and refuse to resume
        it."""
        self.refused = refusal
        if self.ended is None:
            self.core.refuse_peer(refusal.text, self.backend.now())
            self.driver.step()
        self.changed()

    def connection_ended(self, ended: ConnectionEnded) -> None:
        self.ended = ended
        if ended.code in _GARBLED:
            self.driver.blame()
        if self.redialling is not None:
            self.redialling.stop()
        for waiter, _ in self.pings.values():
            waiter.wake()
