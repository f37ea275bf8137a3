"""The demo's other process: bob, a node that answers everything the story asks of it.

It does what any application might do with a node, and ends when its standard input ends, so that it
never outlives the story.
"""

import hashlib
import json
import sys
from collections.abc import AsyncIterator

from anyio import to_thread

from parley._crypto.identity import Identity
from parley._lbm.codec import Value
from parley._node.cli.output import Output, show_value
from parley._node.config import NodeConfig
from parley._node.errors import CallRefused
from parley._node.node import Node
from parley._node.protocol.codes import FIRST_APPLICATION_CODE
from parley._node.remote.requests import Call
from parley._node.remote.stream import Stream

FILE_LABEL = "demo.file"
PRICES = "demo.prices"
ROOM = "demo.room"
MOST_NOTES = 10_000
LONGEST_LINE = 200
POEM = ("Two", "nodes", "met;", "neither", "spoke", "in", "the", "clear.")


async def respond() -> None:
    """Be bob until standard input ends."""
    out = Output(as_json=True)
    # Between processes of one machine a transport that ends has a process at its end that did.
    async with Node(Identity.create(), config=NodeConfig(resume=0.0)) as node:
        offer(node)
        address = await node.listen("tcp://127.0.0.1:0")
        out.event("ready", node_id=str(node.node_id), addresses=[address])
        await to_thread.run_sync(sys.stdin.buffer.read, abandon_on_cancel=True)
    out.done()


def offer(node: Node) -> None:
    """What bob offers: a call, a streamed answer, a file's receipt, two topics."""
    prices, room = node.topic(PRICES), node.topic(ROOM)

    @node.on_call("greet")
    async def greet(call: Call) -> str:
        return f"hello {show_value(call.data)}, I am {node.node_id.short}"

    @node.on_call("demo.poem")
    async def poem(call: Call) -> AsyncIterator[Value]:
        for word in POEM:
            yield word

    @node.on_call("demo.publish")
    async def publish(call: Call) -> int:
        if type(call.data) is not int or not 0 <= call.data <= MOST_NOTES:
            raise CallRefused(FIRST_APPLICATION_CODE, f"a number up to {MOST_NOTES:,}")
        for number in range(call.data):
            await prices.publish({"number": number, "price": 100 + number % 7})
        return call.data

    @node.on_call("demo.say")
    async def say(call: Call) -> None:
        # Who said it is what the handshake proved, not what the line says.
        author = call.peer.node_id
        await room.publish(
            {"from": author.short if author else None, "text": show_value(call.data)[:LONGEST_LINE]}
        )

    @node.on_stream(FILE_LABEL)
    async def take(stream: Stream) -> None:
        digest, size = hashlib.sha256(), 0
        async for piece in stream:
            digest.update(piece)
            size += len(piece)
        await stream.send(json.dumps({"sha256": digest.hexdigest(), "size": size}).encode())
