"""Tests with a state machine of two correct sides: no sequence of actions and transport faults
causes an error.

The rules are the actions of applications and transports; the invariants are in machine.py.
"""

from random import Random  # noqa: TID251  # tests may
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from parley._crypto.registry import NAMES
from parley._lbm.padding import parse_padding
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    ConnectionClosedError,
    LimitReachedError,
    LocalError,
)
from parley._node.protocol.limits import REKEY_RATE_SECONDS, Limits
from parley._node.protocol.states import State
from tests.node.protocol.machine import INITIATOR_IDENTITY, RESPONDER_IDENTITY, Link, Side

WHO = st.sampled_from([0, 1])
SIZE = [0, 1, 4, 31, 100, 896, 959, 960, 961, 1023, 1024]
SIZES = st.sampled_from(SIZE)
PICKS = st.integers(0, 7)
KINDS = st.sampled_from(
    ["data", "data", "event", "lbm", "chunk", "main", "main lbm", "consume", "deliver"]
)

suites = st.fixed_dictionaries(
    {
        "kex": st.just(("x25519",)),
        "signing": st.sampled_from([("ed25519",), ("ecdsa-p256",)]),
        "hash": st.sampled_from([(name,) for name in NAMES["hash"]]),
        "cipher": st.sampled_from([(name,) for name in NAMES["cipher"]]),
        "sealing": st.sampled_from([("chain",), ("each",)]),
    }
)
limits = st.builds(
    Limits,
    max_payload=st.just(1024),
    seal_events=st.integers(1, 8),
    seal_delay_ms=st.sampled_from([0, 20, 1000]),
    stream_window=st.sampled_from([1024, 1025, 4096]),
    max_streams=st.integers(1, 3),
)

beginnings = st.fixed_dictionaries(
    {
        "suite": suites,
        "limits": st.tuples(limits, limits),
        "deliver": st.tuples(*[st.sampled_from(["opened", "sealed"])] * 2),
        "encrypted": st.sampled_from([True, True, True, False]),
        "buffer": st.sampled_from([1 << 24, 1 << 24, 1 << 16]),
        "update_after": st.sampled_from([1 << 24, 1 << 24, 1, 3]),
        "padding": st.sampled_from(["off", "padme", "bucket:64"]),
        "often": st.booleans(),
        "half_open": st.sampled_from([False, False, True]),
        "streams": st.tuples(st.integers(0, 3), st.integers(0, 3)),
    }
)


