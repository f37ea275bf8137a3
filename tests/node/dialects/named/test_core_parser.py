"""Parsing of events: in order, within the limit of running handlers, and in turns."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import BromineEvent, Flavour
from parley._node.dialects.named.core import EventParser
from parley._node.protocol.memory_budget import MemoryBudget
from tests.node.dialects.named.events import FLAVOURS, ask, on_wire

both = pytest.mark.parametrize("flavour", FLAVOURS)


class Taker:
    """Receives events for handlers, which end on the test's request."""

    def __init__(self, flavour: Flavour, limits: DialectLimits) -> None:
        self.taken: list[BromineEvent] = []
        self.turns = 0
        self.intake = EventParser(flavour, limits, self.take, MemoryBudget(limits.client_memory))

    def take(self, event: BromineEvent) -> None:
        self.taken.append(event)
        self.intake.started(event)

    def turn(self) -> None:
        self.turns += 1


@both
@given(data=st.data())
def test_delayed_events_keep_their_order(flavour: Flavour, data: st.DataObject) -> None:
    limits = DialectLimits(requests=data.draw(st.integers(1, 5)), client_memory=1_024)
    taker = Taker(flavour, limits)
    if data.draw(st.booleans()):
        taker.intake.on_turn = taker.turn
    sizes = data.draw(st.lists(st.integers(0, 700), max_size=100))
    events = [ask(data=bytes(size), event_id=number) for number, size in enumerate(sizes)]
    raw = b"".join(on_wire(event, flavour) for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=5)))
    ended = 0
    for start, stop in pairwise([0, *cuts, len(raw)]):
        taker.intake.feed(raw[start:stop])
        for _ in range(data.draw(st.integers(0, 40))):
            if ended < len(taker.taken):
                taker.intake.done(taker.taken[ended])
                ended += 1
            taker.intake.go_on()
            assert taker.intake.running == len(taker.taken) - ended <= limits.requests
            held = sum(len(event.data) for event in taker.taken[ended:])
            assert held <= limits.client_memory + 700
    while ended < len(taker.taken):
        taker.intake.done(taker.taken[ended])
        taker.intake.go_on()
        ended += 1
    assert taker.taken == events
    assert (taker.intake.holds_back, taker.intake.running) == (False, 0)


@both
def test_without_turns_all_is_taken_at_once(flavour: Flavour) -> None:
    taker = Taker(flavour, DialectLimits())
    taker.intake.feed(on_wire(ask(), flavour) * 500)
    assert (len(taker.taken), taker.intake.holds_back) == (500, False)


@both
def test_it_may_be_cleared_by_what_comes_of_an_event(flavour: Flavour) -> None:
    taken: list[BromineEvent] = []

    def take(event: BromineEvent) -> None:
        taken.append(event)
        intake.clear()

    intake = EventParser(flavour, DialectLimits(), take, MemoryBudget(1 << 20))
    intake.feed(on_wire(ask(), flavour) * 3)
    assert (len(taken), intake.holds_back) == (1, False)
