"""The gold tables of traffic, topics, calls, sessions and tunnels, each computed from summaries.

An event that is in two journals counts once, according to the more complete journal. Only `calls`
and `topics` require an auditor's key. Without one they are empty, and `traffic` has null topics and
labels.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import (
    FLAG,
    INT,
    LONG,
    TEXT,
    TIME,
    conform,
    group_rows,
    number_keys,
    repeat_value,
    rows_with,
    table_of_rows,
)
from parley._pipeline.reconcile.sessions import End, Row, by_session, least, most
from parley._pipeline.reconcile.tunnels import LARGEST, began, ended
from parley._pipeline.summary.kinds import KINDS, Summary
from parley._pipeline.summary.pairing import unanswered

TRAFFIC: Final = pa.schema([("date", pa.date32()), *KINDS["traffic"].schema])
GRAPH: Final = pa.schema(
    [
        ("sender", TEXT),
        ("receiver", TEXT),
        ("sessions", LONG),
        ("events", LONG),
        ("wire_bytes", LONG),
        ("first", TIME),
        ("last", TIME),
    ]
)


def traffic(summary: Summary) -> pa.Table:
    """Return the traffic on the wire as recorded by each node's own journal.

    An event in two journals has two rows; to get totals for all nodes, sum only the rows with
    direction `sent`. Columns: date, minute, node, peer, topic, namespace, label, direction, events,
    notes, ok, wire_bytes, payload_bytes.
    """
    table = summary["traffic"]
    dates = pc.cast(table.column("minute"), pa.date32())
    return conform(table.append_column("date", dates), TRAFFIC)


def graph(summary: Summary) -> pa.Table:
    """Return one row for each sender and receiver, counting each event once.

    Columns: sender, receiver, sessions, events, wire_bytes, first, last.
    """
    table = group_rows(
        directions(summary),
        ["sender", "receiver"],
        total=["events", "wire_bytes"],
        least=["first"],
        most=["last"],
        count="sessions",
    )
    return conform(table, GRAPH)


def directions(summary: Summary) -> pa.Table:
    """Return one row for each direction of a session, with the more complete journal's counts."""
    return group_rows(
        summary["directions"],
        ["session", "sender", "receiver"],
        most=["events", "wire_bytes", "last"],
        least=["first"],
    )


_COUNTS: Final = ("subscriptions", "subscribers", "notes", "payload_bytes", "slow_resets")
TOPICS: Final = pa.schema(
    [
        ("topic", TEXT),
        ("publisher", TEXT),
        *((name, LONG) for name in _COUNTS),
        ("first", TIME),
        ("last", TIME),
    ]
)
_TOPIC_KEY: Final = ["topic", "publisher"]


def topics(summary: Summary) -> pa.Table:
    """Return one row for each topic and publisher.

    Columns: topic, publisher, subscriptions, subscribers, notes, payload_bytes, slow_resets, first,
    last. A subscription is an accepted Subscribe; a subscriber is a distinct node. `slow_resets`
    counts the subscriptions that were ended by a Reset with code `slow-consumer`.
    """
    counts = _subscriptions(summary["streams"])
    notes = _notes(summary["notes"])
    both = counts.join(notes, _TOPIC_KEY, join_type="full outer")
    for name in _COUNTS:
        at = both.schema.get_field_index(name)
        both = both.set_column(at, name, both.column(name).fill_null(0))
    opened, began, ended = (
        both.column(name).cast(LONG) for name in ("opened", "first_note", "last_note")
    )
    first = pc.min_element_wise(opened, began)
    last = pc.max_element_wise(opened, ended)
    both = both.append_column("first", first).append_column("last", last)
    return conform(both.filter(both.column("topic").is_valid()), TOPICS)


def _subscriptions(streams: pa.Table) -> pa.Table:
    """Return the streams that a Result granted to a subscriber, with the topic of their Open."""
    stream = ["session", "stream"]
    granted = rows_with(streams, "what", "granted").select([*stream, "publisher"])
    slow = group_rows(rows_with(streams, "what", "slow"), stream, count="slow")
    opened = rows_with(streams, "what", "open").drop_columns(["what"])
    kept = opened.join(granted, [*stream, "publisher"], join_type="left semi")
    kept = kept.join(slow, stream, join_type="left outer")
    groups = kept.group_by(_TOPIC_KEY).aggregate(
        [("stream", "count"), ("subscriber", "count_distinct"), ("slow", "count"), ("first", "min")]
    )
    names = ["stream_count", "subscriber_count_distinct", "slow_count", "first_min"]
    named = [*_TOPIC_KEY, "subscriptions", "subscribers", "slow_resets", "opened"]
    return groups.select([*_TOPIC_KEY, *names]).rename_columns(named)


