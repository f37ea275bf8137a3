"""What the other side of a SimProto connection asks of us: calls, and topics of ours.

One rule: every request gets exactly one response, with a code that the document has for
it, whatever becomes of its handler. Handlers are run by the shell, which is told when to
start one and when to stop it. Data is bytes.
"""

from collections.abc import Callable

from node.dialects.simproto.core import RequestReceived, SimProtoCore
from node.dialects.simproto.packets import (
    ACCEPTED,
    NOT_FOUND,
    REJECTED,
    RPC,
    SUBSCRIBE,
)
from node.messaging.notes import NO_HEADERS
from node.messaging.pending import IncomingCall
from node.messaging.subscription_turns import SubscriptionTurns
from node.protocol.codes import ResultCode
from node.protocol.errors import PayloadTooLargeError


class Answering:
    """The other side's calls, and requests to subscribe and unsubscribe, that we have not
    answered.

    `find` tells whether a request of this kind (RPC, SUBSCRIBE) may run for a topic, or
    the code that refuses it; `run` starts its handler, `stop` ends it because nobody waits
    for it any more. `unsubscribe` ends a subscription and returns the code of its answer.
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
        self._turns = SubscriptionTurns()
        self._now = 0.0  # when the request was answered that lets the next one begin

    def __len__(self) -> int:
        return len(self._running)

    def request_received(self, request: RequestReceived, now: float) -> None:
        """Take a request: run its handler, refuse it, or let it wait for its turn."""
        dialog, kind, topic, data = request
        code = ResultCode.ACCEPTED
        if topic is None:
            code = ResultCode.TOPIC_NOT_FOUND
        elif kind == RPC:
            code = self._find(kind, topic)
        if topic is None or code:
            self._core.answer(dialog, response_code(kind, code), b"", now)
            return
        call = IncomingCall(kind, topic, data or None, NO_HEADERS, 0, dialog, len(data), 0)
        self._running[dialog] = call
        if kind == RPC:
            self._run(call)
        else:
            self._now = now
            self._turns.take(call, self._begin)

    def answer(self, call: IncomingCall, code: int, data: bytes, now: float) -> bool:
        """Answer a request; a second answer changes nothing. Data goes with an acceptance,
        and with the rejection of a subscription. One that is too long is the failure of
        the request; returns whether it went as it is."""
        if call.answered:
            return True
        call.answered = True
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
        """A Subscribe was answered, and its subscription stands or does not: what the other
        side asked about the topic meanwhile has its turn."""
        self._now = now
        self._turns.end(call)

    def connection_ended(self) -> None:
        """Whoever asked cannot be answered: handlers are stopped."""
        self._turns.clear()
        running, self._running = self._running, {}
        for call in running.values():
            call.answered = True
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
    """The document's code for a code of section 9, in the response to a request.

    A call has 0 and 1 alone ('RPC has no special types'), so that whatever is not 0 is 1;
    a Subscribe that is refused for a reason of our own is rejected.
    """
    if kind == RPC:
        return NOT_FOUND if code else ACCEPTED
    return min(code, REJECTED)
