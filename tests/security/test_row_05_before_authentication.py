"""Row 5. Mistake: application code is reached before authentication ends.

Promise: in every state of the handshake, on either side, an unexpected event reaches no callback
and closes the connection. This covers every type of event, raw or under the handshake's own keys,
on any stream. The expected event of a state opens nothing by itself.

Arbitrary bytes: tests/fuzz/handshake.py. The deadline in each state:
tests/node/protocol/test_handshake_driver.py. Wrong Proofs: tests/handshake. Data that arrives with
a Proof: tests/node/protocol/test_handshake.py.
"""

from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley._node.protocol.codes import CloseCode
from parley._node.protocol.event import Event, serialise_raw
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import ConnectionEnded, ResumeRequested
from parley._node.protocol.states import HANDSHAKE, NEXT, Signal, State
from tests.node.protocol.pair import ALIVE, START, Pair, events_of
from tests.reference import schedule
from tests.reference.resume import resume_event
from tests.reference.sealing import Direction, Suite
from tests.reference.wire import TYPES, cells_payload
from tests.reference.wire import Event as ReferenceEvent
from tests.security.exchanges import veiled, watched_exchanges
from tests.security.shapes import SHAPES, identity

# Each point of a handshake where a core waits: the shape, the side, and how many events had passed.
PLACES: Final = {
    "expect-hello": ("chain", "responder", 0),
    "expect-hello after Retry": ("retry", "responder", 2),
    "expect-reply": ("chain", "initiator", 1),
    "expect-reply after Retry": ("retry", "initiator", 3),
    "expect-proof of the initiator": ("chain", "initiator", 2),
    "expect-proof of the initiator, each": ("each", "initiator", 2),
    "expect-proof of the responder": ("chain", "responder", 3),
    "expect-proof of the responder, each": ("each", "responder", 3),
    "deciding of the initiator": ("chain", "initiator", 3),
    "deciding of the responder": ("chain", "responder", 4),
}
WITH_KEYS: Final = [place for place in PLACES if "proof" in place or "deciding" in place]

PAYLOADS: Final = {
    TYPES["Close"]: cells_payload(code=0),
    TYPES["Reject"]: cells_payload(code=64, text="x"),
    TYPES["KeyUpdate"]: cells_payload(epoch=1),
    TYPES["RekeyOffer"]: cells_payload(share=b"\x09" * 32),
    TYPES["RekeyAnswer"]: cells_payload(share=b"\x09" * 32),
    TYPES["Open"]: cells_payload(label="echo"),
    TYPES["Window"]: cells_payload(stream=1, credit=1),
    TYPES["Reset"]: cells_payload(stream=1, code=32),
    TYPES["Data"]: b"data",
    TYPES["Call"]: cells_payload(topic="parley.echo", data="too early"),
    TYPES["Subscribe"]: cells_payload(topic="topic"),
    TYPES["Unsubscribe"]: cells_payload(topic="topic"),
    TYPES["Notify"]: cells_payload(topic="topic", data=1),
    TYPES["Result"]: cells_payload(code=0, data=1),
    TYPES["Cancel"]: cells_payload(request=1),
    TYPES["Chunk"]: cells_payload(data=1),
    TYPES["Notes"]: cells_payload(notes=[1]),
    TYPES["Emit"]: cells_payload(name="n", data=1, format=16),
}
# All types in the document, the adjacent reserved ones, and an application's.
KINDS: Final = sorted(
    {
        *TYPES.values(),
        *((1, number) for number in (13, 255)),
        *((category, 1) for category in (2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 255)),
        *((category, 255) for category in (2, 3, 4, 64)),
        *((0, 0), (0, 1), (1, 0), (3, 0)),
    }
)


