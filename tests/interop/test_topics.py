"""Topics between a node and the reference: order on the wire, credit, codes, and the end.

Section 9 from outside: the node publishes to the reference, and reads the reference's notes.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import pytest

from parley import CallRefused, Peer
from parley._node.errors import CallTimeout
from parley._node.remote.requests import Call
from tests.interop.meeting import SIDES, Ours, our_node
from tests.reference import acts
from tests.reference.peer import ReferencePeer, Side
from tests.reference.wire import CELLS, RESET_CODES, TYPES, Event, cells_payload

pytestmark = pytest.mark.anyio

ID: Final = 7
CODE, STREAM, DATA, LABEL = CELLS["code"], CELLS["stream"], CELLS["data"], CELLS["label"]
NAMES: Final = {kind: name for name, kind in TYPES.items()}


def offer_news(ours: Ours, **options: Any) -> None:
    """The topic news, and a call that publishes so many notes of so many bytes."""
    topic = ours.node.topic("news", **options)

    @ours.node.on_call("publish")
    async def publish(call: Call) -> int:
        assert isinstance(call.data, list)
        count, size = call.data
        for number in range(int(count)):
            await topic.publish([number, bytes(int(size))])
        return topic.dropped


def wire(peer: ReferencePeer) -> list[tuple[str, int, int]]:
    """Return (type, stream, async id) of the received events, except Seals, Pings, Pongs, and
    Batches, whose events follow them.
    """
    quiet = {"Batch", "Seal", "Ping", "Pong", "Window"}
    events = [opened.event for opened in peer.events]
    return [
        (NAMES[event.type], event.stream, event.async_id)
        for event in events
        if NAMES[event.type] not in quiet
    ]


def notes(peer: ReferencePeer, stream: int) -> list[Any]:
    """The data of all notes that came on a stream."""
    got: list[Any] = []
    for opened in peer.events:
        event = opened.event
        if event.stream == stream and event.type == TYPES["Notify"]:
            got.append(event.cells().get(DATA))
        elif event.stream == stream and event.type == TYPES["Notes"]:
            got += event.cells()[CELLS["notes"]]
    return got


def subscribe(peer: ReferencePeer, async_id: int = ID, **more: Any) -> dict[int, Any]:
    """Subscribes to news; the cells of the answer."""
    peer.send("Subscribe", 1, async_id, topic="news", **more)
    return acts.result(peer, async_id)


def settle(peer: ReferencePeer) -> None:
    """Two round trips: the node's reaction to the last event has also arrived."""
    for async_id in (60_000, 60_001):
        acts.ping(peer, async_id)


# Our node publishes.


@pytest.mark.parametrize("side", SIDES)
async def test_open_then_result_then_notes_then_result_then_finish(side: Side) -> None:
    def act(peer: ReferencePeer) -> tuple[list[Any], list[Any], dict[int, Any], str]:
        peer.handshake()
        answer = subscribe(peer, data="please")
        stream = answer[STREAM]
        acts.call(peer, "publish", [3, 1], async_id=ID + 1)
        settle(peer)
        peer.send("Unsubscribe", 1, ID + 2, topic="news")
        acts.wait_for(peer, lambda event: event.type == TYPES["Finish"])
        acts.finish(peer, stream)
        settle(peer)
        got = wire(peer), notes(peer, stream), answer
        label = acts.received(peer, "Open")[0][LABEL]
        acts.close(peer)
        return (*got, label)

    async with our_node() as ours:
        offer_news(ours)
        ours.node.topics["news"].on_subscribe(lambda request: [request.data, "hi"])
        events, got, answer, label = await ours.meet(act, side)
        stream = answer[STREAM]
        assert label == "topic:news"
        assert answer == {CODE: 0, DATA: ["please", "hi"], STREAM: stream}
        assert got == [[number, b"\0"] for number in range(3)]
        published = [event for event in events if event != ("Result", 1, ID + 1)]
        assert published == [
            ("Open", stream, 0),
            ("Result", 1, ID),
            ("Notes", stream, 0),
            ("Result", 1, ID + 2),
            ("Finish", stream, 0),
        ]
        assert await ours.ended() == "normal"


