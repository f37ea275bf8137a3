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
from tests.reference.wire import CELLS, TYPES, Event

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


@asynccontextmanager
async def our_server() -> AsyncIterator[tuple[Ours, list[str]]]:
    """The node answers each 64/1 with its data, and 'hold' once it is cancelled. The list records
    the events.
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


# Our node asks.


async def asking(ours: Ours, act: Any, *, timeout: float = 4.0) -> list[Any]:
    """Return the outcome of one request after another, until the reference closes."""
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
    """Unmatched answers are ignored: with another ID, without one, or on another stream."""

    def act(peer: ReferencePeer) -> None:
        for data in ("first", "second"):
            ask = wait_for(peer, ASK)
            assert ask.payload == lbm(data)
            for unknown in (0, ask.async_id + 1, 65_535):
                peer.send_event(ask.stream, unknown, *ANSWER, lbm("not it"))
            peer.send_event(1, ask.async_id, *ANSWER, lbm("nor that"))
            peer.send_event(ask.stream, ask.async_id, *NOTE, lbm("a request of the peer"))
            peer.send_event(ask.stream, ask.async_id, *ANSWER, lbm([data]))

    async with our_node() as ours:
        # The peer's request is never answered; another with the same ID would exceed the limit.
        found = await asking(ours, act)
        assert [data for _, data in found] == [["first"], ["second"]]
        assert [async_id for async_id, _ in found] == [1, 2]
