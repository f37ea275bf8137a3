"""`Journal.tunnel`: what a hop tells of a tunnel is in its journal, and is never waited for."""

from pathlib import Path

import pytest

from crypto.identity import Identity
from node.journal.audit import Audit
from node.journal.errors import JournalFailedError
from node.journal.segments import list_segments, read_range
from tests.node.journal.joined_tunnels import told
from tests.node.journal.journaled import AUDITOR, Disk, journal_of, journaled
from tests.node.network import eventually

pytestmark = pytest.mark.anyio


def tunnels_in(directory: Path) -> list[int]:
    """The bytes forward of each tunnel that the journal there has."""
    audit = Audit([AUDITOR])
    for file in list_segments(directory):
        for record in read_range(file.path, 0, file.size):
            audit.record(file.name.stem, record)
    audit.finish_pending()
    assert audit.take_findings() == []
    return [row.forward for row in audit.take_tunnels()]


async def test_a_tunnel_is_kept_while_a_node_writes_the_journal(tmp_path: Path) -> None:
    node = journaled(tmp_path, Identity.create())
    journal = journal_of(node)
    journal.tunnel(told(forward=1))  # before, and below after: nobody writes it
    async with node:
        for number in (2, 3):
            journal.tunnel(told(forward=number))
    journal.tunnel(told(forward=4))
    assert tunnels_in(tmp_path) == [2, 3]


async def test_a_disk_that_takes_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journaled(tmp_path, Identity.create()) as node:
        journal = journal_of(node)
        disk.free.clear()
        for number in range(100):
            journal.tunnel(told(forward=number))
        disk.free.set()
        await journal.sync()
    assert tunnels_in(tmp_path) == list(range(100))


async def test_a_journal_that_failed_keeps_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    async with journaled(tmp_path, Identity.create()) as node:
        journal = journal_of(node)
        disk.error = OSError(28, "No space left on device")
        journal.tunnel(told())
        await eventually(lambda: isinstance(journal.failed, JournalFailedError))
        journal.tunnel(told())
        assert journal.metrics.waiting < 10_000
