"""`World`: servers and home users in a simulated network in memory.

A crashed server is cut off immediately and restarts with the same identity, but without its state.
Home users run until the end of the world.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from random import Random  # noqa: TID251 - everything follows from a seed

import anyio

from parley._crypto.identity import Identity, NodeId
from parley._crypto.registry import SIGNING
from parley._node.errors import UnreachableError
from parley._node.node import Node
from parley._node.peer.dial import stream_dial
from parley._node.remote.requests import Call
from parley._node.server.federation import Federation
from parley._node.settings.tables import FederationSettings
from parley._node.testing.faults import FaultyLink
from parley._node.testing.nodes import MemoryNetwork
from parley._node.transport.address import Address
from parley._node.tunnels.home_server import Home
from tests.inspection import replace_dial
from tests.node.network import config
from tests.node.server.whole.ledger import Ledger
from tests.node.server.whole.simulated_loop import LoopClock

NOW = 1_800_000_000.0
ROOMS = 3
HOUR = 3600.0
# The maximum clock error: one clock has it, and any two differ by less than five minutes.
AHEAD, BEHIND = 240.0, 50.0
KEEP = 1_000
SLOWEST = 20.0  # seconds of a handler
ROOM = "room"
EXPORTS = ("work", ROOM, f"publish:{ROOM}")


class DiedError(Exception):
    """Raised to stop a server that crashes."""


class MemoryNode(Node):
    """A node that makes all its connections in memory."""

    is_cut_off = False

    def __init__(self, network: MemoryNetwork, identity: Identity, clock: LoopClock) -> None:
        super().__init__(identity, config=config(resume=30.0, idle_before_ping=600.0), clock=clock)
        self.network = network
        replace_dial(self, lambda address: stream_dial(partial(self._reach, address), self.backend))

    async def _reach(self, address: Address) -> anyio.abc.ByteStream:
        if self.is_cut_off or address.node_id is None:
            raise UnreachableError(f"{address}: nobody is there")
        return self.network.connect(self, address.node_id)


@dataclass
class Plan:
    """The plan of a world; everything follows from the seed. `hours` is the duration of the faults.
    Rates are per hour, and pauses in seconds.
    """

    seed: int
    hours: float
    servers: int = 10
    accounts: int = 40
    cuts: float = 30.0
    stalls: float = 15.0
    partings: float = 15.0
    crashes: float = 12.0
    halves: float = 2.0
    pause: float = 1800.0

    def draws(self, *names: str | int) -> Random:
        return Random("/".join(map(str, (self.seed, *names))))

    def identity(self, *names: str | int) -> Identity:
        private = self.draws("identity", *names).randbytes(32)
        return Identity.from_keys([SIGNING["ed25519"].load(private)])


class Resident:
    """A node of the world, with its name and its ID."""

    def __init__(self, world: "World", name: str, identity: Identity) -> None:
        self.world, self.name, self.identity = world, name, identity
        self.node_id = identity.node_id
        self.node: MemoryNode | None = None  # while it is running

    def new_node(self) -> MemoryNode:
        node = MemoryNode(self.world.network, self.identity, self.world.clock)
        node.on_call("work", once=True)(self._work)
        self.world.network.add(node)
        self.node = node
        return node

    async def _work(self, call: Call) -> str:
        assert isinstance(call.data, list)
        name, asker, seconds = map(str, call.data)
        if self.world.named.get(call.peer.node_id) != asker:  # it has authenticated
            self.world.ledger.fault(f"{name} of {asker} came from another")
        self.world.ledger.ran(name, self.name)
        await anyio.sleep(float(seconds))
        return name


class Server(Resident):
    """A server and its successive lifetimes; `down` is the duration of its next outage in
    seconds.
    """

    def __init__(self, world: "World", number: int, identity: Identity) -> None:
        super().__init__(world, f"server {number}", identity)
        self.number = number
        self.federation: Federation | None = None
        self.lives = 0
        self.down = 0.0
        self._dies = anyio.Event()
        self._ahead = 0.0

    @property
    def has_room(self) -> bool:
        return self.number < ROOMS

    def die(self, seconds: float) -> None:
        if self.node is not None and not self._dies.is_set():
            self.node.is_cut_off = True
            self.world.network.kill(self.node)
            self.down = seconds
            self._dies.set()

    async def live(self) -> None:
        while True:
            self._dies = anyio.Event()
            try:
                await self._live_once()
            except DiedError:
                self.world.ledger.say(f"{self.name} died")
            await anyio.sleep(self.down)

    async def _live_once(self) -> None:
        world, node = self.world, self.new_node()
        try:
            if self.has_room:
                topic = node.topic(ROOM, keep=KEEP, writers=world.account_ids)
                world.ledger.born(self.name)
                topic.tap(lambda data, headers: world.ledger.note(self.name, str(data)))
            ahead = world.ahead[self.number]
            federation = Federation(
                node,
                world.settings(self.number),
                wall=lambda: int((NOW + world.clock.now() + ahead) * 1000),
            )
            async with node, federation:
                self.federation = federation
                self.lives += 1
                world.ledger.say(f"{self.name} lives")
                await self._dies.wait()
                self.federation = None
                raise DiedError
        finally:
            self.node = self.federation = None


class HomeUser(Resident):
    """A node with an account at a home server."""

    def __init__(self, world: "World", number: int, identity: Identity) -> None:
        super().__init__(world, f"node {number}", identity)
        self.number = number
        self.server = world.servers[number % len(world.servers)]
        self.home: Home | None = None

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        node = self.new_node()
        async with node, node.home(self.world.address(self.server), exports=["work"]) as home:
            self.home = home
            yield


class World:
    """The whole world; use it as an async context manager."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.clock = LoopClock()
        self.ledger = Ledger(self.clock.now)
        self.network = MemoryNetwork()
        draws, count = plan.draws("world"), plan.servers
        self.ahead = [AHEAD, *(draws.uniform(-BEHIND, AHEAD) for _ in range(1, count))]
        draws.shuffle(self.ahead)
        self.servers = [Server(self, n, plan.identity("server", n)) for n in range(count)]
        self.accounts = [HomeUser(self, n, plan.identity("node", n)) for n in range(plan.accounts)]
        self.account_ids = [one.node_id for one in self.accounts]
        self.named: dict[NodeId | None, str] = {
            one.node_id: one.name for one in (*self.servers, *self.accounts)
        }
        # A ring, so that all servers are connected, and some links across it.
        links = {(n, (n + 1) % count) for n in range(count)}
        while len(links) < count + count // 2:
            one, other = draws.sample(range(count), 2)
            if (other, one) not in links:
                links.add((one, other))
        self.links = sorted(links)
        for ends in self.ways:
            if ends[0] in self.servers:
                self.way(*ends).delay(draws.uniform(0.005, 0.05))

    @property
    def ways(self) -> list[tuple[Resident, Resident]]:
        servers = [(self.servers[one], self.servers[other]) for one, other in self.links]
        return [*servers, *((one, one.server) for one in self.accounts)]

    @property
    def rooms(self) -> list[Server]:
        return self.servers[:ROOMS]

    def way(self, one: Resident, other: Resident) -> FaultyLink:
        return self.network.way(one, other)  # type: ignore[arg-type]  # it asks for ids alone

    def address(self, server: Server) -> str:
        return f"tcp://127.0.0.1:1#{server.node_id}"

    def to(self, one: Resident) -> tuple[NodeId, ...]:
        return (one.server.node_id, one.node_id) if isinstance(one, HomeUser) else (one.node_id,)

    def room(self, server: Server) -> str:
        return f"{ROOM}@{server.node_id}"

    def settings(self, number: int) -> FederationSettings:
        others = tuple(str(one.node_id) for one in self.servers if one.number != number)
        dialled = [self.servers[other] for one, other in self.links if one == number]
        return FederationSettings(
            links=tuple(map(self.address, dialled)),
            members=others,
            carry=others,
            exports=EXPORTS,
            follow=(ROOM,),
            accounts="any",
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.network, anyio.create_task_group() as lives:
            for server in self.servers:
                lives.start_soon(server.live)
            await anyio.sleep(1.0)
            async with AsyncExitStack() as stack:
                for account in self.accounts:
                    await stack.enter_async_context(account.living())
                yield
            lives.cancel_scope.cancel()