class TwoSides(RuleBasedStateMachine):
    """Two applications over one transport."""

    link: Link
    steps: int

    @initialize(drawn=beginnings)
    def begin(self, drawn: dict[str, Any]) -> None:
        """Create both sides; the responder may still lack the initiator's Proof."""
        self.steps = 0
        configs = [
            CoreConfig(
                identity=identity,
                algorithms=drawn["suite"],
                limits=drawn["limits"][number],
                deliver=drawn["deliver"][number],
                plaintext="never" if drawn["encrypted"] else "only",
                peer_memory=drawn["buffer"],
                update_after_events=drawn["update_after"],
                update_after_seconds=40.0 if drawn["often"] else 3600.0,
                rekey_interval=25.0 if drawn["often"] else 900.0,
                padding=parse_padding(drawn["padding"]),
            )
            for number, identity in enumerate((INITIATOR_IDENTITY, RESPONDER_IDENTITY))
        ]
        self.link = Link(*configs)
        initiator, responder = self.link.sides
        self.link.flush(initiator)
        self.link.deliver(responder, 1 << 20)
        self.link.flush(responder)
        self.link.deliver(initiator, 1 << 20)
        assert initiator.connection.state is State.OPEN
        if not drawn["half_open"]:
            self.link.pump()
            assert responder.connection.state is State.OPEN
            for side, count in zip(self.link.sides, drawn["streams"], strict=True):
                assert side.completed is not None
                for _ in range(min(count, side.completed.agreed.limits.max_streams)):
                    self.link.open_stream(side, None)
            self.link.pump()

    def open_side(self, who: int) -> Side | None:
        side = self.link.sides[who]
        return side if side.connection.state is State.OPEN else None

    def any_open(self) -> bool:
        return any(side.connection.state is State.OPEN for side in self.link.sides)

    def any_writable(self) -> bool:
        return self.any_open() and any(side.writable_streams for side in self.link.sides)

    def may_end(self) -> bool:
        """Return whether it is late enough, because little can be done after the end."""
        asked = any(side.close_asked is not None for side in self.link.sides)
        return self.steps > 15 and not asked and not self.link.cut

    def pick_writable(self, side: Side, pick: int) -> int | None:
        streams = side.writable_streams
        return streams[pick % len(streams)] if streams else None

    def sealed(self, side: Side) -> bool:
        """Return whether the core may know of a Reset before the application."""
        return side.connection.config.deliver == "sealed"

    # Applications.

    @precondition(any_open)
    @rule(steps=st.lists(st.tuples(WHO, KINDS, PICKS, SIZES), min_size=1, max_size=16))
    def traffic(self, steps: list[tuple[int, str, int, int]]) -> None:
        """Run several typical steps of applications."""
        for who, kind, pick, size in steps:
            side = self.link.sides[who]
            if kind == "deliver":
                self.link.flush(self.link.other(side))
                self.link.deliver(side, 1 << 20)
            elif kind == "consume":
                self.consume(who, pick, 1 + pick)
            elif side.connection.state is not State.OPEN:
                continue
            elif kind.startswith("main"):
                self.link.send_event(side, 1, size, lbm=kind == "main lbm", seal=not pick)
            else:
                self.send_on_stream(side, kind, pick, size)
            self.link.check()

    def send_on_stream(self, side: Side, kind: str, pick: int, size: int) -> None:
        stream = self.pick_writable(side, pick)
        if stream is None:
            self.open_stream(self.link.sides.index(side), None)
            return
        try:
            if kind == "data":
                self.link.send_data(side, stream, size)
            elif kind == "chunk":
                self.link.send_chunk(side, stream, size)
            else:
                self.link.send_event(side, stream, size, lbm=kind == "lbm", seal=not pick)
        except LocalError:
            assert self.sealed(side)

    @precondition(any_open)
    @rule(who=WHO, window=st.sampled_from([None, None, 1, 1024, 5000, 2**31 - 1]))
    def open_stream(self, who: int, window: int | None) -> None:
        if side := self.open_side(who):
            ours = sum(stream.ours for stream in side.table.values())
            assert side.completed is not None
            maximum = side.completed.agreed.limits.max_streams
            try:
                self.link.open_stream(side, window)
                assert ours < maximum
            except LocalError:
                assert ours == maximum

    @precondition(any_writable)
    @rule(who=WHO, pick=PICKS)
    def finish(self, who: int, pick: int) -> None:
        side = self.open_side(who)
        if side is None or (stream := self.pick_writable(side, pick)) is None:
            return
        try:
            self.link.finish(side, stream)
        except LocalError:
            assert self.sealed(side)

    @precondition(any_open)
    @rule(who=WHO, pick=PICKS, code=st.sampled_from([0, 32, 33, 35, 64]))
    def reset(self, who: int, pick: int, code: int) -> None:
        if side := self.open_side(who):
            streams = sorted(side.known)
            if streams:
                self.link.reset(side, streams[pick % len(streams)], code)

    @precondition(lambda self: any(any(s.unconsumed.values()) for s in self.link.sides))
    @rule(who=WHO, pick=PICKS, part=st.sampled_from([1, 1, 2, 3, 100]))
    def consume(self, who: int, pick: int, part: int) -> None:
        side = self.link.sides[who]
        held = sorted(stream for stream, cost in side.unconsumed.items() if cost)
        if held:
            stream = held[pick % len(held)]
            self.link.consume(side, stream, -(-side.unconsumed[stream] // part))

    @precondition(any_writable)
    @rule(who=WHO, pick=PICKS)
    def watch(self, who: int, pick: int) -> None:
        side = self.open_side(who)
        if side is None or (stream := self.pick_writable(side, pick)) is None:
            return
        if side.connection.outbox.waiting(stream):
            side.connection.notify_writable(stream)
            side.writable.add(stream)

    @precondition(any_open)
    @rule(who=WHO)
    def ping(self, who: int) -> None:
        if side := self.open_side(who):
            side.pings.add(side.connection.ping(self.link.now))

    @precondition(any_open)
    @rule(who=WHO)
    def update_keys(self, who: int) -> None:
        side = self.open_side(who)
        if side and side.connection.config.plaintext != "only":
            secure = side.connection.session and side.connection.session.secure
            assert secure
            early = self.link.now < secure.rekeying.own_updates._allowance.next_at()
            try:
                side.connection.update_keys(self.link.now)
            except LocalError:
                assert early
            self.link.collect(side)

    @precondition(any_open)
    @rule(who=WHO)
    def rekey(self, who: int) -> None:
        side = self.open_side(who)
        if side and side.connection.config.plaintext != "only":
            secure = side.connection.session and side.connection.session.secure
            assert secure
            early = self.link.now < secure.rekeying._made.next_at()
            try:
                side.connection.rekey(self.link.now)
            except LocalError:
                assert early

    @precondition(may_end)
    @rule(who=WHO, gate=st.integers(0, 2))
    def close(self, who: int, gate: int) -> None:
        side = self.open_side(who)
        if side and gate == 2:
            side.connection.close(self.link.now)
            side.close_asked = self.link.now

    @precondition(lambda self: not self.any_open())
    @rule(who=WHO)
    def closed_is_closed(self, who: int) -> None:
        """After the end, or during it, every call fails without an effect."""
        side = self.link.sides[who]
        if side.connection.state in (State.DRAINING, State.CLOSING, State.ENDED):
            before = side.connection.queued_bytes
            try:
                side.connection.send(1, 0, 64, 1, b"too late", lbm=False)
                raise AssertionError("a send on a closed connection")
            except ConnectionClosedError:
                assert side.connection.queued_bytes == before

    # Transport and time.

    @rule(who=WHO, limit=st.sampled_from([1, 600, 1 << 18]))
    def flush(self, who: int, limit: int) -> None:
        self.link.flush(self.link.sides[who], limit)

    @rule(
        who=WHO, sizes=st.lists(st.integers(1, 40) | st.integers(1, 9000), min_size=1, max_size=6)
    )
    def deliver(self, who: int, sizes: list[int]) -> None:
        side = self.link.sides[who]
        self.link.flush(self.link.other(side))
        for size in sizes:
            self.link.deliver(side, size)

    @rule()
    def pump(self) -> None:
        self.link.pump()

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.02, 0.5, 1.5, 3.0, 9.0, 16.0, 60.0]))
    def advance(self, seconds: float) -> None:
        self.link.advance(seconds)

    @precondition(may_end)
    @rule(gate=st.integers(0, 3), keep=st.tuples(st.integers(0, 5000), st.integers(0, 5000)))
    def cut(self, gate: int, keep: tuple[int, int]) -> None:
        if gate == 3:
            self.link.break_transport(keep)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "link"):
            self.steps += 1
            self.link.check()

    def teardown(self) -> None:
        if not hasattr(self, "link"):
            return
        if not self.link.cut and all(side.close_asked is None for side in self.link.sides):
            self.link.finish_all()
        self.link.close_all()


