"""What we ask of the other side of a SimProto connection: calls and subscriptions.

One rule: who gives up is rid of it at once, and its dialog goes on until the response
came or took too long: SimProto has no word for 'never mind'. Data is bytes. Knows
nothing of who waits.
"""

from collections.abc import Callable

from node.dialects.simproto.core import SimProtoCore
from node.dialects.simproto.packets import NO_DATA, RPC, SUBSCRIBE, UNSUBSCRIBE, parse_response
from node.messaging.deadlines import Deadlines, within_reason
from node.messaging.pending import LOST, OutgoingCall
from node.protocol.codes import ResultCode


class OutgoingRequest(OutgoingCall):
    """A request of ours. `async_id` is its dialog; `code` and `data` (bytes, or None for
    no bytes) are its response once `done`."""

    __slots__ = ("_deadlines",)

    def __init__(
        self, on_done: Callable[[], None], deadlines: Deadlines["OutgoingRequest"]
    ) -> None:
        super().__init__(on_done)
        self._deadlines = deadlines

    def responded(self, payload: memoryview) -> None:
        """The response came, if nobody waits for it any more for `on_final` alone.

        Raises:
            RemoteProtocolError: it is empty.
        """
        code, data = parse_response(payload)
        if code in NO_DATA:
            data = b""  # the document has none here: what came all the same is nobody's
        if self.on_final is not None:
            self.on_final(code, 0)
        if self.slot:
            self._deadlines.discard(self, self.slot)
        self.finish(code, data or None)

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""
        self.close_code = code
        self.close_text = text
        self.finish(LOST, None)


class Asking:
    """Our calls and subscriptions on one connection; `deadlines` are those that callers
    set, if they are shorter than that of all dialogs."""

    __slots__ = ("_core", "deadlines")

    def __init__(self, core: SimProtoCore) -> None:
        self._core = core
        self.deadlines: Deadlines[OutgoingRequest] = Deadlines()

    def call(
        self,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingRequest:
        """Call a topic; `timeout` is seconds from `now`, None for that of all dialogs.

        Raises:
            LocalProtocolError: not open, too large, or too many requests wait already.
            ValueError: the topic has no UTF-8.
        """
        return self._ask(RPC, topic, data, now, timeout, on_done)

    def subscribe(
        self,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingRequest:
        """Ask for a topic's notes; raises as `call`."""
        return self._ask(SUBSCRIBE, topic, data, now, timeout, on_done)

    def unsubscribe(self, topic: str, now: float, on_done: Callable[[], None]) -> OutgoingRequest:
        """Ask for no more of them; raises as `call`."""
        return self._ask(UNSUBSCRIBE, topic, b"", now, None, on_done)

    def give_up(self, call: OutgoingRequest) -> None:
        """Nobody waits for `call` any more."""
        if not call.done:
            call.done = True
            self.deadlines.discard(call, call.slot)

    def handle_deadline(self, now: float) -> None:
        """End the requests whose callers wait no longer."""
        for call in self.deadlines.due(now):
            call.slot = 0
            call.finish(ResultCode.DEADLINE_EXCEEDED, None)

    def _ask(
        self,
        kind: int,
        topic: str,
        data: bytes,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingRequest:
        call = OutgoingRequest(on_done, self.deadlines)
        call.async_id = self._core.ask(kind, topic, data, now, call)
        timeout = within_reason(timeout)
        if timeout is not None and timeout < self._core.limits.answer_timeout:
            call.slot = self.deadlines.add(call, now + timeout)
        return call
