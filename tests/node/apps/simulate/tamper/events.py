"""Tampering with one event: flipped, dropped, reordered, duplicated, sealed by another's seal.

A KeyUpdate is left alone, and so is a direction's last event, so that each fault can be recognised
by what follows it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from parley._node.apps.simulate.draws import Draws
from parley._node.journal import keys
from parley._node.journal.records import HEAD_SIZE
from tests.node.apps.simulate.tamper.planted import Fault, Planted
from tests.node.apps.simulate.tamper.segment import HEAD, Segment
from tests.node.apps.simulate.tamper.survey import Stretch
from tests.node.apps.simulate.tamper.wires import Shape

# How many events are looked at before another stretch is taken.
_TRIES: Final = 64

Change = Callable[[Segment, Stretch, Draws], Planted | None]


def planted(
    kind: Fault, stretch: Stretch, number: int | None, count: int = 1, detail: str = ""
) -> Planted:
    """What is to be listed of a fault at the `number`-th event of a stretch, from 0."""
    return Planted(
        kind,
        stretch.path.name,
        stretch.name.node,
        stretch.session.facts.session_id.hex(),
        ("received", "sent")[stretch.direction],
        None if number is None else stretch.first + number,
        count,
        detail,
    )


def bit_flip(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Flip one bit of an event, wherever it is."""
    for number, index in _choices(segment, stretch, draws):
        wire = segment.wire(index)
        at = draws.randrange(len(wire))
        segment.put_wire(index, flipped(wire, at, draws))
        part = Shape.of(stretch.session.facts).part(wire, at)
        return planted(Fault.BIT_FLIP, stretch, number, detail=part)
    return None


def drop(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Take an event out."""
    for number, index in _choices(segment, stretch, draws):
        del segment.records[index]
        return planted(Fault.DROP, stretch, number)
    return None


def duplicate(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Have an event twice."""
    for number, index in _choices(segment, stretch, draws):
        segment.records.insert(index + 1, segment.records[index])
        return planted(Fault.DUPLICATE, stretch, number)
    return None


def reorder(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Have two neighbours of a block change places; their times stay where they were."""
    events = segment.events(stretch.session.number, stretch.direction)
    for number, index in _choices(segment, stretch, draws):
        other = events[number + 1]
        between = segment.records[index:other]
        apart = segment.updates_keys(other) or any(r.kind == keys.BLOCK for r in between)
        if apart or number + 2 >= len(events):
            continue
        one, two = segment.wire(index), segment.wire(other)
        segment.put_wire(index, two)
        segment.put_wire(other, one)
        return planted(Fault.REORDER, stretch, number, count=2)
    return None


def foreign_seal(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Have an event the seal of another, best of another session."""
    shape = Shape.of(stretch.session.facts)
    for number, index in _choices(segment, stretch, draws, most=None):
        wire = segment.wire(index)
        where = shape.seal(wire)
        if where is None:
            continue
        own = segment.events(stretch.session.number, stretch.direction)
        seal = _another_seal(segment, shape, set(own), own[: number or None])
        if seal is None or seal == wire[where]:
            return None
        segment.put_wire(index, wire[: where.start] + seal + wire[where.stop :])
        return planted(Fault.FOREIGN_SEAL, stretch, number)
    return None


def bad_crc(segment: Segment, stretch: Stretch, draws: Draws) -> Planted | None:
    """Flip one bit in the file and make nothing right. Not for a segment to be saved after."""
    for number, index in _choices(segment, stretch, draws):
        record = segment.records[index]
        at = draws.randrange(HEAD, len(record.body))
        with segment.path.open("r+b") as file:
            file.seek(record.offset + HEAD_SIZE + at)
            file.write(flipped(record.body, at, draws)[at : at + 1])
        return planted(Fault.BAD_CRC, stretch, number)
    return None


def flipped(data: bytes, at: int, draws: Draws) -> bytes:
    """The same bytes but for one bit of that at `at`."""
    return data[:at] + bytes([data[at] ^ 1 << draws.randrange(8)]) + data[at + 1 :]


def _choices(
    segment: Segment, stretch: Stretch, draws: Draws, most: int | None = _TRIES
) -> Iterator[tuple[int, int]]:
    """Some of the events that may be tampered with, each as its number in the stretch and
    its place in the segment."""
    events = segment.events(stretch.session.number, stretch.direction)
    last = len(events) - (1 if stretch.has_end else 0)
    numbers = list(range(min(last, len(events) - 1)))
    draws.shuffle(numbers)
    for number in numbers[:most]:
        if not segment.updates_keys(events[number]):
            yield number, events[number]


def _another_seal(segment: Segment, shape: Shape, own: set[int], before: list[int]) -> bytes | None:
    """A seal of the right size from another chain, else from earlier in the same one."""
    for index, record in enumerate(segment.records):
        if record.kind != keys.EVENT or index in own:
            continue
        wire = segment.wire(index)
        # Of a session with another suite this is not a seal, but some bytes: as foreign.
        where = shape.seal(wire)
        if where is not None and len(wire) >= where.stop:
            return wire[where]
    for index in before:
        wire = segment.wire(index)
        where = shape.seal(wire)
        if where is not None:
            return wire[where]
    return None
