"""`parley peers apply`, `accept`, `refuse`, `show` and `forget`: ended node IDs and successors."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley._crypto.identity import Identity, NodeId
from parley._crypto.keyfile import save_identity
from parley._crypto.statements import Statement, create_revocation, create_succession
from parley._node.cli.ended_ids import apply
from parley._node.errors import ParleyError
from parley._node.node import Node
from parley._node.trust.key_statements import KeyStatements, read_table
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.statement_file import save_statement
from parley._node.trust.statement_table import IdsOnRecord
from parley._node.trust.words import fingerprint
from tests.node.cli.conftest import Parley, said
from tests.node.cli.processes import Finished, Processes
from tests.node.cli.terminals import at_terminal

NOW = datetime(2027, 1, 1, tzinfo=UTC)
PLACE = "tcp://127.0.0.1:7000"


class Bob:
    """A known peer with a recovery key, and two identities that could succeed it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.old, self.recovery = Identity.create_recoverable()
        self.new, self.new_recovery = Identity.create_recoverable()
        self.other, _ = Identity.create_recoverable()
        self.known = KnownPeers(directory / "home" / "known_peers")
        self.known.add(self.old.node_id, PLACE, NOW)
        self.known.add(self.old.node_id, "bob", NOW)
        self.stored = directory / "home" / "key_statements"

    @property
    def id(self) -> NodeId:
        """The ID that ends."""
        return self.old.node_id

    def succession(self, successor: Identity | None = None) -> str:
        """Write a succession by the recovery key; return the path."""
        return self.saved(create_succession(self.recovery, successor or self.new, made_ms=0))

    def revocation(self) -> str:
        """Write a revocation; return the path."""
        return self.saved(create_revocation(self.old))

    def saved(self, statement: Statement) -> str:
        """Write a statement; return the path."""
        path = self.directory / f"statement-{len(list(self.directory.glob('statement-*')))}"
        save_statement(path, statement)
        return str(path)


@pytest.fixture
def bob(tmp_path: Path) -> Bob:
    """A known peer of this name."""
    return Bob(tmp_path)


def test_apply_a_succession(parley: Parley, bob: Bob) -> None:
    done = parley("peers", "apply", bob.succession(), "--yes")
    new = bob.new.node_id
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"ends        {bob.id} (bob)",
        f"words       {fingerprint(bob.id)}",
        f"successor   {new}",
        f"words       {fingerprint(new)}",
        "signed by   its recovery key",
        "made        1970-01-01T00:00:00.000Z, as the signer claims",
        f"stored in   {bob.stored}",
        f"now         its recovery key named the successor {new} (bob)",
        "to do       to give it the rights of the old ID (members, carry, bus.allow, roles, "
        f"allow=), run: parley peers accept {bob.id}",
    ]
    table = read_table(bob.stored)
    assert (table.current(bob.id), table.granted(bob.id)) == (new, None)
    assert bob.stored.stat().st_mode & 0o777 == 0o600
    again = parley("peers", "apply", bob.succession())  # nothing to ask
    assert (again.code, "(before; nothing has changed)" in again.out) == (0, True)


def test_apply_as_json(parley: Parley, bob: Bob) -> None:
    path = bob.succession()
    done = parley("peers", "apply", path, "--yes", "--json")
    fields = {
        "kind": "succession",
        "origin": str(bob.id),
        "origin_words": fingerprint(bob.id),
        "successor": str(bob.new.node_id),
        "successor_words": fingerprint(bob.new.node_id),
        "by_recovery": True,
        "made_ms": 0,
        "petname": "bob",
    }
    assert done.lines == [
        {"event": "statement", **fields},
        {
            "event": "done",
            "path": path,
            **fields,
            "stored": True,
            "outcome": "followed",
            "current": str(bob.new.node_id),
            "granted": None,
            "mend": "",
            "key_statements": str(bob.stored),
        },
    ]
    again = parley("peers", "apply", path, "--json").last
    assert (again["stored"], again["outcome"]) == (False, "followed")


