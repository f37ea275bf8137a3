"""Journals of two nodes on the disk, recorded in memory once and written out for each test."""

from functools import cache
from pathlib import Path

import pytest

from parley._crypto.keyfile import save_auditor_key
from tests.node.journal.joined_tunnels import join, tunnel_record
from tests.node.journal.memory_journal import AUDITOR, RecordedPair
from tests.node.journal.presented_statements import Theft


@cache
def recorded() -> dict[str, bytes]:
    """The segments of both nodes by stem: two sessions each, in two segments; Alice, between
    others, joined a tunnel."""
    made = RecordedPair()
    for number in range(20):
        made.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pair.b.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        made.pump()
        if number == 5:
            made.logs[0].session_suspended("no answer")
            made.logs[0].session_resumed(1)
            made.logs[0].session_suspended("no answer")
            join(made.journals[0], tunnel_record())
        if number == 10:
            for journal in made.journals:
                journal.next_segment()
    made.run(0.05)
    made.pair.a.core.close(made.pair.now, 0)
    made.pump()
    made.meet()
    made.run(0.05)
    made.end()
    return made.journals[0].segments | made.journals[1].segments


@cache
def theft() -> Theft:
    """Sessions before and after a node ID ended."""
    return Theft()


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """A directory with these journals."""
    directory = tmp_path / "journals"
    directory.mkdir()
    for stem, data in recorded().items():
        (directory / f"{stem}.pjl").write_bytes(data)
    return directory


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The file of their auditor's key."""
    path = tmp_path / "auditor.key"
    save_auditor_key(path, AUDITOR)
    return path


@pytest.fixture
def presented(tmp_path: Path) -> Path:
    """A directory with the journals of the three nodes of `theft`."""
    directory = tmp_path / "presented"
    directory.mkdir()
    for stem, data in theft().sessions.segments().items():
        (directory / f"{stem}.pjl").write_bytes(data)
    return directory
