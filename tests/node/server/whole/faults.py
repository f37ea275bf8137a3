"""`Faults`: the faults of a world for the hours of its plan; at the end all are repaired."""

from collections.abc import Callable, Coroutine, Sequence
from random import Random  # noqa: TID251 - everything follows from a seed
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tests.node.server.whole.world import HOUR, Resident, World

# The maximum duration of a fault in seconds, and of every fourth stall, during which pings fail.
LONGEST, SILENT = 120.0, 900.0


class Faults:
    """Cuts, stalls, closed connections, partitions and crashes of servers."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def run(self) -> None:
        """Cause faults until the plan's hours have passed, and then repair everything."""
        plan = self.world.plan
        kinds: list[tuple[Callable[[Random], Coroutine[Any, Any, None]], float]] = [
            (self.cut, plan.cuts),
            (self.stall, plan.stalls),
            (self.part, plan.partings),
            (self.crash, plan.crashes),
            (self.halve, plan.halves),
        ]
        async with anyio.create_task_group() as tasks:
            for number, (kind, rate) in enumerate(kinds):
                tasks.start_soon(self._keep, tasks, kind, rate, plan.draws("faults", number))
            await anyio.sleep(plan.hours * HOUR)
            tasks.cancel_scope.cancel()
        self._mend(self.world.ways)
        await anyio.sleep(LONGEST)  # crashed servers restart

    async def _keep(
        self,
        tasks: TaskGroup,
        kind: Callable[[Random], Coroutine[Any, Any, None]],
        rate: float,
        draws: Random,
    ) -> None:
        while rate:
            await anyio.sleep(draws.expovariate(rate / HOUR))
            tasks.start_soon(kind, draws)

    async def cut(self, draws: Random) -> None:
        one, other = draws.choice(self.world.ways)
        self._say(f"cut {one.name}, {other.name}", "cuts")
        self.world.way(one, other).cut()

    async def stall(self, draws: Random) -> None:
        one, other = draws.choice(self.world.ways)
        self._say(f"stall {one.name}, {other.name}", "stalls")
        self.world.way(one, other).stall()
        most = SILENT if draws.random() < 0.25 else LONGEST
        await anyio.sleep(draws.uniform(1.0, most))
        self.world.way(one, other).resume()

    async def part(self, draws: Random) -> None:
        await self._close([draws.choice(self.world.ways)], draws, "partings")

    async def halve(self, draws: Random) -> None:
        half = set(draws.sample(self.world.servers, len(self.world.servers) // 2))
        between = [
            (one, other)
            for one, other in self.world.ways
            if one in self.world.servers and (one in half) != (other in half)
        ]
        await self._close(between, draws, "halves")

    async def crash(self, draws: Random) -> None:
        server = draws.choice(self.world.servers)
        self._say(f"kill {server.name}", "crashes")
        server.die(draws.uniform(1.0, LONGEST))

    async def _close(
        self, ways: Sequence[tuple[Resident, Resident]], draws: Random, kind: str
    ) -> None:
        self._say(f"close {[(one.name, other.name) for one, other in ways]}", kind)
        for one, other in ways:
            self.world.network.close(one, other)  # type: ignore[arg-type]  # ids alone
        await anyio.sleep(draws.uniform(1.0, LONGEST))
        self._mend(ways)

    def _mend(self, ways: Sequence[tuple[Resident, Resident]]) -> None:
        for one, other in ways:
            self.world.network.open(one, other)  # type: ignore[arg-type]  # ids alone
            self.world.way(one, other).resume()

    def _say(self, what: str, kind: str) -> None:
        self.world.ledger.say(what, kind)