def _notes(notes: pa.Table) -> pa.Table:
    """Return the number of notes for each topic and publisher, from the more complete journal."""
    sums = ["notes", "payload_bytes"]
    once = group_rows(notes, ["session", *_TOPIC_KEY], most=[*sums, "last"], least=["first"])
    groups = group_rows(once, _TOPIC_KEY, total=sums, least=["first"], most=["last"])
    return groups.rename_columns([*_TOPIC_KEY, *sums, "first_note", "last_note"])


QUANTILES: Final = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99}

_CALL_KEY: Final = ("scope", "kind", "topic", "namespace", "caller", "callee", "seen_by")
CALLS: Final = pa.schema(
    [
        *((name, TEXT) for name in _CALL_KEY),
        *((name, LONG) for name in ("calls", "answered", "unanswered", "errors", "parts")),
        *((name, LONG) for name in (*QUANTILES, "max_us")),
        ("first", TIME),
        ("last", TIME),
        ("error_codes", pa.map_(LONG, LONG)),
    ]
)


def calls(summary: Summary) -> pa.Table:
    """Return one row for each topic (`scope` is `topic`), and for each topic and pair of nodes
    (`pair`).

    Columns: scope, kind, topic, namespace, caller, callee, seen_by, calls, answered, unanswered,
    errors, parts, p50_us, p95_us, p99_us, max_us, first, last, error_codes. Rows with the scope
    `topic` have a null caller and callee. The table is empty without an auditor's key.
    """
    rows = pa.concat_tables([summary["calls"], unanswered(summary["unpaired"])])
    return pa.concat_tables([_calls_of_scope(rows, "pair"), _calls_of_scope(rows, "topic")])


def _calls_of_scope(rows: pa.Table, scope: str) -> pa.Table:
    count = rows.num_rows
    if scope == "topic":
        for name in ("caller", "callee"):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, repeat_value(None, TEXT, count))
    rows = rows.append_column("scope", repeat_value(scope, TEXT, count))
    answered = pc.if_else(rows.column("code").is_valid(), rows.column("calls"), 0)
    errors = pc.if_else(pc.fill_null(pc.not_equal(rows.column("code"), 0), False), answered, 0)
    rows = rows.append_column("answered", answered).append_column("errors", errors)
    which = number_keys(rows, _CALL_KEY)
    sums = group_rows(
        rows.append_column("number", pa.array(which)),
        ["number", *_CALL_KEY],
        total=["calls", "answered", "errors", "parts"],
        least=["first"],
        most=["last", "max_us"],
    ).sort_by("number")
    waiting = pc.subtract(sums.column("calls"), sums.column("answered"))
    sums = sums.append_column("unanswered", waiting)
    for name, values in _quantiles(rows, which, sums.num_rows).items():
        sums = sums.append_column(name, values)
    return conform(
        sums.append_column("error_codes", _error_codes(rows, which, sums.num_rows)), CALLS
    )


def _quantiles(rows: pa.Table, which: npt.NDArray[np.int64], count: int) -> dict[str, pa.Array]:
    """Return the latencies of each group at the quantiles of `QUANTILES`; null without answers."""
    known = rows.column("latency_us").is_valid().to_numpy()
    latency = rows.column("latency_us").fill_null(0).to_numpy()[known]
    weight, which = rows.column("calls").to_numpy()[known], which[known]
    order = np.lexsort((latency, which))
    latency, which, reached = latency[order], which[order], weight[order].cumsum()
    totals = np.bincount(which, weight[order], count).astype(np.int64)
    before = np.append(0, totals.cumsum()[:-1])
    none = totals == 0
    found = {}
    for name, share in QUANTILES.items():
        rank = before + np.maximum(np.ceil(totals * share).astype(np.int64), 1)
        at = np.minimum(np.searchsorted(reached, rank), max(len(latency) - 1, 0))
        values = latency[at] if len(latency) else np.zeros(count, np.int64)
        found[name] = pa.array(values, LONG, mask=none)
    return found


