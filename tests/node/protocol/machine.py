"""Two cores, a fake clock, and a transport that cuts, delays and breaks as a test requests.

The actions and observations of the applications are recorded independently of the core, so that
both can be compared. Only `check` accesses the internals of the core, because credit, tables and
buffers have no public interface.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from parley._crypto.identity import Identity
from parley._lbm.codec import encode
from parley._lbm.padding import pad
from parley._node.protocol.codes import (
    CHUNK,
    DATA,
    FIRST_APPLICATION_CATEGORY,
    SIM,
    STREAM,
    CloseCode,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import NO_PAYLOAD, Event
from parley._node.protocol.limits import (
    CLOSE_LINGER,
    CONTROL_BUFFER,
    EVENT_COST,
    REKEY_RATE_SECONDS,
    Limits,
)
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    KeysUpdated,
    PeerIdentified,
    PongReceived,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
)
from parley._node.protocol.states import LIVE, State
from parley._node.protocol.streams import StreamState

# The longest delay of the transport in seconds. It is below all timeouts of the protocol, so that a
# delay never causes one.
LONGEST_DELAY = 4.0

INITIATOR_IDENTITY = Identity.create(("ed25519", "ecdsa-p256"))
RESPONDER_IDENTITY = Identity.create(("ed25519", "ecdsa-p256"))


@dataclass(frozen=True, slots=True)
class Item:
    """One event on a stream in one direction, in order."""

    what: str  # "open", "event" or "finish"
    payload: bytes  # as on the wire: the label, the payload, or empty
    category: int = STREAM
    subcategory: int = 0
    async_id: int = 0

    @property
    def cost(self) -> int:
        """The cost on a stream from 2 up, according to section 8."""
        free = self.what != "event" or (self.category, self.subcategory) == (SIM, CHUNK)
        return 0 if free else self.queued + EVENT_COST

    @property
    def queued(self) -> int:
        """The number of queued bytes; an absent payload is one byte."""
        return max(1, len(self.payload))


FINISH = Item("finish", b"")


@dataclass
class Side:
    """One core, the bytes in transit to it, and the records of its application."""

    name: str
    connection: Connection
    inbox: bytearray = field(default_factory=bytearray)
    inbox_ends: bool = False
    eof_told: bool = False
    completed: HandshakeCompleted | None = None
    end: ConnectionEnded | None = None
    sent: defaultdict[int, list[Item]] = field(default_factory=lambda: defaultdict(list))
    got: defaultdict[int, list[Item]] = field(default_factory=lambda: defaultdict(list))
    unconsumed: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    unconsumed_events: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    consumed: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    writable: set[int] = field(default_factory=set)  # streams
    known: set[int] = field(default_factory=set)  # streams that were ever open
    broken: set[int] = field(default_factory=set)  # streams that either side reset
    pings: set[int] = field(default_factory=set)  # async IDs of the application's Pings
    epochs_sent: int = 0
    epochs_received: int = 0
    close_asked: float | None = None
    farewell_at: float | None = None

    @property
    def table(self) -> dict[int, StreamState]:
        """The core's streams from 2 up that aren't closed."""
        session = self.connection.session
        return session.mux.stream_table.open if session is not None else {}

    @property
    def writable_streams(self) -> list[int]:
        """Streams from 2 up on which this side can still send, as far as the application knows."""
        mine = self.known - self.broken
        return sorted(stream for stream in mine if FINISH not in self.sent[stream])

    def left(self, stream: int) -> list[Item]:
        """The items of `sent` that have left the core's queues."""
        waiting = self.connection.outbox.waiting(stream)
        items = self.sent[stream]
        return items[: len(items) - waiting]

    def waiting(self, stream: int) -> list[Item]:
        """The items of `sent` that are still queued."""
        waiting = self.connection.outbox.waiting(stream)
        return self.sent[stream][-waiting:] if waiting else []


