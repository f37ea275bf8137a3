"""Calls and subscriptions on one SimProto connection, in both directions.

SimProto cannot cancel a request: if a caller gives up, its dialog continues until the response has
come or is overdue. Every request of the other side gets exactly one response, with a code of the
document.
"""

from collections.abc import Callable

from parley._lbm import keys
from parley._node.dialects.simproto.codec import (
    ACCEPTED,
    NO_DATA,
    NOT_FOUND,
    REJECTED,
    RPC,
    SUBSCRIBE,
    UNSUBSCRIBE,
    parse_response,
)
from parley._node.dialects.simproto.core import RequestReceived, SimProtoCore
from parley._node.messaging.deadline_queue import DeadlineQueue, clamp_timeout
from parley._node.messaging.incoming_calls import IncomingCall, PerTopicQueue
from parley._node.messaging.outgoing_calls import OutgoingCall
from parley._node.protocol.codes import LOST, ResultCode
from parley._node.protocol.errors import PayloadTooLargeError


class SimProtoRequest(OutgoingCall):
    """A request of ours. `async_id` is its dialog; `code` and `data` are its response once
    `done`."""

    __slots__ = ("_deadlines",)

    def responded(self, payload: memoryview) -> None:
        """The response came; if the caller gave up, only `on_final` is called.

        Raises:
            RemoteProtocolError: it is empty.
        """
        code, data = parse_response(payload)
        if code in NO_DATA:
            data = b""  # the document has none here, so it is ignored
        if self.on_final is not None:
            self.on_final(code, 0)
        self.slot.discard(self)
        self.finish(code, data or None)

    def lost(self, code: int, text: str) -> None:
        self.close_code = code
        self.close_text = text
        self.finish(LOST, None)


class SimProtoOutgoing:
    """Our calls and subscriptions on one connection; `deadlines` are the callers' timeouts that are
    shorter than that of all dialogs."""

    __slots__ = ("_core", "deadlines")

    def __init__(self, core: SimProtoCore) -> None:
        self._core = core
        self.deadlines: DeadlineQueue[SimProtoRequest] = DeadlineQueue()

    def call(
        self,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> SimProtoRequest:
        """Call a topic; `timeout` is in seconds from `now`, None for that of all dialogs.

        Raises:
            LocalError: not open, too large, or too many requests wait.
            ValueError: the topic cannot be encoded as UTF-8.
        """
        return self._ask(RPC, topic, data, now, timeout, on_done)

    def subscribe(
        self,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> SimProtoRequest:
        """Subscribe; raises as `call`."""
        return self._ask(SUBSCRIBE, topic, data, now, timeout, on_done)

    def unsubscribe(self, topic: str, now: float, on_done: Callable[[], None]) -> SimProtoRequest:
        """Unsubscribe; raises as `call`."""
        return self._ask(UNSUBSCRIBE, topic, b"", now, None, on_done)

    def cancel(self, call: SimProtoRequest) -> None:
        if not call.done:
            call.done = True
            call.slot.discard(call)

    def handle_deadline(self, now: float) -> None:
        for call in self.deadlines.pop_due(now):
            call.finish(ResultCode.DEADLINE_EXCEEDED, None)

    def _ask(
        self,
        kind: int,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> SimProtoRequest:
        call = SimProtoRequest(on_done)
        call.async_id = self._core.ask(kind, topic, data, now, call)
        timeout = clamp_timeout(timeout)
        if timeout is not None and timeout < self._core.limits.answer_timeout:
            call.slot = self.deadlines.add(call, now + timeout)
        return call


class SimProtoIncoming:
    """The other side's unanswered calls, and requests to subscribe and unsubscribe.

    `find` returns 0 if a request of a kind (RPC, SUBSCRIBE) may run for a topic, otherwise the code
    that refuses it; `run` starts its handler, `stop` cancels it. `unsubscribe` ends a subscription
    and returns the code of the response.
    """

    __slots__ = ("_core", "_find", "_now", "_run", "_running", "_stop", "_turns", "_unsubscribe")

    def __init__(
        self,
        core: SimProtoCore,
        find: Callable[[int, str], ResultCode],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        unsubscribe: Callable[[str], int],
    ) -> None:
        self._core = core
        self._find = find
        self._run = run
        self._stop = stop
        self._unsubscribe = unsubscribe
        self._running: dict[int, IncomingCall] = {}
        self._turns = PerTopicQueue()
        self._now = 0.0  # when the request was answered after which the next one begins

    def __len__(self) -> int:
        return len(self._running)

    def request_received(self, request: RequestReceived, now: float) -> None:
        """Start the handler of a request, refuse it, or queue it."""
        dialog, kind, topic, data = request
        code = ResultCode.ACCEPTED
        if topic is None:
            code = ResultCode.TOPIC_NOT_FOUND
        elif kind == RPC:
            code = self._find(kind, topic)
        if topic is None or code:
            self._core.answer(dialog, response_code(kind, code), b"", now)
            return
        call = IncomingCall(kind, topic, {keys.DATA: data or None}, 0, dialog, len(data), 0)
        self._running[dialog] = call
        if kind == RPC:
            self._run(call)
        else:
            self._now = now
            self._turns.take(call, self._begin)

    def answer(self, call: IncomingCall, code: int, data: bytes, now: float) -> bool:
        """Answer a request once; returns whether the answer was sent unchanged.

        Only acceptances and rejected subscriptions have data. If it is too long, the request fails.
        """
        if call.answered:
            return True
        call.end()
        dialog = call.async_id
        del self._running[dialog]
        kind = call.subcategory
        if code and (kind == RPC or code != REJECTED):
            data = b""
        try:
            self._core.answer(dialog, response_code(kind, code), data, now)
        except PayloadTooLargeError:
            code = response_code(kind, ResultCode.PAYLOAD_TOO_LARGE)
            self._core.answer(dialog, code, b"", now)
            return False
        return True

    def decided(self, call: IncomingCall, now: float) -> None:
        """A subscription was accepted or not: continue with queued requests for its topic."""
        self._now = now
        self._turns.end(call)

    def connection_ended(self) -> None:
        self._turns.clear()
        running, self._running = self._running, {}
        for call in running.values():
            call.end()
            self._stop(call)

    # Inside.

    def _begin(self, call: IncomingCall) -> None:
        if call.subcategory == SUBSCRIBE:
            code: int = self._find(SUBSCRIBE, call.topic)
            if not code:
                self._run(call)
                return
        else:
            code = self._unsubscribe(call.topic)
        self.answer(call, code, b"", self._now)
        self._turns.end(call)


def response_code(kind: int, code: int) -> int:
    """Return the document's code for a code of section 9.

    A failed call always has 1 ('RPC has no special types'); a subscription refused for a reason of
    ours is rejected.
    """
    if kind == RPC:
        return NOT_FOUND if code else ACCEPTED
    return min(code, REJECTED)
