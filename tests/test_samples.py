"""Files written by an earlier version are read by this one: tests/samples."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from parley import Identity, Node, load_identity
from parley._node.cli.context_file import Contexts
from parley._node.trust.petnames import Petnames
from parley.bus import open_bus
from parley.journal import (
    EVENT_COLUMNS,
    Audit,
    Journal,
    list_segments,
    load_auditor_key,
    read_range,
)
from parley.settings import load_settings
from parley.trust import KnownPeers

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A copy of the key files that only their owner can read, which a clone doesn't keep."""
    for name in ("server.key", "auditor.key"):
        shutil.copy(SAMPLES / name, tmp_path)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def server(keys: Path) -> Identity:
    return load_identity(keys / "server.key")


@pytest.mark.anyio
async def test_a_journal_is_continued_and_audited(keys: Path, server: Identity) -> None:
    directory = Path(shutil.copytree(SAMPLES / "journal", keys / "journal"))
    key = load_auditor_key(keys / "auditor.key")
    journal = Journal.open(directory, key.public)
    async with Node(server, journal=journal):
        pass
    (recovered,) = journal.recovered
    assert (recovered.damaged, recovered.cut) == (0, 0)
    audit = Audit([key])
    for file in list_segments(directory):
        for record in read_range(file.path, 0, file.size):
            audit.record(file.path.name, record)
    audit.finish_pending()
    assert [finding.kind for finding in audit.take_findings()] == ["no-end"]  # the crash
    rows = [dict(zip(EVENT_COLUMNS, row, strict=True)) for row in audit.take_events()]
    assert {row["status"] for row in rows} == {"ok", "unsealed"}  # the last ones before the crash
    counts = Counter(row["type"] for row in rows)
    assert (counts["call"], counts["notify"], counts["rekey-offer"]) == (4, 10, 2)
    assert {row["topic"] for row in rows} >= {"double", "prices"}


@pytest.mark.anyio
async def test_a_bus_goes_on(tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "bus.db", tmp_path)
    async with open_bus(f"sqlite:///{tmp_path / 'bus.db'}") as bus:
        (dead,) = await bus.dead_letters("orders.paid")
        assert (dead.data, dead.history[-1].error) == (
            {"order": 2},
            "LookupError: no such customer",
        )
        assert await bus.lag("orders.paid", "mail") == 2
        await bus.publish("orders.paid", {"order": 5})
        found = []
        async with bus.consume("orders.paid", "mail") as events:
            async for event in events:
                found.append(event.data["order"])
                if found[-1] == 5:
                    break
        assert found == [3, 4, 5]


def test_known_peers_petnames_and_contexts(
    monkeypatch: pytest.MonkeyPatch, server: Identity
) -> None:
    home = SAMPLES / "home"
    monkeypatch.setenv("PARLEY_HOME", str(home))
    (peer,) = KnownPeers(home / "known_peers")
    assert (peer.node_id, peer.names) == (server.node_id, ("shop",))
    assert Petnames.of_home().of(server.node_id) == "shop"
    contexts = Contexts()
    assert contexts.in_use == "shop"
    assert contexts.find("shop").address == f"tcp://127.0.0.1:4747#{server.node_id}"
    assert contexts.find("shop").trust == "known"


def test_settings() -> None:
    settings = load_settings(SAMPLES / "parley.toml", {})
    assert (settings.node.role, settings.node.resume) == ("server", 10)
    assert settings.node.limits.seal_events == 16
    assert settings.node.algorithms == {"kex": ("x25519",)}
    assert (settings.serve.trust, settings.serve.log_level) == ("first-use", "info")
    assert settings.journal is not None
    assert (settings.journal.segment_size, settings.journal.fsync) == (1_048_576, "always")
    assert settings.bus is not None
    assert settings.dialects.limits.clients == 16
    assert settings.simproto.listen == ("tcp://127.0.0.1:5001",)
    assert settings.named.flavour == "plain"
    assert settings.relay.feedback is False
