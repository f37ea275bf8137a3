"""One stream `bus` of a peer: its requests, side by side, and their answers.

One rule: each request gets its one answer, what was asked for is not more than may wait here, and
what the end of the stream finds unsent goes back to its group. Knows no store.
"""

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from lbm.errors import LbmDecodeError
from node.bus.errors import BusError
from node.errors import PeerClosedError, StreamResetError
from node.logs import LogRation
from node.protocol.account import HANDED_WEIGHT, PLACE_WEIGHT, REQUEST_WEIGHT, ROW_WEIGHT
from node.protocol.codes import BusType, ResultCode
from node.remote_bus import limits
from node.remote_bus import requests as wire
from node.remote_bus.answers import Answer, encode_answer
from node.remote_bus.authorisation import Gate
from node.remote_bus.codec import decode_request
from node.remote_bus.fetching import Batch
from node.remote_bus.handed import Left
from node.remote_bus.performing import Performing, refused
from node.streams.event import StreamEvent
from node.streams.stream import Stream
from node.transport.waiting import Changes

if TYPE_CHECKING:
    from node.remote_bus.service import Crowd

logger = logging.getLogger("parley.bus")

_OVER = (StreamResetError, PeerClosedError, anyio.ClosedResourceError)
_MALFORMED = Answer(ResultCode.MALFORMED)
_OVERLOADED = Answer(ResultCode.OVERLOADED)
_CANCELLED = Answer(ResultCode.CANCELLED)
_NOT_ALLOWED = Answer(ResultCode.NOT_AUTHORISED)

_HANDS_OUT = wire.Read | wire.Own | wire.Claim
# What makes a consumer known, or a group.
_CONSUMES = wire.Join | wire.Read | wire.Own | wire.Claim | wire.Touch
# Whose answers may be long.
_LARGE = (
    _HANDS_OUT
    | wire.History
    | wire.Streams
    | wire.Groups
    | wire.Consumers
    | wire.Pending
    | wire.RemoveConsumers
)


