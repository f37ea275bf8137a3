"""The ended IDs in journals, and their sessions before and after the statement was presented."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from parley._node.journal.audit.rows import DIRECTIONS, OK, StatementRow
from parley._node.journal.keys import RECEIVED


class EndedId(NamedTuple):
    """An ID that ended according to a valid statement that a peer presented to a journal's node.

    `first` is the first such statement about the ID. `before` and `after` are the sessions of this
    ID in the same journal, in the order in which they began: before the session in which `first`
    was presented, or later.
    """

    first: StatementRow
    before: list[str]
    after: list[str]


class SessionBegin(NamedTuple):
    """A session in a journal, its peer, and when it began in ns, by the clock of the journal's
    node.
    """

    journal: str
    session: str
    peer: str
    started_ns: int


def find_ended_ids(
    statements: Iterable[StatementRow], sessions: Iterable[SessionBegin]
) -> list[EndedId]:
    """Return the ended IDs of each journal, in the order in which they were first presented.

    A session can occur several times in `sessions`; its earliest time counts.
    """
    firsts: dict[tuple[str, str], StatementRow] = {}
    for row in statements:
        if row.status == OK and row.direction == DIRECTIONS[RECEIVED] and row.origin is not None:
            key = row.journal, row.origin
            firsts[key] = min(firsts.get(key, row), row, key=_order)
    began: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for journal, session, peer, started in sessions:
        # The node of the journal can itself have ended.
        for key in {(journal, peer), (journal, journal)} & firsts.keys():
            known = began[key]
            known[session] = min(known.get(session, started), started)
    return [
        _divided(first, began[key])
        for key, first in sorted(firsts.items(), key=lambda item: _order(item[1]))
    ]


def _divided(first: StatementRow, began: dict[str, int]) -> EndedId:
    ordered = sorted(began, key=lambda session: (began[session], session))
    before = [session for session in ordered if began[session] < first.time_ns]
    return EndedId(first, before, ordered[len(before) :])


def _order(row: StatementRow) -> tuple[int, str, str, int]:
    return row.time_ns, row.journal, row.session, row.number
