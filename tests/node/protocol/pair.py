"""Two cores connected in memory with a fake clock, and hand-made events with valid keys.

Invalid events are made with one side's own keys and chain, so that they have exactly one fault.
Only this module accesses internals of the cores.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from parley._crypto.identity import Identity
from parley._crypto.key_schedule import next_secret
from parley._crypto.registry import PARAMETERS, Suite
from parley._lbm.codec import Value, encode
from parley._node.protocol.channel import SecureChannel
from parley._node.protocol.codes import CONNECTION, KEY_UPDATE, CloseCode
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.connection import Connection
from parley._node.protocol.event import Event, serialise_raw
from parley._node.protocol.frames import FrameReader, frame
from parley._node.protocol.handshake import Handshake, expect
from parley._node.protocol.limits import Limits
from parley._node.protocol.observer import Observer
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    PeerIdentified,
    Report,
)
from parley._node.protocol.session import Session
from parley._node.protocol.states import State

ALICE = Identity.create(("ed25519", "ecdsa-p256", "ml-dsa-65"))
BOB = Identity.create(("ed25519", "ecdsa-p256", "ml-dsa-65"))
START = 1000.0
# The cheap kex, so that a test takes a millisecond; test_handshake_suites.py covers all of them.
FAST: Mapping[str, tuple[str, ...]] = {"kex": ("x25519",)}
ANY_SIZE = 2**32 - 1
ALIVE = -99  # instead of a close code

R = TypeVar("R")


def make_config(identity: Identity = ALICE, **settings: Any) -> CoreConfig:
    """Return settings of a core; settings of `Limits` can be mixed in."""
    if not settings and (identity is ALICE or identity is BOB):
        return _usual(identity)
    stated = {name: settings.pop(name) for name in Limits.__slots__ if name in settings}
    settings.setdefault("algorithms", FAST)
    return CoreConfig(identity=identity, limits=Limits(**stated), **settings)


@cache
def _usual(identity: Identity) -> CoreConfig:
    return CoreConfig(identity=identity, algorithms=FAST)


def algorithms(suite: Suite) -> dict[str, tuple[str, ...]]:
    """Return the setting that allows only `suite`."""
    return {parameter: (suite.names()[parameter],) for parameter in PARAMETERS}


def fed(reader: FrameReader, data: bytes) -> Iterator[bytes | memoryview]:
    """Return the events that the reader returns for `data`."""
    reader.feed(data)
    return iter(reader.take, None)


def events_of(wire: bytes | bytearray) -> list[bytes]:
    """Return the events in complete frames."""
    reader = FrameReader(ANY_SIZE)
    events = [bytes(event) for event in fed(reader, bytes(wire))]
    assert not reader.size
    return events


def raw_frame(
    subcategory: int, cells: Mapping[int, Value], *, stream: int = 0, async_id: int = 0
) -> bytes:
    """Return a frame with an unencrypted event of category 1."""
    return frame(serialise_raw(Event(stream, async_id, CONNECTION, subcategory, encode(cells))))


class Side:
    """One core, with its reports and sent bytes."""

    def __init__(
        self, config: CoreConfig, *, initiator: bool, observer: Observer | None = None
    ) -> None:
        self.core = Connection(config, initiator=initiator, now=START, observer=observer)
        self.answer: bool | None = True  # the answer to PeerIdentified; None leaves it pending
        self.reports: list[Report] = []
        self.wire = bytearray()

    def collect(self, now: float) -> bool:
        """Take the core's reports and answer PeerIdentified; return whether there were any."""
        reports = self.core.reports()
        self.reports += reports
        if any(isinstance(report, PeerIdentified) for report in reports):
            if self.answer is True:
                self.core.accept_peer(now)
                self.core.receive_data(b"", now)  # bytes that followed the Proof
            elif self.answer is False:
                self.core.refuse_peer("this test refuses all peers", now)
        return bool(reports)

    def take(self, now: float) -> bytes:
        """Return what the core wants to send, in as many flushes as necessary."""
        sent = b""
        while data := self.core.data_to_send(now):
            sent += data
        self.wire += sent
        return sent

    # Its reports.

    def all(self, kind: type[R]) -> list[R]:
        """Return all reports of a kind so far."""
        return [report for report in self.reports if isinstance(report, kind)]

    def one(self, kind: type[R]) -> R:
        """Return the only report of a kind."""
        (report,) = self.all(kind)
        return report

    @property
    def events(self) -> list[Event]:
        """Return the events delivered so far."""
        return self.all(Event)

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.events]

    @property
    def code(self) -> int:
        """The close code; ALIVE while the connection is open."""
        ended = self.all(ConnectionEnded)
        assert len(ended) <= 1
        return ended[0].code if ended else ALIVE

    @property
    def state(self) -> str:
        """The name of the core's state (a string, because mypy treats an enum as a constant)."""
        return self.core.state.name

    @property
    def opened(self) -> bool:
        """Whether its handshake was completed."""
        return bool(self.all(HandshakeCompleted))

    # Its internals.

    @property
    def session(self) -> Session:
        return expect(self.core.session)

    @property
    def channel(self) -> SecureChannel:
        return expect(self.session.secure)

    @property
    def handshake(self) -> Handshake:
        """The handshake in progress."""
        return expect(self.core.handshake).handshake

    def forge(
        self,
        stream: int,
        category: int,
        subcategory: int,
        payload: bytes | Mapping[int, Value] = b"\x00",
        *,
        async_id: int = 0,
        sealed: bool = False,
    ) -> bytes:
        """Return a frame with this side's keys, next in its chain, even if it breaks rules."""
        if not isinstance(payload, bytes):
            payload = encode(payload)
        if self.session.secure is None:
            event = Event(stream, async_id, category, subcategory, payload)
            return frame(serialise_raw(event))
        sender = self.channel.sender
        return sender.encrypt(stream, async_id, category, subcategory, payload, sealed)