def _error_codes(rows: pa.Table, which: npt.NDArray[np.int64], count: int) -> pa.Array:
    """Return the counts of error codes of each group; null if it has no errors."""
    failed = pc.fill_null(pc.not_equal(rows.column("code"), 0), False).to_numpy()
    codes, calls = (rows.column(name).filter(pa.array(failed)) for name in ("code", "calls"))
    found: defaultdict[int, dict[Any, int]] = defaultdict(dict)
    told = zip(which[failed].tolist(), codes.to_pylist(), calls.to_pylist(), strict=True)
    for number, code, some in told:
        found[number][code] = found[number].get(code, 0) + some
    maps = [sorted(found[number].items()) if number in found else None for number in range(count)]
    return pa.array(maps, CALLS.field("error_codes").type)


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
    """Return one row for each session.

    Columns: session, initiator, responder, initiator_role, responder_role, address, suite,
    journals, started, ended, duration_us, key_updates, rekeys, resumptions, events, wire_bytes. For
    each end there are initiator_* and responder_*: code, text, remote, sent_place, received_place.
    `events` and `wire_bytes` count each event once, according to the more complete of the sender's
    and receiver's journals.
    """
    sums = group_rows(directions(summary), ["session"], total=["events", "wire_bytes"])
    totals = {name: counts for name, *counts in zip(*sums.to_pydict().values(), strict=True)}
    rows = (
        _session_row(session, some, totals.get(session, (0, 0)))
        for session, some in by_session(ends).items()
    )
    return table_of_rows(rows, SESSIONS)


def _session_row(session: str, ends: Sequence[End], totals: Sequence[int]) -> list[Any]:
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
    return None if end.ended is None or end.started is None else end.ended - end.started


TUNNELS: Final = pa.schema(
    [
        ("trace", TEXT),
        ("path", pa.list_(TEXT)),
        ("length", INT),
        ("hops", INT),
        ("tunnels", LONG),
        ("began", TIME),
        ("ended", TIME),
        ("duration_us", LONG),
        ("forward", LONG),
        ("back", LONG),
    ]
)


def tunnels(rows: Iterable[Row]) -> pa.Table:
    """Return one row for each tunnel trace and path.

    Columns: trace, path, length, hops, tunnels, began, ended, duration_us, forward, back.

    `path` contains the node IDs in order, with null where no journal names the node. It starts with
    the account if the account dialled through its home and the journal records that; the `length`
    IDs of the path follow. `hops` is the number of servers that recorded the tunnel. `tunnels` is
    the largest count of any server; it is above 1 if the origin reused the trace. `began`, `ended`,
    `forward` and `back` come from the first recording server.
    """
    by_trace: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_trace[row["trace"]].append(row)
    return table_of_rows((_tunnel_row(trace, some) for trace, some in by_trace.items()), TUNNELS)


def _tunnel_row(trace: str, rows: Sequence[Row]) -> list[Any]:
    by_hop: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_hop[row["hop"]].append(row)
    first = by_hop[min(by_hop)]
    return [
        trace,
        _tunnel_path(rows),
        max(row["length"] for row in rows),
        len(by_hop),
        max(map(len, by_hop.values())),
        min(map(began, first)),
        max(map(ended, first)),
        # Both times come from one server: clocks of different servers are not compared.
        max(ended(row) - began(row) for row in rows),
        *(min(sum(row[way] for row in first), LARGEST) for way in ("forward", "back")),
    ]


def _tunnel_path(rows: Sequence[Row]) -> list[str | None]:
    """Return the node at each index of a path, from its own record or else a neighbour's."""
    said: dict[int, tuple[bool, str]] = {}
    for row in rows:
        hop = row["hop"]
        for at, is_neighbour, name in (
            (hop - 1, True, "before"),
            (hop, False, "journal"),
            (hop + 1, True, "after"),
        ):
            one = is_neighbour, row[name]
            said[at] = min(said.get(at, one), one)
    length = max(row["length"] for row in rows)
    return [said[at][1] if at in said else None for at in range(min(0, *said), length)]
