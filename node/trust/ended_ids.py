"""What became of ended node IDs, and what their successors inherit (section 22)."""

from collections.abc import Iterator
from enum import StrEnum

from parley._crypto.identity import NodeId
from parley._node.trust.statement_table import MAX_STEPS, StatementTable


class Outcome(StrEnum):
    """What became of an ended node ID."""

    FOLLOWED = "followed"  # its recovery key named the successor
    ACCEPTED = "accepted"  # a person chose the successor
    REFUSED = "refused"  # a person chose that there is none
    CONFLICT = "conflict"  # its recovery key named two, and a person must choose
    QUESTION = "question"  # a person must accept the successor
    REVOKED = "revoked"  # no statement names a successor


def outcome_of(table: StatementTable, origin: NodeId) -> Outcome:
    """Return what became of an ended ID."""
    if origin in table.decisions:
        chosen = table.decisions[origin].successor
        return Outcome.REFUSED if chosen is None else Outcome.ACCEPTED
    if table.successor_of(origin) is not None:
        return Outcome.FOLLOWED
    if table.is_conflict(origin):
        return Outcome.CONFLICT
    return Outcome.QUESTION if table.successions_of(origin) else Outcome.REVOKED


def inheritances(table: StatementTable) -> Iterator[tuple[NodeId, NodeId]]:
    """Yield each ended ID with each ID that succeeds it, directly or later, the first one first."""
    for origin in table.origins:
        at = table.successor_of(origin)
        for _ in range(MAX_STEPS):
            if at is None or at == origin:
                break
            yield origin, at
            at = table.successor_of(at)
