"""Target `relay`: several clients of one event relay, and its own bridge.

One rule: who gets what is compared with a model that reads by the reference. The input
is a byte for the limits, a byte for how the transports cut, and a script in which a
step's stream says which client it is about.
"""

from collections.abc import Sequence
from typing import Final

from node.dialects.limits import RelayLimits
from node.dialects.relay.connection import RelayConnection
from node.dialects.relay.router import Piece, Router
from node.protocol.codes import CloseCode
from tests.fuzz.line import MOST_TURNS, PIECES, START, Event, Line
from tests.fuzz.relay_ear import RelayEar
from tests.fuzz.relay_model import BRIDGE, HEAD_SIZE, UUIDS, Error, Model
from tests.fuzz.script import Kind, Step, parse
from tests.reference.dialects.relay import BROADCAST, SERVER, RelayMessage

MAX_SIZE: Final = 4096
CLIENTS: Final = 4
LIMITS: Final = (
    RelayLimits(),
    # Small ones, so that a short script reaches them.
    RelayLimits(longest_frame=96, write_buffer=1024, uuid_timeout=2.0, idle_timeout=20.0),
)
# First byte of those in which nobody is told of targets that are not there.
SILENT: Final = 128
TARGETS: Final = (*UUIDS, BROADCAST, SERVER, BRIDGE, b"nobody is called")
# An error may come on top of a full queue; bytes.
ONE_ERROR: Final = 200


def fuzz(data: bytes) -> None:
    """Hold the conversations."""
    first = data[0] if data else 0
    piece = PIECES[data[1] % len(PIECES)] if len(data) > 1 else 0
    hall = _Hall(LIMITS[first % len(LIMITS)], piece, feedback=first < SILENT)
    for step in parse(data[2:]):
        hall.take(step)
    hall.finish()


class _Place:
    """One connection as both sides and the model have it, and its driver's part."""

    def __init__(
        self, router: Router, limits: RelayLimits, model: Model, piece: int, now: float
    ) -> None:
        self.core = RelayConnection(router, limits, now)
        # Errors are longer than small messages may be.
        self.ear = RelayEar(max(limits.longest_frame, ONE_ERROR))
        self.line = Line(self.core, self.ear, piece)
        self.line.now = now
        self.core.shell = self
        self.client = model.enter()
        self.exact = True

    def touch(self) -> None:
        """It is flushed with all others."""

    def flush(self) -> None:
        """Write now what the transport takes."""
        self.line.flush()

    def settle(self) -> None:
        """Hand on reports."""
        self.line.hand_on()

    def check(self, limits: RelayLimits) -> None:
        """Compare it with the model."""
        ear, client, ended = self.ear, self.client, self.ear.ended
        assert self.core.queued_bytes <= limits.write_buffer + ONE_ERROR
        if ended is not None and client.open:
            assert ended.code != CloseCode.PROTOCOL_ERROR, "the model takes it"
            if ended.code == CloseCode.TIMEOUT and not ear.let_in:
                client.told.append(Error(BROADCAST, 1))
            client.open = False
        assert ended is not None or client.open, "the model closes"
        assert ear.let_in or not client.uuid or not client.open
        if ended is not None and ended.code == CloseCode.INTERNAL_ERROR:
            return  # it forgets what waits, and says so
        if self.exact:
            assert client.has_heard(ear.heard), "it hears something else"
            if not self.line.blocked and (ended is None or ended.code == CloseCode.PROTOCOL_ERROR):
                assert len(ear.heard) == len(client.told) or self.core.ended


