"""Streams between our node and the reference: life, credit, Reset, labels, limits.

Section 8 of docs/protocol.md; what breaks its rules is in test_violations.py.
"""

from collections.abc import Callable

import anyio
import pytest

from parley import Peer
from parley._node.errors import StreamResetError
from tests.interop.meeting import SIDES, Ours, our_node, their_config
from tests.reference import acts, cbor
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, RESET_CODES, TYPES
from tests.sweep import sweep

pytestmark = pytest.mark.anyio


def resets(peer: ReferencePeer) -> list[tuple[int, int]]:
    """(stream, code) of each Reset that came, up to a Pong."""
    acts.ping(peer, 60_000)
    return [
        (cells[CELLS["stream"]], cells[CELLS["code"]]) for cells in acts.received(peer, "Reset")
    ]


Steps = Callable[[ReferencePeer], list[tuple[int, int]]]


def unknown_label(peer: ReferencePeer) -> list[tuple[int, int]]:
    stream = acts.open_stream(peer, "nobody")
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, RESET_CODES["no-handler"])]


def reserved_label(peer: ReferencePeer) -> list[tuple[int, int]]:
    stream = acts.open_stream(peer, "topic:news")
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, RESET_CODES["refused"])]


def reset_at_once(peer: ReferencePeer) -> list[tuple[int, int]]:
    """Reset is answered with Reset."""
    stream = acts.open_stream(peer, "echo")
    acts.reset(peer, stream, RESET_CODES["cancelled"])
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, RESET_CODES["cancelled"])]


def reset_by_an_application(peer: ReferencePeer) -> list[tuple[int, int]]:
    stream = acts.open_stream(peer, "hold")
    acts.send_data(peer, stream, b"x")
    peer.send("Reset", 0, stream=stream, code=2**32 - 1, text="for a reason")
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, 2**32 - 1)]


def finished_then_reset(peer: ReferencePeer) -> list[tuple[int, int]]:
    """Both sides have finished: Reset and Window of the closed stream are ignored."""
    stream = acts.open_stream(peer, "echo")
    acts.finish(peer, stream)
    acts.wait_for(peer, lambda e: e.type == TYPES["Finish"])
    acts.reset(peer, stream, 0)
    acts.grant(peer, stream, 2**31 - 1)
    acts.grant(peer, stream, 2**31 - 1)
    return []


def reset_twice(peer: ReferencePeer) -> list[tuple[int, int]]:
    stream = acts.open_stream(peer, "hold")
    acts.reset(peer, stream, 33)
    acts.reset(peer, stream, 33)
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, 33)]


def reset_after_finish(peer: ReferencePeer) -> list[tuple[int, int]]:
    """Our direction is still open, so that Reset is answered."""
    stream = acts.open_stream(peer, "hold")
    acts.finish(peer, stream)
    acts.reset(peer, stream, 32)
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, 32)]


def data_meets_reset(peer: ReferencePeer) -> list[tuple[int, int]]:
    """Data sent before the local Reset is read is dropped."""
    stream = acts.open_stream(peer, "nobody")
    for _ in range(3):
        peer.send_event(stream, 0, *TYPES["Data"], bytes(500))
    acts.finish(peer, stream)
    acts.wait_for(peer, lambda e: e.type == TYPES["Reset"])
    return [(stream, RESET_CODES["no-handler"])]


def with_unknown_cells(peer: ReferencePeer) -> list[tuple[int, int]]:
    """4,096 bytes of payload on stream 0, most of them in an unknown cell."""
    stream = acts.open_stream(peer, "hold")
    cells = {CELLS["stream"]: stream, CELLS["credit"]: 1, CELLS["code"]: "any"}
    bare = len(cbor.encode_payload({**cells, 300: bytes(1000)})) - 1000
    payload = cbor.encode_payload({**cells, 300: bytes(4_096 - bare)})
    assert len(payload) == 4_096
    peer.send_event(0, 0, *TYPES["Window"], payload)
    return []


