"""`StatementTable`: which node IDs have ended, and which IDs succeed them (docs/protocol.md
section 22).

A table never changes: adding a statement or decision returns another one, so threads can share it.
No result depends on the order in which statements were added.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from itertools import accumulate
from typing import Final

from parley._crypto.identity import NodeId
from parley._crypto.statements import Statement
from parley._node.protocol.limits import PRESENTED_BYTES, PRESENTED_STATEMENTS

# Successions that are followed from one ID.
MAX_STEPS: Final = 8
# Of one origin, besides its revocation.
MAX_SUCCESSIONS: Final = 2
MAX_STATEMENTS: Final = 1_024
MAX_BYTES: Final = 4 * 1_048_576
# About IDs that are neither named nor successors of named ones.
MAX_UNNAMED: Final = 256
# Of the answer to `parley.statements`.
MAX_ANSWER_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class StoredStatement:
    """A verified statement, and the time when it was stored (UTC)."""

    statement: Statement
    time: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's choice of the successor of an ID, or of none, and the time of the choice (UTC)."""

    successor: NodeId | None
    time: datetime


class IdsOnRecord:
    """The node IDs that a node has on record while it reads one batch of statements.

    `named` and `seen` are functions that tell whether an ID is named, for example in settings, or
    was only recorded on first use. Their results are kept, because the statements of a batch ask
    about the same IDs. Create another object for each batch, because these IDs change.

    Example:

        from datetime import UTC, datetime
        from parley import Identity, create_revocation
        from parley.trust import IdsOnRecord, KeyStatements, Offer

        friend = Identity.create()
        records = IdsOnRecord(friend.node_id.__eq__, lambda node_id: False)
        statements = KeyStatements()
        revocation = create_revocation(friend)
        offered = statements.offer(revocation.encoded, records, datetime.now(UTC))
        assert offered is Offer.STORED
    """

    __slots__ = ("named", "seen")

    def __init__(self, named: Callable[[NodeId], bool], seen: Callable[[NodeId], bool]) -> None:
        self.named = cache(named)
        self.seen = cache(seen)


