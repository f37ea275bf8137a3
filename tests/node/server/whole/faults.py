"""`Faults`: what goes wrong in a world for as long as its plan says, and is mended in the end."""

from collections.abc import Callable, Coroutine, Sequence
from random import Random  # noqa: TID251 - all of it follows from a seed
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tests.node.server.whole.world import HOUR, Resident, World

# Seconds that a fault lasts at most; and a stall in four, for which pings are missed.
LONGEST, SILENT = 120.0, 900.0


class Faults:
    """Cuts, stalls, ways that are closed, halves that do not see each other, and deaths of
    servers."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def run(self) -> None:
        """Go on until the plan's hours are over, and then mend everything."""
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
        await anyio.sleep(LONGEST)  # whoever is dead comes back

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