@pytest.mark.parametrize("side", SIDES)
async def test_codes_of_subscribe_and_unsubscribe(side: Side) -> None:
    def act(peer: ReferencePeer) -> list[Any]:
        peer.handshake()
        first = subscribe(peer)
        codes = [first[CODE], subscribe(peer, ID + 1)]
        for async_id, topic in ((ID + 2, "old"), (ID + 3, "nobody"), (ID + 4, "news")):
            peer.send("Unsubscribe", 1, async_id, topic=topic)
            codes.append(acts.result(peer, async_id))
        acts.finish(peer, first[STREAM])
        peer.send("Unsubscribe", 1, ID, topic="news")
        codes.append(acts.result(peer, ID))
        # Without async id there is no answer, and no stream is opened.
        peer.send("Subscribe", 1, 0, topic="news")
        settle(peer)
        codes.append(len(acts.received(peer, "Open")))
        acts.close(peer)
        return codes

    async with our_node() as ours:
        offer_news(ours)
        ours.node.topic("old")
        got = await ours.meet(act, side)
        assert got == [0, {CODE: 2}, {CODE: 2}, {CODE: 1}, {CODE: 0}, {CODE: 2}, 1]


async def test_a_subscriber_that_finishes_or_resets_first() -> None:
    def act(peer: ReferencePeer) -> tuple[list[Any], list[int]]:
        peer.handshake()
        stream = subscribe(peer)[STREAM]
        acts.finish(peer, stream)  # The answer is empty; notes arrive all the same.
        acts.call(peer, "publish", [3, 1], async_id=ID + 1)
        settle(peer)
        got = notes(peer, stream)
        peer.send("Unsubscribe", 1, ID, topic="news")
        acts.wait_for(peer, lambda event: event.type == TYPES["Finish"])
        second = subscribe(peer, ID + 2)[STREAM]
        acts.reset(peer, second, RESET_CODES["cancelled"])
        acts.wait_for(peer, lambda event: event.type == TYPES["Reset"])
        third = subscribe(peer, ID + 3)
        acts.close(peer)
        return got, [stream, second, third[STREAM]]

    async with our_node() as ours:
        offer_news(ours)
        got, streams = await ours.meet(act)
        assert len(got) == 3
        assert streams == [2, 4, 6]
        assert ours.node.topics["news"].subscribers == []


# Our node subscribes.


Publisher = Callable[[ReferencePeer], Any]


async def read(ours: Ours, act: Publisher, application: Callable[[Peer], Awaitable[Any]]) -> Any:
    """What `act` of the reference, which publishes, and our subscriber returned."""
    results: list[Any] = []
    over = anyio.Event()

    async def run(peer: Peer) -> None:
        results.append(await application(peer))
        over.set()

    acted = await ours.meet(act, "responder", application=run)
    with anyio.fail_after(4):
        await over.wait()
    return acted, results[0]


def asked(peer: ReferencePeer) -> Event:
    """The Subscribe that came."""
    return acts.wait_for(peer, lambda event: event.type == TYPES["Subscribe"])


def accept(peer: ReferencePeer, **more: Any) -> int:
    """Accepts a Subscribe; the stream opened for it."""
    event = asked(peer)
    stream = acts.open_stream(peer, "topic:news")
    peer.send("Result", 1, event.async_id, code=0, stream=stream, **more)
    return stream


def unsubscribed(peer: ReferencePeer, stream: int) -> None:
    """Answers Unsubscribe, and reads our node's Finish."""
    event = acts.wait_for(peer, lambda event: event.type == TYPES["Unsubscribe"])
    peer.send("Result", 1, event.async_id, code=0)
    acts.finish(peer, stream)
    acts.wait_for(peer, lambda event: event.type == TYPES["Finish"] and event.stream == stream)


async def test_notes_headers_and_leaving() -> None:
    def act(peer: ReferencePeer) -> dict[int, Any]:
        peer.handshake()
        subscription = asked(peer).cells()
        stream = acts.open_stream(peer, "topic:news")
        peer.send("Result", 1, 1, code=0, stream=stream, data={"first": 1})
        peer.send("Notify", stream, 0, data="one", headers={"a": 1})
        peer.send_event(stream, 0, *TYPES["Notify"], b"\xa0")  # no cells: null
        peer.send("Notes", stream, 0, notes=list(range(4_096)))
        peer.send("Notes", stream, 0, notes=[0] * 4_097)
        peer.send_event(stream, 0, *TYPES["Notes"], b"junk")
        peer.send("Notes", stream, 0, notes=["last"])
        unsubscribed(peer, stream)
        settle(peer)
        acts.close(peer)
        return subscription

    async def application(peer: Peer) -> list[Any]:
        async with peer.subscribe("news", [1], window=100_000) as sub:
            got = [sub.data, await anext(sub), dict(sub.headers), await anext(sub)]
            got.append(await sub.next_batch())
            got.append(await anext(sub))
            got.append(sub.inbox.malformed)
            return got

    async with our_node() as ours:
        cells, got = await read(ours, act, application)
        assert cells == {CELLS["topic"]: "news", DATA: [1], CELLS["window"]: 100_000}
        assert got == [{"first": 1}, "one", {"a": 1}, None, list(range(4_096)), "last", 2]
        assert await ours.ended() == "normal"


