"""A complete run: hours of faults, then a calm period in which all work must finish and all nodes
must reach each other.
"""

import anyio

from tests.node.server.whole.faults import Faults
from tests.node.server.whole.ledger import Ledger
from tests.node.server.whole.simulated_loop import simulate
from tests.node.server.whole.work import Reader, Worker
from tests.node.server.whole.world import HOUR, Plan, Resident, World

# Simulated seconds until all nodes are connected, all work is done, and a note is read by all.
FOUND, DONE, READ = 300.0, 900.0, 60.0


def run_whole(plan: Plan) -> Ledger:
    """Simulate a network; violations are in `wrong` of the result."""

    async def main() -> Ledger:
        world = World(plan)
        async with world.running():
            await Whole(world).run()
        return world.ledger

    ledger = simulate(main, plan.seed)
    assert isinstance(ledger, Ledger)
    return ledger


class Whole:
    def __init__(self, world: World) -> None:
        self.world, self.ledger = world, world.ledger
        self.workers = [Worker(world, who) for who in (*world.servers, *world.accounts)]
        self.readers = [
            Reader(world, who, world.rooms[who.number % len(world.rooms)]) for who in world.accounts
        ]

    async def run(self) -> None:
        async with anyio.create_task_group() as reading:
            await self._found("before faults")
            for reader in self.readers:
                reading.start_soon(reader.run)
            with anyio.move_on_after(self.world.plan.hours * HOUR + DONE) as late:
                async with anyio.create_task_group() as working:
                    for worker in self.workers:
                        working.start_soon(worker.run)
                    await Faults(self.world).run()
                    for worker in self.workers:
                        worker.over.set()
            if late.cancelled_caught:
                self.ledger.fault("work continues")
            await self._found("after faults")
            await self._calm()
            reading.cancel_scope.cancel()
        for one, other in self.world.ways:
            way = self.world.way(one, other)
            passed = way.to_server.passed, way.to_client.passed
            self.ledger.say(f"{one.name} and {other.name} have exchanged {passed} bytes")
        for job in self.ledger.jobs.values():
            if not (job.answered or job.told):
                self.ledger.fault(f"{job.name} has no end")

    async def _calm(self) -> None:
        """Check that each node can do work for others, and that it finishes promptly."""
        count = len(self.world.servers)
        servers, accounts = self.workers[:count], self.workers[count:]
        async with anyio.create_task_group() as calling:
            for number, worker in enumerate(servers):
                target = servers[(number + 3) % count].who
                calling.start_soon(self._call, worker, target)
            for number, worker in enumerate(accounts):
                others = accounts if number % 2 else servers
                target = others[(number + 7) % len(others)].who
                calling.start_soon(self._call, worker, target)
        for number, room in enumerate(self.world.rooms):
            await accounts[number].write(room)
        await anyio.sleep(READ)
        for reader in self.readers:
            lives = self.ledger.published[reader.room.name]
            if reader.reading.last != (len(lives) - 1, len(lives[-1])):
                self.ledger.fault(f"{reader.who.name} has read to {reader.reading.last} only")

    async def _call(self, worker: Worker, target: Resident) -> None:
        if not await worker.call(target, 1):
            self.ledger.fault(f"{worker.who.name} does not reach {target.name} in the calm")

    async def _found(self, when: str) -> None:
        """Return whether all servers have paths to all others, and all nodes are logged in."""
        for _ in range(int(FOUND)):
            if self._all_are_found():
                self.ledger.say(f"all are found {when}")
                return
            await anyio.sleep(1.0)
        self.ledger.fault(f"not all are found {when}")

    def _all_are_found(self) -> bool:
        world = self.world
        ids = [server.node_id for server in world.servers]
        known = all(
            server.federation is not None
            and all(server.federation.path(one) for one in ids if one != server.node_id)
            for server in world.servers
        )
        return known and all(one.home is not None and one.home.is_up for one in world.accounts)
