"""Sessions, one row each, with what both ends say of it.

What the ends say is put side by side and not judged, which is left to `pipeline.reconcile`. It
works without an auditor's key.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from parley._pipeline.gold.arrow import FLAG, INT, LONG, TEXT, TIME, grouped, of_rows
from parley._pipeline.gold.traffic import directions
from parley._pipeline.reconcile.ends import End, by_session, least, most
from parley._pipeline.summary.kinds import Summary

_OF_EACH_END: Final = {
    "code": LONG,
    "text": TEXT,
    "remote": FLAG,
    "sent_place": LONG,
    "received_place": LONG,
}
SESSIONS: Final = pa.schema(
    [
        *((name, TEXT) for name in ("session", "initiator", "responder", "initiator_role")),
        *((name, TEXT) for name in ("responder_role", "address", "suite")),
        ("journals", INT),
        ("started", TIME),
        ("ended", TIME),
        *((name, LONG) for name in ("duration_us", "key_updates", "rekeys", "resumptions")),
        ("events", LONG),
        ("wire_bytes", LONG),
        *(
            (f"{end}_{name}", type_)
            for end in ("initiator", "responder")
            for name, type_ in _OF_EACH_END.items()
        ),
    ]
)


def sessions(summary: Summary, ends: Sequence[End]) -> pa.Table:
    """Columns: session, initiator, responder, initiator_role, responder_role, address, suite,
    journals, started, ended, duration_us, key_updates, rekeys, resumptions, events, wire_bytes,
    and for each end initiator_* and responder_*: code, text, remote, sent_place, received_place.

    `events` and `wire_bytes` count each event once: as its sender's or its receiver's journal
    has it, whichever has more.
    """
    sums = grouped(directions(summary), ["session"], total=["events", "wire_bytes"])
    totals = {name: counts for name, *counts in zip(*sums.to_pydict().values(), strict=True)}
    rows = (
        _row(session, some, totals.get(session, (0, 0)))
        for session, some in by_session(ends).items()
    )
    return of_rows(rows, SESSIONS)


def _row(session: str, ends: Sequence[End], totals: Sequence[int]) -> list[Any]:
    row: dict[str, Any] = dict.fromkeys(SESSIONS.names)
    row |= {"session": session, "journals": len(ends)}
    row |= {"events": totals[0], "wire_bytes": totals[1]}
    for end in ends:
        own, other = ("initiator", "responder") if end.initiator else ("responder", "initiator")
        told = {
            own: end.journal,
            other: end.peer,
            f"{own}_role": end.local_role,
            f"{other}_role": end.remote_role,
            "address": end.address if end.initiator else None,
            "suite": end.suite,
            "ended": end.ended,
            "duration_us": _duration(end),
            "key_updates": len(end.updates),
            "rekeys": end.rekeys,
            "resumptions": end.resumptions,
            **{f"{own}_{name}": getattr(end, name) for name in _OF_EACH_END},
        }
        row |= {name: most(row[name], value) for name, value in told.items()}
        row["started"] = least(row["started"], end.started)
    return list(row.values())


def _duration(end: End) -> int | None:
    """Of one journal's two times, never of two clocks."""
    return None if end.ended is None or end.started is None else end.ended - end.started
