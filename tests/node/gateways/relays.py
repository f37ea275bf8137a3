"""A listening relay and its clients, for tests."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from anyio.abc import SocketStream

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.relay.codec import RelayMessage
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from tests.node.network import PATIENCE

PLACE = "tcp://127.0.0.1:0"


@asynccontextmanager
async def relaying(
    *, place: str = PLACE, feedback: bool = True, **limits: Any
) -> AsyncIterator[tuple[Relay, str]]:
    with anyio.fail_after(PATIENCE):
        async with Relay(limits=DialectLimits(**limits), feedback=feedback) as relay:
            yield relay, await relay.listen(place)


@asynccontextmanager
async def clients_of(
    relay: Relay, address: str, count: int, **options: Any
) -> AsyncIterator[list[RelayClient]]:
    before = len(relay.clients)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(RelayClient(address, **options)) for _ in range(count)
        ]
        await relay.until(lambda: len(relay.clients) == before + count)
        yield clients


async def raw(address: str) -> SocketStream:
    """Return a connection without any of the project's code at this end."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    return await anyio.connect_tcp(host, int(port))


async def to_the_end(stream: SocketStream) -> bytes:
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def read(client: RelayClient, count: int = 1) -> list[tuple[Any, bytes, bool]]:
    """Return the next messages: sender, payload, and whether they are broadcasts."""
    messages: list[RelayMessage] = [await anext(client) for _ in range(count)]
    return [(one.sender, one.payload, one.is_broadcast) for one in messages]
