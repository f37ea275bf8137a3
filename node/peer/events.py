"""The named events of one native peer, both ways (section 10).

Runs an application's handlers for the peer's events: one whose emitter waits gets exactly one End
or Error, whatever its handler does. Our own events are sent by `NativeEmitter`, and by
`InterceptedEmitter` where interceptors run around that.
"""

from collections.abc import AsyncGenerator
from typing import Any, Final

from parley._lbm.codec import is_large
from parley._node.errors import ParleyError, PeerClosedError
from parley._node.handlers.interceptors import Chain, Intercepted
from parley._node.handlers.invoke import (
    TURN_SIZE,
    Outcome,
    run_handler,
    run_items,
    send_items,
    send_part,
)
from parley._node.handlers.registry import Entry, Handlers
from parley._node.messaging.formats import FormatName
from parley._node.messaging.named_events import NO_HANDLER, IncomingEmit, OutgoingEmit
from parley._node.messaging.payloads import Payload, make_payload
from parley._node.messaging.requests import Calls
from parley._node.peer.answers import SLICE, Answers
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.errors import ConnectionClosedError, LocalProtocolError
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.requests import NamedEvent
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import turn_of

# What natively a handler's replies are in.
NATIVE_FORMAT: Final[FormatName] = "lbm"


class EventHandlers:
    """The handlers of named events, for one peer."""

    __slots__ = ("_answers", "_handlers", "_live")

    def __init__(self, live: LiveConnection, handlers: Handlers, answers: Answers) -> None:
        self._live = live
        self._handlers = handlers
        self._answers = answers

    def find(self, namespace: str, name: str) -> Entry[Any] | ResultCode:
        """The handler that an event may run, or the code that refuses the event."""
        if self._live.path and not self._handlers.exported(name):
            return self._refused(name, ResultCode.NOT_AUTHORISED)
        entry = self._handlers.find_event(namespace, name)
        if entry is None:
            return NO_HANDLER
        if not entry.takes(self._live.supercategory):
            return self._refused(name, ResultCode.WRONG_SUPERCATEGORY)
        return self._refused(name, ResultCode.OVERLOADED) if self._live.draining else entry

    def _refused(self, name: str, code: ResultCode) -> ResultCode:
        now = self._live.backend.now()
        log_refused(self._handlers.refused, self._live.remote, "event", name, code, now)
        return code

    def run(self, emit: IncomingEmit) -> None:
        """Run the handler that `find` found for an event."""
        self._live.driver.to_begin.append((self._serve, emit))

    async def _serve(self, emit: IncomingEmit) -> None:
        if emit.answered:
            return  # nobody waits for it any more
        remote, answers = self._live.remote, self._answers
        emit.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NativeReplies(self._live, answers, emit)
        try:
            outcome = await run_handler(
                emit.entry,
                NamedEvent(remote, emit.topic, emit.namespace, emit.payload, port),
                remote,
                emit.topic,
                self._handlers.roles,
                port.send_all,
            )
            if emit.async_id and is_large(outcome[1], SLICE):
                answer = answers.prepare(emit, *outcome)
                outcome = (ResultCode.CANCELLED, None)
                outcome = await answer
            if not self._live.driver.has_room:
                room = answers.room(emit, *outcome)
                outcome = (ResultCode.CANCELLED, None)  # what was made waits there, encoded, alone
                outcome = await room
        finally:
            # Also when it was cancelled: each event gets its one end.
            answers.give(emit, *outcome)


class NativeReplies:
    """Replies to one event of a native peer."""

    __slots__ = ("_answers", "_emit", "_live", "_said", "format")

    def __init__(self, live: LiveConnection, answers: Answers, emit: IncomingEmit) -> None:
        self._live = live
        self._answers = answers
        self._emit = emit
        self._said = 0  # bytes of cost since others ran
        self.format: FormatName = NATIVE_FORMAT

    @property
    def wanted(self) -> bool:
        """Whether the emitter waits for replies."""
        return bool(self._emit.async_id) and not self._emit.answered

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send one, when there is room. Its name goes along if it is not that of the event.

        Raises:
            PeerClosedError: the connection is over. PayloadTooLargeError: it is.
            LbmEncodeError, FormatError: it has no form in its format.
        """
        live, named = self._live, self._answers.calls.named
        body = named.encode_reply(self._emit, name, payload, namespace)
        try:
            await send_part(live, self._emit, body, named.reply)
        except ConnectionClosedError as error:
            raise live.closed_error() from error
        except LocalProtocolError:
            if self.wanted:
                raise
            # Nobody waits any more: nothing is lost.
        self._said += len(body) + EVENT_COST
        if self._said > TURN_SIZE:
            self._said = 0
            await turn_of(live.backend)

    async def send_all(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Reply with each of what the handler yields."""
        named, emit = self._answers.calls.named, self._emit

        async def encode_item(item: Any) -> bytes:
            if self.format == NATIVE_FORMAT and is_large(item, SLICE):
                item = await self._answers.encode_large(item)
            return named.encode_reply(emit, "", make_payload(item, self.format))

        if emit.async_id:
            return await send_items(self._live, emit, items, encode_item, named.reply)
        return await run_items(self._live, items)


class NativeEmitter:
    """Our events to one peer, on its connection's main stream: an `Emitter`."""

    __slots__ = ("_calls", "_live", "backend", "marks_end")

    def __init__(self, live: LiveConnection, calls: Calls) -> None:
        self._live = live
        self._calls = calls
        self.backend: Backend = live.backend
        self.marks_end = True

    @property
    def has_room(self) -> bool:
        """Whether a sender need not wait."""
        return self._live.driver.has_room

    async def room(self, timeout: float | None) -> float | None:
        """Wait while too much waits to be written; CallTimeout if it takes too long."""
        return await self._live.room(timeout)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._calls.named.emit(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        self._calls.named.ask(emit, name, namespace, payload, self.backend.now(), timeout)

    def leave(self, emit: OutgoingEmit) -> None:
        """Wait for no more of its replies."""
        self._calls.asking.leave(emit)

    def give_up(self, emit: OutgoingEmit) -> None:
        """Want none of its replies: Cancel."""
        self._calls.asking.give_up(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._live.closed_error()


class InterceptedEmitter(NativeEmitter):
    """Sends one event of this `name`, once the interceptors of `chain` have returned."""

    __slots__ = ("_chain", "_name")

    def __init__(self, live: LiveConnection, calls: Calls, chain: Chain, name: str) -> None:
        super().__init__(live, calls)
        self._chain = chain
        self._name = name

    @property
    def has_room(self) -> bool:
        """Never: `room` is always waited for."""
        return False

    async def room(self, timeout: float | None) -> float | None:
        """Run the interceptors, then wait as for any event.

        Raises:
            ParleyError: one did not proceed. And what they raise.
        """
        timeouts: list[float | None] = []

        async def proceed(one: Intercepted) -> None:
            timeouts.append(one.timeout)

        peer = self._live.remote
        await self._chain.run(Intercepted(self._chain, peer, self._name, timeout=timeout), proceed)
        if not timeouts:
            raise ParleyError(
                f"the event {self._name!r} was not emitted: an interceptor did not call proceed"
            )
        return await super().room(timeouts[-1])
