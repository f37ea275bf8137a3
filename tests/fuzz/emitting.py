"""Named events of the fuzzed application: emitting, and handling received events.

The number of unread events is bounded, and a reader gets values or a FormatError. Scripts define
all handlers.
"""

from collections import deque
from typing import Final

from parley._node.messaging.formats import FormatName
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.named_events import REPLIES_MEMORY, IncomingEmit, OutgoingEmit
from parley._node.messaging.payloads import make_payload
from parley._node.messaging.requests import RequestMux
from parley._node.protocol.codes import ResultCode
from tests.fuzz.allowed import ALLOWED
from tests.fuzz.script import Step

# `echo` answers these immediately, and the others when a script requests it.
EVENTS: Final = ("x", "echo", "hold")
FORMATS: Final[tuple[FormatName, ...]] = ("lbm", "raw", "msgpack", "cbor")


def find_event(namespace: str, name: str) -> ResultCode:
    """# Events without a namespace have handlers; others are refused."""
    if namespace:
        return ResultCode.NOT_AUTHORISED
    return ResultCode.ACCEPTED if name in EVENTS else ResultCode.TOPIC_NOT_FOUND


class Emitting:
    """What one application emits; `asked` takes the events that wait for replies."""

    def __init__(self, calls: RequestMux, asked: deque[OutgoingEmit]) -> None:
        self._calls = calls
        self._asked = asked

    def run(self, emit: IncomingEmit, running: deque[IncomingCall]) -> None:
        """Handle an event: its payload is read, whatever it is."""
        for part in ("data", "raw", "tandem"):
            try:
                getattr(emit.payload, part)
            except ALLOWED["formats"]:
                continue
        if emit.topic == "echo":
            self._calls.incoming.answer(emit, ResultCode.ACCEPTED, "echo")
        else:
            running.append(emit)

    def emit(self, step: Step) -> None:
        """Emit, and want no reply."""
        payload = make_payload(step.payload, FORMATS[step.stream % len(FORMATS)])
        self._calls.named.emit("x", "", payload)

    def ask(self, step: Step, now: float) -> None:
        """Emit, and wait for replies."""
        emit = OutgoingEmit(lambda: None)
        payload = make_payload(step.payload, FORMATS[step.stream % len(FORMATS)])
        self._calls.named.ask(emit, "hold", "", payload, now, 5.0)
        self._asked.append(emit)

    def reply(self, step: Step, running: deque[IncomingCall]) -> None:
        """Reply to the event that waits longest."""
        if running and isinstance(running[0], IncomingEmit):
            named, payload = self._calls.named, make_payload(step.payload, "lbm")
            body = named.encode_reply(running[0], "tick" * (step.stream % 2), payload)
            named.reply(running[0], body)

    def read(self) -> None:
        """Read all replies that wait."""
        for emit in self._asked:
            while emit.replies:
                try:
                    assert emit.take().data != ""
                except ALLOWED["formats"]:
                    continue
            assert emit.account.held == 0

    def leave(self) -> None:
        """Stop reading the first emission."""
        if self._asked:
            self._calls.outgoing.stop_waiting(self._asked.popleft())

    def check(self) -> None:
        """Check that the number of unread events is bounded."""
        for emit in self._asked:
            assert sum(size for _, size in emit.replies) == emit.account.held <= REPLIES_MEMORY
