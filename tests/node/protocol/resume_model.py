"""A model of resumption: two streams, lossy transports, and all interleavings.

A side writes a list of positions, each a byte or a numbered Received. Bytes in transit are a slice
of that list, so that a reader detects a lost, duplicated or moved position. The model implements
section 17 independently of the code.
"""

from collections.abc import Iterator
from typing import NamedTuple

# An item of a stream: a byte, or the number in a Received.
BYTE = -1
# States of a side. A CLOSED responder only answers Resumes.
LIVE, PARTED, CLOSED, OVER = "live", "parted", "closed", "over"
# The transport of an attacker who sent a copied Resume; data on it is lost.
STRANGER = -2
NONE = -1


class Side(NamedTuple):
    """`written` is all that was ever sent, `next` the next position to write on transport `at`;
    `told` is what the peer acknowledged, `heard` the number in its last Received.
    """

    status: str = LIVE
    at: int = 0
    written: tuple[int, ...] = ()
    next: int = 0
    told: int = 0
    heard: int = 0
    taken: int = 0
    number: int = 0
    attempt: int = 0


class Way(NamedTuple):
    """One direction of a transport: its first event, and the positions from `first` to `last` after
    it.
    """

    event: tuple[int, int, int] | None = None
    first: int = 0
    last: int = 0


class Transport(NamedTuple):
    """The two directions, to the responder first."""

    there: Way = Way()
    back: Way = Way()


class World(NamedTuple):
    """Both sides, the relevant transports by number, and the remaining faults. `copied` is the last
    Resume that an attacker saw.
    """

    initiator: Side
    responder: Side
    transports: tuple[tuple[int, Transport], ...]
    cuts: int
    copies: int
    copied: tuple[int, int, int] | None


class Broken(AssertionError):
    """A position was lost, duplicated or moved, or a correct side reported a violation."""


class Model:
    """`there` and `back` are the bytes of each direction; with `closes`, the responder's last is
    Close. Transports are cut `cuts` times, a Resume is copied `copies` times, and each side may
    write Received `tells` times.
    """

    def __init__(
        self, there: int, back: int, *, cuts: int, copies: int, closes: bool, tells: int
    ) -> None:
        self.there, self.back, self.closes, self.tells = there, back, closes, tells
        self.first = World(Side(), Side(), ((0, Transport()),), cuts, copies, None)

    def steps(self, world: World) -> Iterator[World]:
        """Return all possible next states."""
        for after in self._raw_steps(world):
            yield _without_noise(after)

    def is_whole(self, world: World) -> bool:
        """Return whether all bytes arrived and no side waits."""
        one, other = world.initiator, world.responder
        if self.closes:
            return one.status == OVER and one.taken == len(other.written)
        return one.taken == len(other.written) and other.taken == len(one.written)

    def _raw_steps(self, world: World) -> Iterator[World]:
        yield from self._writes(world, initiator=True)
        yield from self._writes(world, initiator=False)
        yield from self._attempts(world)
        for number, transport in world.transports:
            if transport.there.event or transport.there.first < transport.there.last:
                yield self._at_responder(world, number, transport)
            if transport.back.event or transport.back.first < transport.back.last:
                yield self._at_initiator(world, number, transport)
            if world.cuts:
                yield _cut(world, number)._replace(cuts=world.cuts - 1)
        if world.copies and world.copied:
            yield self._resume(world, STRANGER, world.copied)._replace(copies=world.copies - 1)

    # Writing.

    def _writes(self, world: World, *, initiator: bool) -> Iterator[World]:
        side = world.initiator if initiator else world.responder
        total = self.there if initiator else self.back
        if side.at == NONE or side.status not in (LIVE, CLOSED):
            return
        if side.next < len(side.written):
            yield self.write(world, initiator, side)
            return
        if side.status == CLOSED:
            return
        count = side.written.count(BYTE)
        if count < total:
            after = side._replace(written=(*side.written, BYTE))
            if self.closes and not initiator and count + 1 == total:
                after = after._replace(status=CLOSED)
            yield self.write(world, initiator, after)
        said = [told for told in side.written if told != BYTE]
        if side.taken > max(said, default=0) and len(said) < self.tells:
            after = side._replace(written=(*side.written, side.taken))
            yield self.write(world, initiator, after)

    def write(self, world: World, initiator: bool, side: Side) -> World:
        """Write the next position."""
        after = side._replace(next=side.next + 1)
        for number, transport in world.transports:
            if number == side.at:
                way = transport.there if initiator else transport.back
                way = way._replace(last=way.last + 1)
                changed = (
                    transport._replace(there=way) if initiator else transport._replace(back=way)
                )
                world = _set(world, number, changed)
        return world._replace(initiator=after) if initiator else world._replace(responder=after)

    def _attempts(self, world: World) -> Iterator[World]:
        side = world.initiator
        waiting = any(number == side.at for number, _ in world.transports)
        if side.status == PARTED and not waiting:
            yield self._attempt(world)
        elif side.status == LIVE and side.taken and world.cuts:
            # The network changed: the old transport seems open, but is no longer read.
            yield self._attempt(world._replace(cuts=world.cuts - 1))

    def _attempt(self, world: World) -> World:
        side = world.initiator
        number = 1 + max((number for number, _ in world.transports), default=0)
        resume = (side.number, side.attempt + 1, side.taken)
        after = side._replace(status=PARTED, at=number, attempt=side.attempt + 1)
        return world._replace(
            initiator=after,
            transports=(*world.transports, (number, Transport(Way(resume)))),
            copied=resume,
        )

    # Receiving.

    def _at_responder(self, world: World, number: int, transport: Transport) -> World:
        way = transport.there
        if way.event:
            gone = _set(world, number, transport._replace(there=way._replace(event=None)))
            return self._resume(gone, number, way.event)
        world = _set(world, number, transport._replace(there=way._replace(first=way.first + 1)))
        if world.responder.at != number or world.responder.status != LIVE:
            return world
        after = take(world.responder, way.first, world.initiator)
        return world._replace(responder=after)

    def _resume(self, world: World, number: int, resume: tuple[int, int, int]) -> World:
        side, (count, attempt, taken) = world.responder, resume
        if count not in (side.number, side.number - 1) or attempt <= side.attempt:
            return _cut(world, number)  # Reject: this attempt has failed
        if not side.told <= taken <= len(side.written):
            raise Broken(f"{resume} at {side}")
        status = CLOSED if side.status == CLOSED else LIVE
        after = side._replace(status=status, at=number, next=taken, told=taken, attempt=attempt)
        after = after._replace(number=max(side.number, count + 1))
        resumed = Way((attempt, side.taken, 0), taken, taken)
        for place, transport in world.transports:
            if place == number:
                world = _set(world, number, transport._replace(back=resumed))
        return world._replace(responder=after)

    def _at_initiator(self, world: World, number: int, transport: Transport) -> World:
        side, way = world.initiator, transport.back
        if way.event:
            attempt, taken, _ = way.event
            if side.at != number or side.status != PARTED or attempt != side.attempt:
                return _cut(world, number)
            if not side.told <= taken <= len(side.written):
                raise Broken(f"{way.event} at {side}")
            changed = Transport(Way(None, taken, taken), way._replace(event=None))
            after = side._replace(status=LIVE, next=taken, told=taken, number=side.number + 1)
            return _set(world, number, changed)._replace(initiator=after)
        world = _set(world, number, transport._replace(back=way._replace(first=way.first + 1)))
        if side.at != number or side.status != LIVE:
            return world
        after = take(side, way.first, world.responder)
        if self.closes and world.responder.status == CLOSED:
            last = after.taken == len(world.responder.written)
            after = after._replace(status=OVER if last else LIVE)
        return world._replace(initiator=after)


