"""What every simulated node offers the others: calls, streams, named events, topics.

A handler takes simulated time, and its answer follows from the request alone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import anyio

from parley._node.errors import CallRefused, PeerClosedError, StreamResetError
from parley._node.handlers.topic import Topic
from parley._node.node import Node
from parley._node.remote.requests import Call, NamedEvent
from parley._node.remote.stream import Stream

Sleep = Callable[[float], Awaitable[None]]

# An application's own reason to refuse an order.
SOLD_OUT: Final = 64
FILES: Final = "file/"
TELEMETRY: Final = "telemetry"
READING: Final = (64, 1)
# A reader of files that wants no more; the name says which file it will be.
UNWANTED: Final = "unwanted"
_UNWANTED_AFTER: Final = 32 * 1024

# Topics: how often a second each is published, and what a subscriber loses that is slow.
TICKS: Final = "market.ticks"
NEWS: Final = "news"
ALERTS: Final = "alerts"
# Bytes that may wait for a subscriber: so little that one that sleeps over it loses something, or
# so much, where the plan fixes how much is published at once, that nobody does.
_LITTLE: Final = 64 * 1024
_MUCH: Final = 16 * 2**20


def offer(node: Node, sleep: Sleep, *, patient: bool = False) -> dict[str, Topic]:
    """Register everything; returns the node's topics by name. Where it is `patient`, no
    subscriber loses anything."""
    _offer_calls(node, sleep)
    _offer_streams(node)
    _offer_events(node, sleep)
    buffer, patience = (_MUCH, 1.0) if patient else (_LITTLE, 0.0)
    return {
        TICKS: node.topic(TICKS, slow="unsubscribe", buffer=buffer, patience=patience),
        NEWS: node.topic(NEWS, slow="drop-oldest", buffer=buffer // 4, patience=patience),
        ALERTS: node.topic(ALERTS),
    }


def _offer_calls(node: Node, sleep: Sleep) -> None:
    @node.on_call("kv.get")
    async def get(call: Call) -> object:
        return {"value": call.data, "found": True}

    @node.on_call("kv.put")
    async def put(call: Call) -> object:
        return {"stored": len(call.data) if isinstance(call.data, bytes) else 0}

    @node.on_call("search")
    async def search(call: Call) -> AsyncIterator[object]:
        for number in range(_number(call, "items")):
            await sleep(0.002)
            yield {"hit": number, "text": bytes(_number(call, "size"))}

    @node.on_call("orders.place")
    async def place(call: Call) -> object:
        await sleep(_number(call, "milliseconds") / 1_000)
        if _number(call, "amount") > 90:
            raise CallRefused(SOLD_OUT, "sold out")
        return {"placed": True}

    @node.on_call("reports.build")
    async def build(call: Call) -> object:
        await sleep(_number(call, "milliseconds") / 1_000)
        return {"pages": 12}

    @node.on_call("admin.reload", allow=lambda _peer, _name: False)
    async def reload(_call: Call) -> None:
        """Nobody may."""


def _offer_streams(node: Node) -> None:
    @node.on_stream(FILES + "*")
    async def take(stream: Stream) -> None:
        size = 0
        try:
            async for piece in stream:
                size += len(piece)
                if UNWANTED in stream.label and size > _UNWANTED_AFTER:
                    stream.reset(text="enough")
                    return
        except (StreamResetError, PeerClosedError):
            return
        await stream.send(size.to_bytes(8, "big"))

    @node.on_stream(TELEMETRY)
    async def listen(stream: Stream) -> None:
        try:
            async for _ in stream.events():
                await anyio.lowlevel.checkpoint()
        except (StreamResetError, PeerClosedError):
            return


def _offer_events(node: Node, sleep: Sleep) -> None:
    @node.on("greet")
    async def greet(event: NamedEvent) -> object:
        return {"hello": event.data}

    @node.on("progress", namespace="jobs")
    async def progress(event: NamedEvent) -> AsyncIterator[object]:
        for percent in (25, 50, 75, 100):
            await sleep(0.05)
            yield {"percent": percent}

    @node.on("log", namespace="jobs")
    async def log(event: NamedEvent) -> None:
        """Taken, and not answered."""


def _number(call: Call, name: str) -> int:
    value = call.data.get(name, 0) if isinstance(call.data, dict) else 0
    return value if isinstance(value, int) else 0
