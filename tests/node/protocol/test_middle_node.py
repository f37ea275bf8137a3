"""Somebody in between changes, drops, doubles, inserts or replays the handshake's events.

Whatever it does, nobody opens who should not, nothing is delivered, and both
sides have ended by their deadline.
"""

import pytest

from parley._crypto.registry import NAMES
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import PeerIdentified
from tests.node.protocol.pair import (
    ALICE,
    ALIVE,
    BOB,
    FAST,
    Pair,
    Side,
    events_of,
    make_config,
    raw_frame,
)

# The handshake's events, and how many flights were carried before each.
EVENTS = {
    "hello": (0, 0),
    "reply": (1, 0),
    "responder's proof": (1, 1),
    "initiator's proof": (2, 0),
}
each_event = pytest.mark.parametrize("name", EVENTS)


def until(name: str, pair: Pair) -> tuple[Side, list[bytes], int]:
    """Carry the flights before an event; its sender, its flight's frames, its place there."""
    flights, place = EVENTS[name]
    for number in range(flights):
        pair.carry(pair.sides[number % 2])
    sender = pair.sides[flights % 2]
    if sender is pair.a and flights:
        pair.a.core.send(1, 0, 64, 1, b"data", lbm=False)
    return sender, [frame(event) for event in events_of(sender.take(pair.now))], place


def go_on(pair: Pair, sender: Side, frames: list[bytes]) -> None:
    """Deliver what became of a flight, let both go on, and let the deadline pass."""
    pair.deliver(pair.other(sender), b"".join(frames))
    pair.pump()
    pair.run(60.0)


def assert_refused(pair: Pair, name: str) -> None:
    assert not pair.b.opened
    assert not pair.b.events
    assert pair.b.code != ALIVE
    # The initiator is established when its own Proof is out; before that it must not be.
    assert pair.a.opened == (name == "initiator's proof")
    assert pair.a.code != ALIVE
    assert not pair.a.events


@pytest.mark.slow
@each_event
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_in_any_byte(name: str, bit: int) -> None:
    _, honest, place = until(name, Pair())
    for index in range(4, len(honest[place]), 3):
        pair = Pair()
        sender, frames, place = until(name, pair)
        changed = bytearray(frames[place])
        changed[index % len(changed)] ^= 1 << bit
        frames[place] = bytes(changed)
        go_on(pair, sender, frames)
        assert_refused(pair, name)


@each_event
def test_a_dropped_event(name: str) -> None:
    pair = Pair()
    sender, frames, place = until(name, pair)
    del frames[place]
    go_on(pair, sender, frames)
    assert_refused(pair, name)


@each_event
def test_a_doubled_event(name: str) -> None:
    pair = Pair()
    sender, frames, place = until(name, pair)
    frames.insert(place, frames[place])
    pair.deliver(pair.other(sender), b"".join(frames))
    pair.pump()
    doubled = pair.other(sender)
    assert doubled.code in (CloseCode.BAD_RECORD, CloseCode.AUTHENTICATION_FAILED)
    assert not doubled.events


@each_event
@pytest.mark.parametrize("inserted", [raw_frame(6, {}), frame(bytes(60)), frame(b"")])
def test_an_inserted_event(name: str, inserted: bytes) -> None:
    pair = Pair()
    sender, frames, place = until(name, pair)
    frames.insert(place, inserted)
    go_on(pair, sender, frames)
    assert_refused(pair, name)


def test_reply_and_proof_in_the_wrong_order() -> None:
    pair = Pair()
    sender, frames, _ = until("reply", pair)
    go_on(pair, sender, frames[::-1])
    assert_refused(pair, "reply")


def test_data_before_the_initiators_proof() -> None:
    pair = Pair()
    sender, frames, _ = until("initiator's proof", pair)
    go_on(pair, sender, frames[::-1])
    assert_refused(pair, "initiator's proof")


@pytest.mark.parametrize("parameter", NAMES)
def test_names_stripped_from_the_offer(parameter: str) -> None:
    """Bytes of a name are changed: what is left is weaker, and no Proof passes."""
    pair = Pair(make_config(ALICE, algorithms={}), make_config(BOB, algorithms={}))
    sender, frames, _ = until("hello", pair)
    best = NAMES[parameter][0].encode()
    assert best in frames[0]
    stripped = frames[0].replace(best, b"#" * len(best), 1)
    go_on(pair, sender, [stripped])
    assert not pair.a.opened
    assert not pair.b.opened
    assert not pair.a.all(PeerIdentified) + pair.b.all(PeerIdentified)


# Replays.


def recorded() -> Pair:
    pair = Pair()
    pair.pump()
    pair.a.core.send(1, 0, 64, 1, b"transfer", lbm=False)
    pair.pump()
    return pair


def test_a_recorded_responder_does_not_convince_a_new_initiator() -> None:
    old, new = recorded(), Pair()
    new.a.take(new.now)
    new.deliver(new.a, bytes(old.b.wire))
    assert new.a.code == CloseCode.BAD_RECORD
    assert not new.a.all(PeerIdentified)


def test_a_recorded_initiator_does_not_convince_a_responder() -> None:
    old, new = recorded(), Pair()
    new.deliver(new.b, bytes(old.a.wire))
    assert new.b.code == CloseCode.BAD_RECORD
    assert not new.b.all(PeerIdentified)
    assert not new.b.events


@pytest.mark.parametrize("direction", ["to the initiator", "to the responder"])
def test_a_proof_spliced_from_another_session(direction: str) -> None:
    old, new = recorded(), Pair()
    if direction == "to the initiator":
        sender, frames, _ = until("reply", new)
        frames[1] = frame(events_of(old.b.wire)[1])
    else:
        sender, frames, _ = until("initiator's proof", new)
        frames[0] = frame(events_of(old.a.wire)[1])
    new.deliver(new.other(sender), b"".join(frames))
    assert new.other(sender).code == CloseCode.BAD_RECORD
    assert not new.other(sender).all(PeerIdentified)


def test_a_side_that_meets_itself() -> None:
    side = Side(make_config(ALICE, algorithms=FAST), initiator=True)
    hello = side.take(0.0)
    side.core.receive_data(hello, 0.0)
    side.collect(0.0)
    assert side.code == CloseCode.PROTOCOL_ERROR
    assert side.core.ended
