"""`parley peers`: who is on record, and one peer at a time changed."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley._crypto.identity import NodeId
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.words import fingerprint
from tests.node.cli.conftest import Parley

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
SEEN = "2026-03-04T05:06:07Z"
PLACE = "tcp://127.0.0.1:7000"
ALICE = NodeId(b"\x01" * 32)
BOB = NodeId(b"\x02" * 32)
BOBBY = NodeId(b"\x02" * 4 + bytes(28))  # begins as BOB does


@pytest.fixture
def known(tmp_path: Path) -> KnownPeers:
    """The file that `parley` uses by default, with three peers."""
    peers = KnownPeers(tmp_path / "home" / "known_peers")
    peers.add(ALICE, PLACE, NOW)
    peers.add(ALICE, "alice", NOW)
    peers.add(BOB, "bob", NOW)
    peers.add(BOBBY, None, NOW)
    return peers


def names(known: KnownPeers, node_id: NodeId) -> tuple[str, ...] | None:
    peer = known.lookup(node_id)
    return None if peer is None else peer.names


def test_list(parley: Parley, known: KnownPeers) -> None:
    done = parley("peers", "list")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "# known peers",
        "node id\tfirst seen\tnames",
        f"{ALICE}\t{SEEN[:10]}\t{PLACE}, alice",
        f"{BOB}\t{SEEN[:10]}\tbob",
        f"{BOBBY}\t{SEEN[:10]}\t-",
    ]
    lines = parley("peers", "list", "--json").lines
    assert lines[0] == {
        "event": "peer",
        "node_id": str(ALICE),
        "names": [PLACE, "alice"],
        "first_seen": SEEN,
        "words": fingerprint(ALICE),
        "petname": "alice",
    }
    assert "petname" not in lines[2]
    assert lines[-1] == {"event": "done", "count": 3, "known_peers": str(known.path)}


def test_an_address_is_shown_as_it_is(parley: Parley, known: KnownPeers) -> None:
    place = "tcp://[2001:db8:a:b::1]:7000"  # with :a:, which rich takes for an emoji
    known.add(BOBBY, place, NOW)
    assert parley("peers", "list").out.splitlines()[-1] == f"{BOBBY}\t{SEEN[:10]}\t{place}"


def test_nobody_is_known(parley: Parley, tmp_path: Path) -> None:
    path = tmp_path / "home" / "known_peers"
    assert parley("peers", "list") == (0, f"no known peers in {path}\n", "")
    assert parley("peers", "list", "--json").last["count"] == 0


def test_another_file(parley: Parley, known: KnownPeers, tmp_path: Path) -> None:
    other = tmp_path / "others"
    missing = parley("peers", "list", "--known-peers", str(other))
    assert missing == (
        6,
        "",
        f"parley: cannot read the known peers in '{other}': the file does not exist\n",
    )
    KnownPeers(other).add(BOB, "robert", NOW)
    assert parley("peers", "forget", "robert", "--known-peers", str(other)).code == 0
    assert len(KnownPeers(other)) == 0
    assert len(known) == 3


def test_a_broken_file(parley: Parley, known: KnownPeers) -> None:
    known.path.write_text("nonsense\n")
    for command in (["list"], ["forget", "bob"], ["rename", "bob", "robert"]):
        done = parley("peers", *command)
        assert done.code == 6
        assert f"{known.path}, line 1" in done.err


@pytest.mark.parametrize(
    "who", ["alice", PLACE, f"{PLACE}#{ALICE}", str(ALICE), ALICE.short, ALICE.text[:4]]
)
def test_forget(parley: Parley, known: KnownPeers, who: str) -> None:
    done = parley("peers", "forget", who)
    assert done == (0, f"forgot {ALICE}, known since {SEEN}\nnames  {PLACE}, alice\n", "")
    assert names(known, ALICE) is None
    assert len(known) == 2


def test_forget_says_it_as_json(parley: Parley, known: KnownPeers) -> None:
    assert parley("peers", "forget", "bob", "--json").lines == [
        {
            "event": "done",
            "node_id": str(BOB),
            "names": ["bob"],
            "first_seen": SEEN,
            "words": fingerprint(BOB),
            "predecessors": [],
            "known_peers": str(known.path),
        }
    ]


@pytest.mark.parametrize("who", ["eve", ALICE.text[:3], ALICE.text[1:], str(NodeId(bytes(32))), ""])
def test_forget_nobody(parley: Parley, known: KnownPeers, who: str) -> None:
    before = known.path.read_bytes()
    done = parley("peers", "forget", who)
    assert (done.code, done.out) == (2, "")
    assert f"cannot find {who!r} in '{known.path}'" in done.err
    assert known.path.read_bytes() == before


def test_what_fits_several_changes_nothing(parley: Parley, known: KnownPeers) -> None:
    short = BOB.text[:4]
    assert BOBBY.text.startswith(short)
    before = known.path.read_bytes()
    for command in (["forget", short], ["rename", short, "robert"]):
        done = parley("peers", *command)
        assert done.code == 2
        assert f"cannot choose a peer by {short!r}: it matches 2 peers" in done.err
        assert f"{BOB} (bob)" in done.err
        assert f"{BOBBY} (-)" in done.err
        assert known.path.read_bytes() == before


def test_a_name_that_begins_an_id_is_not_guessed(parley: Parley, known: KnownPeers) -> None:
    known.rename(ALICE, BOB.text[:8])
    done = parley("peers", "forget", BOB.text[:8])
    assert (done.code, len(known)) == (2, 3)
    assert f"{ALICE} ({BOB.text[:8]})" in done.err
    assert parley("peers", "forget", str(BOB)).code == 0  # a whole id is one peer's alone


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("alice", (PLACE, "ally")),
        (PLACE, (PLACE, "alice", "ally")),  # here too: only another address replaces one
        (str(ALICE), (PLACE, "ally")),  # the address keeps standing for her
        (ALICE.short, (PLACE, "ally")),
    ],
)
def test_rename(parley: Parley, known: KnownPeers, who: str, expected: tuple[str, ...]) -> None:
    done = parley("peers", "rename", who, "ally")
    assert done == (0, f"{ALICE} is {', '.join(expected)}\n", "")
    assert names(known, ALICE) == expected


def test_an_address_gives_way_to_another(parley: Parley, known: KnownPeers) -> None:
    moved = "tcp://127.0.0.1:4748"
    assert parley("peers", "rename", PLACE, moved).code == 0
    assert names(known, ALICE) == (moved, "alice")


def test_rename_says_it_as_json(parley: Parley, known: KnownPeers) -> None:
    last = parley("peers", "rename", "alice", "ally", "--json").last
    assert (last["names"], last["old_names"]) == ([PLACE, "ally"], [PLACE, "alice"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [("bob", f"belongs to {BOB}"), ("a b", "invalid name"), ("-", "invalid name")],
)
def test_rename_to_what_cannot_be(
    parley: Parley, known: KnownPeers, name: str, reason: str
) -> None:
    before = known.path.read_bytes()
    done = parley("peers", "rename", "alice", "--", name)
    assert done.code == 6
    assert reason in done.err
    assert known.path.read_bytes() == before


def test_accounts_are_in_a_file_of_their_own(parley: Parley, tmp_path: Path) -> None:
    path, option = tmp_path / "home" / "accounts", "--accounts"
    assert parley("peers", "list", option).out == f"no known peers in {path}\n"
    assert parley("peers", "add", str(ALICE), "alice", option).out.startswith(
        f"{ALICE} has an account as alice\n"
    )
    assert parley("peers", "add", str(BOB), option, "--json").last["known_peers"] == str(path)
    assert not (tmp_path / "home" / "known_peers").exists()
    assert parley("peers", "add", str(ALICE), "anna").code == 0
    head, columns, first, second = parley("peers", "list", option).out.splitlines()
    assert (head, columns) == ("# accounts", "node id\tadded\tnames")
    assert first.split("\t")[::2] == [str(ALICE), "alice, (anna)"]
    assert second.split("\t")[::2] == [str(BOB), "-"]
    taken = parley("peers", "add", str(BOB), "alice", option)
    assert (taken.code, "cannot use the name 'alice' for" in taken.err) == (6, True)
    assert parley("peers", "forget", ALICE.text[:4], option).code == 0
    assert [peer.node_id for peer in KnownPeers(path)] == [BOB]
