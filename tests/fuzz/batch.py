"""Target `batch`: a Batch is decoded correctly, and its events act as if they came outside of it.

Of two cores in the same state, one gets Batches and the other their events one by one. Their
reports, answers and remaining state are equal unless the reference rejects the Batch. The input is
a byte for the setting and a script of a peer on an unencrypted connection, in which the payload of
a SEALED step is the payload of a Batch.
"""

from typing import Final

from parley._node.journal.audit.content import single_events
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import (
    INNER_HEAD,
    NO_PAYLOAD,
    parse_batch,
    parse_raw,
    serialise_batch,
)
from parley._node.protocol.event import Event as NodeEvent
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import ConnectionEnded, Report
from parley._node.protocol.states import State
from tests.fuzz.allowed import ALLOWED, APPLICATION
from tests.fuzz.events import SETTINGS
from tests.fuzz.meeting import START, fixed_randomness, opened
from tests.fuzz.script import Kind, Step, parse
from tests.reference.batches import batched
from tests.reference.wire import TYPES, Event, Violation

MAX_SIZE: Final = 4096


class Side:
    """A core and its unconsumed reports."""

    def __init__(self, core: Connection) -> None:
        self.core = core
        self.unread: list[NodeEvent] = []

    def hear(self, *events: Event) -> list[Report]:
        """Process these events and return the reports."""
        found: list[Report] = []
        for event in events:
            self.core.receive_data(frame(event.raw), START)
            found += self.core.reports()
        self.unread += [one for one in found if isinstance(one, NodeEvent) and one.cost]
        return found

    def act(self, step: Step) -> None:
        """Reset a stream, or read all that came."""
        try:
            if step.subcategory % 2:
                self.core.reset_stream(step.stream, CloseCode.CANCELLED)
            while self.unread:
                one = self.unread.pop()
                self.core.consume(one.stream, one.cost)
        except APPLICATION:
            return


def fuzz(data: bytes) -> None:
    """Say all of it to both, and compare after each step."""
    setting = SETTINGS[data[0] % len(SETTINGS)] if data else SETTINGS[0]
    with fixed_randomness():
        together, alone = (Side(opened(setting)[0]) for _ in range(2))
        for step in parse(data[1:]):
            if step.kind is Kind.ACTION:
                together.act(step)
                alone.act(step)
            elif not _same(together, alone, step):
                return
            core, other = together.core, alone.core
            assert core.data_to_send(START) == other.data_to_send(START)
            assert core.state is other.state
            if core.state is not State.OPEN:
                return
            assert core.flow() == other.flow()


def _same(together: Side, alone: Side, step: Step) -> bool:
    """Whether an event, or a Batch and its events, did the same to both; False at an end of one
    that the other is spared."""
    event = Event(step.stream, step.async_id, step.category, step.subcategory, step.payload)
    if step.kind is not Kind.SEALED:
        heard = together.hear(event)
        assert heard == alone.hear(event)
        return True
    batch = Event(step.stream, step.async_id, *TYPES["Batch"], step.payload)
    events = _read(batch)
    heard = together.hear(batch)
    too_large = len(step.payload) > together.core.limits.max_payload
    if events and not too_large:
        assert heard == alone.hear(*events)
        return True
    (end,) = heard
    assert isinstance(end, ConnectionEnded), "no Batch, and the connection goes on"
    wanted = CloseCode.FRAME_TOO_LARGE if too_large else CloseCode.PROTOCOL_ERROR
    assert end.code in (wanted, CloseCode.PROTOCOL_ERROR)
    return False


def _read(batch: Event) -> list[Event]:
    """Return the events as all readers decode them; empty for an invalid Batch."""
    try:
        wanted = batched(batch)
    except Violation:
        wanted = []
    raw = parse_raw(batch.raw)
    try:
        events = parse_batch(raw)
    except ALLOWED["batch"]:
        events = []
    else:
        assert serialise_batch([(*one.head[1:], one.payload) for one in events]) == raw.payload
    inside = [Event(*one.head, b"" if one.payload == NO_PAYLOAD else one.payload) for one in events]
    assert inside == wanted
    plain = INNER_HEAD.pack(*raw.head[1:]) + raw.payload
    rows = [(one[1], one[2] >> 8, one[2] & 255, one[3]) for one in single_events(raw.stream, plain)]
    assert rows == [(*one.head[1:], one.payload) for one in events or [raw]]
    return wanted
