"""The figures of a report, computed from the gold tables with Arrow.

Data is sorted and truncated, or grouped into a bounded number of groups, before it is converted to
Python objects.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from parley._pipeline.gold.arrow import LONG, TEXT, TIME, group_rows, repeat_value, rows_with
from parley._pipeline.gold.finding_texts import FAULT, NOTICE, UNCHECKED
from parley._pipeline.reconcile.tunnels import LARGEST
from parley._pipeline.report.report_data import (
    BEGINNING,
    EVENT_ROWS,
    LISTED,
    NEAR,
    ROWS,
    SESSIONS,
    TIME_BUCKETS,
    TOP_NODES,
    TOP_SENDERS,
    CallRow,
    Edge,
    EndedSummary,
    EventRow,
    Figures,
    FindingKind,
    FindingRow,
    NodeRow,
    SessionGroup,
    SessionSummary,
    StatementSummary,
    TopicNotes,
    TopicRow,
    TrafficPoint,
    TunnelLink,
    TunnelSummary,
)

# Yields tables with these columns of all events, or of some sessions only.
Scan = Callable[[Sequence[str], Sequence[str] | None], Iterator[pa.Table]]

_SENT: Final = "sent"
_TRAFFIC: Final = ("journal", "sender", "receiver", "direction", "time", "wire_size")


def events_of(scan: Scan, query: Mapping[str, Sequence[int]]) -> dict[str, list[EventRow]]:
    """Return at most `EVENT_ROWS` events of each session, ordered by place.

    Events within `NEAR` places of the given places come first, then those at the session's
    beginning. Rows of both journals for the same place are adjacent.
    """
    near = {
        session: {place + away for place in places for away in range(-NEAR, NEAR + 1)}
        for session, places in query.items()
    }
    anywhere = pa.array(sorted(set().union(*near.values())), LONG)
    found: dict[str, list[EventRow]] = {session: [] for session in query}
    if not query:
        return found
    for piece in scan([*EventRow._fields, "item"], list(query)):
        place = piece.column("place")
        worth = pc.or_(pc.less(place, BEGINNING), pc.is_in(place, anywhere))
        rows = piece.filter(pc.and_(pc.equal(piece.column("item"), 0), worth))
        at = rows.schema.get_field_index("time")
        rows = rows.set_column(at, "time", rows.column("time").cast(LONG))
        for values in zip(
            *(rows.column(name).to_pylist() for name in EventRow._fields), strict=True
        ):
            row = EventRow(*values)
            found[row.session].append(row)
    return {session: _some(rows, near[session]) for session, rows in found.items()}


def _some(rows: list[EventRow], near: set[int]) -> list[EventRow]:
    """Return the first `EVENT_ROWS` events of a session, preferring those with a place in
    `near`.
    """
    rows.sort(key=lambda row: (row.place not in near, row.place, row.direction, row.journal or ""))
    return rows[:EVENT_ROWS]


def fine_traffic(scan: Scan, width: int) -> pa.Table:
    """Return the traffic in each journal in bins of `width` microseconds.

    The columns are those of gold's `traffic` that plots use: minute (here the start of the bin),
    node, peer, direction, events, wire_bytes.
    """
    keys = ["minute", "node", "peer", "direction"]
    sums = ["events", "wire_bytes"]
    pieces = []
    for piece in scan([*_TRAFFIC, "item", "inside", "status"], None):
        known = pc.not_equal(pc.fill_null(piece.column("status"), ""), "duplicate")
        rows = piece.filter(pc.and_(pc.equal(piece.column("item"), 0), known))
        inside = pc.fill_null(rows.column("inside"), 0)
        size = pc.if_else(pc.equal(inside, 0), pc.fill_null(rows.column("wire_size"), 0), 0)
        direction = rows.column("direction")
        peer = pc.if_else(
            pc.equal(direction, _SENT), rows.column("receiver"), rows.column("sender")
        )
        time = rows.column("time").cast(LONG)
        begins = pc.multiply(pc.divide(time, width), width).cast(TIME)
        one = pa.repeat(pa.scalar(1, LONG), rows.num_rows)
        columns = [begins, rows.column("journal"), peer, direction, one, size.cast(LONG)]
        pieces.append(group_rows(pa.table(columns, names=[*keys, *sums]), keys, total=sums))
    return group_rows(pa.concat_tables(pieces), keys, total=sums)


_SECOND: Final = 1_000_000
# Widths of a time bucket, in microseconds. Widths below a minute require reading individual events;
# the others are 1, 5 and 15 minutes, 1 and 6 hours, a day, a week and 30 days.
_FINE: Final = tuple(
    int(seconds * _SECOND) for seconds in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
)
_WIDTHS: Final = tuple(
    seconds * _SECOND for seconds in (60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_592_000)
)
FINE_EVENTS: Final = 2_000_000  # maximum number of events to read individually
_SUMS: Final = ("sent_events", "sent_bytes", "received_events", "received_bytes")
_WEIGHTS: Final = {FAULT: 0, UNCHECKED: 1, NOTICE: 2}

R = TypeVar("R", bound=tuple[Any, ...])


def collect(gold: Mapping[str, pa.Table], scan: Scan | None = None, most: int = ROWS) -> Figures:
    """Compute the report's figures from the gold tables and the events that `scan` yields.

    Each table has at most `most` rows.
    """
    traffic, graph, sessions = gold["traffic"], gold["graph"], gold["sessions"]
    findings, calls, topics = gold["findings"], gold["calls"], gold["topics"]
    tunnels, statements = gold["tunnels"], gold["statements"]
    nodes = _nodes(graph, traffic, findings)
    first, last = (_bound(graph, name, of) for name, of in (("first", pc.min), ("last", pc.max)))
    width, points = _fine(scan, graph, traffic) or _traffic(traffic)
    links = _links(tunnels, most)
    ended = _ended(statements)
    asked = rows_with(calls, "seen_by", "caller")
    by_topic, by_pair = (rows_with(asked, "scope", scope) for scope in ("topic", "pair"))
    called = _sum(by_topic, "calls")
    pairs = by_pair.group_by(["caller", "callee"]).aggregate([]).num_rows
    if not called:  # no caller has a journal
        by_topic, by_pair = (rows_with(calls, "scope", scope) for scope in ("topic", "pair"))
    topic_notes = group_rows(topics, ["topic"], total=["notes"], count="publishers")
    each = _renamed(findings, "count", "events")
    each = each.append_column("rank", _ranks(each))
    ways = (tunnels.column(name).cast(pa.float64(), safe=False) for name in ("forward", "back"))
    volume = pc.add(*ways)  # the sum can exceed a 64-bit integer
    listed = _take(each, FindingRow, most, "rank", "time", "kind", "place")
    session_rows = _take(sessions, SessionSummary, most, "-wire_bytes", "started", "session")
    return Figures(
        rows=most,
        refreshed=_bound(traffic, "refreshed", pc.max)
        if "refreshed" in traffic.schema.names
        else None,
        first=first,
        last=last,
        nodes=nodes.num_rows,
        journals=pc.count_distinct(traffic.column("node")).as_py(),
        sessions=sessions.num_rows,
        both_ends=_count(pc.greater(sessions.column("journals"), 1)),
        events=_sum(graph, "events"),
        wire_bytes=_sum(graph, "wire_bytes"),
        journaled=_sum(traffic, "events"),
        verified=_sum(traffic, "ok"),
        has_key=_count(pc.greater(traffic.column("payload_bytes"), 0)) > 0,
        notes=_sum(topics, "notes"),
        calls=called,
        pairs=pairs,
        topic_count=pc.count_distinct(topics.column("topic")).as_py(),
        finding_kinds=_finding_kinds(findings),
        findings=listed,
        bucket=width,
        traffic=points,
        by_topic=_take(by_topic, CallRow, most, "-calls", "topic"),
        by_pair=_take(by_pair, CallRow, most, "-calls", "topic"),
        topics=_take(topics, TopicRow, most, "-notes", "topic", "publisher"),
        topic_notes=_take(topic_notes, TopicNotes, most, "-notes", "topic"),
        session_rows=session_rows,
        talks=_talks(sessions, session_rows, listed, scan),
        suites=_groups(sessions.column("suite").fill_null("unknown")),
        closings=_groups(_closing(sessions)),
        edges=_edges(graph, nodes),
        talked=_take(graph, Edge, most, "-events", "sender", "receiver"),
        edge_count=graph.num_rows,
        node_rows=_take(nodes, NodeRow, most, "-volume", "node"),
        tunnels=tunnels.num_rows,
        links=links,
        servers=_servers(nodes, links),
        tunnel_rows=_take(
            tunnels.append_column("volume", volume), TunnelSummary, most, "-volume", "trace"
        ),
        statements=statements.num_rows,
        statement_rows=_take(
            statements, StatementSummary, most, "time", "session", "journal", "direction", "number"
        ),
        ended=ended.num_rows,
        ended_rows=_take(ended, EndedSummary, most, "-sessions_after", "time", "origin", "journal"),
    )


def _take(table: pa.Table, kind: type[R], rows: int, *order: str) -> list[R]:
    """Return the first rows of a table as named tuples whose fields are the columns.

    Times are converted to microseconds, so the local time zone has no effect.
    """
    fields: Sequence[str] = kind._fields  # type: ignore[attr-defined]  # each is a NamedTuple
    first = _plain(_first(table, rows, *order).select(fields))
    columns = (column.to_pylist(maps_as_pydicts="strict") for column in first.columns)
    return [kind(*row) for row in zip(*columns, strict=True)]


def _first(table: pa.Table, rows: int, *order: str) -> pa.Table:
    """Return the first rows in the order of these columns.

    A column prefixed with a minus is descending with nulls last; others are ascending with nulls
    first.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    keys: list[tuple[str, str]] = []
    for name in order:
        falls = name.startswith("-")
        column = table.column(name.removeprefix("-"))
        columns |= {f"{name} is null": column.is_null(), name: column}
        ways = ("ascending", "descending") if falls else ("descending", "ascending")
        keys += zip((f"{name} is null", name), ways, strict=True)
    return table.take(pc.sort_indices(pa.table(columns), keys).slice(0, rows))


