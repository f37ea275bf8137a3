"""`Guest`: the other side of a connection in a foreign dialect, as handlers meet it.

One rule: nobody proved who it is, so no right that is given to a node id or role is its;
only what travels over a native connection's stream is known to come from that peer.
Knows no dialect: what can be asked of it is what its dialect adds.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from crypto.identity import NodeId
from crypto.registry import Suite
from lbm.codec import Encodable, Value
from node.dialects.core import NEVER, ForeignCore
from node.errors import NotSpokenError, PeerClosedError
from node.logs import LogRation
from node.messaging.formats import FormatName
from node.messaging.payloads import Payload, Tandem
from node.protocol.codes import CloseCode
from node.protocol.reports import ConnectionEnded
from node.remote.emission import Emission
from node.transport.backend import Backend
from node.transport.driver import Driver
from node.transport.waiting import Changes

if TYPE_CHECKING:
    from node.peer.peer import Peer

logger = logging.getLogger("parley.gateway")

_VIOLATIONS = frozenset({CloseCode.PROTOCOL_ERROR, CloseCode.FRAME_TOO_LARGE})


class Guest(ABC):
    """One connection in a foreign dialect, either side of it.

    `name` says where it comes from or leads to, for the log. `carrier` is the native peer
    over one of whose streams it runs, or None. `on_gone` is called when its transport is
    closed. If it breaks the format, the log has a warning, within the ration of `violations`:
    an operator learns why a program is hung up on. `deadlines` are those of the layer above
    the core: when the next is, and what handles it.
    """

    dialect: ClassVar[str]
    # Bytes after which is looked whether others should have their turn: some fifty calls.
    # A flood of 250 KiB would have them wait for 1,500.
    turn_size: ClassVar[int] = 8 * 1024

    def __init__(
        self,
        core: ForeignCore,
        backend: Backend,
        name: str,
        *,
        carrier: "Peer | None" = None,
        on_gone: Callable[["Guest"], None] | None = None,
        violations: LogRation | None = None,
        deadlines: tuple[Callable[[], float], Callable[[float], None]] | None = None,
    ) -> None:
        self.backend = backend
        self.name = name
        self.carrier = carrier
        self._core = core
        self._on_gone = on_gone
        self._violations = violations
        self._ended: ConnectionEnded | None = None
        self._gone = False
        self._changes = Changes(backend.waiter)
        next_deadline, handle_deadline = deadlines or (_never, _nothing)
        self.driver = Driver(core, backend, self._take_all, next_deadline, handle_deadline)
        self.driver.turns.size = self.turn_size
        self.driver.on_closed = self._transport_closed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # Who it is, in the words of `Peer`.

    @property
    def node_id(self) -> NodeId | None:
        """That of the native peer which carries it; None for who just connected."""
        return self.carrier.node_id if self.carrier is not None else None

    @property
    def encrypted(self) -> bool:
        """Whether a native connection carries it, encrypted."""
        return self.carrier is not None and self.carrier.encrypted

    @property
    def role(self) -> str:
        """What the other side claims to be: nothing, in these dialects."""
        return self.carrier.role if self.carrier is not None else ""

    @property
    def info(self) -> Mapping[str, Value]:
        """What the other side says of itself."""
        return self.carrier.info if self.carrier is not None else {}

    @property
    def suite(self) -> Suite | None:
        """The algorithms of the native connection that carries it; None without one."""
        return self.carrier.suite if self.carrier is not None else None

    @property
    def is_open(self) -> bool:
        """Whether the connection is not over."""
        return self._ended is None

    @property
    def is_gone(self) -> bool:
        """Whether its transport is closed."""
        return self._gone

    # What to ask of it, as of `Peer`: a dialect has some of it.

    async def call(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = None,
        headers: Mapping[str, Encodable] | None = None,
    ) -> Value:
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

    # Its life.

    async def closed(self) -> ConnectionEnded:
        """Wait for the end of the connection; returns why it ended."""
        await self._changes.until(lambda: self._ended is not None)
        assert self._ended is not None
        return self._ended

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """End it: what is queued goes first; returns when the transport is closed. `code`
        and `text` are for our own side: no dialect carries them."""
        self._core.close(self.backend.now(), code, text)
        self.driver.settle()
        await self._changes.until(lambda: self._gone)

    def begin_close(self) -> None:
        """End it once what is queued is written, without waiting for that."""
        self._core.close(self.backend.now(), CloseCode.GOING_AWAY)
        self.driver.settle()

    def drop(self) -> None:
        """End it now, whatever waits."""
        self._core.abort(self.backend.now(), CloseCode.GOING_AWAY, "dropped by us")
        self.driver.settle()

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be asked any more."""
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
        """Close; by an exception without waiting for it."""
        if exc_type is None:
            await self.close()
        else:
            self.drop()

    # For the dialects.

    @abstractmethod
    def _take(self, report: Any, now: float) -> None:
        """Take one report of the core that is not its end."""

    @abstractmethod
    def _lost(self, ended: ConnectionEnded) -> None:
        """The connection is over: whoever waits on it must know, handlers are stopped."""

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
            if ended.code in _VIOLATIONS and self._violations is not None:
                now, why = self.backend.now(), ended.reason or ended
                self._violations.log(logger, logging.WARNING, now, "%s ended: %s", self, why)
            else:
                logger.info("%s ended: %s", self, ended.reason or ended)
            self._lost(ended)
            self._changes.notify()

    def _transport_closed(self) -> None:
        self._gone = True
        self._end(ConnectionEnded(CloseCode.INTERNAL_ERROR, "", False, "a bug"))
        if self._on_gone is not None:
            self._on_gone(self)
        self._changes.notify()


def _never() -> float:
    return NEVER


def _nothing(now: float) -> None:
    return
