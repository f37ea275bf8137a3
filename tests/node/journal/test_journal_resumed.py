"""Two nodes over a proxy that cuts them repeatedly, or of which one refuses the other.

Both journals are complete.
"""

from pathlib import Path

import pytest

from parley._node.journal.audit import Audit
from parley._node.journal.segments import list_segments, read_range
from parley._node.protocol.codes import CloseCode
from parley._node.testing import FaultyProxy
from parley._node.trust.policies import OneOf
from tests.node.journal.journal_nodes import AUDITOR, journaled
from tests.node.journal.journal_reader import follow
from tests.node.network import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


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
                await eventually(lambda: theirs.peers[0].is_suspended)
            await theirs.change_trust(OneOf([]))
            assert theirs.peers == []
            if not parted:
                assert (await peer.closed()).code == CloseCode.AUTHENTICATION_FAILED
    name = theirs.node_id.text
    [ended] = follow(directory, name).ends
    said = CloseCode.PEER_NOT_TRUSTED if parted else CloseCode.AUTHENTICATION_FAILED
    assert (ended.code, ended.remote) == (said, False)
    for node in (ours, theirs):
        assert audited(directory, node.node_id.text).take_findings() == []


def audited(directory: Path, name: str) -> Audit:
    """Audit everything that a node has recorded."""
    audit = Audit([AUDITOR])
    for segment in list_segments(directory, name):
        for record in read_range(segment.path, 0, segment.size):
            audit.record(segment.name.stem, record)
    audit.finish_pending()
    return audit
