"""Petnames are shown next to node IDs, and nowhere else."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.statements import create_revocation, create_succession
from parley._node.trust.key_statements import KeyStatements, read_table
from parley._node.trust.known_peers import MAX_FILE_SIZE, KnownPeers
from parley._node.trust.petnames import Petnames
from parley._node.trust.statement_table import StatementTable
from parley._node.trust.words import EVEN, FINGERPRINT_SIZE, ODD, fingerprint, words_of

NOW = datetime(2026, 3, 4, tzinfo=UTC)
ALICE, BOB, BOBBY = (NodeId(bytes([n]) * 31 + bytes([end])) for n, end in ((1, 1), (2, 2), (2, 3)))
EVE = NodeId(bytes(32))


@pytest.fixture
def known(tmp_path: Path) -> KnownPeers:
    known = KnownPeers(tmp_path / "known_peers")
    for node_id, name in (
        (ALICE, "tcp://127.0.0.1:1"),
        (ALICE, "alice"),
        (ALICE, "allie"),
        (BOB, "bob"),
        (BOBBY, None),
        (EVE, "unix:///run/eve"),
    ):
        known.add(node_id, name, NOW)
    return known


def test_the_first_name_that_is_not_an_address(known: KnownPeers) -> None:
    petnames = Petnames(known.path)
    assert [petnames.of(one) for one in (ALICE, str(ALICE), BOB, BOBBY, EVE, None)] == [
        *("alice", "alice", "bob"),
        *(None, None, None),
    ]
    assert petnames.beside(ALICE) == f"{ALICE} (alice)"
    assert petnames.beside(EVE) == str(EVE)
    assert petnames.beside_short(ALICE) == f"{ALICE.short} (alice)"
    assert petnames.beside_short(EVE) == EVE.short
    assert (petnames.known_by(BOB), petnames.known_by(EVE)) == ({"petname": "bob"}, {})


def test_ambiguous_short_ids_have_no_petname(known: KnownPeers) -> None:
    assert BOB.short == BOBBY.short
    assert Petnames(known.path).of(BOB.short) is None
    assert Petnames(known.path).of(ALICE.short) == "alice"


def test_in_sentences_but_not_in_addresses(known: KnownPeers) -> None:
    text = f"refused {ALICE}: dial tcp://a:1#{ALICE}; peer {ALICE.short} and {ALICE}x, {EVE}"
    assert Petnames(known.path).in_text(text) == (
        f"refused {ALICE} (alice): dial tcp://a:1#{ALICE}; "
        f"peer {ALICE.short} (alice) and {ALICE}x, {EVE}"
    )


def test_not_in_commands(known: KnownPeers) -> None:
    petnames = Petnames(known.path)
    for command in ("accept", "forget", "refuse"):
        text = f"run: parley peers {command} {ALICE}"
        assert petnames.in_text(text) == text
    text = f"run: parley peers accept {EVE} --as {ALICE}"
    assert petnames.in_text(text) == text
    assert petnames.in_text(f"peers of {ALICE}") == f"peers of {ALICE} (alice)"


def test_a_successor_has_the_petname_of_the_ended_id(known: KnownPeers, tmp_path: Path) -> None:
    old, recovery = Identity.create_recoverable()
    new, new_recovery = Identity.create_recoverable()
    last, _ = Identity.create_recoverable()
    path = tmp_path / "key_statements"
    petnames, statements = Petnames(known.path, path), KeyStatements(path)
    known.add(old.node_id, "carol", NOW)
    assert petnames.of(old.node_id) == "carol"
    statements.apply(create_succession(recovery, new).encoded)
    statements.apply(create_succession(new_recovery, last).encoded)
    ids = old.node_id, new.node_id, last.node_id
    assert [petnames.of(one) for one in ids] == ["carol"] * 3
    assert petnames.of(last.node_id.short) == "carol"
    known.add(new.node_id, "tcp://127.0.0.1:2", NOW)  # an address is not a petname
    assert [petnames.of(one) for one in ids] == ["carol"] * 3
    known.add(last.node_id, "cleo", NOW)
    assert [petnames.of(one) for one in ids] == ["carol", "carol", "cleo"]
    statements.decide(old.node_id, None)
    assert [petnames.of(one) for one in ids] == ["carol", None, "cleo"]
    path.write_text("nonsense\n")
    assert [petnames.of(one) for one in ids] == ["carol", None, "cleo"]
    path.unlink()
    assert [petnames.of(one) for one in ids] == ["carol", None, "cleo"]


def test_who_only_claims_to_be_a_successor_has_no_petname(
    known: KnownPeers, tmp_path: Path
) -> None:
    path = tmp_path / "key_statements"
    petnames, statements = Petnames(known.path, path), KeyStatements(path)
    old, recovery = Identity.create_recoverable()
    first, revoked = Identity.create(), Identity.create()
    heirs = [Identity.create_recoverable()[0] for _ in range(3)]
    for identity in (old, first, revoked):
        known.add(identity.node_id, f"peer-{identity.node_id.short}", NOW)
    statements.apply(create_succession(recovery, heirs[0]).encoded)
    statements.apply(create_succession(recovery, heirs[1]).encoded)  # a conflict
    statements.apply(create_succession(first, heirs[2]).encoded)  # a question
    statements.apply(create_revocation(revoked).encoded)
    assert [petnames.of(heir.node_id) for heir in heirs] == [None] * 3


def test_an_accepted_successor_has_the_petname_if_each_needs_a_person(
    known: KnownPeers, tmp_path: Path
) -> None:
    path = tmp_path / "key_statements"
    asks, statements = Petnames(known.path, path, follow=False), KeyStatements(path)
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    known.add(old.node_id, "carol", NOW)
    statements.apply(create_succession(recovery, new).encoded)
    assert Petnames(known.path, path).of(new.node_id) == "carol"
    assert (asks.of(old.node_id), asks.of(new.node_id)) == ("carol", None)
    statements.decide(old.node_id, new.node_id)
    assert asks.of(new.node_id) == "carol"


def test_the_file_as_it_is_now(known: KnownPeers, tmp_path: Path) -> None:
    petnames = Petnames(known.path)
    assert petnames.of(BOB) == "bob"
    known.rename(BOB, "robert")
    assert petnames.of(BOB) == "robert"
    known.path.write_bytes(
        b"# a comment\n\xff broken line\nand a b c d\n" + f"{EVE} x eve\n".encode()
    )
    assert (petnames.of(BOB), petnames.of(EVE)) == (None, "eve")
    os.unlink(known.path)
    assert petnames.of(EVE) is None
    assert Petnames(None).of(EVE) is None
    assert Petnames(tmp_path).of(EVE) is None  # a directory


def test_petnames_of_the_home(known: KnownPeers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_HOME", str(known.path.parent))
    assert Petnames.of_home().of(ALICE) == "alice"
    monkeypatch.setenv("PARLEY_HOME", "~no-such-user-of-this-system")
    assert Petnames.of_home().of(ALICE) is None


def test_the_list_is_whole() -> None:
    assert len(set(EVEN)) == len(set(ODD)) == 256
    assert not set(EVEN) & set(ODD)
    assert all(word.isascii() and word.islower() and word.isalpha() for word in EVEN + ODD)


def test_published_examples() -> None:
    # From the Wikipedia article on the word list: the beginning of the fingerprint of a PGP key.
    data = bytes.fromhex("E582 94F2 E9A2 2748 6E8B 061B 31CC 528F D7FA 3F19")
    assert " ".join(words_of(data)) == (
        "topmost istanbul pluto vagabond treadmill pacific brackish dictator goldfish medusa "
        "afflict bravado chatter revolver dupont midsummer stopwatch whimsical cowbell bottomless"
    )


def test_a_fingerprint_is_the_beginning_of_an_id() -> None:
    node_id = NodeId(bytes.fromhex("E582 94F2 E9A2 2748 6E8B") + bytes(22))
    words = fingerprint(node_id)
    assert words.split() == words_of(node_id[:FINGERPRINT_SIZE])
    assert words == (
        "topmost istanbul pluto vagabond treadmill pacific brackish dictator goldfish medusa"
    )
    other = bytearray(node_id)
    other[FINGERPRINT_SIZE - 1] ^= 1
    assert fingerprint(NodeId(bytes(other))) != words


@pytest.mark.parametrize("kind", ["pipe", "directory", "long file"])
def test_without_a_readable_file_there_are_no_petnames(tmp_path: Path, kind: str) -> None:
    """Logs show petnames, so a pipe must not block."""
    path = tmp_path / "known_peers"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text(f"{ALICE} 2026-03-04T00:00:00Z alice\n" + "#" * MAX_FILE_SIZE)
    assert Petnames(path).of(ALICE) is None


def test_statements_are_read_again_only_if_they_changed(
    known: KnownPeers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with first use records each new peer, and a full file takes 100 ms to parse."""
    (old, recovery), (new, _) = (Identity.create_recoverable() for _ in range(2))
    path, read = tmp_path / "key_statements", list[object]()

    def counted(path: Path, *, follow: bool) -> StatementTable:
        read.append(path)
        return read_table(path, follow=follow)

    monkeypatch.setattr("parley._node.trust.petnames.read_table", counted)
    petnames, statements = Petnames(known.path, path), KeyStatements(path)
    known.add(old.node_id, "carol", NOW)
    statements.apply(create_succession(recovery, new).encoded)
    for _ in range(3):
        assert petnames.of(new.node_id) == "carol"
        known.add(Identity.create().node_id, None, NOW)
    assert len(read) == 1
    statements.decide(old.node_id, None)
    assert petnames.of(new.node_id) is None
    assert len(read) == 2