def credit_to_the_limit(peer: ReferencePeer) -> list[tuple[int, int]]:
    stream = acts.open_stream(peer, "hold")
    acts.grant(peer, stream, 2**31 - 1 - peer.session.agreement.limits["stream_window"])
    acts.grant(peer, stream, 0)
    return []


def ids_passed_over(peer: ReferencePeer) -> list[tuple[int, int]]:
    """Ids ascend; some may be left out."""
    first = acts.open_stream(peer, "hold")
    peer.send("Open", first + 1_000, label="hold")
    peer.send("Open", 2**32 - 2 + first % 2, label="hold")
    return []


# The rules of docs/protocol.md, and the case.
STEPS: dict[str, Steps] = {
    f"{rules}: {step.__name__}": step
    for rules, step in (
        ("8.17", unknown_label),
        ("8.19, 9.28", reserved_label),
        ("8.10", reset_at_once),
        ("8.10, 8.20", reset_by_an_application),
        ("8.31", finished_then_reset),
        ("8.32", reset_twice),
        ("8.10, 8.31", reset_after_finish),
        ("8.11, 8.25", data_meets_reset),
        ("2.15, 3.6", with_unknown_cells),
        ("8.39", credit_to_the_limit),
        ("8.7", ids_passed_over),
    )
}


@sweep("name", STEPS)
@sweep("side", SIDES)
async def test_what_a_stream_may_go_through(side: Side, name: str) -> None:
    def act(peer: ReferencePeer) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        peer.handshake()
        expected = STEPS[name](peer)
        seen = resets(peer)
        acts.call(peer, "parley.echo", "after")
        acts.close(peer)
        return seen, expected

    config = their_config(limits={"stream_window": 2_048})
    async with our_node() as ours:
        seen, expected = await ours.meet(act, side, config=config)
        assert seen == expected
        assert ours.called == [("parley.echo", "after")]
        assert await ours.ended() == "normal"


# Credit.


async def test_a_stream_without_credit_holds_up_no_call() -> None:
    def act(peer: ReferencePeer) -> object:
        peer.handshake()
        stream = acts.open_stream(peer, "echo", window=1)
        for _ in range(50):
            acts.send_data(peer, stream, bytes(1_000))
        answer = acts.call(peer, "parley.echo", "not held up")
        acts.close(peer)
        return answer[CELLS["data"]]

    async with our_node() as ours:
        assert await ours.meet(act) == "not held up"


# max_streams.


# What our application sees.


async def seen(ours: Ours, act: Callable[[ReferencePeer], object]) -> list[str]:
    """How reading and writing of a local stream end."""
    ends: list[str] = []

    async def application(peer: Peer) -> None:
        stream = peer.open_stream("app/any")
        await stream.send(b"first")
        try:
            ends.append((await stream.receive()).decode())
            ends.append((await stream.receive()).decode())
        except anyio.EndOfStream:
            ends.append("end")
        except StreamResetError as error:
            ends.append(f"{error.code} {error.text}")
        try:
            for _ in range(100):
                await stream.send(bytes(60_000))
                await peer.ping()
        except StreamResetError as error:
            ends.append(f"{error.code}")
        await peer.close()

    def run(peer: ReferencePeer) -> None:
        peer.handshake()
        first = acts.wait_for(peer, lambda e: e.type == TYPES["Data"])
        assert first.payload == b"first"
        act(peer)
        assert acts.serve(peer).code == 0

    await ours.meet(run, "responder", application=application)
    return ends


async def test_our_application_sees_what_came_before_a_finish() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.send_event(3, 0, *TYPES["Data"], b"last")
        acts.finish(peer, 3)

    async with our_node() as ours:
        assert await seen(ours, act) == ["last", "end"]


async def test_our_application_sees_code_and_text_of_a_reset() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.send("Reset", 0, stream=3, code=70, text="enough")

    async with our_node() as ours:
        assert await seen(ours, act) == ["70 enough", "70"]
