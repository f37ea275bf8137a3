"""A ring of five under load, of which one after another dies and comes back: who calls through it
sees no error, and no call is run twice. `--rounds` says how often, ten for each death.
"""

from collections import Counter
from random import Random  # noqa: TID251 - when to kill

import anyio
import pytest

from parley._node.peer.peer import Peer
from parley._node.remote.requests import Call
from tests.node.network import PATIENCE
from tests.node.server.ring import Servers, ring, servers

pytestmark = pytest.mark.anyio
COUNT = 5
IN_FLIGHT = 64
CALLS = 128
STEP = 0.05
# One is dead for less than a session is kept: those with it go on as well.
RESUME = 60.0


class Load:
    """Calls between all servers that are no neighbours, `IN_FLIGHT` of them at a time."""

    def __init__(self, five: Servers) -> None:
        self.five = five
        self.runs: Counter[str] = Counter()
        self.errors: list[Exception] = []
        self.sessions: dict[tuple[int, int], Peer] = {}
        self.flying = 0
        for node in five.nodes:
            node.on_call("work")(self.work)

    async def work(self, call: Call) -> str:
        name = str(call.data)
        self.runs[name] += 1
        await self.five.clock.sleep(STEP * (1 + self.runs.total() % 5))
        return name

    async def begin(self) -> None:
        for one in range(COUNT):
            for other in ((one + 2) % COUNT, (one + 3) % COUNT):
                reached = await self.five.federations[one].reach(self.five.nodes[other].node_id)
                self.sessions[one, other] = reached
        await self.run("first", list(self.sessions.values()), len(self.sessions))

    async def run(self, name: str, sessions: list[Peer], calls: int, victim: int = -1) -> None:
        """Make so many calls over these sessions, and have the victim die meanwhile."""
        names = iter([f"{name} {number}" for number in range(calls)])
        done = 0

        async def make(peer: Peer) -> None:
            nonlocal done
            for each in names:
                self.flying += 1
                try:
                    assert await peer.call("work", each, timeout=None) == each
                except Exception as error:
                    self.errors.append(error)
                self.flying -= 1
                done += 1

        five = self.five
        dies = Random(name).randrange(1, 5)
        async with anyio.create_task_group() as tasks:
            for number in range(IN_FLIGHT):
                tasks.start_soon(make, sessions[number % len(sessions)])
            for step in range(100_000):
                if step == dies and victim >= 0:
                    assert self.flying == IN_FLIGHT
                    five.network.kill(five.nodes[victim])
                if done == calls:
                    break
                await five.clock.tick(STEP)
        assert done == calls


@pytest.mark.slow
async def test_one_after_another_dies_under_load(pytestconfig: pytest.Config) -> None:
    deaths = max(1, pytestconfig.getoption("rounds") // 10)
    async with servers(
        COUNT, ring(COUNT), exports=("work",), resume=RESUME, patience=PATIENCE * deaths
    ) as five:
        await five.until(five.know_all)
        load = Load(five)
        await load.begin()
        for death in range(deaths):
            victim = death * 2 % COUNT
            through = [peer for ends, peer in load.sessions.items() if victim not in ends]
            resumes = sum(peer.resumes for peer in through)
            await load.run(f"death {death},", through, CALLS, victim)
            assert load.errors == []
            assert sum(peer.resumes for peer in through) > resumes
            assert not any(victim in (five.numbers(peer.path) or ()) for peer in through)
            five.network.add(five.nodes[victim])
            await five.until(five.know_all)
            await five.until(lambda: not any(one.is_parted for one in load.sessions.values()))
        assert set(load.runs.values()) == {1}
        assert len(load.runs) == CALLS * deaths + len(load.sessions)