async def test_finish_by_the_publisher_is_the_end_of_the_notes() -> None:
    def act(peer: ReferencePeer) -> bool:
        peer.handshake()
        stream = accept(peer)
        peer.send("Notify", stream, 0, data=1)
        acts.finish(peer, stream)
        acts.wait_for(peer, lambda event: event.type == TYPES["Finish"])
        gone = peer.streams.streams[stream].gone
        settle(peer)
        acts.close(peer)
        return gone

    async def application(peer: Peer) -> list[Any]:
        async with peer.subscribe("news") as sub:
            return [note async for note in sub]

    async with our_node() as ours:
        assert await read(ours, act, application) == (True, [1])
        assert await ours.ended() == "normal"


Wrong = Callable[[ReferencePeer, Event], list[int]]


def label_of_another(peer: ReferencePeer, event: Event) -> list[int]:
    stream = acts.open_stream(peer, "topic:other")
    peer.send("Result", 1, event.async_id, code=0, stream=stream)
    return [stream]


def no_stream(peer: ReferencePeer, event: Event) -> list[int]:
    peer.send("Result", 1, event.async_id, code=0)
    return []


def a_stream_of_its_own(peer: ReferencePeer, event: Event) -> list[int]:
    """The right stream is there, but another is named."""
    right = acts.open_stream(peer, "topic:news")
    other = acts.open_stream(peer, "hold")
    peer.send("Result", 1, event.async_id, code=0, stream=other)
    return [right]


def a_stream_never_opened(peer: ReferencePeer, event: Event) -> list[int]:
    peer.send("Result", 1, event.async_id, code=0, stream=2**32 - 1)
    return []


def two_streams(peer: ReferencePeer, event: Event) -> list[int]:
    """The second is for a topic without a waiting subscriber."""
    first = acts.open_stream(peer, "topic:news")
    second = acts.open_stream(peer, "topic:news")
    peer.send("Result", 1, event.async_id, code=0, stream=second)
    return [second, first]


def finished_before_it_began(peer: ReferencePeer, event: Event) -> list[int]:
    stream = acts.open_stream(peer, "topic:news")
    acts.finish(peer, stream)
    peer.send("Result", 1, event.async_id, code=0, stream=stream)
    return [stream]


def malformed_result(peer: ReferencePeer, event: Event) -> list[int]:
    stream = acts.open_stream(peer, "topic:news")
    peer.send_event(1, event.async_id, *TYPES["Result"], b"junk")
    return [stream]


@pytest.mark.parametrize(
    "wrong",
    [
        label_of_another,
        no_stream,
        a_stream_of_its_own,
        a_stream_never_opened,
        two_streams,
        finished_before_it_began,
        malformed_result,
    ],
)
async def test_an_acceptance_that_is_none(wrong: Wrong) -> None:
    def act(peer: ReferencePeer) -> tuple[list[int], list[int]]:
        peer.handshake()
        expected = wrong(peer, asked(peer))
        settle(peer)
        resets = [cells[STREAM] for cells in acts.received(peer, "Reset")]
        stream = accept(peer)
        peer.send("Notify", stream, 0, data="usable")
        unsubscribed(peer, stream)
        acts.close(peer)
        return sorted(expected), sorted(resets)

    async def application(peer: Peer) -> tuple[int, Any]:
        with pytest.raises(CallRefused) as caught:
            await peer.subscribe("news").__aenter__()
        async with peer.subscribe("news") as sub:
            return caught.value.code, await anext(sub)

    async with our_node() as ours:
        (expected, resets), got = await read(ours, act, application)
        assert resets == expected
        assert got == (23, "usable")


