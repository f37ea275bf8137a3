"""The records of a connection between two nodes can be read from its start and from every block."""

import os
from pathlib import Path

import anyio
import pytest

from parley import Call, Node
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal.journal import Journal
from parley._node.protocol.codes import CloseCode
from parley._node.testing import connect_nodes
from tests.node.journal.journal_reader import assert_same_events, follow, records_of
from tests.node.tuned import tuned

pytestmark = pytest.mark.anyio
AUDITOR = AuditorPrivateKey.create()


def journaled(directory: Path, sealing: str = "chain", **settings: int) -> Node:
    """Return a node with a journal."""
    config = tuned(algorithms={"kex": ("x25519",), "sealing": (sealing,)}, rekey_allowance=4)
    journal = Journal.open(directory, AUDITOR.public, **settings)  # type: ignore[arg-type] # sizes
    node = Node(Identity.create(), config=config, journal=journal)

    @node.on_call("echo")
    async def echo(call: Call) -> object:
        return call.data

    return node


@pytest.mark.parametrize("sealing", ["chain", "each"])
async def test_sessions_can_be_followed_from_start_and_from_every_block(
    tmp_path: Path, sealing: str
) -> None:
    nodes = [journaled(tmp_path, sealing, segment_size=2**16) for _ in range(2)]
    a, b = nodes
    topic = b.topic("news")
    async with b, a:
        peer, back = await connect_nodes(a, b)
        for again in (False, True):
            if again:
                peer, back = await connect_nodes(a, b)
            async with peer.subscribe("news") as subscription:
                for number in range(12):
                    assert await peer.call("echo", bytes(20_000)) == bytes(20_000)
                    await topic.publish(number)
                    if number % 3 == 0:
                        peer.update_keys()
                    if number in (4, 8):
                        await (peer if number == 4 else back).rekey()
                assert [await anext(subscription) for _ in range(12)] == list(range(12))
        await peer.close(CloseCode.NORMAL, "bye")
    for node in nodes:
        name = node.node_id.text
        assert len(records_of(tmp_path, name)) > 3
        followed = follow(tmp_path, name, AUDITOR)
        assert followed.checkpoints > 3
        assert len(followed.ends) == 2
        rekeys = [row.generation for row in followed.sessions if row.what == "key-update"]
        assert sorted(number for number in rekeys if number) == [1] * 4 + [2] * 4
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".open")]
    ours, theirs = (follow(tmp_path, node.node_id.text, AUDITOR) for node in nodes)
    assert_same_events(ours, theirs)
    assert min(map(len, ours.events.values())) > 20


async def test_open_session_ends_with_the_journal(tmp_path: Path) -> None:
    a, b = journaled(tmp_path), journaled(tmp_path)
    with anyio.CancelScope() as scope:
        async with b, a:
            await connect_nodes(a, b)
            scope.cancel()
            await anyio.sleep_forever()
    for node in (a, b):
        assert len(follow(tmp_path, node.node_id.text).ends) == 1