TestTwoSides = TwoSides.TestCase
TestTwoSides.settings = settings()


SECONDS = [0.0, 0.02, 0.5, 3.0, 11.0, 16.0]
# One side waits for seals while its own events fill its memory.
CROWDED: dict[str, Any] = {
    "suite": {
        "kex": ("x25519",),
        "signing": ("ed25519",),
        "hash": ("sha256",),
        "cipher": ("chacha20-poly1305",),
        "sealing": ("chain",),
    },
    "limits": (
        Limits(1024, seal_events=8, seal_delay_ms=0, stream_window=1024, max_streams=2),
        Limits(1024, seal_events=2, seal_delay_ms=0, stream_window=4096, max_streams=3),
    ),
    "deliver": ("sealed", "opened"),
    "encrypted": True,
    "buffer": 1 << 16,
    "update_after": 1 << 24,
    "padding": "off",
    "often": False,
    "half_open": False,
    "streams": (2, 3),
}


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("before", [0.0, 1.5, 9.0])
def test_the_transport_takes_a_close_in_time(who: int, before: float) -> None:
    """The transport of the model delays a Close by less than a graceful close waits."""
    state = TwoSides()
    state.begin(CROWDED)
    state.pump()
    state.advance(before)
    state.close(who, gate=2)
    state.advance(9.0)
    state.nothing_is_wrong()
    state.teardown()


