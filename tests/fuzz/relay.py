"""Target `relay`: several clients of one event relay, and its own bridge.

Delivered messages are compared with a model that decodes with the reference, and that learns about
a connection's messages once they were sorted, because it may have to wait for others. The input is
a byte for the limits, a byte for how the transports cut, and a script in which a step's stream
selects the client.
"""

from collections.abc import Callable, Sequence
from typing import Final

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.connection import RelayConnection
from parley._node.dialects.relay.router import Piece, Router
from parley._node.protocol.codes import CloseCode
from tests.fuzz.line import MOST_TURNS, PIECES, START, Event, Line
from tests.fuzz.relay_ear import RelayEar
from tests.fuzz.relay_model import BRIDGE, HEAD_SIZE, UUIDS, Error, Model
from tests.fuzz.script import Kind, Step, parse
from tests.reference.dialects.relay import BROADCAST, SERVER, RelayMessage

MAX_SIZE: Final = 4096
CLIENTS: Final = 4
LIMITS: Final = (
    DialectLimits(),
    # Small ones, so that a short script reaches them.
    DialectLimits(longest_frame=96, write_buffer=1024, uuid_timeout=2.0, idle_timeout=20.0),
)
# First byte of inputs in which senders get no error for absent targets.
SILENT: Final = 128
TARGETS: Final = (*UUIDS, BROADCAST, SERVER, BRIDGE, b"nobody is called")
ONE_ERROR: Final = 200
# What one receive may set off comes on top of a queue that was not crowded: an input is
# longer than the small `write_buffer`, and two bytes of it may be an error.
ONE_RECEIVE: Final = MAX_SIZE // 4 * ONE_ERROR


def fuzz(data: bytes) -> None:
    """Hold the conversations."""
    first = data[0] if data else 0
    piece = PIECES[data[1] % len(PIECES)] if len(data) > 1 else 0
    hall = _Hall(LIMITS[first % len(LIMITS)], piece, feedback=first < SILENT)
    for step in parse(data[2:]):
        hall.take(step)
    hall.finish()


class _Core(RelayConnection):
    """Report, after each possible sorting, the messages received and whether the connection was
    open.
    """

    __slots__ = ("on_work",)

    on_work: Callable[[bytes, int], None]

    @property
    def kept(self) -> int:
        """Bytes that came and are not sorted."""
        return len(self._sorter.postponed) if self._sorter is not None else 0

    def receive_data(self, data: bytes, now: float) -> None:
        """As the original."""
        was_open, dropped = not self.closing, self._router.dropped
        super().receive_data(data, now)
        if was_open:
            self.on_work(data, self._router.dropped - dropped)

    def handle_deadline(self, now: float) -> None:
        """As the original."""
        was_open, dropped = not self.closing, self._router.dropped
        super().handle_deadline(now)
        if was_open:
            self.on_work(b"", self._router.dropped - dropped)


class _Place:
    """One connection as both sides and the model have it, and its driver's part."""

    def __init__(
        self,
        router: Router,
        limits: DialectLimits,
        model: Model,
        piece: int,
        now: float,
        on_work: "Callable[[_Place, int], None]",
    ) -> None:
        self.core = _Core(router, limits, now)
        self.core.on_work = self._worked
        self._model = model
        self._on_work = on_work
        self._untold = b""  # Received, but not yet in the model.
        # Errors are longer than small messages may be.
        self.ear = RelayEar(max(limits.longest_frame, ONE_ERROR))
        self.line = Line(self.core, self.ear, piece)
        self.line.now = now
        self.core.driver = self
        self.client = model.enter()
        self.exact = True

    def flush(self) -> None:
        """Write now what the transport takes."""
        self.line.flush()

    def step(self) -> None:
        """Hand on reports."""
        self.line.hand_on()

    def _worked(self, data: bytes, dropped: int) -> None:
        """Tell the model what the core has sorted."""
        self._untold += data
        sorted_size = len(self._untold) - self.core.kept
        told, self._untold = self._untold[:sorted_size], self._untold[sorted_size:]
        self._on_work(self, dropped)
        self._model.receive(self.client, told)

    def part(self) -> None:
        """Have the model know of an end that it did not bring about."""
        self.line.hand_on()
        ended = self.ear.ended
        if ended is not None and self.client.open:
            assert ended.code != CloseCode.PROTOCOL_ERROR, "the model takes it"
            if ended.code == CloseCode.TIMEOUT and not self.ear.let_in:
                self.client.told.append(Error(BROADCAST, 1))
            self.client.open = False

    def check(self, limits: DialectLimits) -> None:
        """Compare it with the model."""
        self.part()
        ear, client, ended = self.ear, self.client, self.ear.ended
        assert self.core.queued_bytes <= limits.write_buffer + ONE_RECEIVE
        latest = self.line.now + limits.patience
        assert self.core.wants_data or self.core.next_deadline() <= latest
        assert ended is not None or client.open, "the model closes"
        assert ear.let_in or not client.uuid or not client.open
        if ended is not None and ended.code == CloseCode.INTERNAL_ERROR:
            return  # It discards waiting messages and reports it.
        if self.exact:
            assert client.has_heard(ear.heard), "it hears something else"
            if not self.line.blocked and (ended is None or ended.code == CloseCode.PROTOCOL_ERROR):
                assert len(ear.heard) == len(client.told) or self.core.ended


class _Hall:
    """A router, its connected clients, and its bridge."""

    def __init__(self, limits: DialectLimits, piece: int, *, feedback: bool) -> None:
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
            place.line.blocked = False
        self._settle()
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
        return _Place(self._router, self._limits, self._model, self._piece, self._now, self._worked)

    def _say(self, place: _Place, data: bytes) -> None:
        place.line.receive(data)

    def _worked(self, who: _Place, dropped: int) -> None:
        """`who` sorted its input; this many messages were dropped by it."""
        if dropped:  # they are in the way of the same order
            who.exact = False
        for place in self._places:
            if place is not who:
                place.part()
                place.exact = place.exact and not (dropped and place.ear.ended is not None)

    def _said(self, place: _Place, step: Step) -> bytes:
        """Return a message, or a UUID of a member without one."""
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
        for _ in range(MOST_TURNS):
            for place in self._places:
                place.line.settle()
            if all(place.line.is_quiet for place in self._places):
                break
        else:
            raise AssertionError("they never fall quiet")
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