def _plain(table: pa.Table) -> pa.Table:
    """Convert time columns to microseconds since the epoch."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(at, field.name, table.column(at).cast(LONG))
    return table


def _renamed(table: pa.Table, old: str, new: str) -> pa.Table:
    return table.rename_columns([new if name == old else name for name in table.schema.names])


def _sum(table: pa.Table, name: str) -> int:
    return pc.sum(table.column(name)).as_py() or 0


def _count(flags: pa.ChunkedArray) -> int:
    return pc.sum(flags).as_py() or 0


def _bound(table: pa.Table, name: str, of: Any) -> int | None:
    value: int | None = of(table.column(name).cast(LONG)).as_py()
    return value


def _ranks(findings: pa.Table) -> pa.Array:
    """Return the rank of each finding's weight; unknown weights rank as faults."""
    weights = findings.column("weight").to_pylist()
    return pa.array([_WEIGHTS.get(weight, 0) for weight in weights], LONG)


def _finding_kinds(findings: pa.Table) -> list[FindingKind]:
    kinds = findings.group_by(["weight", "kind"]).aggregate(
        [([], "count_all"), ("count", "sum"), ("journal", "count_distinct")]
    )
    names = ["weight", "kind", "count_all", "count_sum", "journal_count_distinct"]
    kinds = kinds.select(names).rename_columns(FindingKind._fields)
    kinds = kinds.append_column("rank", _ranks(kinds))
    return _take(kinds, FindingKind, ROWS, "rank", "-findings", "kind")


