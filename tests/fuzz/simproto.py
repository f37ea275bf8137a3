"""Target `simproto`: a SimProto connection on which both sides may send the same requests.

The reference checks both sides against the document. The input is a byte for the limits, a byte for
how the transport cuts, and a script.
"""

from contextlib import suppress
from typing import Final

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.simproto.core import SimProtoCore
from tests.fuzz.allowed import APPLICATION
from tests.fuzz.line import PIECES, START, Event, Line
from tests.fuzz.script import Kind, Step, parse
from tests.fuzz.simproto_ear import SimProtoEar
from tests.fuzz.simproto_side import SimProtoSide
from tests.reference.dialects.simproto import KINDS, Message, request

MAX_SIZE: Final = 4096
LIMITS: Final = (
    DialectLimits(),
    # Small ones, so that a short script reaches them.
    DialectLimits(
        longest_frame=512, longest_name=8, requests=4, client_memory=1024, write_buffer=1024
    ),
    DialectLimits(
        requests=1, answer_timeout=2.0, idle_before_ping=1.0, ping_timeout=1.0, longest_frame=64
    ),
)
# What their requests name; the last is too long for small limits, the one before no text.
TOPICS: Final = (
    b"echo",
    b"wait",
    b"fail",
    b"news",
    b"secret",
    b"odd",
    b"nobody",
    b"\xff",
    b"long" * 4,
)
# The meaning of a step's category, modulo their number; the first four are requests.
RESPONSE: Final = 4
PING: Final = 5
PONG: Final = 6
SAYINGS: Final = 7


def fuzz(data: bytes) -> None:
    """Hold the conversation."""
    limits = LIMITS[data[0] % len(LIMITS)] if data else LIMITS[0]
    piece = PIECES[data[1] % len(PIECES)] if len(data) > 1 else 0
    _Conversation(limits, piece).run(parse(data[2:]))


class _Conversation:
    def __init__(self, limits: DialectLimits, piece: int) -> None:
        core = SimProtoCore(START, limits)
        self._ear = SimProtoEar(limits)
        self._side = SimProtoSide(core, self._hear, lambda: self._line.now)
        self._line = Line(core, self._side, piece)
        self._held = b""

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            if step.kind is Kind.ACTION:
                self._act(step)
                continue
            self._held += step.payload if step.kind is Kind.RAW else self._said(step)
            if not step.held:
                self._deliver()
        self._deliver()
        self._line.finish(self._finish)
        self._side.check_end()

    def _hear(self, data: bytes) -> None:
        self._ear.hear(data, self._line.read)

    def _deliver(self) -> None:
        said, self._held = self._held, b""
        self._ear.say(said)
        self._line.receive(said)
        wrong = self._ear.judge(self._line.read)
        assert not wrong or self._line.core.closing, "the reference closes"

    def _finish(self) -> bool:
        """All is answered, by either side; whether there was anything to answer."""
        core, busy = self._line.core, self._side.finish()
        answers = [Message("response", dialog, b"\0").raw for dialog in self._ear.asked]
        if answers and not core.closing and self._ear.is_whole:
            self._held = b"".join(answers)
            self._deliver()
            return True
        if not busy:
            self._side.check_finished()
        return busy

    def _act(self, step: Step) -> None:
        event = Event(step.category % len(Event))
        if event is not Event.ACT:
            self._line.happen(event, step)
            return
        with suppress(*APPLICATION):
            self._side.act(step)
        self._line.settle()

    def _said(self, step: Step) -> bytes:
        """Return a valid message of the peer."""
        what = step.category % SAYINGS
        dialog = step.stream if step.kind is Kind.EVENT else 2**64 - 1 - step.stream
        topic = TOPICS[step.subcategory % len(TOPICS)]
        if what < len(KINDS):
            return Message("request", dialog, request(KINDS[what], topic, step.payload)).raw
        if what == PING:
            return Message("ping", dialog, step.payload).raw
        # To a request of the core, if there is one.
        asked = list(self._ear.pings if what == PONG else self._ear.asked)
        if asked and step.kind is Kind.EVENT:
            dialog = asked[step.stream % len(asked)]
        if what == PONG:
            return Message("pong", dialog, step.payload).raw
        return Message("response", dialog, bytes([step.async_id % 6]) + step.payload).raw