class Waiting:
    """A core at a point of its handshake, with access to the other side's keys."""

    def __init__(self, place: str, **settings: Any) -> None:
        shape_name, self.who, count = PLACES[place]
        self.shape = SHAPES[shape_name]
        with watched_exchanges() as exchanges:
            pair = Pair(
                self.shape.config("initiator", **settings),
                self.shape.config("responder", **settings),
            )
            self.side = pair.a if self.who == "initiator" else pair.b
            self.side.answer = None
            self.events: list[bytes] = []
            self._pass_events(pair, count)
            self.secrets = exchanges.agreed
        self.deciding = self.state is State.DECIDING
        self.side.take(START)
        self.side.reports.clear()

    def _pass_events(self, pair: Pair, count: int) -> None:
        waiting: dict[int, list[bytes]] = {id(side): [] for side in pair.sides}
        for name in self.shape.events[:count]:
            sender = pair.a if name.endswith("Hello") or name.startswith("initiator") else pair.b
            waiting[id(sender)] += events_of(sender.take(pair.now))
            self.events.append(waiting[id(sender)].pop(0))
            pair.deliver(pair.other(sender), frame(self.events[-1]))

    @property
    def state(self) -> State:
        """The state of the core."""
        return self.side.core.state

    def raw(self, stream: int, async_id: int, kind: tuple[int, int]) -> bytes:
        """Return the frame of an unencrypted event."""
        return frame(serialise_raw(Event(stream, async_id, *kind, PAYLOADS.get(kind, b"\0"))))

    def encrypted(
        self, stream: int, async_id: int, kind: tuple[int, int], *, sealed: bool
    ) -> bytes:
        """Return the frame of an event under the handshake's keys, signed by the other side."""
        suite = Suite(**{p: n[0] for p, n in self.side.core.config.algorithms.items()})
        t1, proofs = b"".join(self.events[:2]), self.events[2:]
        keys = schedule.handshake_keys(suite.hash, t1, veiled(self.secrets[0]), None)
        if self.who == "initiator":
            start = schedule.chain_start_responder(keys)
            direction = Direction(suite, keys.hs_responder, start, keys.commit)
        else:
            start = schedule.chain_start_initiator(keys, proofs[0])
            direction = Direction(suite, keys.hs_initiator, start, keys.commit)
        if self.deciding:
            direction.read(proofs[-1])
        other = "responder" if self.who == "initiator" else "initiator"
        inner = ReferenceEvent(stream, async_id, *kind, PAYLOADS.get(kind, b"")).inner
        signer = identity(other, suite.signing).key(suite.signing)
        return frame(direction.write(stream, inner, signer, sealed=sealed))

    def give(self, *frames: bytes) -> None:
        """Deliver bytes to the core."""
        for each in frames:
            self.side.core.receive_data(each, START)
            self.side.collect(START)

    def assert_over(self, what: object) -> None:
        """Check that the connection is closed, and that its end is the only report."""
        assert self.side.code != ALIVE, what
        assert self.state in (State.CLOSING, State.ENDED), what
        (only,) = self.side.reports
        assert isinstance(only, ConnectionEnded), what

    def assert_held(self, what: object) -> None:
        """Check that it waits for the application's decision and has not continued."""
        assert self.state is State.DECIDING, what
        assert self.side.reports == [], what

    def assert_nothing_comes_of_it(self, *frames: bytes, accept: bool) -> None:
        """Check that these events close the connection; in DECIDING, after any decision."""
        what = [each.hex() for each in frames]
        self.give(*frames)
        if not self.deciding:
            self.assert_over(what)
            return
        self.assert_held(what)
        if not accept:
            self.side.core.refuse_peer("this test refuses all peers", START)
            self.side.collect(START)
            self.assert_over(what)
            return
        # After it is trusted, the peer's later events are processed.
        self.side.core.accept_peer(START)
        self.side.core.receive_data(b"", START)  # events that arrived with the Proof
        self.side.collect(START)
        assert self.side.opened
        assert self.side.code != ALIVE, what
        assert len(self.side.reports) == 2, what


def test_every_state_before_the_open_one_is_tried() -> None:
    tried = {place: Waiting(place).state for place in PLACES}
    assert set(tried.values()) == HANDSHAKE - {State.RESUMING}  # below
    for place, state in tried.items():
        assert state.name == place.split(" ")[0].replace("-", "_").upper()


RESUME: Final = resume_event(bytes(16), 1, 0, bytes(32))