@pytest.mark.parametrize("side", SIDES)
async def test_a_stream_of_notes_that_nobody_asked_for(side: Side) -> None:
    def act(peer: ReferencePeer) -> tuple[int, list[Any]]:
        peer.handshake()
        stream = acts.open_stream(peer, "topic:news")
        for number in range(3):
            peer.send("Notify", stream, 0, data=number)
        settle(peer)
        resets = acts.received(peer, "Reset")
        acts.call(peer, "parley.echo", "after")
        acts.close(peer)
        return stream, resets

    async with our_node() as ours:
        stream, resets = await ours.meet(act, side)
        assert [(cells[STREAM], cells[CODE]) for cells in resets] == [
            (stream, RESET_CODES["refused"])
        ]


async def test_an_acceptance_that_comes_too_late() -> None:
    def act(peer: ReferencePeer) -> tuple[int, list[Any]]:
        peer.handshake()
        event = asked(peer)
        acts.wait_for(peer, lambda event: event.type == TYPES["Cancel"])
        stream = acts.open_stream(peer, "topic:news")
        peer.send("Result", 1, event.async_id, code=0, stream=stream)
        peer.send("Notify", stream, 0, data="for nobody")
        settle(peer)
        got = [(cells[STREAM], cells[CODE]) for cells in acts.received(peer, "Reset")]
        acts.close(peer)
        return stream, got

    async def application(peer: Peer) -> None:
        with pytest.raises(CallTimeout):
            await peer.subscribe("news", timeout=0.05).__aenter__()

    async with our_node() as ours:
        (stream, resets), _ = await read(ours, act, application)
        assert resets == [(stream, RESET_CODES["cancelled"])]
        assert await ours.ended() == "normal"


async def test_notify_that_wants_an_answer() -> None:
    requests: list[tuple[int, bytes]] = [
        (2, cells_payload(data=1)),
        (2, cells_payload(data=2, topic="other")),  # The stream's label names its topic.
        (1, cells_payload(data=3, topic="news")),
        (1, cells_payload(data=4)),
        (1, cells_payload(data=5, topic="other")),
        (2, b"junk"),
        (1, b"junk"),
        (1, cells_payload(data=bytes(200_000), topic="news")),
        (1, cells_payload(data=bytes(200_000), topic="news")),
    ]

    def act(peer: ReferencePeer) -> list[int]:
        peer.handshake()
        stream = accept(peer)
        assert stream == 2
        codes = []
        for number, (on, payload) in enumerate(requests):
            peer.send_event(on, 100 + number, *TYPES["Notify"], payload)
            codes.append(acts.result(peer, 100 + number, on)[CODE])
        peer.send("Notify", stream, 0, data="go on")
        unsubscribed(peer, stream)
        acts.close(peer)
        return codes

    async def application(peer: Peer) -> list[Any]:
        async with peer.subscribe("news") as sub:
            # Reading starts only when all of it has arrived.
            with anyio.fail_after(4):
                while len(sub.inbox) < 5:  # noqa: ASYNC110 - no event is set
                    await anyio.sleep(0.002)
            return [await anext(sub) for _ in range(5)]

    async with our_node() as ours:
        codes, got = await read(ours, act, application)
        assert codes == [0, 0, 0, 2, 2, 23, 23, 0, 19]
        assert got == [1, 2, 3, bytes(200_000), "go on"]


async def test_a_publisher_that_finishes_while_we_leave() -> None:
    """Finish and Unsubscribe cross: the answer is 2, and no state remains."""

    def act(peer: ReferencePeer) -> tuple[bool, int]:
        peer.handshake()
        stream = accept(peer)
        event = acts.wait_for(peer, lambda event: event.type == TYPES["Unsubscribe"])
        acts.finish(peer, stream)
        peer.send("Result", 1, event.async_id, code=2)
        acts.wait_for(peer, lambda event: event.type == TYPES["Finish"])
        gone = peer.streams.streams[stream].gone
        peer.send("Call", 1, ID, topic="parley.echo", data=gone)
        code = acts.result(peer, ID)[CODE]
        acts.close(peer)
        return gone, code

    async def application(peer: Peer) -> int:
        async with peer.subscribe("news"):
            return 1

    async with our_node() as ours:
        assert await read(ours, act, application) == ((True, 0), 1)
        assert await ours.ended() == "normal"