def test_apply_a_revocation_of_an_id_that_is_not_on_record(parley: Parley, bob: Bob) -> None:
    identity = Identity.create()
    done = parley("peers", "apply", bob.saved(create_revocation(identity)), "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"ends        {identity.node_id}\n")
    assert "signed by   its primary key\n" in done.out
    assert done.out.endswith("now         it was revoked, and no node takes its place\n")
    assert read_table(bob.stored).has_ended(identity.node_id)


def test_apply_does_not_store_what_nobody_has_confirmed(parley: Parley, bob: Bob) -> None:
    path = bob.succession()
    for options in ([], ["--json"]):
        done = parley("peers", "apply", path, *options)
        assert done.code == 2
        assert str(bob.id) in done.out
        text = done.err or done.last["text"]
        assert f"cannot apply the statement '{path}': there is no terminal to ask at" in text
        assert "give --yes" in text
        assert not bob.stored.exists()


def test_apply_what_is_not_valid(parley: Parley, bob: Bob, tmp_path: Path) -> None:
    encoded = bytearray(create_revocation(bob.old).encoded)
    encoded[-1] ^= 1  # of the signature
    for path, text in (
        (str(tmp_path / "missing"), "cannot read the statement file"),
        (str(bob.known.path), "does not begin with the line 'parley1 statement'"),
        (bob.saved(Statement.parse(bytes(encoded))), "the signature does not verify"),
    ):
        done = parley("peers", "apply", path, "--yes")
        assert (done.code, done.out) == (6, "")
        assert text in done.err
        assert path in done.err
    assert not bob.stored.exists()


@pytest.mark.parametrize("answer", ["yes\n", "no\n"])
def test_apply_asks_at_a_terminal(bob: Bob, answer: str) -> None:
    path = Path(bob.succession())
    with at_terminal() as terminal, terminal.answering(answer):
        if answer == "yes\n":
            apply(path, yes=False, config=None, as_json=False)
        else:
            with pytest.raises(ParleyError, match="you declined"):
                apply(path, yes=False, config=None, as_json=False)
    # Also the node IDs, because standard output is not a terminal here.
    for shown in (
        f"ends        {bob.id} (bob)",
        fingerprint(bob.id),
        f"successor   {bob.new.node_id}",
        fingerprint(bob.new.node_id),
        "signed by   its recovery key",
        "Compare the words of the successor with bob over another channel.",
    ):
        assert shown in terminal.seen
    assert bob.stored.exists() == (answer == "yes\n")


@pytest.mark.parametrize(
    ("stored", "given", "text"),
    [
        ([], "revocation", "The ID ends: its sessions close, and no node takes its place."),
        (["succession"], "revocation", "The ID ends; its recovery key named the successor"),
        (["other"], "succession", "The old ID ends: two successors claim to be bob, and none"),
        (["refused"], "succession", "The ID ends; you refused its successors"),
    ],
)
def test_the_question_says_what_follows(
    parley: Parley, bob: Bob, stored: list[str], given: str, text: str
) -> None:
    files = {
        "revocation": bob.revocation(),
        "succession": bob.succession(),
        "other": bob.succession(bob.other),
    }
    for one in stored:
        file = files.get(one, files["revocation"])
        assert parley("peers", "apply", file, "--yes").code == 0
        if one == "refused":
            assert parley("peers", "refuse", "bob").code == 0
    path = Path(files[given])
    with (
        at_terminal() as terminal,
        terminal.answering("no\n"),
        pytest.raises(ParleyError, match="you declined"),
    ):
        apply(path, yes=False, config=None, as_json=False)
    assert text in terminal.seen


def test_a_succession_by_the_primary_key_is_a_question(parley: Parley, bob: Bob) -> None:
    carol, next_carol = Identity.create(), Identity.create()
    bob.known.add(carol.node_id, "carol", NOW)
    path = bob.saved(create_succession(carol, next_carol))
    with at_terminal() as terminal, terminal.answering("yes\n"):
        apply(Path(path), yes=False, config=None, as_json=False)
    assert "A thief of its primary key could also have signed this" in terminal.seen
    assert read_table(bob.stored).current(carol.node_id) is None
    shown = parley("peers", "show")
    assert "now         a statement names a successor of carol, which you have not" in shown.out
    assert f"then run: parley peers accept {carol.node_id}\n" in shown.out
    assert "compare the words with carol over another channel" in shown.out
    done = parley("peers", "accept", "carol")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[:5] == [
        f"accepted    {next_carol.node_id} (carol)",
        f"words       {fingerprint(next_carol.node_id)}",
        f"in place of {carol.node_id} (carol)",
        f"words       {fingerprint(carol.node_id)}",
        "signed by   its primary key",
    ]
    assert read_table(bob.stored).granted(carol.node_id) == next_carol.node_id


def test_a_question_about_an_id_without_a_name(parley: Parley, bob: Bob) -> None:
    path = bob.saved(create_succession(Identity.create(), Identity.create()))
    done = parley("peers", "apply", path, "--yes")
    assert (done.code, done.err) == (0, "")
    assert "to do       compare the words with its owner over another channel" in done.out


def test_a_server_that_asks_about_each_successor(
    parley: Parley, bob: Bob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "parley.toml"
    config.write_text('serve.successions = "ask"')
    options = ("--config", str(config))
    done = parley("peers", "apply", bob.succession(), "--yes", *options)
    assert "now         a statement names a successor of bob, which you have not" in done.out
    assert f"then run: parley peers accept {bob.id}\n" in done.out
    assert parley("peers", "show", "--json", *options).last["questions"] == 1
    assert parley("peers", "show", "--json").last["questions"] == 0
    monkeypatch.setenv("PARLEY_SERVE_SUCCESSIONS", "ask")
    assert parley("peers", "show", "--json").last["questions"] == 1
    assert parley("peers", "accept", "bob").code == 0
    assert parley("peers", "show", "--json").last["questions"] == 0


@pytest.mark.parametrize("who", ["bob", PLACE, "id", "prefix", "short"])
def test_a_conflict_is_decided_by_a_person(parley: Parley, bob: Bob, who: str) -> None:
    who = {"id": str(bob.id), "prefix": bob.id.text[:4], "short": bob.id.short}.get(who, who)
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    done = parley("peers", "apply", bob.succession(bob.other), "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-2:] == [
        "now         two successors claim to be bob",
        f"to do       ask bob which is right, then run: parley peers accept {bob.id} --as ID",
    ]
    refused = parley("peers", "accept", who)
    assert (refused.code, refused.out) == (2, "")
    assert "two are stored; ask bob which is right, then give --as" in refused.err
    other = bob.other.node_id
    for wrong in (str(bob.id), "no-id", other.short, other.text[:-1], "bob", ""):
        done = parley("peers", "accept", who, "--as", wrong)
        assert (done.code, done.out) == (2, "")
        assert f"as the successor of {bob.id} (bob): give the whole node ID" in done.err
    assert read_table(bob.stored).current(bob.id) is None
    done = parley("peers", "accept", who, "--as", str(other))
    assert (done.code, done.err) == (0, "")
    assert read_table(bob.stored).granted(bob.id) == bob.other.node_id
    assert done.out.splitlines() == [
        f"accepted    {bob.other.node_id} (bob)",
        f"words       {fingerprint(bob.other.node_id)}",
        f"in place of {bob.id} (bob)",
        f"words       {fingerprint(bob.id)}",
        "signed by   its recovery key",
        "            it also has the rights that were granted to the old ID",
    ]


def test_three_successors_are_not_called_two(parley: Parley, bob: Bob) -> None:
    third, _ = Identity.create_recoverable()
    for successor in (bob.new, bob.other, third):
        assert parley("peers", "apply", bob.succession(successor), "--yes").code == 0
    done = parley("peers", "show")
    assert "now         three successors claim to be bob\n" in done.out
    done = parley("peers", "accept", "bob")
    assert "three are stored; ask bob which is right" in done.err
    assert done.err.count(" or ") == 2


def test_a_name_must_not_mean_another_peer(parley: Parley, bob: Bob) -> None:
    """A thief can create an ID that begins like the name or the ID of another peer."""
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    carol = Identity.create()
    bob.known.add(carol.node_id, bob.id.text[:4], NOW)
    done = parley("peers", "accept", bob.id.text[:4])
    assert (done.code, done.out) == (2, "")
    assert f"it matches {bob.id} (bob), {carol.node_id} ({bob.id.text[:4]})" in done.err
    assert not read_table(bob.stored).decisions


def test_a_decision_can_be_changed(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    done = parley("peers", "refuse", "bob")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"refused     every successor of {bob.id} (bob)",
        f"words       {fingerprint(bob.id)}",
        "            the ID stays ended, and no node takes its place",
        f"to undo     parley peers accept {bob.id} --as ID",
    ]
    assert read_table(bob.stored).current(bob.id) is None
    line = parley("peers", "accept", "bob", "--json").last
    assert line == {
        "event": "done",
        "origin": str(bob.id),
        "origin_words": fingerprint(bob.id),
        "successor": str(bob.new.node_id),
        "successor_words": fingerprint(bob.new.node_id),
        "outcome": "accepted",
        "current": str(bob.new.node_id),
        "granted": str(bob.new.node_id),
        "mend": "",
        "petname": "bob",
        "key_statements": str(bob.stored),
    }
    line = parley("peers", "accept", "bob", "--as", "none", "--json").last
    assert (line["successor"], line["outcome"], line["current"]) == (None, "refused", None)
    shown = parley("peers", "show", "--json")
    (decision,) = said(shown, "decision")
    assert (decision["origin"], decision["successor"]) == (str(bob.id), None)


def test_what_cannot_be_decided(parley: Parley, bob: Bob) -> None:
    done = parley("peers", "accept", "bob")
    assert (done.code, done.out) == (2, "")
    assert f"cannot choose a successor of {bob.id}" in done.err
    assert "the ID has not ended" in done.err
    done = parley("peers", "refuse", "eve")
    assert done.code == 2
    assert "cannot find an ended node ID by 'eve'" in done.err
    assert parley("peers", "apply", bob.revocation(), "--yes").code == 0
    done = parley("peers", "accept", "bob")
    assert done.code == 2
    assert "no stored statement names one" in done.err
    assert not read_table(bob.stored).decisions


def test_an_accepted_successor_that_has_ended_too(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    later, _ = Identity.create_recoverable()
    path = bob.saved(create_succession(bob.new_recovery, later))
    assert parley("peers", "apply", path, "--yes").code == 0
    done = parley("peers", "accept", "bob")
    assert f"it has ended too: its recovery key named the successor {later.node_id}" in done.out
    table = read_table(bob.stored)
    assert (table.current(bob.id), table.granted(bob.id)) == (later.node_id, None)


def test_show_nothing(parley: Parley, bob: Bob) -> None:
    done = parley("peers", "show")
    assert done == (0, f"no node ID has ended in {bob.stored}\n", "")
    assert parley("peers", "show", "--json").lines == [
        {
            "event": "done",
            "count": 0,
            "questions": 0,
            "conflicts": 0,
            "rules": 0,
            "key_statements": str(bob.stored),
        }
    ]


def test_show(parley: Parley, bob: Bob) -> None:
    store, records = KeyStatements(bob.stored), IdsOnRecord(lambda _: True, lambda _: False)
    for statement in (create_succession(bob.recovery, bob.new), create_revocation(bob.old)):
        store.offer(statement.encoded, records, NOW)
    new, time = bob.new.node_id, "2027-01-01T00:00:00Z"
    done = parley("peers", "show")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{bob.id} (bob) has ended",
        f"words       {fingerprint(bob.id)}",
        f"statement   names {new}, signed by its recovery key, stored {time}",
        f"words       {fingerprint(new)}",
        f"statement   ends it, signed by its primary key, stored {time}",
        f"now         its recovery key named the successor {new} (bob)",
        f"rule        known peers '{bob.known.path}': {PLACE}, bob: its successor {new} (bob) "
        "takes its place",
        "",
    ]
    done = parley("peers", "show", "--json")
    (ended,), statements, (rule,) = (said(done, kind) for kind in ("ended", "statement", "rule"))
    assert ended == {
        "event": "ended",
        "node_id": str(bob.id),
        "words": fingerprint(bob.id),
        "outcome": "followed",
        "current": str(new),
        "granted": None,
        "mend": "",
        "petname": "bob",
    }
    assert [(one["kind"], one["time"]) for one in statements] == [
        ("succession", time),
        ("revocation", time),
    ]
    assert (rule["node_id"], rule["applies"], rule["mend"]) == (str(bob.id), True, "")
    assert (done.last["count"], done.last["questions"], done.last["rules"]) == (1, 0, 1)


def named(done: Finished) -> dict[str, bool]:
    """Return the places of the rules that name an ended ID, and whether they apply."""
    return {line["place"]: line["applies"] for line in said(done, "rule")}


def test_show_the_rules_that_name_an_ended_id(
    parley: Parley, bob: Bob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parley("context", "add", "home", f"{PLACE}#{bob.id}").code == 0
    assert (
        parley("context", "add", "away", f"via://127.0.0.1:1/{bob.id}#{bob.other.node_id}").code
        == 0
    )
    assert parley("context", "add", "else", f"{PLACE}#{bob.other.node_id}").code == 0
    accounts = KnownPeers(tmp_path / "home" / "accounts")
    accounts.add(bob.id, None, NOW)
    friends = KnownPeers(tmp_path / "friends.txt")
    friends.add(bob.id, None, NOW)
    (tmp_path / "roles").write_text(f"{bob.id} writer\n{bob.other.node_id} reader\n")
    forward, link = f"news={PLACE}#{bob.id}", f"{PLACE}#{bob.id}"
    right, topic = f"{bob.id}=publish:shop.*", f"news@{bob.other.node_id}/{bob.id}"
    (tmp_path / "parley.toml").write_text(
        f"""
        serve.trust = "./friends.txt"
        serve.roles = "roles"
        serve.forward = ["{forward}"]
        federation.links = ["{link}"]
        federation.members = ["{bob.id}", "{bob.other.node_id}"]
        federation.carry = ["{bob.id}"]
        federation.accounts = ["{bob.id}"]
        federation.follow = ["{topic}", "prices", "other@{bob.other.node_id}"]
        bus.allow = ["{right}", "*=inspect:*"]
        """
    )
    show = ("peers", "show", "--json", "--config", "parley.toml")
    assert named(parley(*show)) == {}
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    followed = [
        f"known peers '{bob.known.path}': {PLACE}, bob",
        f"known peers '{friends.path}': -",
        f"accounts '{accounts.path}': -",
        "context home",
        "context away",
        f"serve.forward {forward}",
        "federation.accounts",
        f"federation.follow {topic}",
    ]
    granted = [
        f"federation.links {link}",
        "federation.members",
        "federation.carry",
        f"bus.allow {right}",
        f"roles '{tmp_path / 'roles'}': writer",
    ]
    done = parley(*show)
    assert named(done) == {**dict.fromkeys(followed, True), **dict.fromkeys(granted, False)}
    rule = said(done, "rule")[-1]
    assert rule["text"] == (
        f"its successor {bob.new.node_id} does not take its place until you accept it"
    )
    assert rule["mend"] == f"to grant it the same, run: parley peers accept {bob.id}"
    assert f"to do       {rule['mend']}\n" in parley(*show[:2], *show[3:]).out
    assert parley("peers", "accept", "bob").code == 0
    assert named(parley(*show)) == dict.fromkeys([*followed, *granted], True)
    assert parley("peers", "refuse", "bob").code == 0
    done = parley(*show)
    assert named(done) == dict.fromkeys([*followed, *granted], False)
    assert said(done, "rule")[0]["mend"] == "remove it, or replace it by another node ID"


def test_rules_of_a_conflict_later_on(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    for _ in range(2):
        later, _ = Identity.create_recoverable()
        path = bob.saved(create_succession(bob.new_recovery, later))
        assert parley("peers", "apply", path, "--yes").code == 0
    done = parley("peers", "show", "--json")
    (rule,) = said(done, "rule")
    assert not rule["applies"]
    new = bob.new.node_id
    assert rule["mend"] == (f"ask bob which is right, then run: parley peers accept {new} --as ID")
    assert (done.last["count"], done.last["conflicts"]) == (2, 1)
    assert "which has ended too" in parley("peers", "show").out


def test_forget_the_successor(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    new = bob.new.node_id
    done = parley("peers", "forget", new.short, "--json")
    assert done.lines == [
        {
            "event": "done",
            "node_id": str(new),
            "names": [PLACE, "bob"],
            "first_seen": "2027-01-01T00:00:00Z",
            "words": fingerprint(new),
            "predecessors": [str(bob.id)],
            "known_peers": str(bob.known.path),
        }
    ]
    assert len(bob.known) == 0
    assert read_table(bob.stored).has_ended(bob.id)  # forgetting never removes statements
    assert parley("peers", "forget", new.short).code == 2


def test_forget_removes_all_lines_of_a_successor(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    bob.known.add(bob.new.node_id, "robert", NOW)
    bob.known.add(bob.other.node_id, "other", NOW)
    done = parley("peers", "forget", "robert")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("forgot ") == 2
    assert f"forgot {bob.id}, known since" in done.out
    assert [peer.node_id for peer in bob.known] == [bob.other.node_id]


def test_rename_the_successor(parley: Parley, bob: Bob) -> None:
    """Its name is on the line of the ended ID, as long as it has none itself."""
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    for who, name in ((bob.new.node_id.short, "robert"), (str(bob.new.node_id), "rob")):
        done = parley("peers", "rename", who, name)
        assert done == (0, f"{bob.id} is {PLACE}, {name}\n", "")
        assert [(one.node_id, one.names) for one in bob.known] == [(bob.id, (PLACE, name))]
    bob.known.add(bob.new.node_id, "new", NOW)
    assert parley("peers", "rename", str(bob.new.node_id), "newer").code == 0
    assert [one.names for one in bob.known] == [(PLACE, "rob"), ("newer",)]


def test_forget_an_ended_id_alone(parley: Parley, bob: Bob) -> None:
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    bob.known.add(bob.new.node_id, "robert", NOW)
    assert parley("peers", "forget", "bob").code == 0
    assert [peer.node_id for peer in bob.known] == [bob.new.node_id]


def test_a_broken_file_of_statements(parley: Parley, bob: Bob) -> None:
    bob.stored.write_text("nonsense\n")
    for command in (
        ["apply", bob.succession(), "--yes"],
        ["accept", "bob"],
        ["refuse", "bob"],
        ["show"],
        ["forget", "bob"],
        ["rename", "bob", "robert"],
    ):
        done = parley("peers", *command)
        assert done.code == 6, command
        assert f"{bob.stored}, line 1" in done.err
    assert len(bob.known) == 1
    assert bob.stored.read_text() == "nonsense\n"


def test_a_server_follows_what_is_applied(
    processes: Processes, parley: Parley, bob: Bob, tmp_path: Path
) -> None:
    """The old key is refused, its successor accepted, and the dialled address followed."""
    for name, identity in (("old", bob.old), ("new", bob.new)):
        save_identity(tmp_path / name, identity)
    _, (address,) = processes.serve("--trust", "known")
    info = ("call", address, "parley.info", "--json", "--identity")
    assert parley(*info, str(tmp_path / "old")).code == 0
    assert parley(*info, str(tmp_path / "new")).code == 4
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    assert parley(*info, str(tmp_path / "old")).code == 4
    assert parley(*info, str(tmp_path / "new")).code == 0


def test_a_context_follows_the_successor(
    processes: Processes, parley: Parley, bob: Bob, tmp_path: Path
) -> None:
    """A context with the old ID leads to the new one, and to none after a revocation."""
    save_identity(tmp_path / "new", bob.new)
    _, (address,) = processes.serve("--identity", str(tmp_path / "new"))
    place = address.partition("#")[0]
    assert parley("context", "add", "work", f"{place}#{bob.id}").code == 0
    refused = parley("ping", "@work", "--count", "1")
    assert refused.code == 4
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    done = parley("ping", "@work", "--count", "1", "--json")
    assert done.code == 0
    assert said(done, "connected")[0]["node_id"] == str(bob.new.node_id)
    assert parley("peers", "apply", bob.saved(create_revocation(bob.new)), "--yes").code == 0
    ended = parley("ping", "@work", "--count", "1")
    assert ended.code == 4
    assert f"the node ID {bob.id}" in ended.err


def test_a_server_that_asks_and_the_commands_agree(
    processes: Processes, parley: Parley, bob: Bob, tmp_path: Path
) -> None:
    """A successor counts for both only after a person has accepted it."""
    for name, identity in (("old", bob.old), ("new", bob.new)):
        save_identity(tmp_path / name, identity)
    config, new = tmp_path / "parley.toml", bob.new.node_id
    config.write_text('serve.successions = "ask"')
    asks = ("--config", str(config))
    server, (address,) = processes.serve("--trust", "known", "--log-level", "info", *asks)

    def exit_code(key: str) -> int:
        return parley("call", address, "parley.info", "--identity", str(tmp_path / key)).code

    def shown() -> tuple[object, ...]:
        (ended,) = said(parley("peers", "show", "--json", *asks), "ended")
        return ended["outcome"], ended["current"]

    done = parley("peers", "apply", bob.succession(), "--yes", "--json", *asks)
    assert (done.last["outcome"], done.last["current"]) == ("question", None)
    assert (exit_code("old"), exit_code("new")) == (4, 4)
    assert shown() == ("question", None)
    refused = parley("peers", "forget", new.short, *asks)
    assert (refused.code, len(bob.known)) == (2, 1)
    done = parley("peers", "accept", "bob", "--json", *asks)
    assert (done.last["outcome"], done.last["current"]) == ("accepted", str(new))
    assert exit_code("new") == 0
    assert shown() == ("accepted", str(new))
    done = parley("peers", "refuse", "bob", "--json", *asks)
    assert (done.last["outcome"], done.last["current"]) == ("refused", None)
    assert exit_code("new") == 4
    assert parley("peers", "accept", "bob", *asks).code == 0
    assert exit_code("new") == 0
    done = parley("peers", "forget", new.short, "--json", *asks)
    assert done.last["predecessors"] == [str(bob.id)]
    assert exit_code("new") == 4
    # The log of the server gives the name of the old ID to an accepted successor only.
    lines = [line for line in server.stop().err.splitlines() if new.short in line]
    assert f"{new} (bob)" not in lines[0]
    assert any(f"{new.short} (bob)" in line or f"{new} (bob)" in line for line in lines)


@pytest.mark.anyio
async def test_a_server_learns_of_a_known_peer_under_every_policy(
    processes: Processes, parley: Parley, bob: Bob
) -> None:
    """Another program that reads the file of known peers then refuses the old ID too."""
    _, (address,) = processes.serve("--trust", "any")
    eve, eve_recovery = Identity.create_recoverable()
    next_eve, _ = Identity.create_recoverable()
    for statement, identity in (
        (create_succession(bob.recovery, bob.new), bob.new),
        (create_succession(eve_recovery, next_eve), next_eve),
    ):
        statements = KeyStatements()
        statements.apply(statement.encoded)
        async with Node(identity, statements=statements) as node:
            peer = await node.connect(address)
            await peer.close()
    table = read_table(bob.stored)
    assert list(table.origins) == [bob.id]
    assert table.current(bob.id) == bob.new.node_id
    known = parley("peers", "forget", bob.new.node_id.short, "--json").last
    assert known["predecessors"] == [str(bob.id)]
    assert eve.node_id not in table.origins


def test_petnames_of_a_server_that_asks(parley: Parley, bob: Bob, tmp_path: Path) -> None:
    config, new = tmp_path / "parley.toml", bob.new.node_id
    config.write_text('serve.successions = "ask"')
    asks = ("--config", str(config))
    assert parley("peers", "apply", bob.succession(), "--yes", *asks).code == 0
    bob.known.add(new, None, NOW)

    def petnames(*options: str) -> set[object]:
        lines = said(parley("peers", "list", "--json", *options), "peer")
        return {line.get("petname") for line in lines if line["node_id"] == str(new)}

    assert petnames(*asks) == {None}
    assert petnames() == {"bob"}
    done = parley("peers", "accept", "bob", "--as", bob.other.node_id.short)
    assert f"the stored statements name: {new}\n" in done.err  # not: bob
    assert parley("peers", "accept", "bob", *asks).code == 0
    assert petnames(*asks) == {"bob"}
    done = parley("peers", "accept", "bob", "--as", bob.other.node_id.short)
    assert f"the stored statements name: {new} (bob)\n" in done.err


def test_dial_an_ended_id(processes: Processes, parley: Parley, bob: Bob, tmp_path: Path) -> None:
    save_identity(tmp_path / "new", bob.new)
    _, (address,) = processes.serve("--identity", str(tmp_path / "new"))
    place = address.partition("#")[0]
    assert parley("peers", "apply", bob.revocation(), "--yes").code == 0
    old = f"{place}#{bob.id}"
    done = parley("ping", old, "--count", "1", "--json")
    assert (done.code, done.last["name"]) == (4, "authentication-failed")
    assert done.last["old_node_id"] == str(bob.id)
    assert "new_node_id" not in done.last
    done = parley("ping", old, "--count", "1")
    assert done.err == (
        f"parley: the node ID {bob.id} (bob) has ended: it was revoked, and no node takes its "
        "place\n"
    )
    carol, dave = Identity.create(), Identity.create()
    path = bob.saved(create_succession(carol, dave))
    assert parley("peers", "apply", path, "--yes").code == 0
    dial = ("ping", f"{place}#{carol.node_id}", "--count", "1")
    question = (
        f"its primary key, which a thief may have, named the successor {dave.node_id} "
        f"({fingerprint(dave.node_id)}); "
        "compare the words with {} over another channel, then run: "
        f"parley peers accept {carol.node_id}\n"
    )
    assert parley(*dial).err.endswith(f"has ended: {question.format('its owner')}")
    bob.known.add(carol.node_id, "carol", NOW)
    assert parley(*dial).err.endswith(f"(carol) has ended: {question.format('carol')}")
    error = parley(*dial, "--json").last
    assert (error["petname"], "with carol over" in error["text"]) == ("carol", True)
    assert parley("peers", "refuse", "carol").code == 0
    assert "has ended: you refused its successors" in parley(*dial).err
    assert parley("peers", "apply", bob.succession(), "--yes").code == 0
    remark = (
        f"the node ID {bob.id} (bob) has ended: connected to its successor {bob.new.node_id} "
        "(bob)\n"
    )
    for command in (("ping", old, "--count", "1"), ("call", old, "parley.echo", "hello")):
        assert parley(*command)[::2] == (0, remark)
        assert parley(*command, "--json")[::2] == (0, "")
    named = parley("ping", "@bob", "--count", "1")
    assert named.code != 0  # the address of bob is not there
    bob.known.rename(bob.id, place, "bob")
    done = parley("ping", "@bob", "--count", "1")
    assert done.code == 0
    assert f"{bob.new.node_id} (bob): " in done.out


@pytest.mark.parametrize("stored", ["question", "conflict", "refused", "revoked", "followed"])
def test_dial_the_address_of_an_ended_id(
    processes: Processes, parley: Parley, bob: Bob, tmp_path: Path, stored: str
) -> None:
    """The advice never is to forget the old ID, which would give its address to another node."""
    carol, dave = Identity.create(), Identity.create()
    save_identity(tmp_path / "dave", dave)
    _, (address,) = processes.serve("--identity", str(tmp_path / "dave"))
    place, ended = address.partition("#")[0], bob.id
    bob.known.rename(bob.id, place, "bob")
    match stored:
        case "question":
            bob.known.rename(bob.id, "bob")
            bob.known.add(carol.node_id, place, NOW)
            paths, ended = [bob.saved(create_succession(carol, dave))], carol.node_id
        case "conflict":
            paths = [bob.succession(), bob.succession(bob.other)]
        case "revoked":
            paths = [bob.revocation()]
        case _:
            paths = [bob.succession()]
    for path in paths:
        assert parley("peers", "apply", path, "--yes").code == 0
    if stored == "refused":
        assert parley("peers", "refuse", "bob").code == 0
    done = parley("call", place, "parley.info")
    assert (done.code, done.out) == (4, "")
    text, advice = {
        "question": (fingerprint(dave.node_id), f"run: parley peers accept {ended}"),
        "conflict": (fingerprint(bob.other.node_id), f"accept {ended} --as ID"),
        "refused": ("you refused its successors", "run: parley peers show"),
        "revoked": ("it was revoked", "run: parley peers show"),
        "followed": (f"its successor is {bob.new.node_id}", "run: parley peers show"),
    }[stored]
    assert done.err.startswith(f"parley: the node at {place} is {dave.node_id}")
    assert text in done.err
    assert done.err.endswith(f"{advice}\n")
    assert "forget" not in done.err
    error = parley("call", place, "parley.info", "--json").last
    assert error["old_node_id"] == str(ended)
    assert "mend" not in error
    assert error.get("petname") == (None if stored == "question" else "bob")


def test_no_log_lines_repeat_what_a_command_prints(bob: Bob, processes: Processes) -> None:
    done = processes.run("peers", "apply", bob.succession(), "--yes")
    assert (done.code, done.err) == (0, "")
    assert processes.run("peers", "accept", "bob").err == ""
    assert os.listdir(bob.directory / "home")
