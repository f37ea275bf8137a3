"""The calls, streams, named events and topics of every simulated node.

Handlers take simulated time, and their answers depend only on the request.
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

# An application-defined refusal code.
SOLD_OUT: Final = 64
FILES: Final = "file/"
TELEMETRY: Final = "telemetry"
READING: Final = (64, 1)
# Part of the name of a file that the receiver rejects halfway.
UNWANTED: Final = "unwanted"
_UNWANTED_AFTER: Final = 32 * 1024

# The topics. They differ in rate and in what slow subscribers lose.
TICKS: Final = "market.ticks"
NEWS: Final = "news"
ALERTS: Final = "alerts"
# Bytes buffered for a subscriber: so few that a sleeping subscriber loses notes, or so many that
# none does, if the plan fixes the number of notes per publication.
_LITTLE: Final = 64 * 1024
_MUCH: Final = 16 * 2**20


def offer(node: Node, sleep: Sleep, *, patient: bool = False) -> dict[str, Topic]:
    """Register all handlers and return the node's topics by name.

    If `patient`, subscribers don't lose notes.
    """
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
        """Never runs, because no peer is allowed."""


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
        """Handle the event without a reply."""


def _number(call: Call, name: str) -> int:
    value = call.data.get(name, 0) if isinstance(call.data, dict) else 0
    return value if isinstance(value, int) else 0
