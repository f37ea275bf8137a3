"""What became of ended node IDs, and what their successors inherit."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from parley import Identity, NodeId, create_revocation, create_succession
from parley._node.trust.ended_ids import (
    Outcome,
    describe_claims,
    describe_end,
    inheritances,
    outcome_of,
)
from parley._node.trust.key_statements import KeyStatements
from parley._node.trust.known_peers import KnownPeers
from parley._node.trust.statement_table import StatementTable
from parley._node.trust.words import fingerprint

NOW = datetime(2027, 1, 1, tzinfo=UTC)


def table_of(*names: str, follow: bool = True) -> tuple[StatementTable, NodeId]:
    """Return a table with these statements and decisions about an ID, and the ID."""
    old, recovery = Identity.create_recoverable()
    (one, _), (two, _) = (Identity.create_recoverable() for _ in range(2))
    statements = KeyStatements(follow=follow)
    for name in names:
        match name:
            case "revocation":
                statements.apply(create_revocation(old).encoded)
            case "one" | "two":
                successor = one if name == "one" else two
                statements.apply(create_succession(recovery, successor).encoded)
            case "accept":
                statements.decide(old.node_id, one.node_id)
            case "refuse":
                statements.decide(old.node_id, None)
    return statements.table, old.node_id


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["revocation"], Outcome.REVOKED),
        (["one"], Outcome.FOLLOWED),
        (["revocation", "one"], Outcome.FOLLOWED),
        (["one", "two"], Outcome.CONFLICT),
        (["one", "two", "accept"], Outcome.ACCEPTED),
        (["one", "accept", "two"], Outcome.ACCEPTED),
        (["one", "refuse"], Outcome.REFUSED),
    ],
)
def test_outcomes(names: list[str], expected: Outcome) -> None:
    assert outcome_of(*table_of(*names)) is expected


def test_questions() -> None:
    assert outcome_of(*table_of("one", follow=False)) is Outcome.QUESTION
    assert outcome_of(*table_of("one", "accept", follow=False)) is Outcome.ACCEPTED
    old, new = Identity.create(), Identity.create()
    statements = KeyStatements()
    statements.apply(create_succession(old, new).encoded)
    assert outcome_of(statements.table, old.node_id) is Outcome.QUESTION
    assert list(inheritances(statements.table)) == []


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_questions_and_conflicts_name_the_number_of_successors(number: int) -> None:
    (old, recovery), first = Identity.create_recoverable(), Identity.create()
    statements = KeyStatements(follow=number > 1)
    successors = [Identity.create_recoverable()[0] for _ in range(number)]
    for successor in successors:
        statements.apply(create_succession(recovery, successor).encoded)
        statements.apply(create_succession(first, successor).encoded)
    count, option = (
        {1: "a", 2: "two", 3: "three", 4: "4"}[number],
        "" if number == 1 else " --as ID",
    )
    question = describe_end(statements.table, first.node_id, "carol")
    assert question.text.startswith(f"{count} statement")
    assert "of carol, which you have not accepted" in question.text
    assert question.mend == (
        "compare the words with carol over another channel, then run: parley peers accept "
        f"{first.node_id}{option}"
    )
    for key, origin in (("primary", first), ("recovery", old)):
        claims = describe_claims(statements.table, origin.node_id)
        assert f"its {key} key" in claims
        for one in successors:
            assert f"{one.node_id} ({fingerprint(one.node_id)})" in claims
    if number > 1:
        conflict = describe_end(statements.table, old.node_id)
        assert conflict.text == f"{count} successors claim to be {old.node_id.short}"
        assert conflict.mend.startswith("ask its owner which is right, then run: ")


def test_inheritances_end(tmp_path: Path) -> None:
    ids = [Identity.create() for _ in range(12)]
    statements = KeyStatements()
    for one, other in zip(ids, [*ids[1:], ids[0]], strict=True):  # a circle
        statements.apply(create_succession(one, other).encoded)
        statements.decide(one.node_id, other.node_id)
    found = list(inheritances(statements.table))
    assert [heir for origin, heir in found if origin == ids[0].node_id] == [
        one.node_id for one in ids[1:9]
    ]
    two = [Identity.create() for _ in range(2)]
    statements = KeyStatements()
    for one, other in (two, two[::-1]):
        statements.apply(create_succession(one, other).encoded)
        statements.decide(one.node_id, other.node_id)
    assert len(list(inheritances(statements.table))) == 2


def test_lines_of_a_successor(tmp_path: Path) -> None:
    old, recovery = Identity.create_recoverable()
    new, _ = Identity.create_recoverable()
    known, statements = KnownPeers(tmp_path / "known_peers"), KeyStatements()
    known.add(old.node_id, "bob", NOW)
    assert known.lookup_all(statements.table.lineage(new.node_id)) == []
    statements.apply(create_succession(recovery, new).encoded)
    assert [line.node_id for line in known.lookup_all(statements.table.lineage(new.node_id))] == [
        old.node_id
    ]
    known.add(new.node_id, "robert", NOW)
    assert [line.names for line in known.lookup_all(statements.table.lineage(new.node_id))] == [
        ("robert",),
        ("bob",),
    ]
    assert [line.names for line in known.lookup_all(statements.table.lineage(old.node_id))] == [
        ("bob",)
    ]