def take(side: Side, place: int, other: Side) -> Side:
    """Receive a position that the other side wrote."""
    if place != side.taken:
        raise Broken(f"place {place} where {side.taken} is due")
    if other.told > side.taken:
        raise Broken("a higher position than was received")
    after, told = side._replace(taken=place + 1), other.written[place]
    if told == BYTE:
        return after
    # A Received from before a cut may arrive after a Resume with a higher number.
    if not side.heard <= told <= len(side.written):
        raise Broken(f"a Received of {told} at {side}")
    return after._replace(heard=told, told=max(told, side.told))


def _set(world: World, number: int, transport: Transport) -> World:
    changed = tuple((n, transport if n == number else old) for n, old in world.transports)
    return world._replace(transports=changed)


def _cut(world: World, number: int) -> World:
    """Lose the transport and its data in transit; its users notice later."""
    return world._replace(transports=tuple(t for t in world.transports if t[0] != number))


def _without_noise(world: World) -> World:
    """Normalise irrelevant differences: transports that are no longer read, and the numbers of
    transports. A side whose transport is lost counts as suspended, because its writes are lost
    until it notices.
    """
    one, other = world.initiator, world.responder
    transports = {}
    for number, transport in world.transports:
        if number != one.at and transport.there.event is None and number != other.at:
            continue
        transports[number] = transport
    names = {number: place for place, number in enumerate(transports)}
    if one.status == LIVE and one.at not in names:
        one = one._replace(status=PARTED)
    if other.status == LIVE and other.at not in names and other.at != STRANGER:
        other = other._replace(status=PARTED)
    one = one._replace(at=names.get(one.at, NONE))
    other = other._replace(at=names.get(other.at, STRANGER if other.at == STRANGER else NONE))
    named = tuple((names[number], transport) for number, transport in transports.items())
    return world._replace(initiator=one, responder=other, transports=named)


def search(model: Model) -> tuple[int, int]:
    """Visit every reachable state; return the number of states and of final states. Raises
    `Broken`.
    """
    seen, todo, ends = {model.first}, [model.first], 0
    while todo:
        world, following = todo.pop(), False
        for after in model.steps(world):
            following = True
            if after not in seen:
                seen.add(after)
                todo.append(after)
        if not following:
            ends += 1
            if not model.is_whole(world):
                raise Broken(f"it stops at {world}")
    return len(seen), ends
