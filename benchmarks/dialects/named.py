"""Named events in their byte-exact dialect: a node's gateway and `NamedClient`, both flavours.

The public API with its default limits; a call is an event whose first reply is waited
for.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.dialects.places import NO_PUBLISH, CallsOnly, NoNotes, place_of
from benchmarks.ours import TIMEOUT
from benchmarks.sides import Client, Publish
from benchmarks.task import Task
from node.gateways.named.peer import FlavourName
from parley import Identity, NamedEvent, Node
from parley.dialects import NamedClient, NamedGateway


class Named:
    """A gateway in each server process."""

    flavour: FlavourName = "plain"

    @asynccontextmanager
    async def serve(self, task: Task) -> AsyncIterator[tuple[dict[str, Any], Publish]]:
        """A node that replies to an event with what it carried, and its gateway."""
        async with (
            Node(Identity.create()) as node,
            NamedGateway(node, flavour=self.flavour) as gateway,
        ):

            @node.on("echo")
            async def echo(event: NamedEvent) -> Any:
                return event.data

            with place_of(task) as place:
                yield {"address": await gateway.listen(place)}, NO_PUBLISH

    @asynccontextmanager
    async def client(self, task: Task, info: dict[str, Any]) -> AsyncIterator[Client]:
        """Connections without a node."""
        async with AsyncExitStack() as stack:
            yield NamedClients(info["address"], self.flavour, stack)


class TypedNamed(Named):
    """The flavour of the crate's versions from 0.18 on."""

    flavour: FlavourName = "typed"


class NamedClients(NoNotes):
    """The client process's end."""

    def __init__(self, address: str, flavour: FlavourName, stack: AsyncExitStack) -> None:
        self._address = address
        self._flavour = flavour
        self._stack = stack

    async def open(self) -> "NamedConnection":
        """Connect."""
        client = NamedClient(self._address, flavour=self._flavour)
        return NamedConnection(await self._stack.enter_async_context(client))


class NamedConnection(CallsOnly):
    """One connection."""

    def __init__(self, client: NamedClient) -> None:
        self._emit = client.peer.emit

    async def call(self, payload: bytes) -> object:
        """An event, and what its first reply carries."""
        return (await self._emit("echo", payload).reply(TIMEOUT)).data