def _talks(
    sessions: pa.Table,
    rows: Sequence[SessionSummary],
    findings: Sequence[FindingRow],
    scan: Scan | None,
) -> dict[SessionSummary, list[EventRow]]:
    """Return the sessions with findings, then the largest sessions, with some of their events."""
    places: dict[str, list[int]] = {}
    for finding in findings:
        if finding.session is not None and (finding.session in places or len(places) < SESSIONS):
            around = places.setdefault(finding.session, [])
            around += [] if finding.place is None else [finding.place]
    known = _take(rows_with(sessions, "session", *places), SessionSummary, SESSIONS, "session")
    order = {session: at for at, session in enumerate(places)}
    talks = sorted(known, key=lambda row: order[row.session])
    talks += [row for row in rows if row.session not in places][: SESSIONS - len(talks)]
    query = {row.session: places.get(row.session, []) for row in talks}
    events = {} if scan is None else events_of(scan, query)
    return {row: events.get(row.session, []) for row in talks}


def _fine(
    scan: Scan | None, graph: pa.Table, traffic: pa.Table
) -> tuple[int, list[TrafficPoint]] | None:
    """Return the result of `_traffic` with buckets below a minute, for a short and small
    recording.
    """
    first, last = (_bound(graph, name, of) for name, of in (("first", pc.min), ("last", pc.max)))
    if scan is None or first is None or last is None or _sum(traffic, "events") > FINE_EVENTS:
        return None
    width = next((one for one in _FINE if last - first <= one * (TIME_BUCKETS - 1)), None)
    return None if width is None else _traffic(fine_traffic(scan, width), (width,))


