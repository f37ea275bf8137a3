"""Tests of a peer that has the keys and breaks every rule: it can only end the connection.

Its events are correctly encrypted, chained and sealed. They exercise all checks after decryption:
types, cells, streams, credit, epochs. Meanwhile the correct side's application continues to work.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from parley._crypto.key_schedule import next_secret
from parley._lbm.codec import encode
from parley._node.protocol.codes import CONNECTION, KEY_UPDATE, CloseCode
from parley._node.protocol.errors import ConnectionClosedError, LocalError
from parley._node.protocol.event import Event
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.reports import (
    ConnectionEnded,
    StreamFinished,
    StreamReset,
)
from parley._node.protocol.states import State
from tests.node.protocol.pair import Pair, Side, open_pair

WINDOW = MAX_PAYLOAD = 1024
MAX_STREAMS = 3
CODES = frozenset(CloseCode)

streams = st.sampled_from([0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 2**32 - 1])
numbers = st.sampled_from([0, 1, 2, 3, 4, 5, 64, 1024, 2**31 - 1, 2**31, 2**64 - 1, -1])
values: st.SearchStrategy[Any] = (
    numbers
    | st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=40)
    | st.lists(numbers, max_size=2)
    | st.dictionaries(st.text(max_size=2), numbers, max_size=1)
)
# Payloads of Window, Reset, Open, KeyUpdate and the shares of a rekey, mostly valid.
likely = st.one_of(
    st.fixed_dictionaries({18: streams | numbers, 20: numbers}, optional={25: numbers}),
    st.fixed_dictionaries({18: streams | numbers, 16: numbers}, optional={17: values}),
    st.fixed_dictionaries({19: st.text(max_size=4)}, optional={30: numbers}),
    st.fixed_dictionaries({31: st.integers(0, 3)}, optional={33: st.integers(0, 2)}),
    st.fixed_dictionaries({29: st.just(b"\x09" + bytes(31)) | st.binary(max_size=33)}),
)
payloads = st.one_of(
    likely.map(encode),
    likely.map(encode),
    st.dictionaries(st.integers(1, 40), values, max_size=3).map(encode),
    st.sampled_from([b"\x00", b"\x00", b"", b"\xa0", b"x", b"\x01\x00"]),
    st.sampled_from([895, 896, 960, 1023, 1024, 1025, 4096, 4097]).map(bytes),
    st.binary(max_size=20),
)
types = st.sampled_from(
    [(1, n) for n in range(14)]
    + [(2, n) for n in range(8)] * 3
    + [(3, 1), (3, 7), (4, 1), (9, 9), (64, 1), (255, 255), (0, 1), (64, 0)]
)
# Steps that are often valid, so that later ones run in a deeper state.
openings = st.tuples(
    st.sampled_from([2, 2, 4, 6, 8]), st.just((2, 1)), st.just(encode({19: "x"})), st.just(0)
)
deliveries = st.tuples(
    st.sampled_from([1, 2, 2, 2, 3, 4]),
    st.sampled_from([(2, 5), (2, 5), (3, 7), (64, 1)]),
    st.sampled_from([b"x", bytes(896), bytes(960), bytes(1024)]),
    st.just(0),
)
anything = st.tuples(streams, types, payloads, st.sampled_from([0, 0, 1, 7, 65535]))
finishes = st.tuples(st.sampled_from([1, 2, 3, 4]), st.just((2, 3)), st.just(b"\x00"), st.just(0))
resets = st.tuples(
    st.just(0),
    st.just((2, 4)),
    st.sampled_from([{18: stream, 16: 32} for stream in (2, 3, 4, 5)]).map(encode),
    st.just(0),
)
EVENTS = [openings, finishes, resets, anything]
# One in seven is arbitrary; more would end the connection too early.
events = st.integers(0, 6).flatmap(lambda n: EVENTS[n] if n < len(EVENTS) else deliveries)
honest = st.sampled_from(
    ["open", "data", "finish", "reset", "consume", "update", "rekey", "ping", "time", "close"]
)


def act(side: Side, pair: Pair, what: str) -> None:
    """Act as the correct application; a call that isn't allowed fails without an effect."""
    core = side.core
    ids = sorted(core.session.mux.stream_table.open if core.session is not None else ()) or [2]
    try:
        match what:
            case "open":
                core.open_stream("honest")
            case "data":
                core.send_data(ids[-1], bytes(100))
            case "finish":
                core.finish_stream(ids[0])
            case "reset":
                core.reset_stream(ids[-1], CloseCode.CANCELLED)
            case "consume":
                for report in side.events:
                    core.consume(report.stream, report.cost)
                side.reports = [r for r in side.reports if not isinstance(r, Event)]
            case "update":
                core.update_keys(pair.now)
            case "rekey":
                core.rekey(pair.now)
            case "ping":
                core.ping(pair.now)
            case "time":
                pair.now += 6.0
                core.handle_deadline(pair.now)
            case _:
                core.close(pair.now)
    except LocalError as error:
        assert core.state is State.OPEN or isinstance(error, ConnectionClosedError)  # noqa: PT017  # either


