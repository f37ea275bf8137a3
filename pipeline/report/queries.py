"""The figures of a report, collected from the gold tables.

All that is ever brought to the driver was sorted and cut, or grouped into a bounded number of
groups, by Spark before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.types import TimestampType

from pipeline.gold.findings import FAULT, NOTICE, UNCHECKED
from pipeline.reconcile.tunnels import total
from pipeline.report.figures import (
    FINDING_ROWS,
    TIME_BUCKETS,
    TOP_NODES,
    TOP_ROWS,
    TOP_SENDERS,
    CallRow,
    Edge,
    Figures,
    FindingKind,
    FindingRow,
    NodeRow,
    SessionGroup,
    SessionSummary,
    TopicNotes,
    TopicRow,
    TrafficPoint,
    TunnelLink,
    TunnelSummary,
)

# Widths of a bucket of time, in seconds: a minute, 5, 15, an hour, 6, a day, a week, 30 days.
_WIDTHS: Final = (60, 300, 900, 3_600, 21_600, 86_400, 604_800, 2_592_000)

R = TypeVar("R", bound=tuple[Any, ...])


def collect(gold: Mapping[str, DataFrame]) -> Figures:
    """The figures of the gold tables, by their names."""
    traffic, graph, sessions = gold["traffic"], gold["graph"], gold["sessions"]
    findings, calls, topics = gold["findings"], gold["calls"], gold["topics"]
    tunnels = gold["tunnels"]
    made = "refreshed" if "refreshed" in traffic.columns else f.lit(None).cast("timestamp")
    journaled = _one(
        traffic.agg(
            f.sum("events"),
            f.sum("ok"),
            f.count_distinct("node"),
            f.max(f.col("payload_bytes") > 0),
            f.max(made),
        )
    )
    sums = _one(graph.agg(f.min("first"), f.max("last"), f.sum("events"), f.sum("wire_bytes")))
    both = _one(sessions.agg(f.count("*"), f.count_if(f.col("journals") > 1)))
    called = _one(
        calls.agg(
            f.sum(f.when((f.col("scope") == "topic") & _by_caller(), f.col("calls"))),
            f.count_distinct(
                f.when((f.col("scope") == "pair") & _by_caller(), f.struct("caller", "callee"))
            ),
        )
    )
    published = _one(topics.agg(f.sum("notes"), f.count_distinct("topic")))
    nodes = _nodes(graph, traffic, findings)
    width, points = _traffic(traffic)
    links = _links(tunnels)
    by_calls = f.col("calls").desc()
    by_topic = topics.groupBy("topic").agg(
        f.count("*").alias("publishers"), f.sum("notes").alias("notes")
    )
    each = findings.withColumnRenamed("count", "events")
    asked = calls.where(_by_caller())
    if not called[0]:  # no caller keeps a journal
        asked = calls
    return Figures(
        refreshed=journaled[4],
        first=sums[0],
        last=sums[1],
        nodes=nodes.count(),
        journals=journaled[2] or 0,
        sessions=both[0],
        both_ends=both[1],
        events=sums[2] or 0,
        wire_bytes=sums[3] or 0,
        journaled=journaled[0] or 0,
        verified=journaled[1] or 0,
        has_key=bool(journaled[3]),
        notes=published[0] or 0,
        calls=called[0] or 0,
        pairs=called[1],
        topic_count=published[1],
        finding_kinds=_finding_kinds(findings),
        findings=_take(each, FindingRow, FINDING_ROWS, _by_weight(), "time", "kind", "place"),
        bucket=width,
        traffic=points,
        by_topic=_take(asked.where("scope = 'topic'"), CallRow, TOP_ROWS, by_calls, "topic"),
        by_pair=_take(asked.where("scope = 'pair'"), CallRow, TOP_ROWS, by_calls, "topic"),
        topics=_take(topics, TopicRow, TOP_ROWS, f.col("notes").desc(), "topic", "publisher"),
        topic_notes=_take(by_topic, TopicNotes, TOP_ROWS, f.col("notes").desc(), "topic"),
        session_rows=_take(
            sessions, SessionSummary, TOP_ROWS, f.col("wire_bytes").desc(), "started", "session"
        ),
        suites=_groups(sessions, f.coalesce("suite", f.lit("unknown"))),
        closings=_groups(sessions, _closing()),
        edges=_edges(graph, nodes),
        node_rows=_take(nodes, NodeRow, TOP_ROWS, _volume().desc(), "node"),
        tunnels=tunnels.count(),
        links=links,
        servers=_servers(nodes, links),
        tunnel_rows=_take(
            tunnels,
            TunnelSummary,
            TOP_ROWS,
            (f.col("forward").cast("double") + f.col("back")).desc(),
            "trace",
        ),
    )


def _one(frame: DataFrame) -> Row:
    [row] = frame.select(*_plain(frame)).collect()
    return row


def _plain(frame: DataFrame) -> list[Column]:
    """Its columns, times as microseconds since the epoch: no zone of this machine gets in."""
    return [
        f.unix_micros(f.col(f"`{field.name}`"))
        if isinstance(field.dataType, TimestampType)
        else f.col(f"`{field.name}`")
        for field in frame.schema.fields
    ]


def _take(frame: DataFrame, kind: type[R], rows: int, *order: Column | str) -> list[R]:
    """The first rows of a frame as tuples of a kind, whose fields are the columns."""
    fields: Sequence[str] = kind._fields  # type: ignore[attr-defined]  # each is a NamedTuple
    first = frame.select(*fields).orderBy(*order).limit(rows)
    return [kind(*row) for row in first.select(*_plain(first)).collect()]


def _by_caller() -> Column:
    return f.col("seen_by") == "caller"


def _by_weight() -> Column:
    return (
        f.when(f.col("weight") == FAULT, 0)
        .when(f.col("weight") == UNCHECKED, 1)
        .when(f.col("weight") == NOTICE, 2)
        .otherwise(0)
    )


def _finding_kinds(findings: DataFrame) -> list[FindingKind]:
    kinds = findings.groupBy("weight", "kind").agg(
        f.count("*").alias("findings"),
        f.sum("count").alias("events"),
        f.count_distinct("journal").alias("journals"),
    )
    return _take(kinds, FindingKind, TOP_ROWS, _by_weight(), f.col("findings").desc(), "kind")


def _traffic(traffic: DataFrame) -> tuple[int, list[TrafficPoint]]:
    """Width of a bucket in seconds, and what the nodes sent in each.

    Each event once: what its sender has, or, where that keeps no journal, its receiver.
    """
    journals = traffic.select(f.col("node").alias("peer")).distinct()
    sent = traffic.where("direction = 'sent'").withColumn("sender", f.col("node"))
    heard = (
        traffic.where("direction = 'received'")
        .join(journals, "peer", "left_anti")
        .withColumn("sender", f.col("peer"))
    )
    names = ("minute", "sender", "events", "wire_bytes")
    counted = sent.select(*names).unionByName(heard.select(*names))
    bounds = _one(traffic.agg(f.min("minute"), f.max("minute")))
    if bounds[0] is None:
        return _WIDTHS[0], []
    seconds = (bounds[1] - bounds[0]) // 1_000_000 + 60
    width = next((one for one in _WIDTHS if seconds <= one * TIME_BUCKETS), _WIDTHS[-1])
    first = (
        counted.groupBy("sender")
        .agg(f.sum("wire_bytes").alias("wire_bytes"))
        .orderBy(f.col("wire_bytes").desc(), "sender")
        .limit(TOP_SENDERS)
    )
    top = [row[0] for row in first.select("sender").collect()]
    # Of more than the widest buckets hold, which is 13 years, the last ones are shown.
    bucket = f.floor(f.unix_seconds("minute") / width) * width * 1_000_000
    points = (
        counted.select(
            bucket.cast("long").alias("time"),
            f.when(f.col("sender").isin(top), f.col("sender")).alias("sender"),
            "events",
            "wire_bytes",
        )
        .groupBy("time", "sender")
        .agg(f.sum("events").alias("events"), f.sum("wire_bytes").alias("wire_bytes"))
    )
    most = (TIME_BUCKETS + 2) * (TOP_SENDERS + 1)
    taken = _take(points, TrafficPoint, most, f.col("time").desc(), "sender")
    return width, sorted(taken, key=lambda point: (point.time, point.sender or ""))


def _nodes(graph: DataFrame, traffic: DataFrame, findings: DataFrame) -> DataFrame:
    """One row for each node, with the columns of `NodeRow`."""
    none = f.lit(0).cast("long")
    sums = ("sent_events", "sent_bytes", "received_events", "received_bytes")
    sending = graph.select(
        f.col("sender").alias("node"),
        f.col("receiver").alias("peer"),
        f.col("events").alias(sums[0]),
        f.col("wire_bytes").alias(sums[1]),
        none.alias(sums[2]),
        none.alias(sums[3]),
    )
    receiving = graph.select(
        f.col("receiver").alias("node"),
        f.col("sender").alias("peer"),
        none.alias(sums[0]),
        none.alias(sums[1]),
        f.col("events").alias(sums[2]),
        f.col("wire_bytes").alias(sums[3]),
    )
    journals = traffic.select("node", f.lit(True).alias("journal")).distinct()
    faults = (
        findings.where(f.col("weight") == FAULT)
        .groupBy(f.col("journal").alias("node"))
        .agg(f.count("*").alias("faults"))
    )
    return (
        sending.unionByName(receiving)
        .groupBy("node")
        .agg(f.count_distinct("peer").alias("peers"), *(f.sum(name).alias(name) for name in sums))
        .join(journals, "node", "full")
        .join(faults, "node", "left")
        .where(f.col("node").isNotNull())
        .fillna(0, subset=["peers", "faults", *sums])
        .fillna(False, subset=["journal"])
    )


def _volume() -> Column:
    return f.col("sent_bytes") + f.col("received_bytes")


def _edges(graph: DataFrame, nodes: DataFrame) -> list[Edge]:
    """What the busiest nodes sent each other."""
    busiest = nodes.orderBy(_volume().desc(), "node").limit(TOP_NODES).select("node")
    named = [row[0] for row in busiest.collect()]
    between = graph.where(f.col("sender").isin(named) & f.col("receiver").isin(named))
    return _take(between, Edge, TOP_NODES**2, f.col("events").desc(), "sender", "receiver")


def _links(tunnels: DataFrame) -> list[TunnelLink]:
    """Who joined tunnels with whom: between the nodes with the most."""
    steps = f.transform(
        f.sequence(f.lit(0), f.size("path") - 2),
        lambda at: f.struct(
            f.col("path")[at].alias("before"), f.col("path")[at + 1].alias("after")
        ),
    )
    between = (
        tunnels.select("tunnels", "forward", "back", f.explode(steps).alias("step"))
        .where("step.before is not null and step.after is not null")
        .groupBy("step.before", "step.after")
        .agg(*(total(name).alias(name) for name in ("tunnels", "forward", "back")))
    )
    nodes = (
        between.select(f.explode(f.array("before", "after")).alias("node"), "tunnels")
        .groupBy("node")
        .agg(f.sum("tunnels").alias("tunnels"))
        .orderBy(f.col("tunnels").desc(), "node")
        .limit(TOP_NODES)
    )
    named = [row[0] for row in nodes.collect()]
    if not named:
        return []
    shown = between.where(f.col("before").isin(named) & f.col("after").isin(named))
    by_tunnels = f.col("tunnels").desc()
    return _take(shown, TunnelLink, TOP_NODES**2, by_tunnels, "before", "after")


def _servers(nodes: DataFrame, links: list[TunnelLink]) -> list[NodeRow]:
    """The nodes of the links, as far as they have sessions or a journal."""
    named = sorted({node for link in links for node in (link.before, link.after)})
    if not named:
        return []
    return _take(nodes.where(f.col("node").isin(named)), NodeRow, TOP_NODES, "node")


def _groups(sessions: DataFrame, name: Column) -> list[SessionGroup]:
    groups = sessions.groupBy(name.alias("name")).agg(f.count("*").alias("sessions"))
    return _take(groups, SessionGroup, TOP_ROWS, f.col("sessions").desc(), "name")


def _closing() -> Column:
    """How a session ended by either end: its code, or that no journal has an end."""
    return f.coalesce(f.coalesce("initiator_code", "responder_code").cast("string"), f.lit(""))