def _traffic(traffic: pa.Table, widths: Sequence[int] = _WIDTHS) -> tuple[int, list[TrafficPoint]]:
    """Return the width of a bucket in microseconds, and the traffic of each node and bucket.

    Each event counts once: from the sender's journal, or from the receiver's if the sender has
    none.
    """
    names = ["minute", "sender", "events", "wire_bytes"]
    if not traffic.num_rows:
        return widths[0], []
    kept = pc.unique(traffic.column("node"))
    sent = _renamed(rows_with(traffic, "direction", "sent"), "node", "sender").select(names)
    received = rows_with(traffic, "direction", "received")
    heard = received.filter(pc.invert(pc.is_in(received.column("peer"), kept)))
    counted = pa.concat_tables([sent, _renamed(heard, "peer", "sender").select(names)])
    first, last = (_bound(traffic, "minute", of) or 0 for of in (pc.min, pc.max))
    span = last - first + widths[0]
    width = next((one for one in widths if span <= one * TIME_BUCKETS), widths[-1])
    senders = group_rows(counted, ["sender"], total=["wire_bytes"])
    top = _first(senders, TOP_SENDERS, "-wire_bytes", "sender").column("sender")
    shown = pc.is_in(counted.column("sender"), pc.drop_null(top))
    sender = pc.if_else(shown, counted.column("sender"), pa.scalar(None, TEXT))
    # If the widest buckets cannot cover the whole time (13 years), keep the latest ones.
    bucket = counted.column("minute").cast(LONG).to_numpy() // width * width
    points = pa.table(
        [pa.array(bucket), sender, counted.column("events"), counted.column("wire_bytes")],
        names=TrafficPoint._fields,
    )
    points = group_rows(points, ["time", "sender"], total=["events", "wire_bytes"])
    most = (TIME_BUCKETS + 2) * (TOP_SENDERS + 1)
    taken = _take(points, TrafficPoint, most, "-time", "sender")
    return width, sorted(taken, key=lambda point: (point.time, point.sender or ""))


