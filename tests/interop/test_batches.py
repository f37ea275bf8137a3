"""Batches between a node and the reference (section 8): each event acts as it does outside."""

from typing import Any

import anyio
import pytest

from parley import Peer
from tests.interop.meeting import SIDES, our_node
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

CALLS = 40


def call(async_id: int, topic: str, data: Any = None, stream: int = 1) -> Event:
    return Event(stream, async_id, *TYPES["Call"], cells_payload(topic=topic, data=data))


def codes(peer: ReferencePeer, stream: int) -> dict[int, int]:
    """The codes of all Results on a stream up to the Pong of a Ping, by async id."""
    acts.ping(peer, 60_000)
    found = [o.event for o in peer.events if o.event.type == TYPES["Result"]]
    results = [(one.async_id, one.cells()[CELLS["code"]]) for one in found if one.stream == stream]
    assert len(results) == len(dict(results))
    return dict(results)


@pytest.mark.parametrize("side", SIDES)
async def test_each_request_in_a_batch_has_its_own_answer(side: Side) -> None:
    def act(peer: ReferencePeer) -> tuple[dict[int, int], ...]:
        peer.handshake()
        other = acts.open_stream(peer, "hold")
        for stream in (1, other):
            acts.send_batch(
                peer,
                call(7, "parley.echo", "first", stream),
                call(8, "nobody", None, stream),
                Event(stream, 9, *TYPES["Call"], b"junk"),
                call(10, "hold", None, stream),
                Event(stream, 0, *TYPES["Cancel"], cells_payload(request=10)),
                Event(stream, 11, *TYPES["Result"], b"junk"),
                Event(stream, 12, 9, 1, b"a category that is reserved"),
                call(0, "parley.echo", "no answer", stream),
                call(13, "parley.echo", "last", stream),
            )
            for async_id in (7, 8, 9, 10, 13):
                acts.result(peer, async_id, stream)
        got = codes(peer, 1), codes(peer, other)
        acts.close(peer)
        return got

    async with our_node() as ours:
        for answered in await ours.meet(act, side):
            assert answered == {7: 0, 8: 1, 9: 23, 10: 18, 13: 0}
        echoed = [data for topic, data in ours.called if topic == "parley.echo"]
        assert sorted(echoed) == sorted(["first", "no answer", "last"] * 2)
        assert await ours.ended() == "normal"


async def test_what_our_application_says_at_once_comes_in_batches() -> None:
    got: list[Any] = []

    async def ask(peer: Peer) -> None:
        async def one(number: int) -> None:
            got.append(await peer.call("parley.echo", number))

        async with anyio.create_task_group() as tasks:
            for number in range(CALLS):
                tasks.start_soon(one, number)
        await peer.close()

    def act(peer: ReferencePeer) -> list[Event]:
        peer.handshake()
        acts.serve(peer)
        return [opened.event for opened in peer.events]

    async with our_node() as ours:
        events = await ours.meet(act, "responder", application=ask)
        kinds = [event.type for event in events]
        # The events follow each Batch: fewer batches than calls, and each call once.
        assert 1 <= kinds.count(TYPES["Batch"]) < kinds.count(TYPES["Call"]) == CALLS
        data = [event.cells()[CELLS["data"]] for event in events if event.type == TYPES["Call"]]
        assert sorted(data) == sorted(got) == list(range(CALLS))
