"""Neither the order in which statements and decisions arrive nor their sources change a result."""

from itertools import permutations
from typing import Final

import pytest

from parley import Identity, Node, Statement, create_revocation, create_succession
from parley._node.trust.ended_ids import Outcome, inheritances, outcome_of
from parley._node.trust.statement_table import MAX_SUCCESSIONS, StatementTable
from parley.trust import AnyPeer, KeyStatements

(OLD, RECOVERY), (NEW, NEW_RECOVERY), (OTHER, _), (THIRD, _), (NEWEST, _) = (
    Identity.create_recoverable() for _ in range(5)
)
FIRST: Final = Identity.create()
ENDS: Final = create_revocation(OLD)
NAMES_NEW: Final = create_succession(RECOVERY, NEW)
STATEMENTS: Final = (
    ENDS,
    NAMES_NEW,
    create_succession(RECOVERY, OTHER),
    create_succession(RECOVERY, THIRD),  # one more than an origin has room for
    create_succession(NEW_RECOVERY, NEWEST),
    create_succession(FIRST, OLD),
)
IDS: Final = [one.node_id for one in (FIRST, OLD, NEW, OTHER, THIRD, NEWEST)]
# A person's choice of the successor of the old ID, and what became of the ID.
CHOICES: Final = {"none": Outcome.CONFLICT, "accept": Outcome.ACCEPTED, "refuse": Outcome.REFUSED}


def results_of(table: StatementTable) -> list[object]:
    """Return everything that decisions on peers depend on."""
    pairs = sorted(set(inheritances(table)))
    return [
        pairs,
        *(
            (
                table.has_ended(one),
                table.current(one),
                table.granted(one),
                sorted(table.predecessors(one)),
                sorted(table.accepted_predecessors(one)),
                outcome_of(table, one) if table.has_ended(one) else None,
            )
            for one in IDS
        ),
    ]


def arrive(node: Node, statement: Statement, source: int) -> None:
    """Deliver a statement from a Proof, a member, a home or a file."""
    connections, encoded = node.connections, statement.encoded
    if source == 0 and statement.successor is not None:
        connections.offer_chain([encoded], statement.successor, AnyPeer())
    elif source == 1:
        connections.offer_statements([encoded], dialled=[statement.origin])
    elif source == 2:
        node.statements.apply(encoded)
    else:
        connections.offer_statements([encoded])


def choose(statements: KeyStatements, choice: str) -> None:
    """Let a person choose, after storing the statement that the choice needs."""
    if choice == "none":
        return
    statements.apply((NAMES_NEW if choice == "accept" else ENDS).encoded)
    statements.decide(OLD.node_id, NEW.node_id if choice == "accept" else None)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("follow", [True, False])
def test_orders_and_sources_give_one_result(choice: str, follow: bool) -> None:
    watch = [one.node_id for one in (FIRST, OLD, NEW)]
    results, dropped = list[object](), 0
    # Every seventh order, so that each statement comes first, last and by each source.
    for turn, order in enumerate(list(permutations(STATEMENTS))[::7]):
        statements = KeyStatements(follow=follow)
        node = Node(Identity.create(), statements=statements, watch=watch)
        for number, statement in enumerate(order):
            if number == turn % len(order):
                choose(statements, choice)
            arrive(node, statement, (turn + number) % 4)
        results.append(results_of(statements.table))
        dropped += statements.dropped["full"]
        assert len(statements.table.successions_of(OLD.node_id)) >= MAX_SUCCESSIONS
        assert outcome_of(statements.table, OLD.node_id) is CHOICES[choice]
    assert all(one == results[0] for one in results)
    assert dropped > 0


def test_a_conflict_only_delays_what_is_stored_about_successors() -> None:
    """A successor in a conflict is not on record, so statements about it are dropped until a person
    has chosen it.
    """
    names_other, names_newest = STATEMENTS[2], STATEMENTS[4]
    found: dict[frozenset[bytes], list[object]] = {}
    for order in permutations((NAMES_NEW, names_other, names_newest)):
        node = Node(Identity.create(), watch=[OLD.node_id])
        for statement in order:
            node.connections.offer_statement(statement.encoded)
        table = node.statements.table
        expected = {NAMES_NEW.slot, names_other.slot}
        if order == (NAMES_NEW, names_newest, names_other):
            expected.add(names_newest.slot)
        assert table.stored.keys() == expected
        result = results_of(table)
        assert found.setdefault(frozenset(table.stored), result) == result
        node.statements.decide(OLD.node_id, NEW.node_id)
        offered = node.connections.offer_statement(names_newest.encoded)
        assert offered == ("known" if names_newest.slot in expected else "stored")
        assert node.statements.table.current(OLD.node_id) == NEWEST.node_id
    assert len(found) == 2


def test_a_full_table_gives_what_its_statements_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which statements have room depends on their order, but nothing else does."""
    monkeypatch.setattr("parley._node.trust.statement_table.MAX_STATEMENTS", 3)
    watch = [one.node_id for one in (FIRST, OLD, NEW)]
    found: dict[frozenset[bytes], list[object]] = {}
    for order in list(permutations(STATEMENTS))[::7]:
        node = Node(Identity.create(), watch=watch)
        assert node.connections.offer_statements([one.encoded for one in order[:5]]) is None
        table = node.statements.table
        assert len(table.stored) == 3
        result = results_of(table)
        assert found.setdefault(frozenset(table.stored), result) == result
    assert len(found) > 10
