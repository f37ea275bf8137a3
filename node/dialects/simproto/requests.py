"""Calls and subscriptions on one SimProto connection, in both directions.

SimProto cannot cancel a request: after a caller stops waiting, its dialog continues until the
response has arrived or is overdue. Each request of the other side gets exactly one response, with a
code that the SimProto document defines.
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
    """A request sent by this side.

    `async_id` is its dialog; `code` and `data` are its response once `done`.
    """

    __slots__ = ("_deadlines",)

    def responded(self, payload: memoryview) -> None:
        """Process the response; if the caller stopped waiting, only `on_final` is called.

        Raises:
            RemoteProtocolError: the response is empty.
        """
        code, data = parse_response(payload)
        if code in NO_DATA:
            data = b""  # the document defines no data here, so ignore it
        if self.on_final is not None:
            self.on_final(code, 0)
        self.slot.discard(self)
        self.finish(code, data or None)

    def lost(self, code: int, text: str) -> None:
        self.close_code = code
        self.close_text = text
        self.finish(LOST, None)


class SimProtoOutgoing:
    """The calls and subscriptions that this side requests on one connection.

    `deadlines` contains the callers' timeouts that are shorter than the timeout of all dialogs.
    """

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
        """Call a topic; `timeout` is in seconds from `now`, None for the timeout of all dialogs.

        Raises:
            LocalError: the connection is not open, the request is too large, or too many requests
                wait.
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
        """Subscribe to a topic; raises like `call`."""
        return self._ask(SUBSCRIBE, topic, data, now, timeout, on_done)

    def unsubscribe(self, topic: str, now: float, on_done: Callable[[], None]) -> SimProtoRequest:
        """Unsubscribe from a topic; raises like `call`."""
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
    """The other side's unanswered calls, and its requests to subscribe and unsubscribe.

    `find` returns 0 if a request of a kind (RPC, SUBSCRIBE) may run for a topic, otherwise the code
    of the response. `run` starts its handler, and `stop` cancels it. `unsubscribe` ends a
    subscription and returns the code of the response.
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
        self._now = 0.0  # when the request before the next one was answered

    def __len__(self) -> int:
        return len(self._running)

    def request_received(self, request: RequestReceived, now: float) -> None:
        """Start the handler of a request, reject it, or queue it."""
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
        """Answer a request once, and return whether the answer was sent unchanged.

        Only acceptances and rejected subscriptions have data. If the data is too long, the request
        fails.
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
        """Continue with the queued requests for a topic after a subscription was accepted or
        rejected.
        """
        self._now = now
        self._turns.end(call)

    def connection_ended(self) -> None:
        self._turns.clear()
        running, self._running = self._running, {}
        for call in running.values():
            call.end()
            self._stop(call)

    # Internals.

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
    """Translate a `ResultCode` to a code of the SimProto document.

    A failed call always has 1 ('RPC has no special types'). A subscription that the document has no
    code for is rejected (3).
    """
    if kind == RPC:
        return NOT_FOUND if code else ACCEPTED
    return min(code, REJECTED)
