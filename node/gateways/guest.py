"""The other side of a connection in a foreign dialect, as handlers see it.

A guest is unauthenticated, so it never has permissions that were granted to a node ID or a role. If
the connection runs over a native stream, the guest is identified by the native peer.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from parley._crypto.identity import NodeId
from parley._crypto.registry import Suite
from parley._lbm.codec import Encodable, Value
from parley._node.data_types import Model
from parley._node.dialects.core import NEVER, ForeignCore
from parley._node.errors import NotSpokenError, PeerClosedError
from parley._node.logs import RateLimitedLogger
from parley._node.messaging.formats import FormatName
from parley._node.messaging.payloads import Payload, Tandem
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote import access_log as access
from parley._node.remote.emission import Emission
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.remote import Remote
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Condition
from parley._node.transport.driver import HIGH_WATER, Driver

_VIOLATIONS = frozenset({CloseCode.PROTOCOL_ERROR, CloseCode.FRAME_TOO_LARGE})


class Guest(ABC):
    """The other side of one connection in a foreign dialect, client or server.

    `name` is the dialled address, or the address that the connection came from. `carrier` is the
    native peer whose stream carries the connection, or None; `carried_by` is that peer's
    connection. `on_gone` is called when the transport is closed. Violations of the format are
    logged as warnings, rate-limited by `violations`, so that an operator learns why a program was
    disconnected.
    """

    dialect: ClassVar[str]
    # Bytes to process, about fifty calls, before other connections get a turn. With a flood of 250
    # KiB they would wait for 1,500 calls.
    turn_size: ClassVar[int] = 8 * 1024

    def __init__(
        self,
        core: ForeignCore,
        backend: Backend,
        name: str,
        *,
        carrier: LiveConnection | None = None,
        on_gone: Callable[["Guest"], None] | None = None,
        violations: RateLimitedLogger | None = None,
        high_water: int = HIGH_WATER,
    ) -> None:
        self.backend = backend
        self.name = name
        self.carried_by = carrier
        self.carrier: Remote | None = None if carrier is None else carrier.remote
        self._core = core
        self._on_gone = on_gone
        self._violations = violations
        self._ended: ConnectionEnded | None = None
        self._gone = False
        self._changes = Condition(backend.waiter)
        self.driver = Driver(
            core,
            backend,
            self._take_all,
            self,
            self._handle_deadline,
            self._transport_closed,
            high_water,
        )
        self.driver.reads.size = self.turn_size

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __str__(self) -> str:
        return f"guest {self.name}"

    # The guest's identity, with the attributes of `Peer`.

    @property
    def node_id(self) -> NodeId | None:
        """The node ID of the native peer that carries the connection, or None."""
        return self.carrier.node_id if self.carrier is not None else None

    @property
    def path(self) -> tuple[NodeId, ...]:
        """The route of the native connection that carries this one; empty without one."""
        return self.carrier.path if self.carrier is not None else ()

    @property
    def encrypted(self) -> bool:
        """Whether an encrypted native connection carries it."""
        return self.carrier is not None and self.carrier.encrypted

    @property
    def role(self) -> str:
        """The role that the carrier claims; empty without a carrier."""
        return self.carrier.role if self.carrier is not None else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """Application data from the carrier's handshake; empty without a carrier."""
        return self.carrier.info if self.carrier is not None else {}

    @property
    def suite(self) -> Suite | None:
        """The algorithms of the native connection that carries it, or None."""
        return self.carrier.suite if self.carrier is not None else None

    @property
    def is_open(self) -> bool:
        """Whether the connection has not ended."""
        return self._ended is None

    @property
    def is_gone(self) -> bool:
        """Whether the transport is closed."""
        return self._gone

    # Requests, with the methods of `Peer`; each dialect supports some of them.

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic; raises NotSpokenError in a dialect without calls."""
        raise NotSpokenError(self.dialect, "calls")

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event; raises NotSpokenError in a dialect without events."""
        raise NotSpokenError(self.dialect, "named events")

    # The end of the connection.

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection and return how it ended."""
        await self._changes.until(lambda: self._ended is not None)
        assert self._ended is not None
        return self._ended

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then close the connection and its transport.

        `code` and `text` are not sent, because the dialects have no message for them.
        """
        self._core.close(self.backend.now(), code, text)
        self.driver.step()
        await self._changes.until(lambda: self._gone)

    def begin_close(self) -> None:
        """End the connection once queued data is written, without waiting."""
        self._core.close(self.backend.now(), CloseCode.GOING_AWAY)
        self.driver.step()

    def drop(self) -> None:
        """End the connection now and discard queued data."""
        self._core.abort(self.backend.now(), CloseCode.GOING_AWAY, "dropped by this side")
        self.driver.step()

    def closed_error(self) -> PeerClosedError:
        """Return the error that requests raise after the end."""
        if self._ended is None:
            return PeerClosedError(CloseCode.NORMAL, "the connection is closing")
        return PeerClosedError(self._ended.code, self._ended.text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """Close the connection; after an exception, without waiting."""
        if exc_type is None:
            await self.close()
        else:
            self.drop()

    # Subclasses implement these.

    @abstractmethod
    def _take(self, report: Any, now: float) -> None:
        """Process one report of the core other than its end."""

    @abstractmethod
    def _lost(self, ended: ConnectionEnded) -> None:
        """Handle the end of the connection: wake waiting tasks, and stop handlers."""

    @property
    def earliest(self) -> float:
        """When to call `_handle_deadline`."""
        return NEVER

    def _handle_deadline(self, now: float) -> None:
        return

    def _take_all(self, reports: list[Any]) -> None:
        now = self.backend.now()
        for report in reports:
            if isinstance(report, ConnectionEnded):
                self._end(report)
            else:
                self._take(report, now)

    def _end(self, ended: ConnectionEnded) -> None:
        if self._ended is None:
            self._ended = ended
            broke = ended.code in _VIOLATIONS and self._violations is not None
            extra = {
                "event": "guest.misbehaved" if broke else "guest.closed",
                **access.party(self),
                "dialect": self.dialect,
                "code": int(ended.code),
            }
            text, why = "%s ended: %s", ended.reason or ended
            if broke and self._violations is not None:
                now, log = self.backend.now(), self._violations.log
                log(access.logger, logging.WARNING, now, text, self, why, extra=extra)
            else:
                access.logger.info(text, self, why, extra=extra)
            self._lost(ended)
            self._changes.notify()

    def _transport_closed(self) -> None:
        self._gone = True
        self._end(ConnectionEnded(CloseCode.INTERNAL_ERROR, "", False, "a bug"))
        if self._on_gone is not None:
            self._on_gone(self)
        self._changes.notify()
