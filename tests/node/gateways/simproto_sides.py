"""A node with a SimProto gateway and a client of it, for tests.

Everything ends with its `async with` block, and no wait is longer than `PATIENCE`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio
from anyio.abc import ByteStream

from parley import Call, CallRefused, Node
from parley._node.dialects.limits import DialectLimits
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway
from parley._node.gateways.simproto.peer import SimProtoPeer
from tests.node.network import PATIENCE, eventually, new_node
from tests.reference.dialects.simproto import Message, read_message, read_response, request

LIMIT = 1 << 24


class SimProtoPair(NamedTuple):
    """A node, its gateway, a client, and the gateway's peer for this client."""

    node: Node
    gateway: SimProtoGateway
    client: SimProtoClient
    back: SimProtoPeer
    address: str


def offer(node: Node) -> None:
    """Add the calls used by the tests: `echo`, `text`, `number`, `fail`, `refuse`, `items`,
    `wait`.
    """

    @node.on_call("echo")
    async def echo(call: Call) -> Any:
        return call.data

    @node.on_call("text")
    def text(call: Call) -> str:
        return "grüße"

    @node.on_call("map")
    def number(call: Call) -> Any:
        return {"n": 5}

    @node.on_call("fail")
    async def fail(call: Call) -> None:
        raise RuntimeError("details")

    @node.on_call("refuse")
    async def refuse(call: Call) -> None:
        raise CallRefused(64, {"why": "details"})

    @node.on_call("items")
    async def items(call: Call) -> AsyncIterator[int]:
        yield 1

    @node.on_call("odd")
    async def odd(call: Call) -> object:
        return object()

    @node.on_call("wait")
    async def wait(call: Call) -> None:
        await anyio.sleep_forever()


@asynccontextmanager
async def served(
    *,
    transport: str = "tcp",
    limits: DialectLimits | None = None,
    client_limits: DialectLimits | None = None,
    **options: Any,
) -> AsyncIterator[SimProtoPair]:
    """Run a gateway with `limits` and a connected client, over tcp or unix."""
    with anyio.fail_after(PATIENCE), TemporaryDirectory() as directory:
        place = "tcp://127.0.0.1:0" if transport == "tcp" else f"unix://{directory}/socket"
        async with (
            new_node(drain_timeout=0) as node,
            SimProtoGateway(node, limits=limits, **options) as gateway,
        ):
            offer(node)
            address = await gateway.listen(place)
            async with SimProtoClient(address, limits=client_limits) as client:
                await eventually(lambda: bool(gateway.peers))
                yield SimProtoPair(node, gateway, client, gateway.peers[0], address)


class Raw:
    """A client with the reference implementation of SimProto, which can send invalid messages."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._read = b""
        self._next = 1

    async def send(self, kind: str, topic: str = "", data: bytes = b"", ident: int = 0) -> int:
        """Send a request, or `ping`, `pong`, `response` with `data` as its payload; return its
        id.
        """
        if not ident:
            ident, self._next = self._next, self._next + 1
        if kind in ("ping", "pong", "response"):
            message = Message(kind, ident, data)
        else:
            message = Message("request", ident, request(kind, topic.encode(), data))
        await self.stream.send(message.raw)
        return ident

    async def read(self) -> Message:
        while True:
            if len(self._read) >= 17 + int.from_bytes(self._read[9:17], "little"):
                message, self._read = read_message(self._read, LIMIT)
                return message
            self._read += await self.stream.receive()

    async def ask(self, kind: str, topic: str, data: bytes = b"") -> tuple[str, bytes]:
        """Send a request and return its response, which must come next."""
        ident = await self.send(kind, topic, data)
        message = await self.read()
        assert (message.type, message.id) == ("response", ident)
        return read_response(kind, message.payload)

    async def closed(self) -> None:
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@asynccontextmanager
async def raw(address: str) -> AsyncIterator[Raw]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    async with await anyio.connect_tcp(host, int(port)) as stream:
        yield Raw(stream)
