"""An idle connection takes little memory, because a server can have ten thousand of them."""

import sys

import pytest

from parley._node.testing import connect_nodes
from tests.alone import alive
from tests.node.network import new_node, settled

COUNT = 50
# Bytes of the objects that the garbage collector tracks, for both ends of a connection in memory.
SIZE = 28_000


@pytest.mark.alone
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_idle_connection_takes_little_memory(anyio_backend: object) -> None:
    async with new_node() as dialling, new_node() as accepting:
        sizes = []
        for _ in range(2):
            for _ in range(COUNT):
                peer, _ = await connect_nodes(dialling, accepting)
                assert peer.is_open
            await settled()
            sizes.append(sum(map(sys.getsizeof, alive())))
    assert (sizes[1] - sizes[0]) // COUNT <= SIZE
