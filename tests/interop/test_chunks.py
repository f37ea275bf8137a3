"""Streamed answers between our node and the reference, in both directions.

Sections 8 and 9: Chunks, their credit (Window with cell 25), and their one final answer.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from parley import Call, Peer
from tests.interop.meeting import SIDES, Ours, our_node
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, RESULT_CODES, TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

ID: Final = 7
ITEM: Final = bytes(100)
# What a Chunk of ITEM costs: its payload and 64.
COST: Final = len(cells_payload(data=ITEM)) + 64


def offer_items(ours: Ours) -> None:
    """`items` yields ITEM as often as requested, and forever for null."""

    @ours.node.on_call("items")
    async def items(call: Call) -> AsyncIterator[bytes]:
        number = 0
        try:
            while call.data is None or number < int(str(call.data)):
                number += 1
                ours.called.append(("yielded", number))
                yield ITEM
        finally:
            ours.stopped.append("items")


def yielded(ours: Ours) -> int:
    return len([call for call in ours.called if call[0] == "yielded"])


def ask(peer: ReferencePeer, data: object, *, stream: int = 1, **cells: Any) -> None:
    peer.send("Call", stream, ID, topic="items", data=data, **cells)


def chunks(peer: ReferencePeer, stream: int = 1) -> list[Event]:
    """The Chunks that came up to the Pong of a Ping, and are there for no later call."""
    acts.ping(peer, 60_000)
    found = [event for event in peer.backlog if event.type == TYPES["Chunk"]]
    for event in found:
        assert (event.stream, event.async_id) == (stream, ID)
        assert event.cells() == {CELLS["data"]: ITEM}
        peer.backlog.remove(event)
    return found


def all_chunks(peer: ReferencePeer, number: int, stream: int = 1) -> None:
    """Wait for this many, and check that there are no further ones."""
    for _ in range(number):
        acts.wait_for(peer, lambda event: event.type == TYPES["Chunk"])
    assert chunks(peer, stream) == []


def grant(peer: ReferencePeer, credit: int, *, stream: int = 1, request: int = ID) -> None:
    """2/2 Window with cell 25."""
    peer.send("Window", 0, stream=stream, credit=credit, request=request)


# Our node answers.


@pytest.mark.parametrize("side", SIDES)
async def test_items_and_then_one_result(side: Side) -> None:
    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        ask(peer, 5)
        result = acts.result(peer, ID)
        assert result == {CELLS["code"]: 0}
        assert len(chunks(peer)) == 5
        order = [o.event.type for o in peer.events if o.event.async_id == ID]
        assert order == [TYPES["Chunk"]] * 5 + [TYPES["Result"]]
        acts.close(peer)
        return len(order)

    async with our_node() as ours:
        offer_items(ours)
        assert await ours.meet(act, side) == 6


async def test_items_of_a_call_on_a_stream_take_nothing_of_the_stream_s_credit() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        stream = acts.open_stream(peer, "echo", window=1)
        ask(peer, None, stream=stream, window=5 * COST)
        all_chunks(peer, 5, stream)
        # The other way round neither: the stream's own credit is still there, once.
        acts.send_data(peer, stream, b"abc")
        acts.wait_for(peer, lambda event: event.type == TYPES["Data"])
        grant(peer, COST, stream=stream)
        all_chunks(peer, 1, stream)
        # A reset ends the call with its stream: there is no answer.
        acts.reset(peer, stream, 32)
        acts.ping(peer, 60_000)
        assert not acts.received(peer, "Result")
        grant(peer, COST, stream=stream)
        assert acts.call(peer, "parley.echo", 1, async_id=9)[CELLS["code"]] == 0
        acts.close(peer)

    async with our_node() as ours:
        offer_items(ours)
        await ours.meet(act)
        await ours.until(lambda: ours.stopped == ["items"])


# Our node reads.


async def dialling(act: Any, application: Any) -> Any:
    """Dial a passive reference from a node."""
    async with our_node() as ours:
        return await ours.meet(act, "responder", application=application, automatic=False)


def a_call(peer: ReferencePeer) -> Event:
    return acts.wait_for(peer, lambda event: event.type == TYPES["Call"])


def item(peer: ReferencePeer, call: Event, data: object = ITEM) -> None:
    peer.send("Chunk", 1, call.async_id, data=data)


async def test_leaving_cancels_and_grants_no_more() -> None:
    async def application(peer: Peer) -> None:
        async with peer.call_stream("any", window=2 * COST) as answer:
            assert await anext(answer) == ITEM
        assert await peer.call("next", timeout=None) == 1
        await peer.close()

    def act(peer: ReferencePeer) -> int:
        peer.handshake()
        call = a_call(peer)
        item(peer, call)
        cancel = acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        assert cancel.cells() == {CELLS["request"]: call.async_id}
        for _ in range(2):
            item(peer, call)
        again = a_call(peer)
        assert again.async_id != call.async_id
        peer.send("Result", 1, call.async_id, code=RESULT_CODES["cancelled"])
        peer.send("Result", 1, again.async_id, code=0, data=1)
        assert acts.closed_with(peer) == "normal"
        return len(acts.received(peer, "Window"))

    assert await dialling(act, application) == 1


# Somebody who never reads.
