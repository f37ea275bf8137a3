"""The handlers of one connection: they receive its events and the reports of the protocol core.

Reports are processed in order. When the connection ends, all pending operations on it end
immediately with its close code, and the reason is logged.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from parley._node.config import NodeConfig
from parley._node.errors import NotTrustedError
from parley._node.handlers.registry import Handlers
from parley._node.handlers.topic import Topic
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.messaging.dispatch import Dispatch
from parley._node.messaging.idempotency import IdempotencyCache
from parley._node.messaging.topics import LABEL
from parley._node.metrics.metrics import Metrics
from parley._node.peer.emitters import InterceptedEmitter, NativeEmitter
from parley._node.peer.request_handlers import RequestHandlers
from parley._node.peer.stream_handlers import StreamHandlers
from parley._node.protocol.codes import CloseCode, code_name
from parley._node.protocol.errors import RemoteProtocolError
from parley._node.protocol.event import Event
from parley._node.protocol.handshake import Agreed
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
    PongReceived,
    Report,
    Resumed,
    ResumeRequested,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    Suspended,
    WindowReceived,
)
from parley._node.remote import access_log as access
from parley._node.remote.access_log import Party
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.session_table import SessionTable
from parley._node.remote.stream_table import StreamTable
from parley._node.transport.backend import Backend
from parley._node.transport.transport import WriteBarrier
from parley._node.trust.decision import OfferChain, TrustDecision
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.policies import ResolvedPolicy

CODES: Final = frozenset(CloseCode)


def direction(live: LiveConnection) -> str:
    """Return `dialled` if this node opened the connection, otherwise `accepted`."""
    return "dialled" if live.core.initiator else "accepted"


def count_handshake(live: LiveConnection, result: str) -> None:
    """Count a completed handshake with its result."""
    metrics = live.metrics
    metrics.handshakes[direction(live), result] += 1
    if result == "ok":
        metrics.handshake_seconds.observe(live.backend.now() - live.made_at)


def count_ending(live: LiveConnection, ended: ConnectionEnded) -> None:
    """Count a connection that ended, as a failed handshake if its handshake was not complete."""
    known = ended.code in CODES
    # Only known codes become metric labels, because the peer chooses the code.
    code = code_name(ended.code) if known else "other"
    if live.agreed is not None:
        live.metrics.ended[code] += 1
    elif live.driver.was_connected:
        count_handshake(live, code)
    else:
        count_handshake(live, "unreachable")


logger = logging.getLogger("parley.peer")

# Rate limit of log lines about unauthenticated peers: burst, then lines per second.
BURST: Final = 100
PER_SECOND: Final = 10


# Rate limit of log lines about other protocols, because a probe repeats without new information.
FOREIGN_BURST: Final = 10
FOREIGN_PER_SECOND: Final = 1 / 60
# How many seconds after the handshake a refusal counts as "not trusted". The responder sends its
# refusal when the session is already open for the dialling node.
REFUSED_WITHIN: Final = 15.0
# The most addresses whose last dial error is stored.
MOST_PLACES: Final = 1_024


class ConnectionLog:
    """Logs how the connections of one node end, one line each.

    Lines about unauthenticated peers are rate-limited; the next line reports how many were left
    out. A failed dial is logged when its reason differs from the last one at the same address.
    """

    __slots__ = ("_failed", "_foreign", "_strangers")

    def __init__(self) -> None:
        self._strangers = RateLimitedLogger(BURST, PER_SECOND)
        self._foreign = RateLimitedLogger(FOREIGN_BURST, FOREIGN_PER_SECOND)
        self._failed: OrderedDict[str, str] = OrderedDict()  # By address; the newest last.

    def ended(
        self,
        who: Party,
        ended: ConnectionEnded,
        now: float,
        *,
        stranger: bool,
        refused: bool = False,
    ) -> None:
        """Log the end of a connection; `stranger` means that the handshake was not completed.

        `refused` means that this node's dial failed; the caller gets an error and `dial_failed`
        logs it. `now` is in seconds of one monotonic clock.
        """
        if stranger and not self._strangers.allows(now):
            return
        self._break_silence()
        quiet = ended.code in (CloseCode.NORMAL, CloseCode.GOING_AWAY)
        # A connection that closes before authentication is usually a port scan, or the command line
        # looking up the ID of a node that it does not know yet.
        looked = stranger and ended.code == CloseCode.CONNECTION_LOST
        level = logging.INFO if quiet or refused or looked else logging.WARNING
        if access.logger.isEnabledFor(level):
            text = one_line(ended.text or ended.reason)
            extra = {
                "event": "handshake.failed" if stranger else "connection.closed",
                **access.party(who),
                "code": int(ended.code),
                "remote": ended.remote,
                "reason": text,
            }
            name = code_name(ended.code)
            access.logger.log(level, "%s ended: %s (%s)", who, name, text, extra=extra)

    def turned_away(self, name: str, reason: str, now: float) -> None:
        """Log that a connection from `name` was closed before any data was exchanged."""
        if self._strangers.allows(now):
            self._break_silence()
            extra = {"event": "connection.turned-away", "address": name, "reason": reason}
            access.logger.warning("rejected a connection from %s: %s", name, reason, extra=extra)

    def met_foreign(self, name: str, what: str, now: float) -> None:
        """Log a connection from `name` that uses another protocol; `what` is, for example, 'an HTTP
        client'.
        """
        text = "%s from %s connected to a native port, which serves only nodes"
        extra = {"event": "connection.foreign", "address": name, "what": what}
        self._foreign.log(access.logger, logging.WARNING, now, text, what, name, extra=extra)

    def dial_failed(self, place: str, why: str, *, refused: bool) -> None:
        """Log a failed dial, at debug level if the last dial there failed for the same reason.

        `refused` means that the other side answered and refused. The caller always gets an error.
        """
        changed = self._failed.pop(place, None) != why
        self._failed[place] = why
        if len(self._failed) > MOST_PLACES:
            self._failed.popitem(last=False)
        level = logging.WARNING if refused else logging.INFO
        logger.log(
            level if changed else logging.DEBUG,
            "connection to %s %s: %s",
            place,
            "was refused" if refused else "failed",
            one_line(why),
            extra={"event": "dial.failed", "address": place, "reason": why},
        )

    def used(self, place: str) -> None:
        """Record that a dial succeeded, so that the next failure at this address is logged."""
        self._failed.pop(place, None)

    def _break_silence(self) -> None:
        if self._strangers.silent:
            left_out = self._strangers.take_left_out()
            access.logger.warning(
                "%d closed connections of unauthenticated peers were not logged",
                left_out,
                extra={"event": "log.rationed", "left_out": left_out},
            )


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The parts of a node that its connections use."""

    backend: Backend
    config: NodeConfig
    handlers: Handlers
    topics: Mapping[str, Topic]
    log: ConnectionLog
    once: IdempotencyCache
    sessions: SessionTable
    metrics: Metrics
    statements: KeyStatements
    offer_chain: OfferChain
    barrier: WriteBarrier  # The transports of the connection wait at this barrier.


