"""Streamed answers between our node and the reference, in both directions.

Sections 8 and 9: Chunks, their credit (Window with cell 25), and their one final answer.
"""

import threading
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import pytest

from parley import Call, CallRefused, Peer
from parley._node.errors import PeerClosedError, StreamedAnswerError
from parley._node.protocol.codes import CloseCode
from parley._node.protocol.limits import Limits
from tests.interop.meeting import SIDES, Ours, our_config, our_node, with_bystander
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, RESULT_CODES, TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

ID: Final = 7
ITEM: Final = bytes(100)
# What a Chunk of ITEM costs: its payload and 64.
COST: Final = len(cells_payload(data=ITEM)) + 64


def offer_items(ours: Ours) -> None:
    """`items` yields ITEM as often as it is told, and without end for null."""

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
    """Wait for so many, and see that no more come."""
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


@pytest.mark.parametrize("side", SIDES)
async def test_no_more_comes_than_there_is_credit_for(side: Side) -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        ask(peer, None, window=3 * COST)
        all_chunks(peer, 3)
        # Credit of other streams and other calls is not this one's.
        grant(peer, 10 * COST, request=ID + 1)
        assert chunks(peer) == []
        grant(peer, 2 * COST)
        all_chunks(peer, 2)
        # One may take it below zero, and what is below counts.
        grant(peer, 1)
        all_chunks(peer, 1)
        grant(peer, COST - 1)
        assert chunks(peer) == []
        grant(peer, 1)
        all_chunks(peer, 1)
        # Stream 1 itself goes on all the while.
        assert acts.call(peer, "parley.echo", 1, async_id=9)[CELLS["code"]] == 0
        peer.send("Cancel", 1, 0, request=ID)
        assert acts.result(peer, ID) == {CELLS["code"]: RESULT_CODES["cancelled"]}
        grant(peer, 10 * COST)
        assert chunks(peer) == []
        acts.close(peer)

    async with our_node() as ours:
        offer_items(ours)
        await ours.meet(act, side)
        await ours.until(lambda: ours.stopped == ["items"])
        # The item that waited for credit was made, and not sent.
        assert yielded(ours) == 8