class Link:
    """Both sides and the transport between them. `sides[0]` is the initiator."""

    def __init__(self, initiator: CoreConfig, responder: CoreConfig) -> None:
        self.now = 1000.0
        self.cut = False
        self._last_pump = self.now
        self._serial = 0
        configs = ("initiator", initiator), ("responder", responder)
        self.sides = [
            Side(name, Connection(config, initiator=not number, now=self.now))
            for number, (name, config) in enumerate(configs)
        ]

    def other(self, side: Side) -> Side:
        return self.sides[1] if side is self.sides[0] else self.sides[0]

    # The transport.

    def flush(self, side: Side, limit: int = 1 << 18) -> bool:
        """Take the bytes that `side` has to send; return whether there were any."""
        data = side.connection.data_to_send(self.now, limit)
        peer = self.other(side)
        if not self.cut:
            peer.inbox += data
        if side.connection.state is State.CLOSING and side.farewell_at is None:
            side.farewell_at = self.now
        if side.connection.wants_eof or side.connection.ended:
            peer.inbox_ends = True
        self.collect(side)
        return bool(data)

    def deliver(self, side: Side, size: int) -> bool:
        """Deliver at most `size` bytes, then the end of the transport if it is due."""
        connection = side.connection
        if connection.ended:
            side.inbox.clear()
            return False
        data = bytes(side.inbox[:size])
        if data:
            del side.inbox[:size]
            connection.receive_data(data, self.now)
            self.collect(side)
        elif side.inbox_ends and not side.eof_told:
            side.eof_told = True
            connection.receive_eof(self.now)
            self.collect(side)
            return True
        return bool(data)

    def pump(self) -> None:
        """Deliver everything until both sides are idle."""
        for _ in range(1000):
            moved = [self.flush(side) for side in self.sides]
            moved += [self.deliver(side, 1 << 30) for side in self.sides]
            if not any(moved):
                self._last_pump = self.now
                return
        raise AssertionError("the two never come to rest")

    def break_transport(self, keep: tuple[int, int]) -> None:
        """Cut the transport: only the first `keep` bytes in transit arrive."""
        self.cut = True
        for side, size in zip(self.sides, keep, strict=True):
            del side.inbox[size:]
            side.inbox_ends = True

    def advance(self, seconds: float) -> None:
        """Advance the time, handling each deadline when it is due."""
        target = self.now + seconds
        while True:
            due = min(side.connection.next_deadline() for side in self.sides)
            pump_due = self._last_pump + LONGEST_DELAY
            if pump_due <= min(due, target) and self._under_way():
                self.now = max(self.now, pump_due)
                self.pump()
                continue
            if due > target:
                break
            self.now = max(self.now, due)
            self._handle_deadlines()
        self.now = target
        if not self._under_way():
            self._last_pump = target

    def _under_way(self) -> bool:
        """Return whether bytes wait for the transport, or for a core that sends Close when it is
        polled.
        """
        return any(
            side.inbox
            or side.connection.wire.frames
            or side.connection.state is State.DRAINING
            or (side.inbox_ends and not side.eof_told and not side.connection.ended)
            for side in self.sides
        )

    def _handle_deadlines(self) -> None:
        for side in self.sides:
            connection = side.connection
            if connection.next_deadline() <= self.now:
                connection.handle_deadline(self.now)
                while self.flush(side):
                    pass
                late = connection.next_deadline()
                assert late > self.now, f"{side.name} wants the same moment again"

    # The applications.

    def collect(self, side: Side) -> None:
        """Record the core's reports, and accept the peer."""
        while reports := side.connection.reports():
            for report in reports:
                assert side.end is None, f"{report} after the end"
                if isinstance(report, PeerIdentified):
                    side.connection.accept_peer(self.now)
                    side.connection.receive_data(b"", self.now)  # bytes that followed the Proof
                elif isinstance(report, HandshakeCompleted):
                    side.completed = report
                else:
                    assert side.completed is not None or isinstance(report, ConnectionEnded)
                    self._note(side, report)

    def _note(self, side: Side, report: object) -> None:
        match report:
            case Event(payload=payload, cost=cost):
                stream, async_id, category, subcategory = report.head
                item = Item("event", payload, category, subcategory, async_id)
                side.got[stream].append(item)
                assert cost == (item.cost if stream > 1 else 0)
                side.unconsumed[stream] += cost
                side.unconsumed_events[stream] += cost > 0
            case StreamOpened(stream, label):
                side.got[stream].append(Item("open", label.encode()))
                side.known.add(stream)
            case StreamFinished(stream):
                side.got[stream].append(FINISH)
            case StreamReset(stream):
                side.broken.add(stream)
            case StreamWritable(stream):
                assert stream in side.writable, "no request about that stream"
                side.writable.discard(stream)
            case PongReceived(async_id):
                side.pings.discard(async_id)  # the core's own Pings are reported as well
            case KeysUpdated(sent=True):
                side.epochs_sent += 1
            case KeysUpdated():
                side.epochs_received += 1
            case ConnectionEnded():
                side.end = report
            case _:
                raise AssertionError(f"an unexpected report: {report}")

    def _payload(self, size: int) -> bytes:
        self._serial += 1
        return self._serial.to_bytes(4, "big").ljust(size, b"x")[-max(size, 1) :]

    def send_event(self, side: Side, stream: int, size: int, *, lbm: bool, seal: bool) -> None:
        """Send an application event with a unique payload."""
        config = side.connection.config
        if lbm:
            payload = encode({256: self._payload(min(size, 1000))})
            wire = pad(payload, config.padding, 1024)
        else:
            payload = wire = self._payload(size) if size > 1 else b""
        category, async_id = FIRST_APPLICATION_CATEGORY + size % 5, size % 3
        side.connection.send(stream, async_id, category, 7, payload, lbm=lbm, seal=seal)
        side.sent[stream].append(Item("event", wire, category, 7, async_id))

    def send_data(self, side: Side, stream: int, size: int) -> None:
        """Send Data; a single 0x00 is valid."""
        data = self._payload(size) if size > 1 else NO_PAYLOAD
        side.connection.send_data(stream, data)
        side.sent[stream].append(Item("event", data, STREAM, DATA))

    def send_chunk(self, side: Side, stream: int, size: int) -> None:
        """Send a Chunk, which requires no credit of the stream."""
        data = self._payload(max(4, size))
        side.connection.send(stream, 9, SIM, CHUNK, data, lbm=False)
        side.sent[stream].append(Item("event", data, SIM, CHUNK, 9))

    def open_stream(self, side: Side, window: int | None) -> int:
        """Open a stream."""
        self._serial += 1
        label = f"label {self._serial}"
        stream = side.connection.open_stream(label, window)
        assert stream not in side.known
        assert stream % 2 == (side is self.sides[0])
        side.known.add(stream)
        side.sent[stream].append(Item("open", label.encode()))
        return stream

    def finish(self, side: Side, stream: int) -> None:
        """Finish the local direction."""
        side.connection.finish_stream(stream)
        side.sent[stream].append(FINISH)

    def reset(self, side: Side, stream: int, code: int) -> None:
        """Reset a stream; forget its queued items."""
        side.sent[stream] = side.left(stream)
        side.connection.reset_stream(stream, code, "reset")
        side.broken.add(stream)

    def consume(self, side: Side, stream: int, cost: int) -> None:
        """Consume some of the received bytes."""
        side.unconsumed[stream] -= cost
        count = 0 if side.unconsumed[stream] else side.unconsumed_events.pop(stream, 0)
        side.connection.consume(stream, cost, count)
        side.consumed[stream] += cost

    def consume_all(self) -> bool:
        """Consume everything on both sides; return whether there was anything."""
        work = [(side, s, c) for side in self.sides for s, c in side.unconsumed.items() if c]
        for side, stream, cost in work:
            self.consume(side, stream, cost)
        return bool(work)

    # Invariants.

    def check(self) -> None:
        """Compare both cores with the records of the applications."""
        for side in self.sides:
            peer = self.other(side)
            for stream, items in side.got.items():
                assert items == peer.sent[stream][: len(items)], f"{side.name}, {stream}"
            self._check_memory(side)
            if {side.connection.state, peer.connection.state} == {State.OPEN}:
                for stream in side.table.keys() & peer.table.keys():
                    self._check_credit(side, peer, stream)
            self._check_end(side)

    def _check_end(self, side: Side) -> None:
        if side.end is None:
            return
        allowed = {CloseCode.CONNECTION_LOST} if self.cut else set()
        if any(each.close_asked is not None for each in self.sides):
            allowed.add(CloseCode.NORMAL)
        assert side.end.code in allowed, side.end

    def _check_memory(self, side: Side) -> None:
        connection = side.connection
        assert connection.frames.size <= connection.frames.limit + 4
        assert connection.wire.size <= CONTROL_BUFFER
        session = connection.session
        if session is None:
            return
        waiting = sum(item.queued + EVENT_COST for s in side.sent for item in side.waiting(s))
        assert connection.queued_bytes == connection.wire.size + waiting
        if connection.state not in LIVE:
            assert not session.mux.outbox
            return
        ours = sum(stream.ours for stream in side.table.values())
        limits = known_limits(side)
        assert ours <= limits.max_streams
        assert len(side.table) - ours <= limits.max_streams
        assert side.table.keys() >= session.mux.outbox.queues.keys() - {1}
        if session.secure is not None:
            local = {s for s, stream in side.table.items() if stream.local_open}
            remote = {s for s, stream in side.table.items() if stream.remote_open}
            assert session.secure.sender.counters().keys() <= local | {0, 1}
            assert session.secure.receiver.counters().keys() <= remote | {0, 1}

    def _check_credit(self, sender: Side, reader: Side, stream: int) -> None:
        """Check that credit is neither created nor lost between reader and sender (section 8)."""
        there, here = sender.table[stream], reader.table[stream]
        if not (there.local_open and here.remote_open) or there.resetting or here.resetting:
            return
        window = here.window
        spent = sum(item.cost for item in sender.left(stream))
        granted = reader.consumed[stream] - window.consumed
        under_way = window.size + granted - spent - there.credit.left
        assert under_way >= 0, "credit without consumption"
        quiet = not sender.inbox and not reader.connection.wire.frames
        if quiet and not sender.connection.frames.size and not self.cut:
            assert under_way == 0, "credit was lost"
        if reader.connection.config.deliver == "opened":
            held = reader.unconsumed[stream]
            assert window.left + window.consumed + held == window.size
        assert there.credit.left > -(1024 + EVENT_COST)
        assert window.left > -(1024 + EVENT_COST)

    # The end.

    def settle(self) -> None:
        """Deliver and consume everything, and send every seal."""
        for _ in range(10_000):
            self.pump()
            if not self.consume_all():
                break
        self.advance(2.0)
        self.pump()
        if self.consume_all():
            self.settle()

    def finish_all(self) -> None:
        """Finish every stream on both sides, and check that no state or data is left."""
        self.settle()
        for side in self.sides:
            for stream in side.writable_streams:
                self.finish(side, stream)
        self.advance(2 * REKEY_RATE_SECONDS)  # a delayed rekey happens now
        self.settle()
        self.check()
        for side in self.sides:
            peer = self.other(side)
            assert side.end is None
            for stream in peer.sent.keys() - side.broken - peer.broken:
                assert side.got[stream] == peer.sent[stream], f"{side.name} lacks events"
            assert not side.table, "a stream stays behind"
            assert not side.writable, "a StreamWritable did not come"
            assert not side.pings, "a Ping was not answered"
            assert side.epochs_received == peer.epochs_sent
            session = side.connection.session
            assert session is not None
            assert session.mux.unconsumed == 0
            assert session.mux.outbox.size == 0
            assert session.mux.stream_table.committed == 0

    def close_all(self) -> None:
        """Close both sides after any history; both must end in time."""
        if not self.cut and all(side.close_asked is None for side in self.sides):
            self.sides[0].connection.close(self.now)
            self.sides[0].close_asked = self.now
        self.settle()
        self.advance(CLOSE_LINGER + max(s.connection.config.close_drain for s in self.sides))
        self.pump()
        self.check()
        for side in self.sides:
            assert side.connection.state is State.ENDED
            assert side.end is not None
            assert side.connection.next_deadline() == float("inf")
            assert side.connection.queued_bytes == 0
            assert side.connection.account.held == 0
            assert side.connection.unsealed.held == 0
            self._check_graceful(side)

    def _check_graceful(self, side: Side) -> None:
        """Check that a side that closed alone and in time had all its queued events delivered
        first.
        """
        peer = self.other(side)
        if self.cut or side.close_asked is None or peer.close_asked is not None:
            return
        assert side.farewell_at is not None
        if side.farewell_at < side.close_asked + side.connection.config.close_drain:
            for stream in side.sent.keys() - side.broken - peer.broken:
                assert peer.got[stream] == side.sent[stream], "a graceful close lost events"


def known_limits(side: Side) -> Limits:
    """Return the agreed limits."""
    assert side.completed is not None
    return side.completed.agreed.limits
