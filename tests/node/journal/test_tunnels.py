"""`Journal.tunnel` records the report of a hop, without waiting."""

from pathlib import Path

import pytest

from parley import Call
from parley._crypto.identity import Identity
from parley._node.journal.audit import Audit
from parley._node.journal.audit.rows import TunnelRow
from parley._node.journal.errors import JournalFailedError
from parley._node.journal.segments import list_segments, read_range
from tests.node.journal.joined_tunnels import tunnel_record
from tests.node.journal.journal_nodes import Disk, journal_of, journaled
from tests.node.network import eventually
from tests.node.tunnels.tunnel_rows import row

pytestmark = pytest.mark.anyio


def tunnels_in(directory: Path) -> list[TunnelRow]:
    """Return the tunnels in the journal there."""
    audit = Audit()  # No key is needed to read them.
    for file in list_segments(directory):
        for record in read_range(file.path, 0, file.size):
            audit.record(file.name.stem, record)
    audit.finish_pending()
    assert audit.take_findings() == []
    return audit.take_tunnels()


async def test_tunnel_is_recorded_while_a_node_writes(tmp_path: Path) -> None:
    node = journaled(tmp_path, Identity.create())
    journal = journal_of(node)
    journal.tunnel(
        tunnel_record(forward=1)
    )  # Before and after this block, no node writes the journal.
    async with node:
        for number in (2, 3):
            journal.tunnel(tunnel_record(forward=number))
    journal.tunnel(tunnel_record(forward=4))
    assert [row.forward for row in tunnels_in(tmp_path)] == [2, 3]


async def test_tunnel_does_not_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journaled(tmp_path, Identity.create()) as node:
        journal = journal_of(node)
        disk.free.clear()
        for number in range(100):
            journal.tunnel(tunnel_record(forward=number))
        disk.free.set()
        await journal.sync()
    assert [row.forward for row in tunnels_in(tmp_path)] == list(range(100))


async def test_failed_journal_records_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journaled(tmp_path, Identity.create()) as node:
        journal = journal_of(node)
        disk.error = OSError(28, "No space left on device")
        journal.tunnel(tunnel_record())
        await eventually(lambda: isinstance(journal.failed, JournalFailedError))
        journal.tunnel(tunnel_record())
        assert journal.metrics.waiting < 10_000


async def test_journals_of_all_hops_agree(tmp_path: Path) -> None:
    async with row(5, journals=tmp_path) as made:

        @made.target.on_call("echo")
        async def echo(call: Call) -> object:
            return call.data

        peer = await made.reach()
        await peer.call("echo", b"x" * 30_000)
        await peer.close()
        await eventually(lambda: len(made.records) == 3)
        for record in made.records:
            journal_of(made.nodes[1 + record.hop]).tunnel(record)
    ids = [node.node_id.text for node in made.nodes]
    kept = [tunnels_in(tmp_path / str(place)) for place in (1, 2, 3)]
    for hop, rows in enumerate(kept):
        (one,) = rows
        assert (one.hop, one.length) == (hop, len(made.path))
        assert (one.before, one.journal, one.after) == tuple(ids[hop : hop + 3])
        assert one.began_ns <= one.ended_ns <= one.time_ns
    # All hops report the same tunnel with the same sizes.
    assert len({(one.trace, one.forward, one.back) for (one,) in kept}) == 1
    assert min(kept[0][0].forward, kept[0][0].back) > 30_000