async def test_without_window_it_is_the_agreed_one() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        ask(peer, None)
        all_chunks(peer, 2048 // COST + 1)
        acts.close(peer)

    async with our_node(our_config(limits=Limits(stream_window=2048))) as ours:
        offer_items(ours)
        await ours.meet(act)
        await ours.until(lambda: ours.stopped == ["items"])


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


async def test_a_call_without_id_gets_no_items() -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        peer.send("Call", 1, 0, topic="items")
        assert chunks(peer) == []
        assert not acts.received(peer, "Result")
        acts.close(peer)

    async with our_node() as ours:
        offer_items(ours)
        await ours.meet(act)
        await ours.until(lambda: ours.stopped == ["items"])
        assert yielded(ours) == 1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("window", [None, 2**31 - 1])
async def test_credit_above_the_greatest_is_a_violation(side: Side, window: int | None) -> None:
    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        peer.send("Call", 1, ID, topic="hold", **({"window": window} if window else {}))
        grant(peer, 2**31 - 1)
        return acts.closed_with(peer)

    async with with_bystander() as ours:
        assert await ours.meet(act, side) == await ours.ended() == "protocol-error"


@pytest.mark.parametrize("side", SIDES)
async def test_credit_for_what_was_answered_is_nothing(side: Side) -> None:
    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for _ in range(3):
            grant(peer, 2**31 - 1)
        assert acts.call(peer, "parley.echo", 1, async_id=ID)[CELLS["code"]] == 0
        acts.close(peer)

    async with our_node() as ours:
        await ours.meet(act, side)


# Our node reads.


async def dialling(act: Any, application: Any) -> Any:
    """Our node dials a reference that does nothing of itself."""
    async with our_node() as ours:
        return await ours.meet(act, "responder", application=application, automatic=False)


def a_call(peer: ReferencePeer) -> Event:
    return acts.wait_for(peer, lambda event: event.type == TYPES["Call"])


def item(peer: ReferencePeer, call: Event, data: object = ITEM) -> None:
    peer.send("Chunk", 1, call.async_id, data=data)


def a_window(peer: ReferencePeer) -> dict[int, Any]:
    return acts.wait_for(peer, lambda event: event.type == TYPES["Window"]).cells()


async def test_our_node_grants_what_it_has_read_once_it_is_half() -> None:
    async def application(peer: Peer) -> None:
        async with peer.call_stream("any", window=4 * COST) as answer:
            for _ in range(4):
                assert await anext(answer) == ITEM
            assert [data async for data in answer] == [ITEM] * 2
            assert answer.result == "done"
        await peer.close()

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        call = a_call(peer)
        assert call.cells() == {CELLS["topic"]: "any", CELLS["window"]: 4 * COST}
        for _ in range(4):
            item(peer, call)
        for _ in range(2):
            assert a_window(peer) == {
                CELLS["stream"]: 1,
                CELLS["request"]: call.async_id,
                CELLS["credit"]: 2 * COST,
            }
        item(peer, call)
        item(peer, call)
        peer.send("Result", 1, call.async_id, code=0, data="done")
        assert acts.closed_with(peer) == "normal"

    await dialling(act, application)


async def test_a_chunk_at_no_credit_ends_the_connection() -> None:
    async def application(peer: Peer) -> None:
        async with peer.call_stream("any", window=2 * COST) as answer:
            with pytest.raises(PeerClosedError) as caught:
                await peer.call("other", timeout=None)
            assert caught.value.code == CloseCode.PROTOCOL_ERROR
            # What came at credit is there to be read, and then the same code.
            assert [await anext(answer), await anext(answer)] == [ITEM, ITEM]
            with pytest.raises(PeerClosedError) as caught:
                await anext(answer)
            assert caught.value.code == CloseCode.PROTOCOL_ERROR

    def act(peer: ReferencePeer) -> str:
        peer.handshake()
        call = a_call(peer)
        a_call(peer)
        for _ in range(3):
            item(peer, call)
        return acts.closed_with(peer)

    async with our_node() as ours:
        closed = await ours.meet(act, "responder", application=application, automatic=False)
        assert closed == await ours.ended() == "protocol-error"


@pytest.mark.parametrize("payload", [b"", b"junk", b"\x80", cells_payload(data=1) + b"\0"])
async def test_a_malformed_chunk_cancels_its_call_alone(payload: bytes) -> None:
    async def application(peer: Peer) -> None:
        async with peer.call_stream("any") as answer:
            with pytest.raises(CallRefused) as caught:
                await anext(answer)
            assert caught.value.code == RESULT_CODES["malformed"]
        assert await peer.call("next", timeout=None) == 1
        await peer.close()

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        call = a_call(peer)
        peer.send_event(1, call.async_id, *TYPES["Chunk"], payload)
        cancel = acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        assert cancel.cells() == {CELLS["request"]: call.async_id}
        again = a_call(peer)
        assert again.async_id != call.async_id
        # Chunks that cross a Cancel are dropped while they are within the call's credit.
        for _ in range(2):
            item(peer, call, bytes(100_000))
        peer.send("Result", 1, call.async_id, code=RESULT_CODES["cancelled"])
        peer.send("Result", 1, again.async_id, code=0, data=1)
        assert acts.closed_with(peer) == "normal"

    await dialling(act, application)


async def test_items_for_a_plain_call_cancel_it() -> None:
    async def application(peer: Peer) -> None:
        with pytest.raises(StreamedAnswerError):
            await peer.call("any", timeout=None)
        assert await peer.call("next", timeout=None) == 1
        await peer.close()

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        call = a_call(peer)
        item(peer, call)
        item(peer, call)
        cancel = acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        assert cancel.cells() == {CELLS["request"]: call.async_id}
        again = a_call(peer)
        peer.send("Result", 1, call.async_id, code=0)
        peer.send("Result", 1, again.async_id, code=0, data=1)
        assert acts.closed_with(peer) == "normal"

    await dialling(act, application)


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


async def test_who_names_the_greatest_window_and_never_reads_costs_a_bounded_memory() -> None:
    """The write buffer, and what the handlers had in hand: one item each."""
    write_buffer, handlers, size = 200_000, 10, 5_000
    asked, enough = threading.Event(), threading.Event()

    def act(peer: ReferencePeer) -> None:
        peer.handshake()
        for number in range(1, handlers + 1):
            peer.send("Call", 1, number, topic="large items", window=2**31 - 1)
        asked.set()
        assert enough.wait(10)
        peer.channel.close()

    async with our_node(our_config(write_buffer=write_buffer)) as ours:
        made = 0

        @ours.node.on_call("large items")
        async def large_items(call: Call) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield bytes(size)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ours.meet, act)
            await ours.until(asked.is_set)
            await ours.until(lambda: bool(ours.node.peers))
            (peer,) = ours.node.peers
            await ours.until(lambda: peer.core.queued_bytes > write_buffer)
            last = -1
            while made != last:
                last = made
                await anyio.sleep(0.1)
            queued = peer.core.queued_bytes
            enough.set()
        cost = size + 64
        assert write_buffer < queued <= write_buffer + handlers * cost
        await ours.until(lambda: not ours.node.peers)
