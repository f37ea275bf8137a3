"""Typed events on streams between our node and the reference: requests, answers, Cancel.

Sections 2 and 8: an id belongs to one unanswered request of a side and stream, whatever
its category, and an event is a request or an answer by its type alone.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

from parley import CallTimeout, Peer, Stream
from parley._node.errors import StreamResetError
from tests.interop.meeting import SIDES, Ours, our_node
from tests.reference import acts, cbor
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, RESET_CODES, RESULT_CODES, TYPES, Event

pytestmark = pytest.mark.anyio

ASK: Final = (64, 1)
ANSWER: Final = (64, 2)
NOTE: Final = (200, 7)
LABEL: Final = "typed"


def lbm(data: Any) -> bytes:
    """A payload as our node writes data."""
    return cbor.encode_payload({CELLS["data"]: data})


def wait_for(peer: ReferencePeer, kind: tuple[int, int]) -> Event:
    return acts.wait_for(peer, lambda event: event.type == kind)


def cancel(peer: ReferencePeer, stream: int, request: int) -> None:
    peer.send("Cancel", stream, 0, request=request)


@asynccontextmanager
async def our_server() -> AsyncIterator[tuple[Ours, list[str]]]:
    """Our node answers each 64/1 with its data; one that says 'hold' once it is cancelled.

    The list has what happened.
    """
    async with our_node() as ours:
        heard: list[str] = []

        @ours.node.on_stream(LABEL, answers={ANSWER})
        async def typed(stream: Stream) -> None:
            async for event in stream.events():
                heard.append(f"{event.category}/{event.subcategory} {event.data!r}")
                if event.wants_answer:
                    if event.data == "hold":
                        await event.wait_cancelled()
                        heard.append(f"cancelled: {event.cancelled}")
                    await event.answer(2, event.data)

        yield ours, heard


@pytest.mark.parametrize("side", SIDES)
async def test_our_node_answers_events_by_their_ids(side: Side) -> None:
    def act(peer: ReferencePeer) -> list[tuple[int, Any]]:
        peer.handshake()
        stream = acts.open_stream(peer, LABEL)
        peer.send_event(stream, 0, *NOTE, lbm("no answer"))
        for async_id, data in ((9, "a"), (65_535, [1, 2.5]), (1, None)):
            peer.send_event(stream, async_id, *ASK, lbm(data))
        found = [wait_for(peer, ANSWER) for _ in range(3)]
        acts.finish(peer, stream)
        wait_for(peer, TYPES["Finish"])
        acts.close(peer)
        return [(e.async_id, e.cells().get(CELLS["data"]) if e.payload else None) for e in found]

    async with our_server() as (ours, heard):
        found = await ours.meet(act, side)
        assert found == [(9, "a"), (65_535, [1, 2.5]), (1, None)]
        assert heard[0] == "200/7 'no answer'"
        assert await ours.ended() == "normal"


@pytest.mark.parametrize("side", SIDES)
async def test_a_cancelled_request_is_answered_all_the_same(side: Side) -> None:
    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        stream = acts.open_stream(peer, LABEL)
        peer.send_event(stream, 4, *ASK, lbm("hold"))
        cancel(peer, stream, 5)
        cancel(peer, 1, 4)
        peer.send_event(stream, 0, *TYPES["Cancel"], b"junk")
        acts.ping(peer)
        assert not [o for o in peer.events if o.event.type == ANSWER]
        cancel(peer, stream, 4)
        found = [wait_for(peer, ANSWER).async_id]
        cancel(peer, stream, 4)
        peer.send_event(stream, 4, *ASK, lbm("free again"))
        found.append(wait_for(peer, ANSWER).async_id)
        acts.close(peer)
        return found

    async with our_server() as (ours, heard):
        assert await ours.meet(act, side) == [4, 4]
        assert heard == ["64/1 'hold'", "cancelled: True", "64/1 'free again'"]
        assert await ours.ended() == "normal"


@pytest.mark.parametrize("second", ["event", "other event", "Call", "Emit", "Subscribe"])
@pytest.mark.parametrize("side", SIDES)
async def test_an_id_used_twice_is_a_protocol_error(side: Side, second: str) -> None:
    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        stream = acts.open_stream(peer, LABEL)
        peer.send_event(stream, 4, *ASK, lbm("hold"))
        match second:
            case "event":
                peer.send_event(stream, 4, *ASK, lbm("again"))
            case "other event":
                peer.send_event(stream, 4, 255, 255, b"whatever")
            case "Call" | "Subscribe":
                peer.send(second, stream, 4, topic="parley.echo")
            case "Emit":
                peer.send("Emit", stream, 4, name="x")
        return acts.closed_with(peer)

    async with our_server() as (ours, _):
        assert await ours.meet(act, side) == "protocol-error"


async def test_an_event_may_not_take_the_id_of_a_call() -> None:
    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        stream = acts.open_stream(peer, LABEL)
        peer.send("Call", stream, 4, topic="hold")
        peer.send_event(stream, 4, *ASK, lbm("x"))
        return acts.closed_with(peer)

    async with our_server() as (ours, _):
        assert await ours.meet(act) == "protocol-error"


@pytest.mark.parametrize("side", SIDES)
async def test_the_same_id_elsewhere_is_free(side: Side) -> None:
    """On another stream, on stream 1, and for an answer, known or not."""

    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        first, second = (acts.open_stream(peer, LABEL) for _ in "ab")
        peer.send_event(first, 4, *ASK, lbm("hold"))
        peer.send_event(first, 4, *ANSWER, lbm("of nothing"))
        peer.send_event(first, 4, *TYPES["Result"], cbor.encode_payload({CELLS["code"]: 0}))
        acts.call(peer, "parley.echo", "x", async_id=4)
        peer.send_event(second, 4, *ASK, lbm("b"))
        found = [wait_for(peer, ANSWER).stream]
        cancel(peer, first, 4)
        found.append(wait_for(peer, ANSWER).stream)
        acts.close(peer)
        return [stream - first for stream in found]

    async with our_server() as (ours, heard):
        assert await ours.meet(act, side) == [2, 0]
        assert heard == ["64/1 'hold'", "64/1 'b'", "cancelled: True"]


async def test_more_requests_than_may_be_unanswered_reset_their_stream() -> None:
    def act(peer: ReferencePeer) -> tuple[int, Any]:
        peer.handshake()
        stream = acts.open_stream(peer, "hold")
        for async_id in range(1, 1_026):
            peer.send_event(stream, async_id, *ASK, b"\x00")
        cells = wait_for(peer, TYPES["Reset"]).cells()
        assert cells[CELLS["stream"]] == stream
        answer = acts.call(peer, "parley.echo", "still here")
        acts.close(peer)
        return cells[CELLS["code"]], answer[CELLS["data"]]

    async with our_node() as ours:
        code, data = await ours.meet(act)
        assert code == 12  # overloaded
        assert data == "still here"
        assert await ours.ended() == "normal"


# Our node asks.


async def asking(ours: Ours, act: Any, *, timeout: float = 4.0) -> list[Any]:
    """What one request after another of ours came to, until the reference closes."""
    found: list[Any] = []

    async def application(peer: Peer) -> None:
        stream = peer.open_stream(LABEL, answers={ANSWER})
        for data in ("first", "second"):
            try:
                answer = await stream.request(*ASK, data, timeout=timeout)
                found.append((answer.async_id, answer.data))
            except (CallTimeout, StreamResetError, anyio.EndOfStream) as error:
                found.append(type(error))
        await peer.close()

    def run(peer: ReferencePeer) -> None:
        peer.handshake()
        act(peer)
        acts.serve(peer)

    await ours.meet(run, "responder", application=application)
    assert await ours.ended() == "normal"
    return found


async def test_our_requests_find_their_answers() -> None:
    """Answers to nothing are ignored: of another id, without one, on another stream."""

    def act(peer: ReferencePeer) -> None:
        for data in ("first", "second"):
            ask = wait_for(peer, ASK)
            assert ask.payload == lbm(data)
            for unknown in (0, ask.async_id + 1, 65_535):
                peer.send_event(ask.stream, unknown, *ANSWER, lbm("not it"))
            peer.send_event(1, ask.async_id, *ANSWER, lbm("nor that"))
            peer.send_event(ask.stream, ask.async_id, *NOTE, lbm("a request of theirs"))
            peer.send_event(ask.stream, ask.async_id, *ANSWER, lbm([data]))

    async with our_node() as ours:
        # The request of theirs is never answered; another by the same id would be too much.
        found = await asking(ours, act)
        assert [data for _, data in found] == [["first"], ["second"]]
        assert [async_id for async_id, _ in found] == [1, 2]


async def test_our_node_gives_up_with_cancel_and_leaves_the_id_alone() -> None:
    def act(peer: ReferencePeer) -> None:
        late = wait_for(peer, ASK)
        given_up = wait_for(peer, TYPES["Cancel"])
        assert (given_up.stream, given_up.async_id) == (late.stream, 0)
        assert given_up.cells() == {CELLS["request"]: late.async_id}
        next_one = wait_for(peer, ASK)
        assert next_one.async_id != late.async_id
        peer.send_event(late.stream, late.async_id, *ANSWER, lbm("late"))
        peer.send_event(late.stream, next_one.async_id, *ANSWER, lbm("in time"))

    async with our_node() as ours:
        found = await asking(ours, act, timeout=0.2)
        assert found == [CallTimeout, (2, "in time")]


@pytest.mark.parametrize(
    ("how", "error"), [("finish", anyio.EndOfStream), ("reset", StreamResetError)]
)
async def test_our_requests_end_with_the_stream(how: str, error: type[Exception]) -> None:
    def act(peer: ReferencePeer) -> None:
        ask = wait_for(peer, ASK)
        if how == "finish":
            acts.finish(peer, ask.stream)
        else:
            acts.reset(peer, ask.stream, RESET_CODES["cancelled"])

    async with our_node() as ours:
        assert await asking(ours, act) == [error, error]


async def test_a_cancel_that_is_nobody_s_is_answered_by_nothing() -> None:
    """Also where the stream is gone from our application's hands."""

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = acts.open_stream(peer, "echo")
        cancel(peer, stream, 1)
        peer.send("Call", stream, 1, topic="nobody")
        assert acts.result(peer, 1, stream)[CELLS["code"]] == RESULT_CODES["topic not found"]
        cancel(peer, stream, 1)
        acts.ping(peer)
        acts.close(peer)

    async with our_node() as ours:
        await ours.meet(act)
        assert await ours.ended() == "normal"