class Session:
    """The requests of one stream. `crowd` counts for all of its connection."""

    def __init__(
        self,
        stream: Stream,
        performing: Performing,
        gate: Gate,
        crowd: "Crowd",
        failures: LogRation,
    ) -> None:
        self._stream = stream
        self._peer = stream.peer
        self._account = stream.peer.core.account
        self._performing = performing
        self._gate = gate
        self._crowd = crowd
        self._failures = failures
        self._changes = Changes(stream.peer.backend.waiter)
        self._running = 0
        self._in_hand = 0  # bytes of requests worked on, and of answers not sent
        self._waits: set[anyio.CancelScope] = set()
        self._large = anyio.Semaphore(limits.LARGE_ANSWERS, fast_acquire=True)
        self._places: set[tuple[str, str, str]] = set()

    async def run(self, left: Left) -> None:
        """Serve the stream to its end; what was handed out on it is then in `left`."""
        try:
            async for event in self._stream.events():
                await self._receive(event)
        finally:
            for scope in self._waits:
                scope.cancel()
            try:
                await self._changes.until(lambda: not self._running)
            finally:
                self._performing.handed.leave(left)
                self._account.release(PLACE_WEIGHT * len(self._places))
                await self._performing.fetching.aclose()

    async def _receive(self, event: StreamEvent) -> None:
        if not event.wants_answer:
            self._peer.core.count_dropped()
        elif self._running >= limits.REQUESTS or not self._account.has_room(_weight(event)):
            await self._answer(event, _OVERLOADED)
        else:
            self._running += 1
            self._in_hand += len(event.payload)
            self._account.charge(_weight(event))
            self._peer.backend.spawn(self._serve, event)
            if self._in_hand > limits.IN_HAND:
                await self._changes.until(lambda: self._in_hand <= limits.IN_HAND)

    async def _serve(self, event: StreamEvent) -> None:
        """Answer one request, whatever becomes of it; never raises."""
        try:
            await self._decide(event)
        except _OVER:
            pass  # nobody is there to be answered
        except Exception:
            self._log()
            with suppress(*_OVER):
                await self._answer(event, Answer(ResultCode.HANDLER_FAILED))
        finally:
            self._running -= 1
            self._in_hand -= len(event.payload)
            self._account.release(_weight(event))
            self._changes.notify()

    async def _decide(self, event: StreamEvent) -> None:
        try:
            request = decode_request(event.subcategory, event.payload)
        except LbmDecodeError:
            await self._answer(event, _MALFORMED)
            return
        if getattr(request, "wait", 0.0) > 0:
            await self._take_turn_waiting(event, request)
        elif isinstance(request, _LARGE):
            # What is fetched is held until there was room to send it.
            async with self._large:
                await self._do(event, request)
        else:
            await self._do(event, request)

    async def _take_turn_waiting(self, event: StreamEvent, request: wire.Request) -> None:
        if self._crowd.waiting >= limits.WAITING_READS:
            await self._answer(event, _OVERLOADED)
            return
        self._crowd.waiting += 1
        try:
            await self._do(event, request)
        finally:
            self._crowd.waiting -= 1

    async def _do(self, event: StreamEvent, request: wire.Request) -> None:
        refusal = await self._refusal(event, request)
        if refusal is not None:
            await self._answer(event, refusal)
        elif isinstance(request, _HANDS_OUT):
            await self._hand_out(event, request)
        elif isinstance(request, wire.History):
            await self._answer(event, await self._wait(event, request, None))
        else:
            await self._answer(event, await self._perform(request, None))

    async def _refusal(self, event: StreamEvent, request: wire.Request) -> Answer | None:
        """The answer to what is not to be done; a callback that never says is not waited for
        longer than somebody waits for the answer."""
        allowed = None
        with anyio.CancelScope() as scope:
            event.when_cancelled(scope.cancel)
            allowed = await self._gate.permits(self._peer, request, self._peer.backend)
        if allowed is None:
            return _CANCELLED
        if not allowed:
            return _NOT_ALLOWED
        if isinstance(request, _CONSUMES):
            place = (request.name, request.group, request.consumer)
            if place not in self._places:
                if len(self._places) >= limits.PLACES or not self._account.has_room(PLACE_WEIGHT):
                    return _OVERLOADED
                self._places.add(place)
                self._account.charge(PLACE_WEIGHT)
        return None

    async def _hand_out(
        self, event: StreamEvent, request: wire.Read | wire.Own | wire.Claim
    ) -> None:
        """Answer with events, which go back if they cannot be sent."""
        batch = self._performing.batch(request)
        sent = False
        try:
            answer = await self._wait(event, request, batch)
            if event.cancelled:
                answer = _CANCELLED
            elif not self._account.has_room(HANDED_WEIGHT * len(batch.deliveries)):
                answer = _OVERLOADED
            if answer.code != ResultCode.ACCEPTED:
                await self._answer(event, answer)
                return
            # From here on they may be acknowledged: that can come before we run again.
            self._performing.handed.add(batch.place, batch.ids)
            sent = await self._answer(event, answer)
        finally:
            if not sent:
                self._performing.handed.settle(*batch.place[:2], batch.ids)
                await self._performing.fetching.give_back(batch)

    async def _wait(self, event: StreamEvent, request: wire.Request, batch: Batch | None) -> Answer:
        """Perform what may take long: until Cancel, or the end of the stream. Who has waited for
        long may have lost the right to it meanwhile."""
        answer = _CANCELLED
        now = self._peer.backend.now
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

    async def _perform(self, request: wire.Request, batch: Batch | None) -> Answer:
        try:
            if batch is not None and isinstance(request, _HANDS_OUT):
                return await self._performing.fetch(request, batch)
            return await self._performing.perform(request)
        except BusError as error:
            return refused(error)
        except Exception:
            self._log()
            return Answer(ResultCode.HANDLER_FAILED)

    def _log(self) -> None:
        if self._failures.has_room(self._peer.backend.now()):
            logger.exception("the bus failed at a request of %s", self._peer)

    async def _answer(self, event: StreamEvent, answer: Answer) -> bool:
        """Send an answer, which counts until there was room for it, or a refusal where it finds
        none to wait in; returns whether it was the answer."""
        payload = encode_answer(answer)
        rows = answer.rows or ()
        weight = 2 * len(payload) + ROW_WEIGHT * len(rows)  # as rows, and encoded
        fits = not rows or self._account.has_room(weight)
        if not fits:
            payload, weight = encode_answer(_OVERLOADED), 0
        self._in_hand += len(payload)
        self._account.charge(weight)
        try:
            await event.answer(BusType.ANSWER, payload=payload)
        finally:
            self._in_hand -= len(payload)
            self._account.release(weight)
            self._changes.notify()
        return fits


def _weight(event: StreamEvent) -> int:
    """What a request takes while it is worked on, besides what came."""
    return REQUEST_WEIGHT + len(event.payload)
