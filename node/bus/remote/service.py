"""Serves a bus to peers: one service for the `bus` streams of all connections.

A node offers one bus. Without `allow`, all requests are refused. The requests of a stream run
concurrently, and each gets one answer. The number of waiting requests is limited. Unsent events of
a finished stream return to their group.
"""

import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol

import anyio

from parley._lbm.errors import LbmDecodeError
from parley._node.bus.config import BusConfig
from parley._node.bus.data import Schemas
from parley._node.bus.errors import BusError
from parley._node.bus.model import Counters
from parley._node.bus.remote import limits
from parley._node.bus.remote import messages as wire
from parley._node.bus.remote.authorisation import (
    LINES,
    LINES_PER_SECOND,
    AllowBus,
    BusAuthoriser,
    BusRule,
)
from parley._node.bus.remote.executor import (
    DeliveryBatch,
    Offer,
    OrphanedDeliveries,
    RequestExecutor,
)
from parley._node.bus.remote.messages import Answer, encode_answer, refusal_of
from parley._node.bus.store import Store
from parley._node.errors import ParleyError, PeerClosedError, StreamResetError
from parley._node.handlers.registry import Entry, Handlers
from parley._node.logs import RateLimitedLogger
from parley._node.protocol.codes import BUS_LABEL, BusType, CloseCode, ResultCode
from parley._node.protocol.memory_budget import (
    HANDED_WEIGHT,
    PLACE_WEIGHT,
    REQUEST_WEIGHT,
    ROW_WEIGHT,
)
from parley._node.remote import access_log as access
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.stream import Stream, StreamEvent
from parley._node.transport.conditions import Condition

logger = logging.getLogger("parley.bus")

_OVER = (StreamResetError, PeerClosedError, anyio.ClosedResourceError)
_MALFORMED = Answer(ResultCode.MALFORMED)
_OVERLOADED = Answer(ResultCode.OVERLOADED)
_CANCELLED = Answer(ResultCode.CANCELLED)
_NOT_ALLOWED = Answer(ResultCode.NOT_AUTHORISED)

_HANDS_OUT = wire.Read | wire.Own | wire.Claim
# Requests that register a consumer or create a group.
_CONSUMES = wire.Join | wire.Read | wire.Own | wire.Claim | wire.Touch
# Requests whose answers can be long.
_LARGE = (
    _HANDS_OUT
    | wire.ReadHistory
    | wire.ListStreams
    | wire.ListGroups
    | wire.ListConsumers
    | wire.ListPending
    | wire.RemoveConsumers
)


class ConnectionUsage:
    """The number of `bus` streams of one connection, and of its waiting Reads."""

    __slots__ = ("streams", "waiting")

    def __init__(self) -> None:
        self.streams = 0
        self.waiting = 0


