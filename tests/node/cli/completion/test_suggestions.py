"""Completions of a partial word."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.registry import NAMES
from parley._crypto.statements import create_revocation
from parley._node.cli.completion import suggestions
from parley._node.cli.completion.suggestions import (
    algorithms,
    any_algorithm,
    bus_addresses,
    bus_files,
    ended_ids,
    known_addresses,
    known_names,
)
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import KnownPeers


def offered(complete: Any, incomplete: str, name: str = "word") -> list[tuple[str, str]]:
    """What a function offers for an option of this name."""
    option = click.Option([f"--{name}"])
    return list(complete(click.Context(click.Command("c")), option, incomplete))


NOW = datetime(2026, 3, 4, tzinfo=UTC)
ALICE = NodeId(b"\x01" * 32)
PLACE = "tcp://127.0.0.1:7000"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownPeers:
    monkeypatch.setenv("PARLEY_HOME", str(tmp_path))
    peers = KnownPeers(tmp_path / "known_peers")
    for name in (PLACE, "alice", "$(reboot)", "tcp://nowhere", "tcp://UPPER:1", "a;b", "a'\"b"):
        peers.add(ALICE, name, NOW)
    return peers


def test_addresses_on_record(known: KnownPeers) -> None:
    assert offered(known_addresses, "") == [(PLACE, ALICE.short)]
    assert offered(known_addresses, "tcp://127.0.0.1:7000#") == [(f"{PLACE}#{ALICE}", ALICE.short)]


def test_addresses_of_buses(
    known: KnownPeers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = [("sqlite:///", ""), ("redis://", ""), ("rediss://", ""), ("redis+unix:///", "")]
    monkeypatch.chdir(tmp_path)
    assert offered(bus_addresses, "") == [*begun, ("@alice", ALICE.short), (PLACE, ALICE.short)]
    assert offered(bus_files, "sqlite:///") == begun  # there is no bus file yet
    for name in ("bus.db", "a.db", "$(reboot).db", "notes.txt"):
        (tmp_path / name).touch()
    assert offered(bus_files, "sqlite:///b") == [("sqlite:///a.db", ""), ("sqlite:///bus.db", "")]
    assert offered(bus_files, "redis://") == begun
    monkeypatch.setattr(suggestions, "MOST_FILES", 2)
    assert offered(bus_files, "sqlite:///") == [("sqlite:///a.db", "")]  # the first two by name


def test_names_on_record_without_what_a_shell_would_run(known: KnownPeers) -> None:
    assert [name for name, _ in offered(known_names, "")] == [
        PLACE,
        "alice",
        "tcp://nowhere",
        "tcp://UPPER:1",
        str(ALICE),
    ]


def test_a_file_that_cannot_be_read_offers_nothing(known: KnownPeers) -> None:
    known.path.write_text("nonsense\n")
    assert offered(known_addresses, "") == []
    assert offered(known_names, "") == []


def test_ended_ids(known: KnownPeers, tmp_path: Path) -> None:
    assert offered(ended_ids, "") == []
    bob, eve = Identity.create(), Identity.create()
    known.add(bob.node_id, "bob", NOW)
    statements = KeyStatements(tmp_path / "key_statements")
    for identity in (bob, eve):
        statements.apply(create_revocation(identity).encoded)
    assert offered(ended_ids, "") == [
        ("bob", bob.node_id.short),
        (str(bob.node_id), "bob"),
        (str(eve.node_id), ""),
    ]
    (tmp_path / "key_statements").write_text("nonsense\n")
    assert offered(ended_ids, "") == []


@pytest.mark.parametrize("parameter", list(NAMES))
def test_every_algorithm_is_offered(parameter: str) -> None:
    names = [name for name, _ in offered(algorithms, "", parameter)]
    assert names == list(NAMES[parameter])
    assert set(names) <= {name for name, _ in offered(any_algorithm, "")}


def test_a_comma_list_goes_on_with_what_is_not_in_it() -> None:
    found = offered(algorithms, "blake3,sha256,blake2b-256,s", "hash")
    assert found == [("blake3,sha256,blake2b-256,sha512", "")]
    assert offered(algorithms, "x25519,", "kex") == [("x25519,x25519-mlkem768", "")]
