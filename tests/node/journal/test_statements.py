"""Real nodes with journals: an ID ends, its heir presents the statement, the old key is refused."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley import Identity, Node, create_succession
from parley._node.journal.audit import Audit
from parley._node.journal.audit.ended_ids import SessionBegin, find_ended_ids
from parley._node.journal.journal import Journal
from parley._node.journal.segments import list_segments, read_range
from parley.errors import NotTrustedError, PeerClosedError
from parley.trust import KeyStatements
from tests.node.journal.journal_nodes import AUDITOR, CONFIG, KEY

pytestmark = pytest.mark.anyio
NOW = datetime(2027, 1, 1, tzinfo=UTC)


async def visit(client: Node, address: str) -> None:
    async with client:
        peer = await client.connect(address)
        await peer.ping()
        await peer.close()


async def test_an_heir_leaves_evidence(tmp_path: Path) -> None:
    bob, recovery = Identity.create_recoverable()
    heir, _ = Identity.create_recoverable()
    statements = KeyStatements()
    statements.apply(create_succession(recovery, heir).encoded)
    alice = Identity.create()
    journal = Journal.open(tmp_path, KEY)
    async with Node(alice, config=CONFIG, journal=journal, watch=[bob.node_id]) as server:
        address = await server.listen("memory://evidence")
        # Bob and the heir use the same directory: their journals are separate runs.
        await visit(Node(bob, config=CONFIG, journal=Journal.open(tmp_path, KEY)), address)
        await visit(
            Node(
                heir,
                config=CONFIG,
                statements=statements,
                journal=Journal.open(tmp_path, KEY),
            ),
            address,
        )
        with pytest.raises((NotTrustedError, PeerClosedError)):
            await visit(Node(bob, config=CONFIG), address)
    segments = list_segments(tmp_path)
    runs = {(segment.name.node, segment.name.start) for segment in segments}
    assert {node for node, _ in runs} == {one.node_id.text for one in (alice, bob, heir)}
    assert len(runs) == 3
    presented, begins = [], []
    for segment in segments:
        audit = Audit([AUDITOR])
        for record in read_range(segment.path, 0, segment.size):
            audit.record(segment.name.stem, record)
        audit.finish_pending()
        assert audit.take_findings() == []
        presented += audit.take_statements()
        begins += [
            SessionBegin(row.journal, row.session, row.remote_node, row.started_ns)
            for row in audit.take_sessions()
        ]
    assert sorted((row.journal, row.direction, row.status) for row in presented) == sorted(
        [(alice.node_id.text, "received", "ok"), (heir.node_id.text, "sent", "ok")]
    )
    (ended,) = find_ended_ids(presented, begins)
    assert (ended.first.journal, ended.first.origin) == (alice.node_id.text, bob.node_id.text)
    assert (ended.first.presenter, ended.first.by_recovery) == (heir.node_id.text, True)
    assert (len(ended.before), ended.after) == (1, [])  # the old key opened no further session
