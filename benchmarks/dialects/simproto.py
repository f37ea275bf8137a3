"""SimProto: a node's gateway, and `SimProtoClient`.

The public API with its default limits; the handler is the one that native calls have.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.dialects.places import NO_PUBLISH, CallsOnly, NoNotes, place_of
from benchmarks.ours import TIMEOUT
from benchmarks.sides import Client, Publish
from benchmarks.task import Task
from parley import Call, Identity, Node
from parley.dialects import SimProtoClient, SimProtoGateway


class SimProto:
    """A gateway in each server process."""

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A node that echoes calls, and its gateway."""
        async with Node(Identity.create()) as node, SimProtoGateway(node) as gateway:

            @node.on_call("echo")
            async def echo(call: Call) -> Any:
                return call.data

            with place_of(task) as place:
                yield {"address": await gateway.listen(place)}, NO_PUBLISH

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator[Client]:
        """Connections without a node."""
        async with AsyncExitStack() as stack:
            yield SimProtoClients(info["address"], stack)


class SimProtoClients(NoNotes):
    """The client process's end."""

    def __init__(self, address: str, stack: AsyncExitStack) -> None:
        self._address = address
        self._stack = stack

    async def open(self) -> "SimProtoConnection":
        """Connect."""
        client = SimProtoClient(self._address)
        return SimProtoConnection(await self._stack.enter_async_context(client))


class SimProtoConnection(CallsOnly):
    """One connection."""

    def __init__(self, client: SimProtoClient) -> None:
        self._call = client.call

    def call(self, payload: bytes) -> Awaitable[object]:
        """A call; its coroutine is awaited without a frame of ours."""
        return self._call("echo", payload, timeout=TIMEOUT)
