"""`parley doctor`: the user's key, ended node IDs, and the rules that name them."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import PassphraseCost, save_identity
from parley._crypto.statements import create_revocation, create_succession
from parley._node.cli.doctor.diagnosis import Diagnosis, Level
from parley._node.cli.doctor.identity_checks import (
    MOST_ENDED,
    check_ended_ids,
    check_own_id,
    check_own_key,
)
from parley._node.cli.doctor.settings_checks import findings
from parley._node.cli.options import NodeOptions
from parley._node.errors import KeyStatementsError
from parley._node.settings import FederationSettings, ServeSettings, Settings
from parley._node.trust.key_statements import KeyStatements, default_key_statements
from parley._node.trust.known_peers import KnownPeers, default_known_peers
from tests.node.cli.conftest import Parley, said

NOW = datetime(2027, 1, 1, tzinfo=UTC)
SETTINGS = Settings()
ASKING = Settings(serve=ServeSettings(successions="ask"))


@pytest.fixture
def statements() -> KeyStatements:
    """The file that commands use."""
    return KeyStatements(default_key_statements())


def key_file(tmp_path: Path, identity: Identity) -> NodeOptions:
    """Save an identity; return options that name it."""
    save_identity(tmp_path / "key", identity)
    return NodeOptions(identity_path=tmp_path / "key")


def test_a_key_with_and_without_a_recovery_key(tmp_path: Path) -> None:
    assert list(check_own_key(NodeOptions(), SETTINGS)) == []  # no key yet
    (found,) = check_own_key(key_file(tmp_path, Identity.create()), SETTINGS)
    assert (found.level, found.subject) == (Level.NOTE, f"key {tmp_path / 'key'}")
    assert "it has no recovery key" in found.text
    assert "parley id new KEY --recovery FILE" in found.mend
    (tmp_path / "key").unlink()
    (found,) = check_own_key(key_file(tmp_path, Identity.create_recoverable()[0]), SETTINGS)
    assert found.level is Level.OK


def test_a_key_that_cannot_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "key"
    save_identity(path, Identity.create(), b"secret", cost=PassphraseCost(passes=1, memory_kib=8))
    (found,) = check_own_key(NodeOptions(identity_path=path), SETTINGS)
    assert (found.level, found.subject) == (Level.NOTE, "key")
    assert "it was not checked: " in found.text


def test_the_own_id_has_ended(tmp_path: Path, statements: KeyStatements) -> None:
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    assert list(check_own_id(old.node_id, SETTINGS)) == []
    statements.apply(create_revocation(old).encoded)
    (_, found) = check_own_key(key_file(tmp_path, old), SETTINGS)
    assert (found.level, found.subject) == (Level.PROBLEM, "node ID")
    assert f"the own node ID {old.node_id} has ended" in found.text
    statements.apply(create_succession(recovery, new).encoded)
    (found,) = check_own_id(old.node_id, SETTINGS)
    assert found.mend == f"use the key of its successor {new.node_id}"
    (found,) = check_own_id(old.node_id, ASKING)
    assert found.mend.endswith(f"then run: parley peers accept {old.node_id}")
    statements.decide(old.node_id, new.node_id)
    (found,) = check_own_id(old.node_id, ASKING)
    assert found.mend == f"use the key of its successor {new.node_id}"


def levels(settings: Settings = SETTINGS) -> dict[str, Level]:
    return {found.subject: found.level for found in check_ended_ids(settings)}


def test_nothing_has_ended() -> None:
    assert list(check_ended_ids(SETTINGS)) == [
        Diagnosis(Level.OK, "key statements", "no node ID has ended")
    ]


def test_an_unreadable_file(statements: KeyStatements) -> None:
    default_key_statements().parent.mkdir(mode=0o700)
    default_key_statements().write_text("nonsense\n")
    (found,) = check_ended_ids(SETTINGS)
    assert (found.level, found.subject) == (Level.PROBLEM, "key statements")
    assert "line 1" in found.text
    assert list(check_own_id(Identity.create().node_id, SETTINGS)) == []


def test_questions_conflicts_and_rules(statements: KeyStatements) -> None:
    known = KnownPeers(default_known_peers())
    (bob, bob_recovery), (carol, carol_recovery) = (Identity.create_recoverable() for _ in range(2))
    heirs = [Identity.create_recoverable()[0] for _ in range(3)]
    dave, next_dave = Identity.create(), Identity.create()
    for name, identity in (("bob", bob), ("carol", carol), ("dave", dave)):
        known.add(identity.node_id, name, NOW)
    for statement in (
        create_succession(bob_recovery, heirs[0]),
        create_succession(carol_recovery, heirs[1]),
        create_succession(carol_recovery, heirs[2]),
        create_succession(dave, next_dave),
    ):
        statements.apply(statement.encoded)
    settings = Settings(federation=FederationSettings(members=(str(bob.node_id),)))
    place = f"known peers '{known.path}': "
    assert levels(settings) == {
        f"ended {carol.node_id} (carol)": Level.PROBLEM,
        f"ended {dave.node_id} (dave)": Level.NOTE,
        f"ended {bob.node_id} (bob)": Level.OK,
        f"{place}bob": Level.OK,
        f"{place}carol": Level.WEAK,
        f"{place}dave": Level.WEAK,
        "federation.members": Level.WEAK,
    }
    found = {one.subject: one for one in check_ended_ids(settings)}
    assert found["federation.members"].mend == (
        f"to grant it the same, run: parley peers accept {bob.node_id}"
    )
    assert "two successors claim to be carol" in found[f"ended {carol.node_id} (carol)"].text
    # A server's console shows the same.
    found_there = findings(settings, bob.node_id, statements)
    shown = {one["subject"]: one["level"] for one in found_there}
    assert shown.items() >= levels(settings).items()
    assert shown["node ID"] == "problem"
    known.path.write_text("nonsense\n")
    assert levels(settings)["key statements"] == Level.NOTE


def test_a_console_shows_the_ended_ids_of_its_node(tmp_path: Path) -> None:
    """They can be in another file than that of commands, or in memory only."""
    (own, _), (bob, _) = (Identity.create_recoverable() for _ in range(2))
    for path in (tmp_path / "own_statements", None):
        statements = KeyStatements(path)
        for identity in (own, bob):
            statements.apply(create_revocation(identity).encoded)
        shown = {one["subject"]: one for one in findings(SETTINGS, own.node_id, statements)}
        assert f"ended {bob.node_id}" in shown
        assert shown["node ID"]["level"] == "problem"
        assert "key statements" not in shown
    assert not default_key_statements().exists()
    assert levels() == {"key statements": Level.OK}


def test_a_console_reports_that_its_node_cannot_read_its_statements(tmp_path: Path) -> None:
    statements = KeyStatements(tmp_path / "own_statements")
    (tmp_path / "own_statements").write_text("nonsense\n")
    with pytest.raises(KeyStatementsError):
        statements.refresh()
    shown = {one["subject"]: one for one in findings(SETTINGS, NodeId(bytes(32)), statements)}
    assert shown["key statements"]["level"] == "problem"
    assert f"{tmp_path / 'own_statements'}, line 1" in shown["key statements"]["text"]


def test_a_server_that_asks(statements: KeyStatements) -> None:
    old, recovery = Identity.create_recoverable()
    statements.apply(create_succession(recovery, Identity.create_recoverable()[0]).encoded)
    subject = f"ended {old.node_id}"
    assert levels() == {subject: Level.OK}
    assert levels(ASKING) == {subject: Level.NOTE}
    known = KnownPeers(default_known_peers())
    known.add(old.node_id, "bob", NOW)
    follow = f"news@{old.node_id}"
    federation = FederationSettings(accounts=(str(old.node_id),), follow=(follow,))
    settings = replace(ASKING, federation=federation)
    rules = {
        f"known peers '{known.path}': bob",
        "federation.accounts",
        f"federation.follow {follow}",
    }
    found = levels(settings)
    assert {found[rule] for rule in rules} == {Level.WEAK}
    found = levels(replace(settings, serve=ServeSettings()))
    assert {found[rule] for rule in rules} == {Level.OK}


def test_few_of_many_ended_ids_are_listed(statements: KeyStatements) -> None:
    for _ in range(MOST_ENDED + 2):
        statements.apply(create_revocation(Identity.create()).encoded)
    found = list(check_ended_ids(SETTINGS))
    assert len(found) == MOST_ENDED + 1
    assert found[-1].text == "2 further node IDs have ended"


@pytest.mark.process
def test_the_command_reports_them(
    parley: Parley, tmp_path: Path, statements: KeyStatements
) -> None:
    identity = Identity.create()
    save_identity(tmp_path / "key", identity)
    done = parley("doctor", "--json", "--identity", str(tmp_path / "key"))
    assert done.code == 0
    statements.apply(create_revocation(identity).encoded)
    done = parley("doctor", "--json", "--identity", str(tmp_path / "key"))
    assert done.code == 1
    found = {line["subject"]: line["level"] for line in said(done, "finding")}
    assert found["node ID"] == "problem"
    assert found[f"ended {identity.node_id}"] == "ok"
    assert found[f"key {tmp_path / 'key'}"] == "note"
    assert "# identities" in parley("doctor", "--identity", str(tmp_path / "key")).out
