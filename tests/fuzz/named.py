"""Target `named`: a connection with byte-exact named events, in both flavours.

An event that the reference accepts is an event, and one that it rejects ends the connection; the
same holds for sent events. The input is a byte for flavour and limits, a byte for how the transport
cuts, and a script.
"""

from contextlib import suppress
from typing import Final

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import Flavour
from parley._node.dialects.named.core import NamedCore
from tests.fuzz.allowed import APPLICATION
from tests.fuzz.line import PIECES, START, Event, Line
from tests.fuzz.named_ear import NamedEar
from tests.fuzz.named_side import NamedSide
from tests.fuzz.script import Kind, Step, parse
from tests.reference.dialects.named import KINDS, NamedEvent, error_payload

MAX_SIZE: Final = 4096
# Small ones, so that a short script reaches them.
SMALL: Final = DialectLimits(
    longest_frame=512,
    longest_name=8,
    requests=3,
    client_memory=1024,
    write_buffer=1024,
    idle_timeout=20.0,
)
SETTINGS: Final = (
    (Flavour.PLAIN, DialectLimits()),
    (Flavour.TYPED, DialectLimits()),
    (Flavour.PLAIN, SMALL),
    (Flavour.TYPED, SMALL),
)
# What their events are called, and in which namespace.
NAMES: Final = ("ping", "", "end", "error", "reply", "long" * 4, "ä")
NAMESPACES: Final = ("", "", "", "game", "long" * 4)
# Whether their event refers to one: a category, modulo this.
TO_OURS: Final = 1
TO_ANY: Final = 2
REFERENCES: Final = 3


def fuzz(data: bytes) -> None:
    """Hold the conversation."""
    flavour, limits = SETTINGS[data[0] % len(SETTINGS)] if data else SETTINGS[0]
    piece = PIECES[data[1] % len(PIECES)] if len(data) > 1 else 0
    _Conversation(flavour, limits, piece).run(parse(data[2:]))


class _Conversation:
    def __init__(self, flavour: Flavour, limits: DialectLimits, piece: int) -> None:
        self._typed = flavour is Flavour.TYPED
        core = NamedCore(START, limits, flavour)
        self._ear = NamedEar(limits, typed=self._typed)
        self._side = NamedSide(core, limits, self._hear, lambda: self._line.now)
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

    def _finish(self) -> bool:
        """All that was read is taken, once there is room for it."""
        if self._side.finish():
            return True
        core, wrong = self._line.core, self._ear.judge(self._line.read)
        assert not wrong or core.closing, "the reference closes"
        assert core.closing or self._side.taken == self._ear.events, "an event is lost"
        return False

    def _act(self, step: Step) -> None:
        event = Event(step.category % len(Event))
        if event is not Event.ACT:
            self._line.happen(event, step)
            return
        with suppress(*APPLICATION):
            self._side.act(step)
        self._line.settle()

    def _said(self, step: Step) -> bytes:
        """Return a valid event of the peer."""
        reference, kind = step.category % REFERENCES, KINDS[step.async_id % len(KINDS)]
        ref_id = step.stream if reference == TO_ANY else None
        if reference == TO_OURS and self._ear.heard:
            ref_id = self._ear.heard[step.stream % len(self._ear.heard)]
        data = step.payload
        if step.kind is Kind.SEALED:  # what an error has
            data = error_payload(step.stream & 0xFFFF, step.payload.decode(errors="replace"))
        return NamedEvent(
            step.stream,
            NAMES[step.subcategory % len(NAMES)],
            data,
            ref_id,
            NAMESPACES[step.async_id % len(NAMESPACES)],
            kind if self._typed else None,
        ).raw
