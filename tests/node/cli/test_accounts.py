"""`parley accounts`: who has an account, and one more or less of them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from crypto.identity import NodeId
from node.trust.known_peers import KnownPeers
from tests.node.cli.conftest import Parley

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ADDED = "2026-03-04T05:06:07Z"
ALICE = NodeId(b"\x01" * 32)
BOB = NodeId(b"\x02" * 32)


@pytest.fixture
def accounts(tmp_path: Path) -> KnownPeers:
    """The file that `parley` uses by default, with two accounts."""
    file = KnownPeers(tmp_path / "home" / "accounts")
    file.add(ALICE, "alice", NOW)
    file.add(BOB, None, NOW)
    return file


def test_list(parley: Parley, accounts: KnownPeers, tmp_path: Path) -> None:
    done = parley("accounts", "list")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "# accounts",
        "node id\tadded\tnames",
        f"{ALICE}\t{ADDED[:10]}\talice",
        f"{BOB}\t{ADDED[:10]}\t-",
    ]
    KnownPeers(tmp_path / "home" / "known_peers").add(ALICE, "anna", NOW)
    assert f"{ALICE}\t{ADDED[:10]}\talice, (anna)\n" in parley("accounts", "list").out
    assert parley("accounts", "list", "--json").lines == [
        {
            "event": "account",
            "node_id": str(ALICE),
            "names": ["alice"],
            "added": ADDED,
            "petname": "anna",
        },
        {"event": "account", "node_id": str(BOB), "names": [], "added": ADDED},
        {"event": "done", "count": 2, "accounts": str(accounts.path)},
    ]


def test_nobody_has_one(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "home" / "accounts"
    assert parley("accounts", "list") == (0, f"nobody has an account in {path}\n", "")


def test_add(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "home" / "accounts"
    assert parley("accounts", "add", str(ALICE)) == (0, f"{ALICE} has an account\n", "")
    last = parley("accounts", "add", str(ALICE), "alice", "--json").last
    found = KnownPeers(path).lookup(ALICE)
    assert found is not None
    assert found.names == ("alice",)
    assert last.pop("added") == found.first_seen.isoformat().replace("+00:00", "Z")
    assert last == {
        "event": "done",
        "node_id": str(ALICE),
        "names": ["alice"],
        "accounts": str(path),
    }
    assert not (tmp_path / "home" / "known_peers").exists()


def test_what_cannot_be_added(parley: Parley, accounts: KnownPeers) -> None:
    before = accounts.path.read_bytes()
    done = parley("accounts", "add", "alice")
    assert done.code == 2
    assert "alice is not a node id" in done.err
    taken = parley("accounts", "add", str(BOB), "alice")
    assert taken.code == 6
    assert f"has the name alice for {ALICE}" in taken.err
    assert accounts.path.read_bytes() == before


@pytest.mark.parametrize("who", ["alice", str(ALICE), ALICE.text[:4]])
def test_remove(parley: Parley, accounts: KnownPeers, who: str) -> None:
    done = parley("accounts", "remove", who)
    assert done == (0, f"{ALICE} has no account any more\n", "")
    assert [one.node_id for one in accounts] == [BOB]


def test_remove_says_it_as_json(parley: Parley, accounts: KnownPeers) -> None:
    assert parley("accounts", "remove", str(BOB), "--json").lines == [
        {
            "event": "done",
            "node_id": str(BOB),
            "names": [],
            "added": ADDED,
            "accounts": str(accounts.path),
        }
    ]


def test_remove_nobody(parley: Parley, accounts: KnownPeers) -> None:
    done = parley("accounts", "remove", "eve")
    assert (done.code, done.out) == (2, "")
    assert f"nobody in {accounts.path} has the name or the node id eve" in done.err
    assert len(accounts) == 2


def test_another_file(parley: Parley, accounts: KnownPeers, tmp_path: Path) -> None:
    other = str(tmp_path / "others")
    for command in (["list"], ["remove", "alice"]):
        missing = parley("accounts", *command, "--accounts", other)
        assert missing == (6, "", f"parley: there is no file of accounts at {other}\n")
    assert parley("accounts", "add", str(BOB), "--accounts", other).code == 0  # makes it
    assert [one.node_id for one in KnownPeers(other)] == [BOB]
    assert parley("accounts", "list", "--accounts", other, "--json").last["count"] == 1
