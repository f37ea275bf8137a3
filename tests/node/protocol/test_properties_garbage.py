"""Tests of invalid bytes on the wire: they cause a report and a known code, never an exception.

No event is delivered before both Proofs, or after the first event that was tampered with. The
attackers here have no keys; test_properties_hostile.py has those with keys.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parley._lbm.codec import decode, encode
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.errors import ConnectionClosedError
from parley._node.protocol.event import Event
from parley._node.protocol.frames import frame
from parley._node.protocol.reports import (
    ConnectionEnded,
    HandshakeCompleted,
    StreamFinished,
    StreamOpened,
    StreamReset,
)
from parley._node.protocol.states import State
from tests.node.protocol.pair import ALICE, ALIVE, BOB, Pair, Side, events_of, make_config

CODES = frozenset(CloseCode)
HANDED_UP = (HandshakeCompleted, Event, StreamOpened, StreamFinished, StreamReset)


def handed_up(side: Side) -> int:
    return sum(isinstance(report, HANDED_UP) for report in side.reports)


def assert_over(pair: Pair) -> None:
    """Let time run out and the transport end; check that both end once, with a code that has a
    name.
    """
    pair.run(60.0)
    for side in pair.sides:
        side.core.receive_eof(pair.now)
        side.collect(pair.now)
        assert side.core.ended
        (ended,) = side.all(ConnectionEnded)
        assert side.reports[-1] is ended
        assert ended.remote or ended.code in CODES
        assert side.core.next_deadline() == float("inf")
        assert not side.core.queued_bytes
        assert not side.core.data_to_send(pair.now)


# Bytes that are not a connection.

raw_events = st.builds(
    Event,
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([0, 0, 0, 7]),
    st.sampled_from([1, 1, 1, 0, 2, 3]),
    st.integers(0, 13),
    st.binary(max_size=60) | st.sampled_from([b"\x00", b"\xa0", encode({1: 1}), encode({16: 6})]),
)
junk = st.lists(
    st.binary(max_size=60)
    | st.binary(max_size=60).map(frame)
    | raw_events.map(lambda e: frame(b"".join((e.stream.to_bytes(4, "big"), *pack(e))))),
    min_size=1,
    max_size=6,
)


def pack(event: Event) -> tuple[bytes, bytes]:
    head = event.async_id.to_bytes(2, "big") + bytes((event.category, event.subcategory))
    return head, event.payload


# Hellos, Replies and Proofs with some wrong cells.


def changed(payload: bytes, changes: dict[int, Any], without: set[int]) -> bytes:
    honest = decode(payload, keep_noise=True)
    mixed = {key: value for key, value in (honest | changes).items() if key not in without}
    if 0 in mixed and not isinstance(mixed[0], bytes):
        del mixed[0]  # can't be encoded
    return encode(mixed)


# A whole connection with an attacker on the wire.


@dataclass
class Tamper:
    """Tampers once, with the frame `at` of one side."""

    to_responder: bool
    at: int
    change: str
    place: int
    junk: bytes
    seen: int = 0
    done: bool = False  # whether a byte of the attacker was delivered
    held: bytes | None = None
    before: int = field(default=-1)  # the data delivered to the victim before that

    def carry(self, framed: bytes, handed: Callable[[], int]) -> list[bytes]:
        """Return the bytes that arrive instead of a frame."""
        self.seen += 1
        if self.held is not None:
            first, self.held = self.held, None
            return [framed, first]
        if self.seen - 1 != self.at:
            return [framed]
        self.done = True
        self.before = handed()
        changed = bytearray(framed)
        match self.change:
            case "flip":
                changed[self.place % len(framed)] ^= 1 << self.junk[0] % 8
                return [bytes(changed)]
            case "cut":
                return [framed[: self.place % len(framed)]]
            case "drop":
                return []
            case "insert":
                return [frame(self.junk), framed]
            case "insert bytes":
                return [self.junk, framed]
            case "swap":
                self.held = framed
                return []
            case _:
                self.before = -1  # the first copy of the frame is valid
                return [framed, framed]


def carry_all(pair: Pair, tamper: Tamper) -> None:
    """Deliver everything through `tamper`."""
    moved = True
    while moved:
        moved = False
        for side in pair.sides:
            side.collect(pair.now)
            peer = pair.other(side)
            for event in events_of(side.take(pair.now)):
                moved = True
                pieces = [frame(event)]
                if tamper.to_responder == (peer is pair.b):
                    pieces = tamper.carry(pieces[0], lambda peer=peer: handed_up(peer))  # type: ignore[misc]  # binds it
                for piece in pieces:
                    pair.deliver(peer, piece)
                    if tamper.done and tamper.before < 0:
                        tamper.before = handed_up(peer)


def act(side: Side, now: float, number: int, encrypted: bool) -> None:
    core = side.core
    if core.state is not State.OPEN:
        return
    try:
        match number:
            case 0 | 3:
                for serial in range(3):
                    core.send(1, serial, 64, 1, encode({300: serial}))
            case 1:
                stream = core.open_stream("tampered with")
                core.send_data(stream, bytes(50))
                core.finish_stream(stream)
            case 2 if encrypted:
                core.rekey(now) if core.initiator else core.update_keys(now)
            case 4:
                core.ping(now)
                core.reset_stream(core.open_stream("reset"), 32)
            case 5:
                core.close(now)
    except ConnectionClosedError:
        assert core.state is not State.OPEN


tampers = st.builds(
    Tamper,
    to_responder=st.booleans(),
    at=st.integers(0, 24),
    change=st.sampled_from(
        ["flip", "flip", "flip", "cut", "drop", "insert", "insert bytes", "swap", "repeat"]
    ),
    place=st.integers(0, 400),
    junk=st.binary(min_size=1, max_size=60),
)
connections: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "algorithms": st.builds(
            lambda sealing, signing: {"kex": ("x25519",), "sealing": sealing, "signing": signing},
            st.sampled_from([("chain",), ("each",)]),
            st.sampled_from([("ed25519",), ("ecdsa-p256",)]),
        ),
        "deliver": st.sampled_from(["opened", "sealed"]),
        "seal_events": st.integers(1, 8),
    }
)


def converse(pair: Pair, tamper: Tamper, *, encrypted: bool) -> None:
    carry_all(pair, tamper)
    for number in range(6):
        for side in pair.sides:
            act(side, pair.now, number, encrypted)
        carry_all(pair, tamper)


@given(settings=connections, tamper=tampers, retry=st.booleans())
def test_tampering_is_the_end(settings: dict[str, Any], tamper: Tamper, retry: bool) -> None:
    dialling = dict(settings)
    if retry:  # the first share is for a kex that the responder doesn't know
        kexes = ("x25519-mlkem768", "x25519")
        dialling["algorithms"] = {**settings["algorithms"], "kex": kexes}
    pair = Pair(make_config(ALICE, **dialling), make_config(BOB, **settings))
    converse(pair, tamper, encrypted=True)
    victim = pair.b if tamper.to_responder else pair.a
    if tamper.done:
        assert handed_up(victim) == tamper.before, "something was handed up after tampering"
    assert_over(pair)
    if tamper.done:
        assert handed_up(victim) == tamper.before
        ended = victim.one(ConnectionEnded)
        if tamper.change == "repeat":
            return  # of a Close, after which reading stops
        assert not (ended.remote and ended.code == CloseCode.NORMAL), "nobody noticed"


@given(settings=connections, tamper=tampers)
def test_tampering_without_encryption_breaks_nothing_but_the_connection(
    settings: dict[str, Any], tamper: Tamper
) -> None:
    settings = {**settings, "plaintext": "only"}
    pair = Pair(make_config(ALICE, **settings), make_config(BOB, **settings))
    converse(pair, tamper, encrypted=False)
    assert_over(pair)
    for side in pair.sides:
        assert side.code != ALIVE