class Pair:
    """An initiator `a` and a responder `b`; each receives what the other sends."""

    def __init__(
        self,
        a: CoreConfig | None = None,
        b: CoreConfig | None = None,
        *,
        observers: tuple[Observer | None, Observer | None] = (None, None),
    ) -> None:
        self.now = START
        self.a = Side(a or make_config(ALICE), initiator=True, observer=observers[0])
        self.b = Side(b or make_config(BOB), initiator=False, observer=observers[1])

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.a, self.b

    def other(self, side: Side) -> Side:
        return self.b if side is self.a else self.a

    def deliver(self, receiver: Side, data: bytes) -> None:
        """Pass bytes to a core and take its reports."""
        receiver.core.receive_data(data, self.now)
        while receiver.collect(self.now):
            pass

    def carry(self, sender: Side) -> bytes:
        """Deliver the bytes that a side sends to the other; return them."""
        sent = sender.take(self.now)
        if sent:
            self.deliver(self.other(sender), sent)
        return sent

    def pump(self) -> None:
        """Deliver bytes in both directions until both sides are idle."""
        for _ in range(1000):
            moved = [bool(self.carry(side)) for side in self.sides]
            told = [side.collect(self.now) for side in self.sides]
            if not any(moved + told):
                return
        raise AssertionError("the two never fall quiet")

    def advance(self, seconds: float) -> None:
        """Advance the time, handling each deadline when it is due; sent bytes are lost."""
        end = self.now + seconds
        for _ in range(1000):
            due = min(side.core.next_deadline() for side in self.sides)
            if due > end:
                break
            self.now = max(self.now, due)
            for side in self.sides:
                side.core.handle_deadline(self.now)
                side.take(self.now)
                side.collect(self.now)
        else:
            raise AssertionError("a deadline that is handled stays due")
        self.now = end

    def run(self, seconds: float) -> None:
        """Like `advance`, but deliver sent bytes immediately."""
        end = self.now + seconds
        self.pump()
        for _ in range(1000):
            due = min(side.core.next_deadline() for side in self.sides)
            if due > end:
                break
            self.now = max(self.now, due)
            for side in self.sides:
                side.core.handle_deadline(self.now)
            self.pump()
        else:
            raise AssertionError("a deadline that is handled stays due")
        self.now = end

    def inject(self, sender: Side, *args: Any, **settings: Any) -> None:
        """Forge an event of one side (see `Side.forge`) and deliver it to the other."""
        self.deliver(self.other(sender), sender.forge(*args, **settings))

    def forget(self) -> "Pair":
        """Forget reports and sent bytes so far."""
        for side in self.sides:
            side.reports.clear()
            side.wire.clear()
        return self


def open_pair(
    a: Mapping[str, Any] | None = None,
    b: Mapping[str, Any] | None = None,
    *,
    observers: tuple[Observer | None, Observer | None] = (None, None),
    **both: Any,
) -> Pair:
    """Return a pair after its handshake; settings are for one side or both."""
    pair = Pair(
        make_config(ALICE, **{**both, **(a or {})}),
        make_config(BOB, **{**both, **(b or {})}),
        observers=observers,
    )
    pair.pump()
    assert pair.a.core.state is State.OPEN
    assert pair.b.core.state is State.OPEN
    return pair.forget()


def send_raw(pair: Pair, event: Event) -> None:
    """Send an event from `b`, bypassing the checks of its core."""
    stream, async_id, category, subcategory = event.head
    pair.inject(pair.b, stream, category, subcategory, event.payload, async_id=async_id)
    if (category, subcategory) == (CONNECTION, KEY_UPDATE):
        sender = pair.b.channel.sender
        sender.switch(next_secret(sender.suite.hash_algorithm, sender.secret))


def assert_ended(receiver: Side, code: CloseCode) -> None:
    """Check that `receiver` ended with `code`, has a Close to send, and delivered no event."""
    assert receiver.code == code
    assert receiver.core.state is State.CLOSING
    assert not receiver.events
    assert not receiver.one(ConnectionEnded).remote


def assert_violation(pair: Pair, receiver: Side, code: CloseCode) -> None:
    """Like `assert_ended`, and check that the other side can read the Close."""
    assert_ended(receiver, code)
    other = pair.other(receiver)
    pair.carry(receiver)
    told = other.one(ConnectionEnded)
    assert (told.code, told.remote) == (code, True)