@pytest.mark.slow
@example(drawn=CROWDED, seed=0)
@given(drawn=beginnings, seed=st.integers(0, 2**32 - 1))
def test_long_traffic(drawn: dict[str, Any], seed: int) -> None:
    """The same rules with more traffic than a state machine that can be shrunk generates."""
    random = Random(seed)
    state = TwoSides()
    state.begin(drawn)
    kinds = ["data"] * 4 + ["event", "lbm", "chunk", "main", "main lbm"] + ["consume"] * 4
    for _ in range(12):
        steps = random.choices(range(2), k=24)
        state.traffic(
            [
                (who, random.choice([*kinds, "deliver"]), random.randrange(8), random.choice(SIZE))
                for who in steps
            ]
        )
        match random.randrange(8):
            case 0:
                state.rekey(random.randrange(2))
            case 1:
                state.update_keys(random.randrange(2))
            case 2:
                state.finish(random.randrange(2), random.randrange(8))
            case 3:
                state.reset(random.randrange(2), random.randrange(8), 32)
            case 4:
                state.watch(random.randrange(2), random.randrange(8))
            case 5:
                state.advance(random.choice(SECONDS))
            case 6:
                state.deliver(random.randrange(2), [random.randrange(1, 900) for _ in range(9)])
            case _:
                state.pump()
    state.teardown()


X25519 = {"kex": ("x25519",)}


def linked() -> Link:
    """Return two open cores."""
    link = Link(
        CoreConfig(identity=INITIATOR_IDENTITY, algorithms=X25519),
        CoreConfig(identity=RESPONDER_IDENTITY, algorithms=X25519),
    )
    link.pump()
    return link


def test_a_late_rekey_offer_is_no_reason_to_refuse_the_next_one() -> None:
    link = linked()
    initiator, responder = link.sides
    initiator.connection.rekey(link.now)
    link.now += 3.0  # in transit
    link.pump()
    assert initiator.epochs_sent == 1
    link.now += REKEY_RATE_SECONDS - 3.0
    with pytest.raises(LimitReachedError, match="10 s"):
        initiator.connection.rekey(link.now)
    link.now += 3.0
    initiator.connection.rekey(link.now)
    link.pump()
    assert responder.end is None
    assert initiator.epochs_sent == responder.epochs_received == 2


def test_a_rekey_asked_for_during_another_is_that_one() -> None:
    link = linked()
    initiator, responder = link.sides
    initiator.connection.rekey(link.now)
    initiator.connection.rekey(link.now)
    link.pump()
    link.advance(REKEY_RATE_SECONDS)
    link.pump()
    assert initiator.epochs_sent == responder.epochs_received == 1
