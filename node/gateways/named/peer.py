"""`NamedPeer`: the other side of a connection with byte-exact named events, either way.

One rule: the handlers are those that native peers meet, and what they say goes out as the
crate's own handlers would say it. A handler runs to its end although its connection is
over, as there: who emits an event and leaves has been heard.
"""

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from lbm.codec import Encodable
from node.dialects.limits import NamedLimits
from node.dialects.named.codec import BromineEvent, Flavour
from node.dialects.named.core import NamedCore
from node.gateways.guest import Guest
from node.gateways.named.ports import NamedEmitter, NamedReplies, on_wire
from node.handlers.registry import Entry, Handlers
from node.handlers.running import FAILED, Outcome, run_handler
from node.messaging.finals import cut, error_text, event_code
from node.messaging.formats import FormatError, FormatName
from node.messaging.payloads import FormattedPayload, Payload, Tandem, make_payload
from node.protocol.account import Account
from node.protocol.codes import ResultCode
from node.protocol.errors import LocalProtocolError, PayloadTooLargeError
from node.protocol.reports import ConnectionEnded
from node.remote.emission import Emission
from node.remote.named_event import NamedEvent
from node.transport.backend import Backend
from node.transport.loop import Runner

logger = logging.getLogger("parley.gateway")


class NamedPeer(Guest):
    """Who is connected. `ignored` counts its events for which there is no handler;
    `format` is what our events and replies are in unless told.

    `on_over` is called once its transport is closed and no handler of it runs.
    """

    dialect: ClassVar[str] = "named events"

    def __init__(
        self,
        backend: Backend,
        name: str,
        handlers: Handlers,
        *,
        flavour: Flavour,
        format: FormatName,
        limits: NamedLimits,
        on_over: Callable[["NamedPeer"], None],
        total: Account | None = None,
    ) -> None:
        self._named = NamedCore(backend.now(), limits, flavour, total)
        super().__init__(
            self._named, backend, name, on_gone=self._look, violations=handlers.violations
        )
        self.driver.high_water = limits.write_buffer
        self._named.take_turns(self._wait_for_turn)
        self.format = format
        self.ignored = 0
        self.draining = False
        self._handlers = handlers
        self._emitter = NamedEmitter(self, self._named)
        self._on_over = on_over
        self._runners: dict[int, Runner] = {}
        self._begun: set[int] = set()  # those of them that run

    @property
    def flavour(self) -> Flavour:
        """Which of the two formats it speaks."""
        return self._named.flavour

    @property
    def running(self) -> int:
        """How many of its events handlers have."""
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

        `format` is what the data travels in, by default that of the connection; `raw`
        takes bytes as they are, a Tandem two payloads. What is raised, and when:
        `Emission`.

        Raises:
            FormatError: there is no such format, or data that is no bytes for `raw`.
        """
        payload = make_payload(data, format or self.format)
        return Emission(self._emitter, name, namespace, payload)

    async def drained(self) -> None:
        """Wait until no handler has an event of it."""
        await self._changes.until(lambda: not self._runners)

    def stop_handlers(self) -> None:
        """Cancel the handlers of its events."""
        for key, runner in list(self._runners.items()):
            runner.cancel()
            if key not in self._begun:
                del self._runners[key]  # on asyncio it never begins, so it has no end either

    # From the core.

    def _take(self, report: BromineEvent, now: float) -> None:
        entry = self._handlers.find_event(report.namespace, report.name)
        if entry is None:
            self.ignored += 1
            self._answer(report, ResultCode.ACCEPTED, None)
        elif entry.supercategories is not None:
            # They are pairs of roles, and nobody here has said its role.
            self._answer(report, ResultCode.WRONG_SUPERCATEGORY, None)
        elif self.draining:
            self._answer(report, ResultCode.OVERLOADED, None)
        else:
            self._runners[id(report)] = self.backend.spawn(self._serve, entry, report)

    def _lost(self, ended: ConnectionEnded) -> None:
        """Emissions were told by the core; handlers go on."""

    def _wait_for_turn(self) -> None:
        self.backend.soon(self._take_turn)

    def _take_turn(self) -> None:
        self._named.go_on(self.backend.now())
        self.driver.settle()

    def _look(self, _: Guest) -> None:
        if self.is_gone and not self._runners:
            self._on_over(self)

    # Handlers.

    async def _serve(self, entry: Entry[Any], event: BromineEvent) -> None:
        self._begun.add(id(event))
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NamedReplies(self, self._named, event)
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
        """Say what a handler returned or how it failed, if that must be without what has no
        form."""
        core, now, unsent = self._named, self.backend.now(), self._handlers.unsent
        try:
            if code == ResultCode.ACCEPTED:
                try:
                    returned = None if data is None else on_wire(make_payload(data, self.format))
                    core.finish(event, returned, now)
                    return
                except FormatError:
                    text = "what %r returned has no form"
                    unsent.log(logger, logging.ERROR, now, text, event.name, exc_info=True)
                    code, data = FAILED
                except PayloadTooLargeError:
                    text = "what %r returned is too large"
                    unsent.log(logger, logging.WARNING, now, text, event.name)
                    code, data = ResultCode.PAYLOAD_TOO_LARGE, None
            text = data if isinstance(data, str) else error_text(code)
            core.fail(event, event_code(code), cut(text), now)
        except LocalProtocolError:  # the connection is over
            core.release(event, now)
