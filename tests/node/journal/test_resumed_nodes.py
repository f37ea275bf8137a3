"""Two nodes over a proxy that cuts them again and again, or of which one refuses the other: both
journals are whole."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from parley import Peer
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import STATUS_AT
from parley._node.journal.segments import list_segments, read_range
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyProxy
from parley._node.trust.policies import OneOf
from tests.node.journal.following import follow
from tests.node.journal.journaled import AUDITOR, journaled
from tests.node.network import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
CUTS = 5


def _has_resumed(peer: Peer, times: int) -> bool:
    return peer.resumes >= times


async def test_an_audit_of_two_nodes_that_were_cut_and_resumed(tmp_path: Path) -> None:
    directory = tmp_path / "journals"
    ours, theirs = (journaled(directory, segment_size=2**14) for _ in range(2))
    async with theirs, ours:
        address = await theirs.listen("tcp://127.0.0.1:0")
        async with FaultyProxy(address) as proxy:
            peer = await ours.connect(proxy.address)
            assert await peer.call("echo", "the first") == "the first"  # so that it can part
            for number in range(1, CUTS + 1):
                async with anyio.create_task_group() as tasks:
                    for size in range(0, 4_000, 400):
                        tasks.start_soon(peer.call, "echo", bytes(size))
                    if number == 2:
                        tasks.start_soon(peer.rekey)
                    await anyio.sleep(0.005)
                    proxy.cut()
                await eventually(partial(_has_resumed, peer, number))
            assert await peer.call("echo", "the last") == "the last"
            resumes = peer.resumes
            await peer.close()
    assert resumes >= CUTS
    for node in (ours, theirs):
        name = node.node_id.text
        [session] = follow(directory, name).sessions.values()
        assert session.ended is not None
        assert session.ended.code == 0
        audit = audited(directory, name)
        assert audit.take_findings() == []
        # The last ones may have been closed before their seal was due.
        assert {row[STATUS_AT] for row in audit.take_events()} <= {"ok", "unsealed"}
        rows = audit.take_sessions()
        assert {row.resumption for row in rows if row.what == "resumed"} == {*range(1, resumes + 1)}
        assert [row.what for row in rows].count("parted") >= CUTS


@pytest.mark.parametrize("parted", [False, True])
async def test_an_audit_of_two_nodes_of_which_one_refuses_the_other(
    tmp_path: Path, parted: bool
) -> None:
    directory = tmp_path / "journals"
    ours, theirs = (journaled(directory) for _ in range(2))
    async with theirs, ours:
        address = await theirs.listen("tcp://127.0.0.1:0")
        async with FaultyProxy(address) as proxy:
            peer = await ours.connect(proxy.address)
            assert await peer.call("echo", "x") == "x"
            if parted:
                proxy.stall()
                proxy.cut()
                await eventually(lambda: theirs.peers[0].is_parted)
            await theirs.change_trust(OneOf([]))
            assert theirs.peers == []
            if not parted:
                assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED
    name = theirs.node_id.text
    [session] = follow(directory, name).sessions.values()
    assert session.ended is not None
    said = CloseCode.PEER_NOT_TRUSTED if parted else CloseCode.AUTHENTICATION_FAILED
    assert (session.ended.code, session.ended.remote) == (said, False)
    for node in (ours, theirs):
        assert audited(directory, node.node_id.text).take_findings() == []


def audited(directory: Path, name: str) -> Audit:
    """An audit of all that a node has recorded."""
    audit = Audit([AUDITOR])
    for segment in list_segments(directory, name):
        for record in read_range(segment.path, 0, segment.size):
            audit.record(segment.name.stem, record)
    audit.finish_pending()
    return audit
