"""A thousand nodes in one process exchange data and then leave no state behind.

Each node dials the next one in a ring, in memory. It calls it, reads a note of its topic and sends
bytes over a stream. Afterwards there are no new tasks, files, nodes or peers, and no more objects
than after a round with a few nodes.
"""

import gc
import weakref

import anyio
import pytest

from parley import Call, Node, Stream
from parley._crypto.identity import Identity
from parley._node.testing import connect_nodes
from tests.node.network import config, nothing_left, open_files, other_tasks

NODES = 1_000
NODES_ON_TRIO = 250  # where each node takes twice the time and leaves as much memory
FEW = 20


async def talk(number: int, node: Node, following: Node) -> int:
    """Exchange data with the next node; return the sum of the received numbers."""
    peer, _ = await connect_nodes(node, following)
    heard = await peer.call("add", number, timeout=60)
    assert isinstance(heard, int)
    async with peer.subscribe("numbers") as numbers:
        await following.topics["numbers"].publish(number)
        note = await anext(aiter(numbers))
        assert isinstance(note, int)
    async with peer.open_stream("echo") as stream:
        await stream.send(b"abc")
        await stream.send_eof()
        back = b"".join([piece async for piece in stream])
    return heard + note + len(back)


async def a_round(identities: list[Identity]) -> list["weakref.ref[Node]"]:
    """Run all nodes of a round; return objects that must be garbage-collected afterwards."""
    nodes = [Node(identity, config=config()) for identity in identities]
    async with anyio.create_task_group() as tasks:
        ended = anyio.Event()
        started = anyio.Semaphore(0)

        async def live(node: Node) -> None:
            @node.on_call("add")
            async def add(call: Call) -> int:
                assert isinstance(call.data, int)
                return call.data + 1

            @node.on_stream("echo")
            async def echo(stream: Stream) -> None:
                async for piece in stream:
                    await stream.send(piece)

            node.topic("numbers")
            async with node:
                started.release()
                await ended.wait()

        for node in nodes:
            tasks.start_soon(live, node)
        for _ in nodes:
            await started.acquire()
        results: list[int] = []

        async def one(number: int) -> None:
            results.append(await talk(number, nodes[number], nodes[(number + 1) % len(nodes)]))

        async with anyio.create_task_group() as talking:
            for number in range(len(nodes)):
                talking.start_soon(one, number)
        assert sum(results) == sum(2 * number + 1 + 3 for number in range(len(nodes)))
        assert sum(len(node.peers) for node in nodes) == 2 * len(nodes)
        ended.set()
    assert not any(node.peers for node in nodes)
    return [weakref.ref(node) for node in nodes]


@pytest.mark.alone
@pytest.mark.timeout(240)
async def test_a_thousand_nodes(anyio_backend: object) -> None:
    many = NODES_ON_TRIO if anyio_backend == "trio" else NODES
    identities = [Identity.create() for _ in range(many)]
    with nothing_left():
        files, tasks, objects = open_files(), other_tasks(), []
        for count in (FEW, many):
            dead = await a_round(identities[:count])
            gc.collect()
            assert [node for node in dead if node() is not None] == []
            del dead
            assert (open_files(), other_tasks()) == (files, tasks)
            ours = [
                one for one in gc.get_objects() if str(type(one).__module__).startswith("parley.")
            ]
            objects.append(len(ours))
            del ours
    assert objects[1] - objects[0] < many - FEW  # less than one object per node
