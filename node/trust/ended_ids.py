"""What became of ended node IDs, what their successors inherit, and what a person must decide
(section 22).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from parley._crypto.identity import NodeId
from parley._node.trust.statement_table import MAX_STEPS, StatementTable
from parley._node.trust.words import fingerprint

# Names the person to ask, where no petname is known.
OWNER: Final = "its owner"

_NUMBERS: Final = {2: "two", 3: "three"}


class Outcome(StrEnum):
    """What became of an ended node ID."""

    FOLLOWED = "followed"  # its recovery key named the successor
    ACCEPTED = "accepted"  # a person chose the successor
    REFUSED = "refused"  # a person chose that there is none
    CONFLICT = "conflict"  # its recovery key named two, and a person must choose
    QUESTION = "question"  # a person must accept the successor
    REVOKED = "revoked"  # no statement names a successor


OPEN: Final = (Outcome.QUESTION, Outcome.CONFLICT)  # a person must decide


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of an ended ID: a sentence, and the advice, empty if there is nothing to do."""

    node_id: NodeId
    outcome: Outcome
    successor: NodeId | None
    text: str
    mend: str


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


def describe_end(table: StatementTable, origin: NodeId, name: str | None = None) -> Ending:
    """Describe what became of an ended ID. `name` is its petname."""
    outcome, successor = outcome_of(table, origin), table.successor_of(origin)
    number = len(table.successions_of(origin))
    who, owner = name or origin.short, name or OWNER
    text = mend = ""
    match outcome:
        case Outcome.FOLLOWED:
            text = f"its recovery key named the successor {successor}"
        case Outcome.ACCEPTED:
            text = f"you accepted the successor {successor}"
        case Outcome.REFUSED:
            text = "you refused its successors, so no node takes its place"
        case Outcome.REVOKED:
            text = "it was revoked, and no node takes its place"
        case Outcome.CONFLICT:
            text = f"{in_words(number)} successors claim to be {who}"
            mend = f"ask {owner} which is right, then run: parley peers accept {origin} --as ID"
        case Outcome.QUESTION:
            text = f"a statement names a successor of {who}, which you have not accepted"
            if number > 1:
                text = (
                    f"{in_words(number)} statements name successors of {who}, which you have not "
                    "accepted"
                )
            mend = (
                f"compare the words with {owner} over another channel, then run: parley peers "
                f"accept {origin}{' --as ID' if number > 1 else ''}"
            )
    if successor is not None and table.has_ended(successor):
        text += ", which has ended too"
    return Ending(origin, outcome, successor, text, mend)


def describe_claims(table: StatementTable, origin: NodeId) -> str:
    """Return the stored successors of an ended ID with their words, and the key that named them."""
    stored = table.successions_of(origin)
    # Rule 22.18: all of one origin are signed by the same key.
    by_recovery = all(one.by_recovery for one in stored)
    key = "its recovery key" if by_recovery else "its primary key, which a thief may have,"
    named = " and ".join(
        f"{one.successor} ({fingerprint(one.successor)})"
        for one in stored
        if one.successor is not None
    )
    if len(stored) == 1:
        return f"{key} named the successor {named}"
    return f"{in_words(len(stored))} successors claim to be it, and {key} named them: {named}"


def last_ended(table: StatementTable, node_id: NodeId) -> NodeId:
    """Return the ended ID at which the successors of an ID that has no `current` end."""
    for _ in range(MAX_STEPS):
        successor = table.successor_of(node_id)
        if successor is None:
            break
        node_id = successor
    return node_id


def in_words(number: int) -> str:
    """Return a number of successors for a sentence."""
    return _NUMBERS.get(number, str(number))


def inheritances(table: StatementTable) -> Iterator[tuple[NodeId, NodeId]]:
    """Yield each ended ID with each ID that succeeds it, directly or later, the first one first."""
    for origin in table.origins:
        at = table.successor_of(origin)
        for _ in range(MAX_STEPS):
            if at is None or at == origin:
                break
            yield origin, at
            at = table.successor_of(at)
