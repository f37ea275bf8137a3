"""`NamedPeer`: the other side of a connection with byte-exact named events, client or server.

The handlers are those that serve native peers; what they return is sent as the crate's own
handlers would send it. As there, a handler runs to its end even if its connection is over: an
event counts although its emitter has left.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from parley._lbm.codec import Encodable
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, Flavour
from parley._node.dialects.named.core import NamedCore
from parley._node.errors import ConfigError
from parley._node.gateways.guest import Guest
from parley._node.gateways.named.ports import NamedEmitter, NamedReplies, on_wire
from parley._node.handlers.registry import Entry, Handlers
from parley._node.handlers.running import FAILED, Outcome, run_handler
from parley._node.messaging.finals import cut, error_text, event_code
from parley._node.messaging.formats import FormatError, FormatName
from parley._node.messaging.payloads import FormattedPayload, Payload, Tandem, make_payload
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded
from parley._node.remote.emission import Emission
from parley._node.remote.named_event import NamedEvent
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.gateway")


FlavourName = Flavour | Literal["plain", "typed"]
FORMATS: Final[tuple[FormatName, ...]] = ("msgpack", "json", "raw")


@dataclass(frozen=True, slots=True)
class NamedTerms:
    """What one side brings to a connection: the `handlers` for events of the other side, the
    `format` of our events and replies unless told, and `limits`."""

    handlers: Handlers
    flavour: Flavour
    format: FormatName
    limits: DialectLimits

    @classmethod
    def of(
        cls,
        handlers: Handlers,
        flavour: FlavourName,
        format: FormatName,
        limits: DialectLimits | None,
    ) -> "NamedTerms":
        """Check what a user gave.

        Raises:
            ConfigError: there is no such flavour, or the crate has no such format.
        """
        try:
            known = Flavour(flavour)
        except ValueError:
            raise ConfigError(f"the flavours are plain and typed, not {flavour!r}") from None
        if format not in FORMATS:
            raise ConfigError(f"the formats are {', '.join(FORMATS)}, not {format!r}")
        return cls(handlers, known, format, limits or DialectLimits())


class NamedPeer(Guest):
    """The other side. `ignored` counts its events without a handler.

    `on_over` is called once its transport is closed and none of its handlers runs.
    """

    dialect: ClassVar[str] = "named events"

    def __init__(
        self,
        backend: Backend,
        name: str,
        terms: NamedTerms,
        *,
        on_over: Callable[["NamedPeer"], None] | None = None,
        total: MemoryBudget | None = None,
    ) -> None:
        self._named = NamedCore(backend.now(), terms.limits, terms.flavour, total)
        violations = terms.handlers.violations
        super().__init__(self._named, backend, name, on_gone=self._look, violations=violations)
        self.driver.high_water = terms.limits.write_buffer
        self._named.take_turns(self._wait_for_turn)
        self.format = terms.format
        self.ignored = 0
        self.draining = False
        self._handlers = terms.handlers
        self.emitter = NamedEmitter(self, self._named)
        self._on_over = on_over
        self._runners: dict[int, Runner] = {}
        self._begun: set[int] = set()  # those of them that run

    @property
    def flavour(self) -> Flavour:
        """Which of the two formats it speaks."""
        return self._named.flavour

    @property
    def running(self) -> int:
        """How many of its events have a handler that runs."""
        return self._named.running

    def emit(
        self,
        name: str,
        data: Encodable | Tandem | Payload = None,
        *,
        namespace: str = "",
        format: FormatName | None = None,
    ) -> Emission:
        """Emit a named event: `await` it, or ask it for its `reply()` or `replies()`.

        `format` is the format of the data, by default that of the connection; `raw` takes
        bytes as they are, a Tandem two payloads. `Emission` says what else is raised, and when.

        Raises:
            FormatError: there is no such format, or `raw` was given something other than bytes.
        """
        payload = make_payload(data, format or self.format)
        return Emission(self.emitter, name, namespace, payload)

    async def drained(self) -> None:
        """Wait until none of its events has a handler that runs."""
        await self._changes.until(lambda: not self._runners)

    def stop_handlers(self) -> None:
        """Cancel the handlers of its events."""
        for key, runner in list(self._runners.items()):
            runner.cancel()
            if key not in self._begun:
                del self._runners[key]  # on asyncio it never begins, so it never ends

    # From the core.

    def _take(self, report: BromineEvent, now: float) -> None:
        entry = self._handlers.find_event(report.namespace, report.name)
        if entry is None:
            self.ignored += 1
            self._answer(report, ResultCode.ACCEPTED, None)
        elif entry.supercategories is not None:
            # Supercategories are pairs of roles, and guests have none.
            self._answer(report, ResultCode.WRONG_SUPERCATEGORY, None)
        elif self.draining:
            self._answer(report, ResultCode.OVERLOADED, None)
        else:
            self._runners[id(report)] = self.backend.spawn(self._serve, entry, report)

    def _lost(self, ended: ConnectionEnded) -> None:
        """The core told the emissions; handlers go on."""

    def _wait_for_turn(self) -> None:
        self.backend.soon(self._take_turn)

    def _take_turn(self) -> None:
        self._named.go_on(self.backend.now())
        self.driver.settle()

    def _look(self, _: Guest) -> None:
        if self.is_gone and not self._runners and self._on_over is not None:
            self._on_over(self)

    # Handlers.

    async def _serve(self, entry: Entry[Any], event: BromineEvent) -> None:
        self._begun.add(id(event))
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NamedReplies(self, self._named, event, self.format)
        payload = FormattedPayload(event.data)
        try:
            outcome = await run_handler(
                entry,
                NamedEvent(self, event.name, event.namespace, payload, port),
                self,
                event.name,
                self._handlers.roles,
                port.send_all,
            )
        finally:
            # Also when it was cancelled: typed, each event gets its one End or Error.
            self._begun.discard(id(event))
            self._runners.pop(id(event), None)
            self._answer(event, *outcome)
            self.driver.settle()
            if self.draining:
                self._changes.notify()
            if self._gone:
                self._look(self)

    def _answer(self, event: BromineEvent, code: int, data: Any) -> None:
        """Send what a handler returned, or how it failed; a value without a form is a failure."""
        core, now, unsent = self._named, self.backend.now(), self._handlers.unsent
        try:
            if code == ResultCode.ACCEPTED:
                try:
                    returned = None if data is None else on_wire(make_payload(data, self.format))
                    core.finish(event, returned, now)
                    return
                except FormatError:
                    text = "what %r returned has no form"
                    unsent.log(
                        logger,
                        logging.ERROR,
                        now,
                        text,
                        event.name,
                        exc_info=True,
                        extra={"event": "answer.unsent", "topic": event.name},
                    )
                    code, data = FAILED
                except PayloadTooLargeError:
                    text = "what %r returned is too large"
                    unsent.log(
                        logger,
                        logging.WARNING,
                        now,
                        text,
                        event.name,
                        extra={"event": "answer.unsent", "topic": event.name},
                    )
                    code, data = ResultCode.PAYLOAD_TOO_LARGE, None
            text = data if isinstance(data, str) else error_text(code)
            core.fail(event, event_code(code), cut(text), now)
        except LocalProtocolError:  # the connection is over
            core.release(event, now)
