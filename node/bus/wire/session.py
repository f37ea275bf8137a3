"""One stream `bus` of a peer: its requests, side by side, and their answers.

One rule: each request gets its one answer, what was asked for is not more than may wait here, and
what the end of the stream finds unsent goes back to its group. Knows no store.
"""

import logging
from typing import TYPE_CHECKING

import anyio

from lbm.errors import LbmDecodeError
from node.bus.errors import BusError
from node.bus.wire import limits
from node.bus.wire import requests as wire
from node.bus.wire.answers import Answer, encode_answer
from node.bus.wire.authorisation import Gate
from node.bus.wire.codec import decode_request
from node.bus.wire.fetching import Batch
from node.bus.wire.handed import Left
from node.bus.wire.performing import Performing, refused
from node.errors import PeerClosedError, StreamResetError
from node.log_ration import LogRation
from node.protocol.codes import BusType, ResultCode
from node.streams.event import StreamEvent
from node.streams.stream import Stream
from node.waiting import Changes

if TYPE_CHECKING:
    from node.bus.wire.service import Crowd

logger = logging.getLogger("parley.bus")

_OVER = (StreamResetError, PeerClosedError, anyio.ClosedResourceError)
_MALFORMED = Answer(ResultCode.MALFORMED)
_OVERLOADED = Answer(ResultCode.OVERLOADED)
_CANCELLED = Answer(ResultCode.CANCELLED)


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
        self._performing = performing
        self._gate = gate
        self._crowd = crowd
        self._failures = failures
        self._changes = Changes(stream.peer.backend.waiter)
        self._running = 0
        self._in_hand = 0  # bytes of requests worked on, and of answers not sent
        self._waits: set[anyio.CancelScope] = set()

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
                await self._performing.fetching.aclose()

    async def _receive(self, event: StreamEvent) -> None:
        if not event.wants_answer:
            self._peer.dispatch.dropped += 1
        elif self._running >= limits.REQUESTS:
            await self._answer(event, encode_answer(_OVERLOADED))
        else:
            self._running += 1
            self._in_hand += len(event.payload)
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
            logger.exception("a request of %s to the bus failed", self._peer)
        finally:
            self._running -= 1
            self._in_hand -= len(event.payload)
            self._changes.notify()

    async def _decide(self, event: StreamEvent) -> None:
        try:
            request = decode_request(event.subcategory, event.payload)
        except LbmDecodeError:
            await self._answer(event, encode_answer(_MALFORMED))
            return
        if not await self._gate.permits(self._peer, request, self._peer.backend):
            await self._answer(event, encode_answer(Answer(ResultCode.NOT_AUTHORISED)))
        elif isinstance(request, wire.Read | wire.Own | wire.Claim):
            await self._hand_out(event, request)
        elif isinstance(request, wire.History):
            await self._answer(event, encode_answer(await self._wait(event, request, None)))
        else:
            await self._answer(event, encode_answer(await self._perform(request, None)))

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
            # From here on they may be acknowledged: that can come before we run again.
            self._performing.handed.add(batch.place, batch.ids)
            await self._answer(event, encode_answer(answer))
            sent = answer.code == ResultCode.ACCEPTED
        finally:
            if not sent:
                self._performing.handed.settle(*batch.place[:2], batch.ids)
                await self._performing.fetching.give_back(batch)

    async def _wait(self, event: StreamEvent, request: wire.Request, batch: Batch | None) -> Answer:
        """Perform what may take long: until Cancel, or the end of the stream."""
        waits = getattr(request, "wait", 0.0) > 0
        if waits and self._crowd.waiting >= limits.WAITING_READS:
            return _OVERLOADED
        self._crowd.waiting += waits
        with anyio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                event.when_cancelled(scope.cancel)
                return await self._perform(request, batch)
            finally:
                self._waits.discard(scope)
                self._crowd.waiting -= waits
        return _CANCELLED

    async def _perform(self, request: wire.Request, batch: Batch | None) -> Answer:
        try:
            if batch is not None and isinstance(request, wire.Read | wire.Own | wire.Claim):
                return await self._performing.fetch(request, batch)
            return await self._performing.perform(request)
        except BusError as error:
            return refused(error)
        except Exception:
            if self._failures.has_room(self._peer.backend.now()):
                logger.exception("the bus failed at a request of %s", self._peer)
            return Answer(ResultCode.HANDLER_FAILED)

    async def _answer(self, event: StreamEvent, payload: bytes) -> None:
        """Send an answer, which counts until there was room for it."""
        self._in_hand += len(payload)
        try:
            await event.answer(BusType.ANSWER, payload=payload)
        finally:
            self._in_hand -= len(payload)
            self._changes.notify()