def test_every_raw_event_behind_a_resume() -> None:
    """While its session is looked up, no event is processed; without a session, the connection
    ends.
    """
    for kind, (stream, async_id) in product(KINDS, ((0, 0), (1, 7), (3, 0))):
        waiting = Waiting("expect-hello", resume=30.0)
        waiting.give(frame(RESUME))
        assert waiting.state is State.RESUMING
        (asked,) = waiting.side.reports
        assert isinstance(asked, ResumeRequested)
        waiting.give(waiting.raw(stream, async_id, kind))
        assert waiting.side.reports == [asked]
        waiting.side.reports.clear()
        waiting.side.core.refuse_resume(START)
        waiting.side.collect(START)
        waiting.assert_over(kind)


def test_only_an_accepted_proof_leads_to_the_open_state() -> None:
    """No other transition of the state table bypasses authentication."""
    ways = {(state, signal) for (state, signal), to in NEXT.items() if to is State.OPEN}
    plaintext = {(s, Signal.PLAINTEXT_REPLY) for s in (State.EXPECT_HELLO, State.EXPECT_REPLY)}
    resumed = (State.SUSPENDED, Signal.TRANSPORT_RESUMED)
    assert ways == {(State.DECIDING, Signal.ACCEPT), *plaintext, resumed}
    assert {state for (state, _), to in NEXT.items() if to is State.SUSPENDED} == {State.OPEN}
    deciding = {(state, signal) for (state, signal), to in NEXT.items() if to is State.DECIDING}
    assert deciding == {(State.EXPECT_PROOF, Signal.PROOF)}
    into_draining = {state for (state, _), to in NEXT.items() if to is State.DRAINING}
    assert into_draining == {State.OPEN, State.SUSPENDED_DRAINING}


@pytest.mark.parametrize("place", PLACES)
def test_every_raw_event_in_every_state(place: str) -> None:
    for kind, (stream, async_id) in product(KINDS, ((0, 0), (1, 7), (3, 0))):
        waiting = Waiting(place)
        waiting.assert_nothing_comes_of_it(waiting.raw(stream, async_id, kind), accept=True)


@pytest.mark.parametrize("place", WITH_KEYS)
def test_every_event_under_the_handshakes_keys_in_every_state(place: str) -> None:
    """The events are encrypted, chained and sealed correctly: only the Proof is permitted."""
    for kind, (stream, async_id) in product(KINDS, ((0, 0), (1, 7), (3, 0))):
        for sealed in {True, "each" in place}:
            waiting = Waiting(place)
            event = waiting.encrypted(stream, async_id, kind, sealed=sealed)
            waiting.assert_nothing_comes_of_it(event, accept=True)
            if not (stream or waiting.deciding) and all(kind):
                # It was decrypted and read, and rejected because of its type.
                assert waiting.side.code == CloseCode.AUTHENTICATION_FAILED


# Any events in any order: the property over the state machine.

events = st.tuples(
    st.booleans(),  # under the handshake's keys, if there are any
    st.sampled_from([0, 0, 1, 2, 3]),
    st.sampled_from([0, 0, 7]),
    st.sampled_from(KINDS),
    st.booleans(),
)


@given(
    place=st.sampled_from(sorted(PLACES)),
    settings_of=st.sampled_from([{}, {"deliver": "sealed"}, {"plaintext": "both"}]),
    wanted=st.lists(events, min_size=1, max_size=5),
    accept=st.booleans(),
    piece=st.sampled_from([1, 7, 100_000]),
)
def test_any_events_in_any_state(
    place: str,
    settings_of: dict[str, Any],
    wanted: list[tuple[bool, int, int, tuple[int, int], bool]],
    accept: bool,
    piece: int,
) -> None:
    waiting = Waiting(place, **settings_of)
    wire = b"".join(
        waiting.encrypted(stream, async_id, kind, sealed=sealed)
        if encrypted and place in WITH_KEYS
        else waiting.raw(stream, async_id, kind)
        for encrypted, stream, async_id, kind, sealed in wanted
    )
    pieces = [wire[at : at + piece] for at in range(0, len(wire), piece)]
    waiting.assert_nothing_comes_of_it(*pieces, accept=accept)