class _Hall:
    """A router, those who are connected to it, and its bridge."""

    def __init__(self, limits: RelayLimits, piece: int, *, feedback: bool) -> None:
        self._limits = limits
        self._piece = piece
        self._now = START
        self._router = Router(feedback=feedback)
        self._model = Model(limits.longest_frame, feedback=feedback)
        self._bridge = RelayEar(limits.longest_frame)
        self._places = [self._enter() for _ in range(CLIENTS)]

    def take(self, step: Step) -> None:
        """Take one step."""
        number = step.stream % CLIENTS
        place = self._places[number]
        if step.kind is Kind.ACTION:
            self._act(place, step)
        elif step.kind is Kind.SEALED:
            place.line.eof()
            place.check(self._limits)
            self._places[number] = place = self._enter()
            self._say(place, UUIDS[step.subcategory % len(UUIDS)] + step.payload)
        elif step.kind is Kind.RAW:
            self._say(place, step.payload)
        else:
            self._say(place, self._said(place, step))
        self._settle()

    def finish(self) -> None:
        """All end."""
        for place in self._places:
            place.line.finish(_nothing_more)
            place.check(self._limits)
        assert set(self._router.members) <= {BRIDGE}

    def deliver(self, pieces: Sequence[Piece], held: int, now: float) -> None:
        """The bridge takes messages, as a `Member`."""
        data = b"".join(pieces)
        assert data
        assert held + HEAD_SIZE >= len(data)  # a head that was cut is not counted
        self._bridge.hear(data)

    def _enter(self) -> _Place:
        return _Place(self._router, self._limits, self._model, self._piece, self._now)

    def _say(self, place: _Place, data: bytes) -> None:
        dropped = self._router.dropped
        place.line.receive(data)
        # Who was dropped meanwhile is in the way of the same order.
        place.exact = place.exact and self._router.dropped == dropped
        self._model.receive(place.client, data)
        if self._router.dropped != dropped:
            for other in self._places:
                other.exact = other.exact and other.ear.ended is None

    def _said(self, place: _Place, step: Step) -> bytes:
        """A message, or a UUID of who has none yet."""
        if not place.client.uuid:
            return TARGETS[step.subcategory % len(TARGETS)]
        sender = place.client.uuid if step.async_id % 8 else UUIDS[step.subcategory % len(UUIDS)]
        return RelayMessage(TARGETS[step.category % len(TARGETS)], sender, step.payload).raw

    def _act(self, place: _Place, step: Step) -> None:
        event = Event(step.category % len(Event))
        if event is Event.WAIT:
            self._wait(step.subcategory / 4)
        elif event is not Event.ACT:
            place.line.happen(event, step)
        elif step.subcategory % 2:
            self._bridge_broadcasts(step.payload)
        else:
            self._bridge_comes_or_goes()

    def _bridge_broadcasts(self, payload: bytes) -> None:
        message = RelayMessage(BROADCAST, BRIDGE, payload[: self._limits.longest_frame - 32])
        raw = message.raw
        self._router.broadcast(BRIDGE, [raw], len(raw), self._now)
        self._model.route(message)

    def _bridge_comes_or_goes(self) -> None:
        bridge = self._model.bridge
        if bridge.open:
            self._router.leave(BRIDGE, self)
        elif BRIDGE in self._router.members:
            return  # a client calls itself so
        else:
            self._router.join(BRIDGE, self)
        bridge.open = not bridge.open

    def _settle(self) -> None:
        for place in self._places:
            place.line.settle()
        for place in self._places:
            place.check(self._limits)
        assert self._model.bridge.has_heard(self._bridge.heard)
        members = {place.core.uuid for place in self._places if not place.core.closing}
        assert set(self._router.members) - {BRIDGE} == members - {b"", BRIDGE}

    def _wait(self, seconds: float) -> None:
        """Let time pass, for all of them."""
        end = self._now + seconds
        lines: list[Line] = [place.line for place in self._places]
        for _ in range(MOST_TURNS):
            line = min(lines, key=_due)
            if line.next_deadline() > end:
                break
            self._set_clock(max(self._now, line.next_deadline()))
            line.core.handle_deadline(self._now)
            self._settle()
        else:
            raise AssertionError("a deadline that is handled stays due")
        self._set_clock(end)

    def _set_clock(self, now: float) -> None:
        self._now = now
        for place in self._places:
            place.line.now = now


def _due(line: Line) -> float:
    return line.next_deadline()


def _nothing_more() -> bool:
    return False