def _nodes(graph: pa.Table, traffic: pa.Table, findings: pa.Table) -> pa.Table:
    """Return one row for each node, with the columns of `NodeRow` and `volume`."""
    none = repeat_value(0, LONG, graph.num_rows)
    events, sizes = graph.column("events"), graph.column("wire_bytes")
    names = ["node", "peer", *_SUMS]
    sender, receiver = graph.column("sender"), graph.column("receiver")
    sending = pa.table([sender, receiver, events, sizes, none, none], names=names)
    receiving = pa.table([receiver, sender, none, none, events, sizes], names=names)
    query = [("peer", "count_distinct"), *((name, "sum") for name in _SUMS)]
    nodes = pa.concat_tables([sending, receiving]).group_by("node").aggregate(query)
    nodes = nodes.select(["node", *("_".join(one) for one in query)])
    nodes = nodes.rename_columns(["node", "peers", *_SUMS])
    kept = pc.unique(traffic.column("node"))
    journals = pa.table(
        [kept, repeat_value(True, pa.bool_(), len(kept))], names=["node", "journal"]
    )
    faulty = rows_with(findings, "weight", FAULT)
    faults = _renamed(group_rows(faulty, ["journal"], count="faults"), "journal", "node")
    nodes = nodes.join(journals, "node", join_type="full outer")
    nodes = nodes.join(faults, "node", join_type="left outer")
    nodes = nodes.filter(nodes.column("node").is_valid())
    for at, field in enumerate(nodes.schema):
        if field.name != "node":
            nothing = pa.scalar(0).cast(field.type)
            nodes = nodes.set_column(at, field.name, nodes.column(at).fill_null(nothing))
    volume = pc.add(nodes.column("sent_bytes"), nodes.column("received_bytes"))
    return nodes.append_column("volume", volume)


def _edges(graph: pa.Table, nodes: pa.Table) -> list[Edge]:
    """Return the traffic between the busiest nodes."""
    named = _first(nodes, TOP_NODES, "-volume", "node").column("node").to_pylist()
    between = rows_with(rows_with(graph, "sender", *named), "receiver", *named)
    return _take(between, Edge, TOP_NODES**2, "-events", "sender", "receiver")


def _links(tunnels: pa.Table, most: int) -> list[TunnelLink]:
    """Return the number of tunnels and bytes for each pair of neighbouring nodes in tunnel
    paths.
    """
    sums: dict[tuple[str, str], list[int]] = {}
    columns = (tunnels.column(name).to_pylist() for name in ("path", "tunnels", "forward", "back"))
    for path, *counts in zip(*columns, strict=True):
        for before, after in pairwise(path):
            if before is not None and after is not None:
                known = sums.setdefault((before, after), [0, 0, 0])
                known[:] = (
                    min(one + more, LARGEST) for one, more in zip(known, counts, strict=True)
                )
    links = [TunnelLink(*nodes, *counts) for nodes, counts in sums.items()]
    links.sort(key=lambda link: (-link.tunnels, link.before, link.after))
    return links[:most]


def _ended(statements: pa.Table) -> pa.Table:
    """Return the rows of ended IDs, with the columns of `EndedSummary`."""
    rows = statements.filter(statements.column("before").is_valid())
    for name in ("before", "after"):
        sessions = rows.column(name)
        first = pc.list_slice(sessions, 0, LISTED)
        rows = rows.append_column(f"sessions_{name}", pc.list_value_length(sessions).cast(LONG))
        rows = rows.set_column(rows.schema.get_field_index(name), name, first)
    return rows


def _servers(nodes: pa.Table, links: Sequence[TunnelLink]) -> list[NodeRow]:
    """Return the nodes of these links that have sessions or a journal."""
    named = sorted({node for link in links for node in (link.before, link.after)})
    return _take(rows_with(nodes, "node", *named), NodeRow, len(named), "node")


def _groups(names: pa.ChunkedArray) -> list[SessionGroup]:
    groups = group_rows(pa.table([names], names=["name"]), ["name"], count="sessions")
    return _take(groups, SessionGroup, ROWS, "-sessions", "name")


def _closing(sessions: pa.Table) -> pa.ChunkedArray:
    """Return the close code of each session from either end, or an empty string without one."""
    ends = (sessions.column(name) for name in ("initiator_code", "responder_code"))
    return pc.coalesce(*ends).cast(TEXT).fill_null("")
