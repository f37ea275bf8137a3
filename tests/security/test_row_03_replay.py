"""Row 3. Mistake: a handshake that can be replayed.

Promise: a replayed flight is never accepted. This holds for a responder's flight to a new
initiator, and for an initiator's flight to the same or another responder. It holds for the whole
flight, event by event, and with the same random value.

Single events of another session, and signatures of one: row 12. Repeated events within one session:
row 6.
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
    """A recorded session in which the initiator made a request."""
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
    """Return a new core of the same node, with the given random value, if any."""
    side = Side(shape.config(who), initiator=who == "initiator")
    side.core = Connection(
        shape.config(who),
        initiator=who == "initiator",
        now=START,
        random=lambda size: random if random is not None else random_bytes(size),
    )
    return side


def random_of(side: Side) -> bytes:
    """Return the random value in a side's Hello or Reply."""
    events = map(handshake_cells, events_of(side.wire)[:2])
    return next(bytes(cells[keys.RANDOM]) for _, cells in events if keys.RANDOM in cells)


def feed(side: Side, pieces: list[bytes]) -> None:
    """Pass bytes to a core while it accepts them."""
    for piece in pieces:
        side.take(START)
        side.core.receive_data(piece, START)
        side.collect(START)


def assert_not_convinced(side: Side) -> None:
    """Check that it ended because of differing keys, and that no application was involved."""
    assert side.code == CloseCode.BAD_RECORD
    (only,) = side.reports
    assert isinstance(only, ConnectionEnded)
    assert side.core.state is State.ENDED  # without sending anything
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
    # It sent only what any peer may see: Hello, and a second Hello after a Retry.
    assert all(event[6:8] == bytes((1, HELLO)) for event in events_of(new.wire))
    assert 1 <= len(events_of(new.wire)) <= len([e for e in shape.events if "Hello" in e])


@each_shape
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("same_random", [False, True])
def test_a_recorded_initiator_does_not_convince_a_responder(
    shape: Shape, cut: str, same_random: bool
) -> None:
    """The Hello is accepted, with or without a network key, but the replayed rest is rejected."""
    old = recorded(shape)
    new = fresh(shape, "responder", random_of(old.b) if same_random else None)
    feed(new, CUTS[cut](bytes(old.a.wire)))
    assert_not_convinced(new)
    assert bytes(new.wire) != bytes(old.b.wire)
