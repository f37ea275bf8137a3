"""A ring of five server processes, one of which is killed under load; callers see no error.

`--rounds` sets the number of runs; each one has twenty kills.
"""

from pathlib import Path
from random import Random  # noqa: TID251 - who is killed, and when
from signal import SIGKILL

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from parley._node.backoff import Backoff
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.server.federation import Federation
from parley._node.settings import FederationSettings
from tests.node.cli.processes import Processes, Running
from tests.node.network import config, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(600)]
COUNT = 5
IN_FLIGHT = 64
SECONDS = 1.0  # of calls, before a kill at most, and from then on


class Ring:
    """Server 0 is in this process, and calls server 2; the others can be killed."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self._processes = processes
        self._directory = directory
        self.identities = [Identity.create() for _ in range(COUNT)]
        self.ids = [identity.node_id for identity in self.identities]
        self.running: dict[int, Running] = {}
        for number, identity in enumerate(self.identities):
            save_identity(directory / f"{number}.key", identity)

    def address(self, number: int) -> str:
        number %= COUNT
        return f"unix://{self._directory}/{number}#{self.ids[number]}"

    def settings(self, number: int) -> FederationSettings:
        others = tuple(str(one) for one in self.ids if one != self.ids[number])
        links = (self.address(number - 1), self.address(number + 1))
        return FederationSettings(links=links, members=others, carry=others)

    def start(self, number: int) -> None:
        told = self.settings(number)
        options = [("--member", one) for one in told.members]
        options += [("--carry", one) for one in told.carry]
        options += [("--link", one) for one in told.links]
        running = self._processes.start(
            *("serve", "--json", "--identity", f"{self._directory}/{number}.key"),
            *("--listen", self.address(number).partition("#")[0]),
            *("--export", "parley.echo", *(word for pair in options for word in pair)),
        )
        running.event("ready")
        self.running[number] = running

    def kill(self, number: int) -> None:
        running = self.running.pop(number)
        running.process.send_signal(SIGKILL)
        running.process.wait(10)


async def call_for(peers: list[Peer], seconds: float) -> list[Exception]:
    """Have 64 calls in flight for so long; what went wrong."""
    errors: list[Exception] = []

    async def call(peer: Peer, number: int) -> None:
        count = 0
        while anyio.current_time() < end and not errors:
            count += 1
            try:
                assert await peer.call("parley.echo", [number, count]) == [number, count]
            except Exception as error:
                errors.append(error)

    end = anyio.current_time() + seconds
    async with anyio.create_task_group() as tasks:
        for number in range(IN_FLIGHT):
            tasks.start_soon(call, peers[number % len(peers)], number)
    return errors


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_servers_are_killed_under_load(
    processes: Processes, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    ring = Ring(processes, tmp_path)
    random = Random(18)
    for number in range(1, COUNT):
        ring.start(number)
    node = Node(ring.identities[0], config=config(resume=30.0))
    quick = Backoff(first=0.05, longest=0.5)
    async with node, Federation(node, ring.settings(0), pauses=quick) as federation:
        await node.listen(ring.address(0).partition("#")[0])

        def both_ways() -> bool:
            return len(federation.servers) == COUNT - 1 and all(
                len(server.links) == 2 for server in federation.servers
            )

        with anyio.fail_after(60):
            await eventually(both_ways)
            peers = [await federation.reach(ring.ids[2]) for _ in range(4)]
        victim = 0
        for kill_number in range(max(1, pytestconfig.getoption("rounds") // 20)):
            if kill_number:
                ring.start(victim)
                with anyio.fail_after(60):
                    await eventually(both_ways)
            on_the_way = ring.ids.index(peers[0].path[1])
            victim = on_the_way if random.random() < 0.7 else random.choice([1, 3, 4])
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:

                    async def kill(victim: int = victim) -> None:
                        await anyio.sleep(random.random() * SECONDS)
                        ring.kill(victim)

                    tasks.start_soon(kill)
                    assert await call_for(peers, 2 * SECONDS) == []
                assert all(ring.ids[victim] not in peer.path for peer in peers)
        for peer in peers:
            await peer.close()
