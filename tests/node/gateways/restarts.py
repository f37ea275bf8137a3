"""A gateway or relay that is stopped and restarted at one address, and a client that reconnects."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus

from parley import Backoff, Call, NamedEvent, Node
from parley._node.gateways.client import DialectClient
from parley._node.gateways.named import NamedClient, NamedGateway
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.server import DialectServer
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway
from tests.node.network import PATIENCE, new_node

QUICK = Backoff(first=0.002, longest=0.01)

# The handlers of a node, added to each new one.
Offer = Callable[[Node], None]


def offer(node: Node) -> None:
    """Add `echo` and `hang`, as calls and as events."""

    @node.on_call("echo")
    @node.on("echo")
    async def echo(asked: Call | NamedEvent) -> Any:
        return asked.data

    @node.on_call("hang")
    @node.on("hang")
    async def hang(asked: Call | NamedEvent) -> None:
        await anyio.sleep_forever()


@asynccontextmanager
async def named(offer: Offer) -> AsyncIterator[NamedGateway]:
    async with new_node(drain_timeout=0) as node, NamedGateway(node, flavour="typed") as gateway:
        offer(node)
        yield gateway


@asynccontextmanager
async def simproto(offer: Offer) -> AsyncIterator[SimProtoGateway]:
    async with new_node(drain_timeout=0) as node, SimProtoGateway(node) as gateway:
        offer(node)
        yield gateway


@asynccontextmanager
async def relay(offer: Offer) -> AsyncIterator[Relay]:
    async with Relay() as relay:
        yield relay


class Service:
    """A server at one address; `server` is the running one, if any. Each has its own task in
    `tasks`.
    """

    def __init__(
        self,
        tasks: TaskGroup,
        make: Callable[[Offer], AbstractAsyncContextManager[DialectServer[Any]]],
        offer: Offer = offer,
    ) -> None:
        self.address = "tcp://127.0.0.1:0"
        self.server: Any = None
        self.offer = offer
        self._tasks = tasks
        self._make = make
        self._enough = self._gone = anyio.Event()

    async def start(self) -> Any:
        """Start a server without the state of the one before."""
        return await self._tasks.start(self._run)

    async def _run(self, *, task_status: TaskStatus[Any]) -> None:
        self._enough, self._gone = anyio.Event(), anyio.Event()
        async with self._make(self.offer) as server:
            self.address = await server.listen(self.address)
            self.server = server
            task_status.started(server)
            await self._enough.wait()
            self.server = None
        self._gone.set()

    async def stop(self) -> None:
        """Stop the server cleanly."""
        self._enough.set()
        await self._gone.wait()

    async def kill(self) -> None:
        """Stop the server immediately: clients only notice the end of the transport."""
        self.cut()
        await self.stop()

    async def empty(self) -> None:
        await self.server.until(lambda: not self.server._guests)

    def cut(self) -> None:
        for guest in list(self.server._guests.values()):
            guest.drop()


@asynccontextmanager
async def serving(
    make: Callable[[Offer], AbstractAsyncContextManager[DialectServer[Any]]],
    offer: Offer = offer,
) -> AsyncIterator[Service]:
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            served = Service(tasks, make, offer)
            await served.start()
            yield served
            await served.stop()


async def echo_named(client: NamedClient, number: int, timeout: float = PATIENCE) -> Any:
    return (await client.emit("echo", number).reply(timeout)).data


async def echo_simproto(client: SimProtoClient, number: int, timeout: float = PATIENCE) -> Any:
    return int((await client.call("echo", b"%d" % number, timeout=timeout)) or b"")


async def echo_relay(client: RelayClient, number: int, timeout: float = PATIENCE) -> Any:
    """Send a number to the client itself and read it."""
    await client.send(client.uuid, b"%d" % number)
    return int((await anext(client)).payload)


class Dialect(NamedTuple):
    """A dialect: its server, its client, and a request that the client can make."""

    server: Callable[[Offer], AbstractAsyncContextManager[DialectServer[Any]]]
    client: Callable[..., DialectClient[Any]]
    echo: Callable[..., Any]


def _typed(address: str, **options: Any) -> NamedClient:
    return NamedClient(address, flavour="typed", **options)


DIALECTS = {
    "named": Dialect(named, _typed, echo_named),
    "simproto": Dialect(simproto, SimProtoClient, echo_simproto),
    "relay": Dialect(relay, RelayClient, echo_relay),
}