def check(side: Side) -> None:
    """Check that the peer can't make a core exceed the agreed limits."""
    core = side.core
    if core.state is State.OPEN:
        table = side.session.mux.stream_table.open
        assert sum(not stream.ours for stream in table.values()) <= MAX_STREAMS
        assert side.session.mux.stream_table.committed == sum(
            stream.window.size for stream in table.values() if stream.remote_open
        )
        held = side.session.mux.unconsumed
        assert held == sum(report.cost for report in side.events) or (
            core.config.deliver == "sealed"
        )
        assert held >= 0
        for stream in table.values():
            assert stream.window.left > -(MAX_PAYLOAD + EVENT_COST)
        if side.session.secure is not None:
            receiving = side.session.secure.receiver.counters().keys()
            assert receiving <= {0, 1} | {s for s in table if table[s].remote_open}
    assert all(len(report.payload) <= MAX_PAYLOAD for report in side.events)
    over: set[int] = set()
    for report in side.reports:
        if isinstance(report, (StreamFinished, StreamReset)):
            over.add(report.stream)
        elif isinstance(report, Event):
            assert report.stream not in over, "an event after the end of its direction"
    ended = side.all(ConnectionEnded)
    assert len(ended) <= 1
    for end in ended:
        assert end.remote or end.code in CODES
        assert side.reports[-1] is end


@given(
    settings=st.fixed_dictionaries(
        {
            "plaintext": st.sampled_from(["never", "never", "only"]),
            "deliver": st.sampled_from(["opened", "sealed"]),
            "seal_events": st.integers(1, 8),
            "algorithms": st.sampled_from(
                [{"kex": ("x25519",), "sealing": (name,)} for name in ("chain", "each")]
            ),
        }
    ),
    steps=st.lists(st.tuples(events, st.booleans()) | honest, min_size=1, max_size=40),
    by_initiator=st.booleans(),
)
def test_a_peer_that_breaks_the_rules(
    settings: dict[str, Any], steps: list[Any], by_initiator: bool
) -> None:
    pair = open_pair(
        **settings,
        max_payload=MAX_PAYLOAD,
        stream_window=WINDOW,
        max_streams=MAX_STREAMS,
    )
    liar, side = (pair.a, pair.b) if by_initiator else (pair.b, pair.a)
    for step in steps:
        if isinstance(step, str):
            act(side, pair, step)
        else:
            (stream, kind, payload, async_id), sealed = step
            if by_initiator and 2 <= stream < 2**31:
                stream ^= 1  # the initiator opens odd streams
            pair.inject(liar, stream, *kind, payload, async_id=async_id, sealed=sealed)
            if kind == (CONNECTION, KEY_UPDATE) and sealed and settings["plaintext"] == "never":
                sender = liar.channel.sender
                sender.switch(next_secret(sender.suite.hash_algorithm, sender.secret))
        side.take(pair.now)
        side.collect(pair.now)
        check(side)
        assert side.core.ended or side.core.next_deadline() > pair.now - 60.0
    side.core.receive_eof(pair.now)
    side.collect(pair.now)
    check(side)
    assert side.core.ended
    assert side.all(ConnectionEnded)
