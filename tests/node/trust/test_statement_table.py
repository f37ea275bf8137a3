"""Which node IDs have ended and which succeed them, by the statements and decisions of a table."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import pairwise, permutations

import pytest

from parley import Identity, NodeId, Statement, create_revocation, create_succession
from parley._crypto.identity import RecoveryKey
from parley._node.protocol.limits import PRESENTED_STATEMENTS
from parley._node.trust.key_statements import format_lines
from parley._node.trust.statement_table import (
    MAX_ANSWER_BYTES,
    MAX_BYTES,
    MAX_STATEMENTS,
    MAX_STEPS,
    MAX_UNNAMED,
    Decision,
    IdsOnRecord,
    StatementTable,
    StoredStatement,
)
from tests.vectors.load import Vector, of_kind, unhex, vectors

NOW = datetime(2027, 1, 1, tzinfo=UTC)
Recoverable = tuple[Identity, RecoveryKey]


def table_of(*statements: Statement, follow: bool = True) -> StatementTable:
    """Return a table with these statements."""
    return StatementTable((StoredStatement(one, NOW) for one in statements), follow=follow)


def decided(table: StatementTable, origin: Identity, successor: Identity | None) -> StatementTable:
    """Return a table in which a person has chosen a successor, or none."""
    node_id = None if successor is None else successor.node_id
    return table.with_decision(origin.node_id, Decision(node_id, NOW))


def recoverable(count: int) -> list[Recoverable]:
    """Return identities with their recovery keys."""
    return [Identity.create_recoverable() for _ in range(count)]


def chain_of(identities: Iterable[Recoverable]) -> list[Statement]:
    """Return the successions from each identity to the next."""
    pairs = pairwise(identities)
    return [create_succession(recovery, new) for (_, recovery), (new, _) in pairs]


def only(*identities: Identity) -> Callable[[NodeId], bool]:
    """Return a function that knows these IDs."""
    ids = {one.node_id for one in identities}
    return lambda node_id: node_id in ids


NONE = only()


def test_without_statements_an_id_is_its_own_current() -> None:
    identity = Identity.create()
    table = table_of()
    assert not table.has_ended(identity.node_id)
    assert table.current(identity.node_id) == table.granted(identity.node_id) == identity.node_id
    assert table.predecessors(identity.node_id) == ()


def test_a_revocation_ends_an_id_without_a_successor() -> None:
    identity = Identity.create()
    table = table_of(create_revocation(identity))
    assert table.has_ended(identity.node_id)
    assert table.successor_of(identity.node_id) is None
    assert table.current(identity.node_id) is table.granted(identity.node_id) is None


def test_a_successor_named_by_the_recovery_key_is_followed() -> None:
    (old, recovery), (new, _) = recoverable(2)
    table = table_of(create_succession(recovery, new))
    assert table.successor_of(old.node_id) == table.current(old.node_id) == new.node_id
    assert table.predecessors(new.node_id) == (old.node_id,)
    assert table.granted(old.node_id) is None


def test_a_revocation_does_not_stop_a_succession() -> None:
    (old, recovery), (new, _) = recoverable(2)
    table = table_of(create_revocation(old), create_succession(recovery, new))
    assert table.current(old.node_id) == new.node_id


def test_with_the_setting_ask_a_person_must_accept_a_successor() -> None:
    (old, recovery), (new, _) = recoverable(2)
    table = table_of(create_succession(recovery, new), follow=False)
    assert table.current(old.node_id) is None
    table = decided(table, old, new)
    assert table.current(old.node_id) == table.granted(old.node_id) == new.node_id


def test_two_successors_are_a_conflict_until_a_person_chooses() -> None:
    (old, recovery), (new, _), (other, _) = recoverable(3)
    table = table_of(create_succession(recovery, new), create_succession(recovery, other))
    assert table.is_conflict(old.node_id)
    assert table.current(old.node_id) is None
    table = decided(table, old, other)
    assert not table.is_conflict(old.node_id)
    assert table.current(old.node_id) == other.node_id
    assert decided(table, old, new).current(old.node_id) == new.node_id
    assert decided(table, old, None).current(old.node_id) is None


def test_a_successor_named_by_the_primary_key_is_not_followed() -> None:
    old, new = Identity.create(), Identity.create()
    table = table_of(create_succession(old, new))
    assert table.has_ended(old.node_id)
    assert table.current(old.node_id) is None
    assert not table.is_conflict(old.node_id)
    assert decided(table, old, new).granted(old.node_id) == new.node_id


def test_later_statements_do_not_replace_a_choice() -> None:
    (old, recovery), (new, _), (other, _) = recoverable(3)
    table = decided(table_of(create_succession(recovery, new)), old, new)
    table = table.with_statement(StoredStatement(create_succession(recovery, other), NOW))
    assert table.current(old.node_id) == table.granted(old.node_id) == new.node_id


def test_granted_rights_stop_at_the_successor_that_was_accepted() -> None:
    identities = recoverable(3)
    (old, _), (new, _), (newest, _) = identities
    table = decided(table_of(*chain_of(identities)), old, new)
    assert table.current(old.node_id) == newest.node_id
    assert table.granted(old.node_id) is None


def test_at_most_eight_successions_are_followed() -> None:
    identities = recoverable(MAX_STEPS + 2)
    table = table_of(*chain_of(identities))
    first, second, last = identities[0][0], identities[1][0], identities[-1][0]
    assert table.current(first.node_id) is None
    assert table.current(second.node_id) == last.node_id
    assert len(table.predecessors(last.node_id)) == MAX_STEPS


def test_a_circle_has_no_current() -> None:
    one, two = Identity.create(), Identity.create()
    table = table_of(create_succession(one, two), create_succession(two, one))
    table = decided(decided(table, one, two), two, one)
    assert table.current(one.node_id) is table.granted(two.node_id) is None


def test_the_order_of_statements_never_changes_a_result() -> None:
    (old, recovery), (new, new_recovery), (other, _), (newest, _) = identities = recoverable(4)
    first = Identity.create()
    statements = [
        create_revocation(old),
        create_succession(recovery, new),
        create_succession(recovery, other),
        create_succession(new_recovery, newest),
        create_succession(first, old),
    ]
    ids = [first.node_id, *(one.node_id for one, _ in identities)]
    for count in range(len(statements) + 1):
        for follow in (True, False):
            results: dict[frozenset[bytes], object] = {}
            for some in permutations(statements, count):
                table = table_of(*some, follow=follow)
                for decisions in ((), (first, old), (old, new), (old, None)):
                    if decisions:
                        table = decided(table, *decisions)
                result = [
                    (table.current(one), table.granted(one), sorted(table.predecessors(one)))
                    for one in ids
                ]
                key = frozenset(one.slot for one in some)
                assert results.setdefault(key, result) == result


def test_the_first_statement_of_a_slot_stays() -> None:
    (_, recovery), (new, _) = recoverable(2)
    earlier, later = (create_succession(recovery, new, made_ms=made) for made in (1, 2))
    assert earlier.slot == later.slot
    assert [one.statement for one in table_of(earlier, later).stored.values()] == [earlier]


def test_successors_of_ids_on_record_are_on_record_along_eight_successions() -> None:
    identities = recoverable(MAX_STEPS + 3)
    table = table_of(*chain_of(identities))
    first = only(identities[0][0])
    ids = [one.node_id for one, _ in identities]
    expected = [True] * (MAX_STEPS + 1) + [False] * 2
    assert [table.is_on_record(one, first) for one in ids] == expected
    assert not table.is_on_record(Identity.create().node_id, first)


def test_successors_in_conflict_are_not_on_record() -> None:
    (old, recovery), (new, _), (other, _) = recoverable(3)
    table = table_of(create_succession(recovery, new), create_succession(recovery, other))
    assert not table.is_on_record(new.node_id, only(old))
    table = decided(table, old, other)
    assert table.is_on_record(other.node_id, only(old))
    assert not table.is_on_record(new.node_id, only(old))


def test_an_origin_has_room_for_two_successions_and_a_revocation() -> None:
    (old, recovery), (new, _), (other, _), (third, _) = recoverable(4)
    records = IdsOnRecord(only(old), NONE)
    table = table_of(create_succession(recovery, new))
    assert table.has_room(create_succession(recovery, other), records)
    table = table_of(create_succession(recovery, new), create_succession(recovery, other))
    assert not table.has_room(create_succession(recovery, third), records)
    assert table.has_room(create_revocation(old), records)


def test_a_tree_of_successors_stores_only_a_path() -> None:
    root = Identity.create_recoverable()
    records = IdsOnRecord(only(root[0]), NONE)
    table, level = table_of(), [root]
    for _ in range(MAX_STEPS + 3):
        below = []
        for identity, recovery in level:
            for new in recoverable(2):
                statement = create_succession(recovery, new[0])
                if table.is_on_record(identity.node_id, records.named):
                    assert table.has_room(statement, records)
                    table = table.with_statement(StoredStatement(statement, NOW))
                    below.append(new)
        level = below
    assert 0 < len(table.stored) <= 3 * (MAX_STEPS + 1)


@pytest.fixture(scope="module")
def revocations() -> list[tuple[Identity, Statement]]:
    """As many ended identities as a table has room for, and one more."""
    identities = [Identity.create() for _ in range(MAX_STATEMENTS + 1)]
    return [(one, create_revocation(one)) for one in identities]


def test_a_full_table_has_no_room(revocations: list[tuple[Identity, Statement]]) -> None:
    records = IdsOnRecord(only(*(one for one, _ in revocations)), NONE)
    *some, last = [statement for _, statement in revocations]
    assert not table_of(*some).has_room(last, records)
    assert table_of(*some[1:]).has_room(last, records)


def test_a_table_has_room_for_a_number_of_bytes(
    revocations: list[tuple[Identity, Statement]], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = IdsOnRecord(only(*(one for one, _ in revocations)), NONE)
    *some, last = [statement for _, statement in revocations[:4]]
    size = sum(len(one.encoded) for one in (*some, last))
    for limit, has_room in ((size, True), (size - 1, False)):
        monkeypatch.setattr("parley._node.trust.statement_table.MAX_BYTES", limit)
        assert table_of(*some).has_room(last, records) is has_room


def test_the_file_of_a_full_table_has_at_most_six_megabytes() -> None:
    """The threat model names this size, because each new statement rewrites the file."""
    lines = format_lines(table_of(create_revocation(Identity.create())))
    overhead = len(lines.replace(lines.split(b" ")[1], b""))
    assert 4 * (MAX_BYTES + 2 * MAX_STATEMENTS) // 3 + MAX_STATEMENTS * overhead < 6_000_000


def test_ids_of_first_use_have_room_for_a_part(
    revocations: list[tuple[Identity, Statement]],
) -> None:
    identities = [one for one, _ in revocations]
    *some, last = [statement for _, statement in revocations[: MAX_UNNAMED + 1]]
    seen = IdsOnRecord(NONE, only(*identities))
    assert not table_of(*some).has_room(last, seen)
    assert table_of(*some[1:]).has_room(last, seen)
    named = IdsOnRecord(only(identities[MAX_UNNAMED]), only(*identities))
    assert table_of(*some).has_room(last, named)


def test_the_chain_to_an_id_is_its_longest_end_that_fits() -> None:
    identities = recoverable(PRESENTED_STATEMENTS + 2)
    statements = chain_of(identities)
    table, last = table_of(*statements), identities[-1][0].node_id
    assert table.chain_to(last) == statements[-PRESENTED_STATEMENTS:]
    size = len(statements[-1].encoded)
    assert table.chain_to(last, 2 * size) == statements[-2:]
    assert table.chain_to(last, size - 1) == []


def test_where_two_lead_to_an_id_the_chain_has_the_last_one_stored() -> None:
    (_, one), (_, two), (new, _) = recoverable(3)
    statements = [create_succession(one, new), create_succession(two, new)]
    assert table_of(*statements).chain_to(new.node_id) == statements[1:]
    assert table_of(*statements[::-1]).chain_to(new.node_id) == statements[:1]


def test_a_circle_has_a_chain_without_repetition() -> None:
    one, two = Identity.create(), Identity.create()
    there, back = create_succession(one, two), create_succession(two, one)
    assert table_of(there, back).chain_to(two.node_id) == [there]


def test_statements_of_ids_and_their_successors_begin_with_the_predecessors() -> None:
    identities = recoverable(MAX_STEPS + 3)
    statements = chain_of(identities)
    revocation = create_revocation(identities[1][0])
    table = table_of(*statements[::-1], revocation)
    first = identities[0][0].node_id
    found = table.statements_from([first])
    assert found == [statements[0], statements[1], revocation, *statements[2 : MAX_STEPS + 1]]
    assert table.statements_from([Identity.create().node_id]) == []


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_answers_have_predecessors_first_in_any_order_of_the_ids(order: tuple[int, ...]) -> None:
    identities = recoverable(4)
    chain = chain_of(identities)
    table = table_of(*chain[::-1])
    assert table.statements_from(identities[number][0].node_id for number in order) == chain


def answer_to(vector: Vector) -> list[str]:
    """Return the statements that the node of a vector sends."""
    table = table_of(*(Statement.parse(unhex(text)) for text in vector["stored"]))
    found = table.statements_from([NodeId(unhex(text)) for text in vector["of"]])
    return [one.encoded.hex() for one in found]


@vectors("keys", of_kind("answer"), fails=False)
def test_an_answer_has_these_statements(vector: Vector) -> None:
    assert answer_to(vector) == vector["expected"]["statements"]


@vectors("keys", of_kind("answer"), fails=True)
def test_an_answer_does_not_have_these_statements(vector: Vector) -> None:
    assert answer_to(vector) != vector["claimed"]


def test_an_answer_ends_before_the_first_statement_that_does_not_fit() -> None:
    """The statements about it and its successors would not be accepted without it."""
    chain = chain_of([Identity.create_recoverable(["ml-dsa-65"]) for _ in range(7)])
    table = table_of(*chain[::-1])
    found = table.statements_from([one.origin for one in chain[::-1]])
    assert found == chain[:5]
    assert 5 * len(chain[0].encoded) <= MAX_ANSWER_BYTES < 6 * len(chain[0].encoded)


def test_connected_ids_are_found_in_both_directions() -> None:
    identities = recoverable(3)
    (one, _), (two, _), (three, _) = identities
    table = table_of(*chain_of(identities))
    other = Identity.create().node_id
    ids = {one.node_id, two.node_id, three.node_id}
    assert table.connected_with([two.node_id, other]) == ids | {other}


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_statements_of_members_have_predecessors_first(order: tuple[int, ...]) -> None:
    identities = recoverable(4)
    other = create_revocation(Identity.create())
    chain = [*chain_of(identities), create_revocation(identities[-1][1])]
    table = table_of(other, *(chain[number] for number in order))
    for (member, _), unknown in zip(identities, recoverable(4), strict=True):
        assert table.of_members([member.node_id, unknown[0].node_id]) == chain
    assert table.of_members([Identity.create().node_id]) == []


def test_statements_of_members_in_a_cycle_are_each_listed_once() -> None:
    one, two, three = recoverable(3)
    cycle = chain_of([one, two, three, one])
    branch = create_succession(two[1], Identity.create_recoverable()[0])
    found = table_of(*cycle, branch).of_members([two[0].node_id])
    assert sorted(map(id, found)) == sorted(map(id, [*cycle, branch]))
