"""What the other side of a SimProto connection asks of us: calls and subscriptions.

One rule: every request gets exactly one response, with a code that the document has for
it, whatever becomes of its handler. Handlers are run by the shell, which is told when to
start one and when to stop it. Data is bytes.
"""

from collections.abc import Callable

from node.dialects.simproto.core import RequestReceived, SimProtoCore
from node.dialects.simproto.packets import ACCEPTED, NOT_FOUND, REJECTED, RPC
from node.messaging.notes import NO_HEADERS
from node.messaging.pending import IncomingCall
from node.protocol.codes import ResultCode
from node.protocol.errors import PayloadTooLargeError


class Answering:
    """The other side's calls and subscriptions that we have not answered.

    `find` tells whether a request of this kind (RPC, SUBSCRIBE) may run for a topic, or
    the code that refuses it; `run` starts its handler, `stop` ends it because nobody waits
    for it any more.
    """

    __slots__ = ("_core", "_find", "_run", "_running", "_stop")

    def __init__(
        self,
        core: SimProtoCore,
        find: Callable[[int, str], ResultCode],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
    ) -> None:
        self._core = core
        self._find = find
        self._run = run
        self._stop = stop
        self._running: dict[int, IncomingCall] = {}

    def __len__(self) -> int:
        return len(self._running)

    def request_received(self, request: RequestReceived, now: float) -> None:
        """Take a call or a Subscribe: start its handler, or refuse it."""
        dialog, kind, topic, data = request
        code = ResultCode.TOPIC_NOT_FOUND if topic is None else self._find(kind, topic)
        if topic is None or code:
            self._core.answer(dialog, response_code(kind, code), b"", now)
            return
        call = IncomingCall(kind, topic, data or None, NO_HEADERS, 0, dialog, len(data), 0)
        self._running[dialog] = call
        self._run(call)

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

    def connection_ended(self) -> None:
        """Whoever asked cannot be answered: handlers are stopped."""
        running, self._running = self._running, {}
        for call in running.values():
            call.answered = True
            self._stop(call)


def response_code(kind: int, code: int) -> int:
    """The document's code for a code of section 9, in the response to a call or Subscribe.

    A call has 0 and 1 alone ('RPC has no special types'), so that whatever is not 0 is 1;
    a Subscribe that is refused for a reason of our own is rejected.
    """
    if kind == RPC:
        return NOT_FOUND if code else ACCEPTED
    return min(code, REJECTED)