class BusSession:
    """The requests of one stream. `usage` is shared by all streams of its connection."""

    def __init__(
        self,
        stream: Stream,
        executor: RequestExecutor,
        authoriser: BusAuthoriser,
        usage: ConnectionUsage,
        leftovers: OrphanedDeliveries,
        failures: RateLimitedLogger,
    ) -> None:
        self._stream = stream
        self._live = stream.live
        self._account = stream.live.core.account
        self._executor = executor
        self._authoriser = authoriser
        self._usage = usage
        self._leftovers = leftovers
        self._failures = failures
        self._changes = Condition(stream.live.backend.waiter)
        self._running = 0
        self._in_hand = 0  # The bytes of requests in progress and unsent answers.
        self._waits: set[anyio.CancelScope] = set()
        self._large = anyio.Semaphore(limits.LARGE_ANSWERS, fast_acquire=True)
        self._consumers: set[tuple[str, str, str]] = set()

    async def run(self) -> None:
        """Serve the stream until it ends; then its unsettled events become leftovers."""
        try:
            while True:
                try:
                    event = await self._stream.receive_event()
                except anyio.EndOfStream:
                    return
                await self._receive(event)
        finally:
            for scope in self._waits:
                scope.cancel()
            try:
                await self._changes.until(lambda: not self._running)
            finally:
                self._executor.unsettled.leave(self._leftovers)
                self._account.release(PLACE_WEIGHT * len(self._consumers))
                await self._executor.fetcher.aclose()

    async def _receive(self, event: StreamEvent) -> None:
        weight = REQUEST_WEIGHT + len(event.payload)  # Charged while the request is in progress.
        if not event.wants_answer:
            self._live.core.count_dropped()
        elif self._running >= limits.REQUESTS or not self._account.try_charge(weight):
            await self._answer(event, _OVERLOADED)
        else:
            self._running += 1
            self._in_hand += len(event.payload)
            self._live.backend.spawn(self._serve, event, weight)
            if self._in_hand > limits.IN_HAND:
                # `_serve` notifies after it has sent its answer.
                await self._changes.until(lambda: self._in_hand <= limits.IN_HAND)

    async def _serve(self, event: StreamEvent, weight: int) -> None:
        """Answer one request; never raises."""
        try:
            try:
                request = wire.decode_request(event.subcategory, event.payload)
            except LbmDecodeError:
                await self._answer(event, _MALFORMED)
                return
            if getattr(request, "wait", 0.0) > 0:
                await self._serve_waiting(event, request)
            elif isinstance(request, _LARGE):
                # The fetched events stay in memory until they are sent.
                async with self._large:
                    await self._serve_large(event, request)
            else:
                refusal = await self._refusal(event, request)
                await self._answer(event, refusal or await self._perform(request))
        except _OVER:
            pass  # The peer has disconnected.
        except Exception:
            self._log()
            with suppress(*_OVER):
                await self._answer(event, Answer(ResultCode.HANDLER_FAILED))
        finally:
            self._running -= 1
            self._in_hand -= len(event.payload)
            self._account.release(weight)
            self._changes.notify()

    async def _serve_waiting(self, event: StreamEvent, request: wire.Request) -> None:
        if self._usage.waiting >= limits.WAITING_READS:
            await self._answer(event, _OVERLOADED)
            return
        self._usage.waiting += 1
        try:
            await self._serve_large(event, request)
        finally:
            self._usage.waiting -= 1

    async def _serve_large(self, event: StreamEvent, request: wire.Request) -> None:
        refusal = await self._refusal(event, request)
        if refusal is not None:
            await self._answer(event, refusal)
        elif isinstance(request, _HANDS_OUT):
            await self._hand_out(event, request)
        elif isinstance(request, wire.ReadHistory):
            await self._answer(event, await self._wait(event, request, None))
        else:
            await self._answer(event, await self._perform(request))

    async def _refusal(self, event: StreamEvent, request: wire.Request) -> Answer | None:
        """Return the answer to a request that is refused, else None.

        An `allow` function that never returns is cancelled when the peer cancels the request.
        """
        allowed = None
        with anyio.CancelScope() as scope:
            event.when_cancelled(scope.cancel)
            allowed = await self._authoriser.permits(self._live, request)
        if allowed is None:
            return _CANCELLED
        if not allowed:
            return _NOT_ALLOWED
        if isinstance(request, _CONSUMES):
            consumer_key = (request.name, request.group, request.consumer)
            if consumer_key not in self._consumers:
                if len(self._consumers) >= limits.CONSUMERS or not self._account.has_room(
                    PLACE_WEIGHT
                ):
                    return _OVERLOADED
                self._consumers.add(consumer_key)
                self._account.charge(PLACE_WEIGHT)
        return None

    async def _hand_out(
        self, event: StreamEvent, request: wire.Read | wire.Own | wire.Claim
    ) -> None:
        """Answer with events, and release them if they cannot be sent."""
        executor = self._executor
        batch = executor.batch(request)
        sent = False
        try:
            answer = await self._wait(event, request, batch)
            if event.cancelled:
                answer = _CANCELLED
            elif not self._account.has_room(HANDED_WEIGHT * len(batch.deliveries)):
                answer = _OVERLOADED
            payload, weight = self._encode(answer)
            if answer.code != ResultCode.ACCEPTED or not weight:
                # Release the events before sending the refusal, which may wait long, because they
                # are not charged.
                del answer
                await self._take_back(batch)
                await self._send(event, payload, weight)
                return
            # An acknowledgement can arrive before `_send` returns.
            executor.unsettled.add(batch.consumer_key, batch.ids)
            await self._send(event, payload, weight)
            sent = True
            executor.count_delivered(batch)
        finally:
            if not sent:
                await self._take_back(batch)

    async def _take_back(self, batch: DeliveryBatch) -> None:
        """Release events that were not sent, once."""
        self._executor.unsettled.settle(*batch.consumer_key[:2], batch.ids)
        await self._executor.fetcher.give_back(batch)

    async def _wait(
        self, event: StreamEvent, request: wire.Request, batch: DeliveryBatch | None
    ) -> Answer:
        """Perform a request that can take long, until it is cancelled or the stream ends.

        After a long wait, check again whether it is allowed.
        """
        answer = _CANCELLED
        now = self._live.backend.now
        began = now()
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                event.when_cancelled(scope.cancel)
                answer = await self._perform(request, batch)
            finally:
                self._waits.discard(scope)
        if answer.rows and now() - began >= limits.ASKED_AGAIN_AFTER:
            return await self._refusal(event, request) or answer
        return answer

    async def _perform(self, request: wire.Request, batch: DeliveryBatch | None = None) -> Answer:
        """Execute a request, and log its duration if the access log is enabled."""
        executor, now = self._executor, self._live.backend.now
        began = now()
        try:
            if batch is not None and isinstance(request, _HANDS_OUT):
                answer = await executor.fetch(request, batch, self._leftovers)
            else:
                answer = await executor.operations[type(request)](request)
        except BusError as error:
            answer = refusal_of(error)
        except Exception:
            self._log()
            answer = Answer(ResultCode.HANDLER_FAILED)
        if access.logger.isEnabledFor(logging.DEBUG):
            kind, name = f"bus {type(request).__name__.lower()}", _name_of(request)
            access.log_answered(self._live.remote, kind, name, answer.code, now() - began)
        return answer

    def _log(self) -> None:
        if self._failures.allows(self._live.backend.now()):
            logger.exception(
                "cannot answer a bus request of %s",
                self._live.remote,
                extra={"event": "bus.request-failed"},
            )

    def _answer(self, event: StreamEvent, answer: Answer) -> Awaitable[None]:
        """Send an answer, or a refusal if the memory budget has no space for it."""
        # Not a coroutine, which would keep the rows in memory while it waits.
        return self._send(event, *self._encode(answer))

    def _encode(self, answer: Answer) -> tuple[bytes, int]:
        """Return the payload of an answer and its weight until it is sent.

        If the memory budget has no space for that weight, return those of a refusal, whose weight
        is 0.
        """
        payload = encode_answer(answer)
        rows = answer.rows or ()
        weight = 2 * len(payload) + ROW_WEIGHT * len(rows)
        if rows and not self._account.has_room(weight):
            return encode_answer(_OVERLOADED), 0
        return payload, weight

    async def _send(self, event: StreamEvent, payload: bytes, weight: int) -> None:
        self._in_hand += len(payload)
        self._account.charge(weight)
        try:
            await event.answer(BusType.ANSWER, payload=payload)
        finally:
            self._in_hand -= len(payload)
            self._account.release(weight)