class StatementTable:
    """The statements and decisions that a node has stored.

    `follow` is whether the only successor that a recovery key names is followed without a person's
    decision.
    """

    def __init__(
        self,
        stored: Iterable[StoredStatement] = (),
        decisions: Mapping[NodeId, Decision] | None = None,
        *,
        follow: bool = True,
    ) -> None:
        self.stored: dict[bytes, StoredStatement] = {}
        self.decisions: dict[NodeId, Decision] = dict(decisions or {})
        self.follow = follow
        self._by_origin: dict[NodeId, tuple[Statement, ...]] = {}
        # The number of statements about unnamed IDs, for the records of one batch.
        self._unnamed: tuple[IdsOnRecord, int] | None = None
        for one in stored:
            self._add(one)

    def with_statement(self, one: StoredStatement) -> "StatementTable":
        """Return a table that also has a verified statement; the first one of a slot stays."""
        table = StatementTable(decisions=self.decisions, follow=self.follow)
        table.stored.update(self.stored)
        table._by_origin.update(self._by_origin)
        table._add(one)
        return table

    def with_decision(self, origin: NodeId, decision: Decision) -> "StatementTable":
        """Return a table with a decision in place of an earlier one."""
        decisions = {**self.decisions, origin: decision}
        return StatementTable(self.stored.values(), decisions, follow=self.follow)

    def _add(self, one: StoredStatement) -> None:
        slot, origin = one.statement.slot, one.statement.origin
        if slot not in self.stored:
            self.stored[slot] = one
            self._by_origin[origin] = (*self._by_origin.get(origin, ()), one.statement)

    @property
    def origins(self) -> Collection[NodeId]:
        """The IDs that have ended, the first to end first."""
        return self._by_origin.keys()

    def has_ended(self, node_id: NodeId) -> bool:
        """Return whether a statement has ended an ID."""
        return node_id in self._by_origin

    def statements_of(self, origin: NodeId) -> list[Statement]:
        """Return the statements about an ID, the first stored first."""
        return list(self._by_origin.get(origin, ()))

    def successions_of(self, origin: NodeId) -> list[Statement]:
        """Return the statements that name a successor of an ID, the first stored first."""
        return [one for one in self._by_origin.get(origin, ()) if one.successor is not None]

    def is_conflict(self, origin: NodeId) -> bool:
        """Return whether a recovery key named two successors of an ID, and no person chose."""
        named = [one for one in self.successions_of(origin) if one.by_recovery]
        return len(named) > 1 and origin not in self.decisions

    def successor_of(self, origin: NodeId) -> NodeId | None:
        """Return the successor of an ID: the one that a person chose, or else the only one that
        its recovery key named, if such successors are followed.
        """
        decision = self.decisions.get(origin)
        if decision is not None:
            return decision.successor
        named = [one.successor for one in self.successions_of(origin) if one.by_recovery]
        return named[0] if self.follow and len(named) == 1 else None

    def current(self, node_id: NodeId) -> NodeId | None:
        """Return the ID that has not ended to which an ID leads, or None.

        It is the ID itself if that has not ended.
        """
        return self._walk(node_id, self.successor_of)

    def granted(self, node_id: NodeId) -> NodeId | None:
        """Return the same as `current`, but only along successors that a person accepted."""
        return self._walk(node_id, self._accepted)

    def predecessors(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """Return the ended IDs whose `current` is this one."""
        return self._predecessors.get(node_id, ())

    def lineage(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """Return an ID and its predecessors."""
        return (node_id, *self.predecessors(node_id))

    def accepted_predecessors(self, node_id: NodeId) -> tuple[NodeId, ...]:
        """Return the ended IDs whose `granted` is this one."""
        return self.accepted.get(node_id, ())

    @cached_property
    def accepted(self) -> Mapping[NodeId, tuple[NodeId, ...]]:
        """The ended IDs by their `granted`; empty without decisions."""
        return self._by_end(self.granted) if self.decisions else {}

    def is_on_record(self, node_id: NodeId, known: Callable[[NodeId], bool]) -> bool:
        """Return whether `known` is true of an ID, or of one that leads to it by at most eight
        successions, each the only one of its origin or chosen by a person.
        """
        level, seen = {node_id}, set[NodeId]()
        for _ in range(MAX_STEPS + 1):
            if any(map(known, level)):
                return True
            if not level:
                break
            seen |= level
            level = {one for at in level for one in self._origins_by_successor.get(at, ())} - seen
        return False

    def has_room(self, statement: Statement, records: IdsOnRecord) -> bool:
        """Return whether a statement about an ID on record can be added within the limits."""
        origin = statement.origin
        if (
            statement.successor is not None and len(self.successions_of(origin)) >= MAX_SUCCESSIONS
        ) or len(self.stored) >= MAX_STATEMENTS:
            return False
        if self._size + len(statement.encoded) > MAX_BYTES:
            return False
        return (
            len(self.stored) < MAX_UNNAMED
            or self.is_on_record(origin, records.named)
            or self._count_unnamed(records) < MAX_UNNAMED
        )

    def chain_to(self, node_id: NodeId, size: int = PRESENTED_BYTES) -> list[Statement]:
        """Return the successions that lead to an ID, the oldest first: the longest end of the
        chain that has at most 4 statements and `size` bytes. Where two lead to one ID, it is the
        last one stored.
        """
        leading: dict[NodeId, Statement] = {}
        for stored in self.stored.values():
            if stored.statement.successor is not None:
                leading[stored.statement.successor] = stored.statement
        chain: list[Statement] = []
        passed = {node_id}
        while len(chain) < PRESENTED_STATEMENTS and (found := leading.get(node_id)) is not None:
            size -= len(found.encoded)
            if size < 0 or found.origin in passed:
                break
            chain.append(found)
            node_id = found.origin
            passed.add(node_id)
        return chain[::-1]

    def statements_from(self, node_ids: Iterable[NodeId]) -> list[Statement]:
        """Return the statements about some IDs and their successors, predecessors first: along at
        most eight successions, and at most 65,536 bytes.
        """
        passed = dict.fromkeys(node_ids)
        level = list(passed)
        for _ in range(MAX_STEPS):
            named = [one.successor for node_id in level for one in self.successions_of(node_id)]
            level = [one for one in dict.fromkeys(named) if one is not None and one not in passed]
            passed.update(dict.fromkeys(level))
        found = self._sorted(passed)
        sizes = accumulate(len(one.encoded) for one in found)
        return [one for one, size in zip(found, sizes, strict=True) if size <= MAX_ANSWER_BYTES]

    def connected_with(self, node_ids: Iterable[NodeId]) -> set[NodeId]:
        """Return some IDs, and all that stored successions connect with them in any direction."""
        found, level = set[NodeId](), set(node_ids)
        neighbours: dict[NodeId, set[NodeId]] = {}
        for stored in self.stored.values():
            origin, successor = stored.statement.origin, stored.statement.successor
            if successor is not None:
                neighbours.setdefault(origin, set()).add(successor)
                neighbours.setdefault(successor, set()).add(origin)
        while level:
            found |= level
            level = {one for at in level for one in neighbours.get(at, ())} - found
        return found

    def of_members(self, node_ids: Iterable[NodeId]) -> list[Statement]:
        """Return the statements about some IDs, and about those that stored successions connect
        with them, predecessors first.
        """
        connected = self.connected_with(node_ids)
        return self._sorted(one for one in self._by_origin if one in connected)

    def _sorted(self, node_ids: Iterable[NodeId]) -> list[Statement]:
        """Return the statements about some IDs: those that lead to an ID come before those about
        it, unless they form a cycle.
        """
        origins = [one for one in node_ids if one in self._by_origin]
        leading: dict[NodeId, list[NodeId]] = {}
        for origin in origins:
            for statement in self.successions_of(origin):
                if statement.successor is not None:
                    leading.setdefault(statement.successor, []).append(origin)
        found: list[Statement] = []
        visited, listed = set[NodeId](), set[NodeId]()
        waiting = origins[::-1]
        while waiting:
            origin = waiting[-1]
            # Successions can form a cycle, so an ID that is visited again is listed.
            before = [] if origin in visited else leading.get(origin, [])
            visited.add(origin)
            if left := [one for one in before if one not in visited]:
                waiting += left
                continue
            waiting.pop()
            if origin not in listed:
                listed.add(origin)
                found += self._by_origin[origin]
        return found

    def _accepted(self, origin: NodeId) -> NodeId | None:
        decision = self.decisions.get(origin)
        return None if decision is None else decision.successor

    def _walk(
        self, node_id: NodeId, successor_of: Callable[[NodeId], NodeId | None]
    ) -> NodeId | None:
        passed = {node_id}
        for _ in range(MAX_STEPS + 1):
            if node_id not in self._by_origin:
                return node_id
            following = successor_of(node_id)
            if following is None or following in passed:
                return None
            passed.add(following)
            node_id = following
        return None

    def _count_unnamed(self, records: IdsOnRecord) -> int:
        """Return the number of statements about IDs that no name has put on record.

        They count also after a conflict has cut their IDs off, because they stay stored. They are
        counted once for each table and batch: offers to a full table cost little, and the count
        follows the IDs that are named.
        """
        if self._unnamed is None or self._unnamed[0] is not records:
            count = sum(
                len(statements)
                for origin, statements in self._by_origin.items()
                if not self.is_on_record(origin, records.named)
            )
            self._unnamed = records, count
        return self._unnamed[1]

    @cached_property
    def _size(self) -> int:
        return sum(len(one.statement.encoded) for one in self.stored.values())

    @cached_property
    def _predecessors(self) -> dict[NodeId, tuple[NodeId, ...]]:
        return self._by_end(self.current)

    def _by_end(self, end: Callable[[NodeId], NodeId | None]) -> dict[NodeId, tuple[NodeId, ...]]:
        found: dict[NodeId, tuple[NodeId, ...]] = {}
        for origin in self._by_origin:
            last = end(origin)
            if last is not None:
                found[last] = (*found.get(last, ()), origin)
        return found

    @cached_property
    def _origins_by_successor(self) -> dict[NodeId, list[NodeId]]:
        """The origins that have a single candidate, by that candidate."""
        found: dict[NodeId, list[NodeId]] = {}
        for origin in self._by_origin:
            decision = self.decisions.get(origin)
            candidates = [one.successor for one in self.successions_of(origin)]
            only = candidates[0] if len(candidates) == 1 else None
            following = only if decision is None else decision.successor
            if following is not None:
                found.setdefault(following, []).append(origin)
        return found
