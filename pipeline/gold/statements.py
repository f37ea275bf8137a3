"""The gold table of key statements that nodes presented, and the sessions of the ended IDs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from parley._node.journal.audit.ended_ids import EndedId, SessionBegin, find_ended_ids
from parley._node.journal.audit.rows import StatementRow
from parley._pipeline.gold.arrow import FLAG, INT, LONG, TEXT, TIME, table_of_rows
from parley._pipeline.reconcile.sessions import Row

STATEMENTS: Final = pa.schema(
    [
        ("journal", TEXT),
        ("time", TIME),
        *((name, TEXT) for name in ("session", "direction", "presenter")),
        ("number", INT),
        *((name, TEXT) for name in ("status", "kind", "origin", "successor")),
        ("by_recovery", FLAG),
        ("made_ms", LONG),  # not a timestamp, because signers can choose years after 9999
        ("segment", TEXT),
        ("offset", LONG),
        ("before", pa.list_(TEXT)),
        ("after", pa.list_(TEXT)),
    ]
)


def statements(rows: Iterable[Row], sessions: Iterable[Row]) -> pa.Table:
    """Return one row for each statement in each journal and session in which it was presented.

    Columns: journal, time, session, direction, presenter, number, status, kind, origin, successor,
    by_recovery, made_ms, segment, offset, before, after.

    `before` and `after` are the IDs of the origin's sessions in this journal that began before the
    statement was presented, and later. Only the first valid statement about an origin that a peer
    presented to the journal's node has them; they are null in all other rows.
    """
    presented = [StatementRow(*(row[name] for name in StatementRow._fields)) for row in rows]
    begins = (
        SessionBegin(row["journal"], row["session"], row["remote_node"], row["started_ns"])
        for row in sessions
    )
    firsts = {each.first: each for each in find_ended_ids(presented, begins)}
    return table_of_rows(_rows(presented, firsts), STATEMENTS)


def _rows(
    presented: Sequence[StatementRow], firsts: dict[StatementRow, EndedId]
) -> Iterator[list[Any]]:
    for row in presented:
        ended = firsts.get(row)
        yield [
            row.journal,
            row.time_ns // 1000,
            row.session,
            row.direction,
            row.presenter,
            row.number,
            row.status,
            row.kind,
            row.origin,
            row.successor,
            row.by_recovery,
            row.made_ms,
            row.segment,
            row.offset,
            None if ended is None else ended.before,
            None if ended is None else ended.after,
        ]