def _name_of(request: wire.Request) -> str:
    """Return the name of a request's events; empty if it applies to all."""
    if isinstance(request, wire.Publish):
        return request.events[0].name
    return str(getattr(request, "name", ""))


# The prefix for consumers of unauthenticated peers, which share their names.
UNENCRYPTED = "unencrypted/"


class Offered(Protocol):
    """A bus that can be offered."""

    @property
    def config(self) -> BusConfig:
        """The bus's settings; `max_event_bytes` limits the events that peers publish."""

    @property
    def schemas(self) -> Schemas:
        """The schemas that published events must satisfy."""

    @property
    def counters(self) -> Counters:
        """The bus's counters, including the requests of its peers."""

    async def opened(self) -> Store:
        """Return the opened store; raises BusError."""


class BusService:
    """Serves the `bus` streams of all peers. `usages` has the connections with such streams."""

    def __init__(self, bus: Offered, authoriser: BusAuthoriser) -> None:
        self._bus = bus
        self._authoriser = authoriser
        self.usages: dict[LiveConnection, ConnectionUsage] = {}
        self._leftovers = OrphanedDeliveries()
        self._failures = RateLimitedLogger(LINES, LINES_PER_SECOND)

    def __repr__(self) -> str:
        return f"<BusService: {len(self.usages)} peers, {len(self._leftovers)} events left>"

    async def serve(self, stream: Stream) -> None:
        """Serve one stream until it ends."""
        live = stream.live
        usage = self.usages.setdefault(live, ConnectionUsage())
        if usage.streams >= limits.STREAMS:
            stream.reset(CloseCode.OVERLOADED)
            return
        usage.streams += 1
        try:
            try:
                store = await self._bus.opened()
            except BusError:
                stream.reset(CloseCode.INTERNAL_ERROR)
                raise
            prefix = UNENCRYPTED if live.node_id is None else f"{live.node_id}/"
            offer = Offer(store, self._bus.config, self._bus.schemas, self._bus.counters, prefix)
            account, largest = live.core.account, live.limits.max_payload
            executor = RequestExecutor(offer, live.backend, largest, account)
            await BusSession(
                stream, executor, self._authoriser, usage, self._leftovers, self._failures
            ).run()
        finally:
            usage.streams -= 1
            if not usage.streams:
                del self.usages[live]


def offer_bus(handlers: Handlers, bus: Offered, allow: AllowBus) -> BusService:
    """Let peers open `bus` streams. The first one opens the bus.

    Raises:
        ParleyError: a bus is already offered.
        ConfigError: `allow` isn't a rule.
    """
    if BUS_LABEL in handlers.reserved:
        raise ParleyError("cannot offer this bus: the node already offers another one")
    rule = BusRule(allow)
    service = BusService(bus, BusAuthoriser(rule, handlers.exported, handlers.roles))
    handlers.named_ids.append(rule.names)
    handlers.reserved[BUS_LABEL] = Entry(BUS_LABEL, service.serve)
    return service
