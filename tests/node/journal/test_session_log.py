"""What two nodes keep of their connection can be followed from its start and every block."""

import os
from pathlib import Path

import anyio
import pytest

from parley import Call, Node
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.identity import Identity
from parley._node.journal import keys
from parley._node.journal.journal import Journal
from parley._node.protocol.codes import CloseCode
from parley._node.testing import connect_nodes
from tests.node.journal.following import follow, records_of
from tests.node.network import eventually
from tests.node.tuned import tuned

pytestmark = pytest.mark.anyio
AUDITOR = AuditorPrivateKey.create()


def journaled(directory: Path, sealing: str = "chain", **settings: int) -> Node:
    """A node with a journal."""
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
        assert len(followed.sessions) == 2
        assert followed.checkpoints > 3
        for session in followed.sessions.values():
            assert session.ended is not None
            assert [secret.generation for secret in session.secrets] == [0, 1, 2]
            rekeys = [update.generation for update in session.updates if update.generation]
            assert sorted(one.number for one in rekeys) == [1, 1, 2, 2]
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".open")]
    ours, theirs = (follow(tmp_path, node.node_id.text).sessions for node in nodes)
    for number in ours:
        sent = [wire for way, wire in ours[number].events if way == keys.SENT]
        assert sent == [wire for way, wire in theirs[number].events if way == keys.RECEIVED]
        assert len(sent) > 20


async def test_a_session_that_meets_no_end_is_ended_with_the_journal(tmp_path: Path) -> None:
    a, b = journaled(tmp_path), journaled(tmp_path)
    with anyio.CancelScope() as scope:
        async with b, a:
            await connect_nodes(a, b)
            scope.cancel()
            await anyio.sleep_forever()
    for node in (a, b):
        (session,) = follow(tmp_path, node.node_id.text).sessions.values()
        assert session.ended is not None


async def test_the_labels_of_open_streams_are_in_checkpoints(tmp_path: Path) -> None:
    a, b = journaled(tmp_path, segment_size=2**16), journaled(tmp_path)

    @b.on_stream("wide")
    async def wide(stream: object) -> None:
        await anyio.sleep_forever()

    async with b, a:
        peer, _ = await connect_nodes(a, b)
        async with peer.open_stream("wide"):
            for _ in range(5):
                await peer.call("echo", bytes(20_000))
            await eventually(lambda: a.journal is not None and a.journal.metrics.segments > 1)
    followed = follow(tmp_path, a.node_id.text)
    assert followed.sessions[0].labels is not None
