"""The lifecycle of a journal: settings, locks, recovery."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from parley import Node, NodeConfig, ParleyError
from parley._crypto.auditor import AuditorPrivateKey
from parley._crypto.errors import InvalidKeyError
from parley._crypto.identity import Identity
from parley._node.errors import ConfigError
from parley._node.journal.errors import JournalBusyError, JournalFailedError
from parley._node.journal.journal import Journal
from parley._node.journal.run import Run
from tests.node.journal.journal_nodes import KEY, journal_of, journaled
from tests.node.journal.journal_reader import records_of

pytestmark = pytest.mark.anyio


async def test_metrics_can_be_read_during_startup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics, for example, are read before the node runs."""
    journal, asked = Journal.open(tmp_path, KEY), []

    def prepare(run: Run) -> None:
        asked.append((journal.metrics.records, journal.path, journal.is_running))
        prepared(run)

    prepared = Run.prepare
    monkeypatch.setattr(Run, "prepare", prepare)
    async with Node(Identity.create(), journal=journal):
        assert (asked, journal.is_running) == ([(0, None, False)], True)


# Settings.


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_size": 1},
        {"buffer_size": 1},
        {"segment_age": 0},
        {"segment_age": float("inf")},
        {"fsync_interval": float("nan")},
        {"fsync": "sometimes"},
        {"on_failure": "ignore"},
        {"segment_size": "1 GiB"},
        {"segment_age": "60"},
        {"buffer_size": 1e9},
        {"fsync": ["always"]},
        {"fsync_interval": 10**400},
        {"clock": 5},
    ],
)
def test_setting_out_of_range_raises(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Journal.open(tmp_path, KEY, **settings)


def test_auditors_are_parsed_and_deduplicated(tmp_path: Path) -> None:
    other = AuditorPrivateKey.create().public
    journal = Journal.open(tmp_path / "a" / "b", [KEY, KEY.text, bytes(KEY), other])
    assert journal.settings.auditors == (KEY, other)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigError):
        Journal.open(tmp_path, [])
    for wrong in (b"short", "parley-auditor-x", bytes(32), 7):
        with pytest.raises(InvalidKeyError):
            Journal.open(tmp_path, wrong)  # type: ignore[arg-type] # must be rejected
        with pytest.raises(InvalidKeyError):
            Journal.open(tmp_path, [wrong])  # type: ignore[list-item] # must be rejected
    (tmp_path / "file").touch()
    with pytest.raises(JournalFailedError, match="cannot create the directory"):
        Journal.open(tmp_path / "file" / "x", KEY)


def test_journal_needs_encryption_and_no_other_observer(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, KEY)
    with pytest.raises(ConfigError, match="remove one of them"):
        Node(Identity.create(), journal=journal, observer=lambda: journal.session_log("x"))
    with pytest.raises(ConfigError, match="unencrypted"):
        Node(Identity.create(), journal=journal, config=NodeConfig(plaintext="only"))
    with pytest.raises(ParleyError):
        journal.session_log("x")


# Beginning and ending.


async def test_journal_has_one_node_and_one_process(tmp_path: Path) -> None:
    node = journaled(tmp_path)
    async with node:
        same = journaled(tmp_path, node.identity)
        with pytest.raises(JournalBusyError):
            await same.__aenter__()
        other = Node(Identity.create(), journal=node.journal)
        with pytest.raises(JournalBusyError):
            await other.__aenter__()
        async with journaled(tmp_path):
            pass  # The journal of another node, in the same directory.
    async with same:
        assert journal_of(same).is_running
    assert len(records_of(tmp_path, node.node_id.text)) == 2


async def test_run_names_ascend_when_the_clock_is_set_back(
    tmp_path: Path,
) -> None:
    identity = Identity.create()
    for time in (10**18, 10**18, 10**17):
        async with journaled(tmp_path, identity, clock=lambda time=time: time):
            pass
    starts = [records[0].time for records in records_of(tmp_path)]
    assert starts == [10**18, 10**18, 10**17]
    assert sorted(os.listdir(tmp_path))[1].split("-")[1] == "20010909T014640000001Z"


async def test_new_run_closes_segments_of_a_crash(tmp_path: Path) -> None:
    identity = Identity.create()
    async with journaled(tmp_path, identity) as node:
        path = journal_of(node).path
        assert path is not None
        await journal_of(node).sync()
        left = await anyio.Path(path).read_bytes()
    torn = await anyio.Path(tmp_path / path.stem).rename(path)
    await torn.write_bytes(left + b"\x00\x00")
    async with journaled(tmp_path, identity) as node:
        (recovered,) = journal_of(node).recovered
        assert recovered.cut == 2
    (torn_name,) = [name for name in os.listdir(tmp_path) if name.endswith(".torn")]
    await anyio.Path(tmp_path / torn_name).unlink()
    assert len(records_of(tmp_path, identity.node_id.text)) == 2


async def test_unwritable_directory_raises_and_leaves_nothing(tmp_path: Path) -> None:
    node = journaled(tmp_path / "x")
    (tmp_path / "x").rmdir()
    with pytest.raises(JournalFailedError, match="cannot write"):
        await node.__aenter__()
    (tmp_path / "x").mkdir()
    async with node:
        await journal_of(node).sync()
    with pytest.raises(ParleyError):
        await journal_of(node).sync()
