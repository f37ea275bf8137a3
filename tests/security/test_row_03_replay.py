"""Row 3. Mistake: a handshake that can be replayed.

Promise: a recorded flight convinces nobody again: not a responder's a new initiator, not an
initiator's the same or another responder, whole, event by event, or with the same random value.

Single events of another session, and signatures of one: row 12. Within one session an
event that comes twice: row 6.
"""

from collections.abc import Callable

import pytest

from parley._crypto.randomness import random_bytes
from parley._lbm import keys
from parley._node.protocol.codes import HELLO, CloseCode
from parley._node.protocol.connection import Connection
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import ConnectionEnded
from parley._node.protocol.states import State
from tests.node.protocol.pair import START, Pair, Side, events_of
from tests.reference.handshake import handshake_cells
from tests.security.shapes import SHAPES, Shape

each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)

Cut = Callable[[bytes], list[bytes]]
CUTS: dict[str, Cut] = {
    "whole": lambda wire: [wire],
    "event by event": lambda wire: [frame(event) for event in events_of(wire)],
}


def recorded(shape: Shape) -> Pair:
    """A session in which the initiator had something done."""
    pair = Pair(shape.config("initiator"), shape.config("responder"))
    pair.pump()
    for side in pair.sides:
        side.core.send(1, 0, 64, 1, b"transfer", lbm=False, seal=True)
    pair.pump()
    for side in pair.sides:
        assert side.payloads == [b"transfer"]
    pair.a.core.close(pair.now)
    pair.pump()
    return pair


def fresh(shape: Shape, who: str, random: bytes | None = None) -> Side:
    """A new core of the same node; its random value is the one given, if any."""
    side = Side(shape.config(who), initiator=who == "initiator")
    side.core = Connection(
        shape.config(who),
        initiator=who == "initiator",
        now=START,
        random=lambda size: random if random is not None else random_bytes(size),
    )
    return side


def random_of(side: Side) -> bytes:
    """The random value that a side sent in its Hello or Reply."""
    events = map(handshake_cells, events_of(side.wire)[:2])
    return next(bytes(cells[keys.RANDOM]) for _, cells in events if keys.RANDOM in cells)


def feed(side: Side, pieces: list[bytes]) -> None:
    """Hand a core bytes, as long as it takes them."""
    for piece in pieces:
        side.take(START)
        side.core.receive_data(piece, START)
        side.collect(START)


def assert_not_convinced(side: Side) -> None:
    """It ended for the one reason that keys differ; nobody was asked or told anything."""
    assert side.code == CloseCode.BAD_RECORD
    (only,) = side.reports
    assert isinstance(only, ConnectionEnded)
    assert side.core.state is State.ENDED  # and says nothing
    assert not side.take(START)


@each_shape
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("same_random", [False, True])
def test_a_recorded_responder_does_not_convince_a_new_initiator(
    shape: Shape, cut: str, same_random: bool
) -> None:
    old = recorded(shape)
    new = fresh(shape, "initiator", random_of(old.a) if same_random else None)
    feed(new, CUTS[cut](bytes(old.b.wire)))
    assert_not_convinced(new)
    # It sent no more than one may see of it: Hello, and Hello again where it was asked.
    assert all(event[6:8] == bytes((1, HELLO)) for event in events_of(new.wire))
    assert 1 <= len(events_of(new.wire)) <= len([e for e in shape.events if "Hello" in e])


@each_shape
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("same_random", [False, True])
def test_a_recorded_initiator_does_not_convince_a_responder(
    shape: Shape, cut: str, same_random: bool
) -> None:
    """Its Hello is taken, network key or not; what it cannot be is followed up."""
    old = recorded(shape)
    new = fresh(shape, "responder", random_of(old.b) if same_random else None)
    feed(new, CUTS[cut](bytes(old.a.wire)))
    assert_not_convinced(new)
    assert bytes(new.wire) != bytes(old.b.wire)
