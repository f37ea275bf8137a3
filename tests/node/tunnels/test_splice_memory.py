"""Test that a server between the ends stores no content of a tunnel anywhere in its memory,
including freed memory.
"""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from parley._crypto.identity import Identity
from parley._crypto.keyfile import save_identity
from parley._crypto.randomness import random_bytes
from parley._node.node import Node
from parley._node.peer.peer import Peer
from parley._node.remote.requests import Call
from tests.node.cli.processes import Processes, Running
from tests.node.network import config

pytestmark = [
    pytest.mark.process,
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="the memory of others: Linux"),
]
TURNS = 20


@pytest.fixture(scope="module")
def hop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A server in a separate process with accounts for all nodes, and its address."""
    folder = tmp_path_factory.mktemp("hop")
    save_identity(folder / "hop.key", Identity.create())
    made = Processes(folder)
    try:
        running, (address,) = made.serve(
            "--identity", str(folder / "hop.key"), "--accounts", "any", "--log-level", "debug"
        )
        yield running, address
    finally:
        made.end()


def memory(process: int) -> bytes:
    """Return the writable memory of a process."""
    found = []
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as whole:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if not rights.startswith("rw") or "[v" in line:  # Memory of the kernel.
                continue
            start, end = (int(one, 16) for one in place.split("-"))
            whole.seek(start)
            while start < end and (piece := whole.read(end - start)):
                found.append(piece)
                start += len(piece)
    return b"".join(found)


async def say(peer: Peer, name: str, canary: bytes) -> None:
    """Send it through the tunnel in many sizes."""
    for turn in range(TURNS):
        data = canary * (turn + 1) ** 2
        assert await peer.call(name, data) == data


async def test_nothing_of_it_is_in_the_memory_of_a_server_between(
    hop: tuple[Running, str],
) -> None:
    running, address = hop
    canary = random_bytes(24)
    settings = config()
    with anyio.fail_after(20):
        async with (
            Node(Identity.create(), config=settings) as target,
            Node(Identity.create(), config=settings) as origin,
            target.home(address, exports=["secret"]) as there,
            origin.home(address) as here,
        ):

            @target.on_call("secret")
            async def secret(call: Call) -> object:
                return call.data

            await there.connected(10)
            server, _ = await here.connected(10)
            assert server.node_id is not None
            async with await here.reach(server.node_id, target.node_id) as peer:
                await say(peer, "secret", canary)
                between = memory(running.process.pid)
            assert bytes(target.node_id) in between  # checks that the search finds known data
            assert between.count(canary) == 0
            assert canary.hex().encode() not in between
            # The same data sent to the server itself does leave traces.
            await say(server, "parley.echo", canary)
            between = memory(running.process.pid)
            assert canary in between
