"""The handlers of each node: they count calls, yield items, and read streams.

Received data is checked against the connection's book immediately, and not stored.
"""

from collections.abc import AsyncIterator, Callable

import anyio

from parley import Call, Node, Peer, Stream, SubscribeRequest, Topic
from tests.soak.ledger import Book
from tests.soak.phases import Phases
from tests.soak.traffic import ANSWER, FEED, FILLING, TICKER, send_content, take_content

# Bytes that may wait for a slow subscriber before its oldest notes are dropped.
TICKER_BUFFER = 64 * 1024
# Notes published before other tasks run, and the interval of the ticker.
BURST = 100
TICK = 0.02

FindBook = Callable[[Peer], Book]


class Publisher:
    """A topic of numbered notes; `count` is the number of the next one."""

    def __init__(self, topic: Topic, pause: float) -> None:
        self.topic = topic
        self.count = 0
        self._pause = pause
        topic.on_subscribe(self._accept)

    def _accept(self, request: SubscribeRequest) -> int:
        return self.count

    async def publish(self, phases: Phases) -> None:
        """Publish until the load ends; close the topic when the run ends."""
        while not phases.resting:
            for _ in range(BURST):
                number, self.count = self.count, self.count + 1
                await self.topic.publish([number, FILLING[: number % 200]])
            await anyio.sleep(self._pause)
        await phases.left.wait()
        await self.topic.finish()


def add_publishers(node: Node) -> dict[str, Publisher]:
    """Add the node's topics: one that waits for its subscribers, and one that drops notes."""
    feed = node.topic(FEED, patience=30.0)
    ticker = node.topic(TICKER, slow="drop-oldest", buffer=TICKER_BUFFER, patience=0)
    return {FEED: Publisher(feed, 0), TICKER: Publisher(ticker, TICK)}


def add_handlers(node: Node, book_of: FindBook) -> None:
    """Add handlers for the requests of `Traffic`; `book_of` returns the book of a peer's
    connection.
    """

    @node.on_call("count")
    async def count(call: Call) -> list[object]:
        assert isinstance(call.data, list)
        assert isinstance(call.peer, Peer)
        worker, number, _ = call.data
        book_of(call.peer).numbers(f"calls/{worker}").take(number)
        return [worker, number]

    @node.on_call("items")
    async def items(call: Call) -> AsyncIterator[object]:
        assert isinstance(call.data, int)
        for number in range(call.data):
            yield [number, FILLING[: number % 500]]

    @node.on_stream("events/*")
    async def events(stream: Stream) -> None:
        assert isinstance(stream.peer, Peer)
        book = book_of(stream.peer)
        check = book.numbers(stream.label)
        with book.part(f"handler of {stream.label}"):
            async for event in stream.events():
                data = event.data
                check.take(data[0] if isinstance(data, list) else data)
                if event.wants_answer:
                    await event.answer(ANSWER, check.expected)

    @node.on_stream("pipe/*")
    async def pipe(stream: Stream) -> None:
        assert isinstance(stream.peer, Peer)
        book = book_of(stream.peer)
        _, worker, *numbers = stream.label.split("/")
        first, there, first_back, here = map(int, numbers)
        check, back = book.bytes(f"pipe/{worker}"), book.sending(f"back/{worker}")
        if (check.expected, back.count) != (first, first_back):
            book.complain(f"{stream.label}: {check.expected} came, {back.count} were sent")
        with book.part(f"handler of pipe/{worker}"):
            async with anyio.create_task_group() as both:
                both.start_soon(take_content, stream, check, first + there)
                await send_content(stream, back, here)
            # Returning finishes this direction, which shows the other side that all data was read.
