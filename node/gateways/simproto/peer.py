"""The other side of a SimProto connection, as applications use it.

Data is bytes in both directions; other values are converted by `node.dialects.values`.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, ClassVar, overload

from parley._lbm.codec import Encodable, decode_value
from parley._node.data_types import Model, R
from parley._node.dialects.simproto.codec import RPC
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.dialects.simproto.feeds import SimProtoFeed
from parley._node.dialects.simproto.sim import Sim
from parley._node.dialects.values import ConversionError, to_bytes
from parley._node.errors import CallRefused, NotSpokenError
from parley._node.gateways.guest import Guest
from parley._node.gateways.simproto.connection import SimProtoConnection, SimProtoOptions
from parley._node.gateways.simproto.subscription import WINDOW, SimProtoSubscription
from parley._node.handlers.invoke import FAILED, Outcome, decide, run_handler
from parley._node.handlers.registry import Entry
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.notes import Batch
from parley._node.peer.answer_stream import answer_of
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.memory_budget import MemoryBudget
from parley._node.protocol.reports import ConnectionEnded, PongReceived
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.requests import Call
from parley._node.transport.backend import Backend
from parley._node.transport.loop import Runner, Waiter

DEFAULT_TIMEOUT = 30.0


logger = logging.getLogger("parley.gateway")


class SimProtoService:
    """Serves the handlers and topics of a registrar to one guest.

    While `draining` is set, it rejects new requests. `on_answered` is called when a request was
    answered, or a subscription of the guest has ended.
    """

    __slots__ = (
        "_handlers",
        "_logged",
        "_on_answered",
        "_peer",
        "_runners",
        "_supercategory",
        "_topics",
        "_values",
        "core",
        "draining",
        "room",
        "sim",
    )

    def __init__(
        self,
        peer: Guest,
        core: SimProtoCore,
        terms: SimProtoOptions,
        on_answered: Callable[[], None],
    ) -> None:
        self._peer = peer
        self._handlers = terms.registrar.handlers
        self._topics = terms.registrar.topics
        self._values = terms.values
        self._on_answered = on_answered
        self._logged: set[str] = set()  # handlers whose unsupported items were logged
        carrier = peer.carried_by
        self._supercategory = None if carrier is None else carrier.supercategory
        self.draining = False
        self.core = core
        self._runners: dict[IncomingCall, Runner] = {}  # one for each unanswered request
        self.sim = Sim(core, self._find, self._run, self._stop, self._topics.__contains__)
        self.room = self.sim.room

    # Methods that feeds use.

    def now(self) -> float:
        return self._peer.backend.now()

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        """Encode a batch's notes once for all subscribers with the same format."""
        return batch.in_form(self._values, self._note)

    def cut_off(self, feed: SimProtoFeed) -> None:
        """Log that a subscriber is too slow, because SimProto has no message for it."""
        text, ended = "ended the subscription of %s to %r: too slow", self._handlers.ended
        ended.log(
            logger,
            logging.WARNING,
            self.now(),
            text,
            self._peer,
            feed.topic,
            extra={"event": "subscriber.slow", "topic": feed.topic},
        )

    # Callbacks of `Sim`.

    def _find(self, kind: int, topic: str) -> ResultCode:
        """Return 0 if a request may run, otherwise the code of the rejection."""
        if self._peer.path and not self._handlers.exported(topic):
            return ResultCode.NOT_AUTHORISED
        calls, topics = self._handlers.calls, self._topics
        found: Entry[Any] | Topic | None = calls.find(topic) if kind == RPC else topics.get(topic)
        if found is None:
            return ResultCode.TOPIC_NOT_FOUND
        if not found.takes(self._supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if kind != RPC and self.sim.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if self.draining else ResultCode.ACCEPTED

    def _run(self, call: IncomingCall) -> None:
        spawn = self._peer.backend.spawn
        if call.subcategory == RPC:
            entry = self._handlers.calls.find(call.topic)
            self._runners[call] = spawn(self._serve_call, entry, call)
        else:
            topic = self._topics[call.topic]
            self._runners[call] = spawn(self._serve_subscribe, topic, call)

    def _stop(self, call: IncomingCall) -> None:
        runner = self._runners.pop(call, None)
        if runner is not None:
            runner.cancel()

    # Internals.

    async def _serve_call(self, entry: Entry[Any], call: IncomingCall) -> None:
        peer = self._peer
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            if not peer.driver.can_send:
                await (
                    peer.driver.wait_writable()
                )  # don't run handlers for a guest that doesn't read responses
            request = Call(peer, call)
            roles = self._handlers.roles
            outcome = await run_handler(
                entry, request, peer, call.topic, roles, lambda items: self._no_items(entry, items)
            )
        finally:
            # Also after cancellation: each request gets exactly one response.
            self._answer(call, *outcome)

    async def _no_items(self, entry: Entry[Any], items: AsyncGenerator[Any, Any]) -> Outcome:
        await items.aclose()
        if entry.name not in self._logged:
            self._logged.add(entry.name)
            logger.error(
                "the handler of %r yields items, which SimProto does not support",
                entry.name,
                extra={"event": "handler.unfit", "topic": entry.name},
            )
        return FAILED

    async def _serve_subscribe(self, topic: Topic, call: IncomingCall) -> None:
        peer, sim = self._peer, self.sim
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            request = SubscribeRequest(peer, call)
            outcome = await decide(topic, request, self._handlers, self._supercategory)
            if outcome[0] == ResultCode.ACCEPTED:
                outcome = ResultCode.ACCEPTED, topic.begin(outcome[1], None)[0]
        except CallRefused as refused:
            outcome = refused.code, refused.data
        finally:
            over = call.answered
            if self._answer(call, *outcome) and not over and not outcome[0]:
                sim.add_feed(
                    topic.join(
                        lambda fanout, closed: SimProtoFeed(fanout, self, peer, closed),
                        self._feed_closed,
                    )
                )
            sim.incoming.decided(call, peer.backend.now())
            self._on_answered()  # possibly several requests were answered

    def _feed_closed(self, feed: SimProtoFeed) -> None:
        self.sim.remove_feed(feed)
        self._on_answered()

    def _answer(self, call: IncomingCall, code: int, data: Any) -> bool:
        peer, unsent = self._peer, self._handlers.unsent
        now = peer.backend.now()
        right = True
        self._runners.pop(call, None)
        try:
            sent = data if type(data) is bytes else to_bytes(data, self._values)
        except ConversionError:
            text = "cannot encode the answer to %r in SimProto"
            unsent.log(
                logger,
                logging.ERROR,
                now,
                text,
                call.topic,
                exc_info=True,
                extra={"event": "answer.unsent", "topic": call.topic},
            )
            (code, _), sent, right = FAILED, b"", False
        if code and not call.answered:
            kind = "call" if call.subcategory == RPC else "topic"
            log_refused(self._handlers.refused, peer, kind, call.topic, code, now)
        if not self.sim.incoming.answer(call, code, sent, now):
            text = "cannot send the answer to %r: %d bytes are too long"
            unsent.log(
                logger,
                logging.ERROR,
                now,
                text,
                call.topic,
                len(sent),
                extra={"event": "answer.unsent", "topic": call.topic},
            )
            right = False
        self._on_answered()
        return right

    def _note(self, note: bytes) -> bytes | None:
        try:
            return to_bytes(decode_value(note), self._values)
        except ConversionError as error:
            unsent = self._handlers.unsent
            unsent.log(
                logger,
                logging.ERROR,
                self.now(),
                "cannot send a note: %s",
                error,
                extra={"event": "note.unsent"},
            )
            return None


class SimProtoPeer(Guest):
    """The other side of a SimProto connection, created by `SimProtoGateway` and `SimProtoClient`.

    Example:

        from parley import Call
        from parley.dialects import SimProtoClient, SimProtoGateway

        @node.on_call("upper")
        async def upper(call: Call) -> bytes:
            return call.data.upper()

        async with SimProtoGateway(node) as gateway:
            address = await gateway.listen("tcp://127.0.0.1:0")
            async with SimProtoClient(address) as client:
                assert await client.peer.call("upper", b"hello") == b"HELLO"
                print(f"{await client.peer.ping():.6f} s")
    """

    dialect: ClassVar[str] = "SimProto"

    def __init__(
        self,
        backend: Backend,
        name: str,
        terms: SimProtoOptions,
        *,
        carrier: LiveConnection | None = None,
        on_gone: Callable[[Guest], None] | None = None,
        total: MemoryBudget | None = None,
    ) -> None:
        self.core = core = SimProtoCore(backend.now(), terms.limits, total)
        violations = terms.registrar.handlers.violations
        super().__init__(
            core,
            backend,
            name,
            carrier=carrier,
            on_gone=on_gone,
            violations=violations,
            high_water=terms.limits.write_buffer,
        )
        self.service = SimProtoService(self, core, terms, self._answered)
        self.sim = self.service.sim
        self.link = SimProtoConnection(self, core, self.sim, terms.values)
        self._pings: dict[int, tuple[Waiter, list[float]]] = {}

    # Requests to the other side.

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes = ...,
        returns: None = None,
    ) -> bytes | None: ...

    @overload
    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = ...,
        headers: Mapping[str, Encodable] | None = ...,
        once: bool | bytes = ...,
        returns: type[R],
    ) -> R: ...

    async def call(
        self,
        topic: str,
        data: Encodable | Model = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        headers: Mapping[str, Encodable] | None = None,
        once: bool | bytes = False,
        returns: Any = None,
    ) -> Any:
        """Call a topic and return the data of its response, or None if the data is empty.

        `timeout` is in seconds for the whole call. A response that takes longer than
        `limits.answer_timeout` ends the connection.

        Raises:
            CallRefused: the code is not 0; 1 means 'topic not found' or any other failure.
            CallTimeout: no response arrived in time.
            PeerClosedError: the connection is closed.
            PayloadTooLargeError: the request is too long and was not sent.
            ConversionError: `data` cannot be encoded in SimProto.
            NotSpokenError: `headers`, `once` or `returns` were given, which SimProto doesn't
                support.
        """
        if returns is not None:
            raise NotSpokenError(self.dialect, "typed results")
        if once is not False:
            raise NotSpokenError(self.dialect, "idempotent calls")
        if headers:
            raise NotSpokenError(self.dialect, "headers")
        link = self.link
        value: Any = data
        payload = value if type(value) is bytes else to_bytes(value, link.values)
        if not link.can_send:
            timeout = await link.wait_writable(timeout)
        waiter = self.backend.waiter()
        outgoing = self.sim.outgoing
        try:
            call = outgoing.call(topic, payload, self.backend.now(), timeout, waiter.wake)
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        try:
            await waiter
        finally:
            if not call.done:
                outgoing.cancel(call)
        return answer_of(call)

    def subscribe(
        self,
        topic: str,
        data: Encodable = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        window: int = WINDOW,
    ) -> SimProtoSubscription:
        """Subscribe to a topic; use the result with `async with`, then `async for`.

        `timeout` is in seconds, until the response; `data` is passed to the publisher. `window` is
        the number of unread bytes that are acknowledged immediately, at least 65,536 (a note counts
        as its data and 64). Notes beyond the window are acknowledged when they are read, or after
        half of `limits.answer_timeout`. Beyond twice the window, the subscription ends.
        """
        return SimProtoSubscription(self, topic, data, timeout, window)

    async def ping(self) -> float:
        """Return the round-trip time in seconds.

        Raises:
            PeerClosedError: the connection is closed.
            LimitReachedError: 64 Pings already wait for their Pongs.
        """
        waiter = self.backend.waiter()
        try:
            dialog = self.core.ping(self.backend.now())
        except ConnectionClosedError as error:
            raise self.closed_error() from error
        answer: list[float] = []
        self._pings[dialog] = waiter, answer
        try:
            await waiter
        finally:
            self._pings.pop(dialog, None)
        if not answer:
            raise self.closed_error()
        return answer[0]

    def begin_close(self) -> None:
        """End the connection once queued data is written, without waiting."""
        self.drain()
        self.sim.flush()
        super().begin_close()

    async def close(self, code: int = CloseCode.NORMAL, text: str = "") -> None:
        """Send queued data, then close the connection and its transport.

        `code` and `text` are not sent, because SimProto has no message for them.
        """
        self.drain()
        self.sim.flush()
        await super().close(code, text)

    async def wait_writable(self, timeout: float | None = None) -> float | None:
        """Wait until a request can be sent, and return the rest of `timeout`.

        Raises:
            CallTimeout: the wait took longer than `timeout`.
        """
        return await self.link.wait_writable(timeout)

    # As the source of its subscriptions, it has exactly one connection.

    @property
    def is_over(self) -> bool:
        """Whether no further connection will follow, which is always True."""
        return True

    async def connected(self, timeout: float | None) -> tuple["SimProtoPeer", float | None]:
        """Return this peer and `timeout`, as a source of subscriptions."""
        return self, timeout

    # Methods that the gateway uses.

    @property
    def running_requests(self) -> int:
        """Number of the peer's unanswered requests."""
        return len(self.sim.incoming)

    def drain(self) -> None:
        """Reject new requests from now on."""
        self.service.draining = True

    async def drained(self) -> None:
        """Wait until all requests of the peer are answered, or the connection has ended."""
        await self._changes.until(lambda: not self.running_requests or not self.is_open)

    async def finished(self) -> None:
        """Wait until all notes for the peer were sent and its subscriptions or connection have
        ended.
        """
        await self._changes.until(lambda: not self.sim.has_feeds or not self.is_open)

    async def gone(self) -> None:
        """Wait until the transport is closed."""
        await self._changes.until(lambda: self.is_gone)

    # Reports from the core and the service.

    def _take(self, report: Any, now: float) -> None:
        if isinstance(report, PongReceived):
            waiting = self._pings.get(report.async_id)
            if waiting is not None:
                waiting[1].append(report.round_trip)
                waiting[0].wake()
        else:
            self.sim.take(report, now)

    def _lost(self, ended: ConnectionEnded) -> None:
        self.sim.connection_ended(ended.code, ended.text)
        for waiter, _ in self._pings.values():
            waiter.wake()

    @property
    def earliest(self) -> float:
        """The time of the earliest deadline of its requests, infinity if it has none."""
        return self.sim.next_deadline()

    def _handle_deadline(self, now: float) -> None:
        self.sim.handle_deadline(now)

    def _answered(self) -> None:
        if self.service.draining:
            self._changes.notify()