class ConnectionHandlers:
    """The handlers of one connection. `dialled` is the dialled peer's name in trust policies."""

    __slots__ = (
        "_emitted",
        "_handlers",
        "_live",
        "_opened",
        "_requests",
        "_sessions",
        "calls",
        "dispatch",
        "emitter",
        "log",
        "streams",
        "topics",
        "trust_decision",
    )

    def __init__(
        self, live: LiveConnection, host: NodeContext, trust: ResolvedPolicy, dialled: str | None
    ) -> None:
        core, handlers = live.core, host.handlers
        self._live = live
        self._opened = 0.0
        self.log = host.log
        self._sessions = host.sessions
        self.trust_decision = TrustDecision(live, trust, dialled, host.statements, host.offer_chain)
        self._requests = requests = RequestHandlers(live, handlers, host.topics, host.once)
        self.calls = calls = requests.calls
        self.topics = requests.topics
        self.streams = StreamTable(live, calls.stream_requests)
        self._handlers = StreamHandlers(live, handlers, self.streams)
        self.emitter = NativeEmitter(live, calls)
        self._emitted = handlers.interceptors.event_out
        self.dispatch = Dispatch(
            core, calls, self.topics, self.streams.receive, self.streams.restricted
        )
        live.attach(
            self.take, calls.deadlines, calls.expire_calls, self.transport_closed, host.barrier
        )

    def emitter_of(self, name: str) -> NativeEmitter:
        """Return the emitter for an event of this name, with interceptors if there are any."""
        if not self._emitted:
            return self.emitter
        return InterceptedEmitter(self._live, self.calls, self._emitted, name)

    def take(self, reports: list[Report]) -> None:
        """Process reports in order."""
        live = self._live
        now = live.backend.now()
        dispatch = self.dispatch
        aborted = False
        for report in reports:
            try:
                if type(report) is not Event:
                    self._take_other(report)
                elif not aborted:
                    dispatch.receive(report, now)
            except RemoteProtocolError as error:
                live.core.abort(now, CloseCode(error.code), error.reason)
                aborted = True
        if self.streams.over:
            self.streams.reports_taken()

    def transport_closed(self) -> None:
        """Record that the transport is closed; no more reports follow."""
        live = self._live
        live.transport_closed()
        # The core did not report the end because of a bug.
        if live.ended is None and live.became is None:
            self._connection_ended(ConnectionEnded(CloseCode.INTERNAL_ERROR, "", False, "a bug"))
        live.changed()

    def _take_other(self, report: Report) -> None:
        live = self._live
        match report:  # The reports that every connection has come first.
            case PeerIdentified():
                self.trust_decision.decide(report)
            case HandshakeCompleted(agreed):
                live.handshake_completed(agreed)
                count_handshake(live, "ok")
                self._opened = live.backend.now()
                self._log_open(agreed)
                live.changed()
            case ConnectionEnded():
                self._connection_ended(report)
            case PongReceived(async_id, round_trip):
                live.pong_received(async_id, round_trip)
            case StreamOpened(stream, label):
                if not (label.startswith(LABEL) and self.topics.stream_opened(stream, label)):
                    self._handlers.opened(stream, label)
            case StreamFinished() | StreamReset() | StreamWritable():
                if not self.topics.changed(report):
                    self.streams.changed(report)
                if isinstance(report, StreamReset):
                    self.calls.incoming.stream_reset(report.stream)
                elif isinstance(report, StreamWritable):
                    self.calls.incoming.stream_writable(report.stream)
            case WindowReceived():
                self.calls.incoming.window_received(report)
            case Suspended(reason):
                live.suspended(reason)
            case Resumed():
                live.resumed()
            case ResumeRequested(resume):
                self._sessions.handle_resume(live, resume)
            case KeysUpdated(sent, _, rekey):
                if rekey:
                    live.rekeys[sent] = rekey
                live.changed()

    def _log_open(self, agreed: Agreed) -> None:
        remote, suite = self._live.remote, agreed.suite
        if not access.logger.isEnabledFor(logging.INFO):
            return
        extra = {
            "event": "connection.opened",
            **access.party(remote),
            "dialled": self._live.core.initiator,
            "role": agreed.remote_role,
            "suite": suite.names() if suite else None,
        }
        access.logger.info("%s open: %s", remote, suite or "UNENCRYPTED", extra=extra)

    def _connection_ended(self, ended: ConnectionEnded) -> None:
        live, code, text = self._live, ended.code, ended.text
        live.connection_ended(ended)
        count_ending(live, ended)
        now, stranger, dialled = live.backend.now(), live.agreed is None, live.core.initiator
        refused = dialled and (stranger or self._not_trusted(ended, now))
        if stranger and live.core.foreign and not dialled:
            self.log.met_foreign(live.name, live.core.foreign, now)
        elif live.driver.was_connected:
            self.log.ended(live.remote, ended, now, stranger=stranger, refused=refused)
        if dialled and not stranger:
            if refused:
                why = str(NotTrustedError(text, code))
                self.log.dial_failed(live.name, why, refused=True)
            else:
                self.log.used(live.name)
        self.trust_decision.stop()
        self._requests.connection_ended()
        self.calls.connection_ended(code, text)
        self.topics.connection_ended(code, text)
        self.streams.connection_ended(code, text)
        live.changed()

    def _not_trusted(self, ended: ConnectionEnded, now: float) -> bool:
        """Whether the responder refused this node after the handshake."""
        said = ended.remote and ended.code == CloseCode.AUTHENTICATION_FAILED
        return said and now - self._opened < REFUSED_WITHIN
