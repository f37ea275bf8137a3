"""Traffic by minute, node, peer, topic, label and direction, and which node talks to which.

Both work without an auditor's key; then `topic`, `namespace` and `label` are null.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipeline.gold.sessions import directions
from pipeline.reconcile.ends import known_events


def traffic(events: DataFrame) -> DataFrame:
    """What went over the wire, as each node's own journal has it.

    An event that two journals have is in two rows, one of each node: to sum over all nodes, take
    the `sent` ones. Columns: date, minute, node, peer, topic, namespace, label, direction, events,
    notes, ok, wire_bytes, payload_bytes.
    """
    peer = f.when(f.col("direction") == "sent", f.col("receiver")).otherwise(f.col("sender"))
    first = f.col("item") == 0
    return (
        known_events(events)
        .groupBy(
            "date",
            f.date_trunc("minute", f.col("time")).alias("minute"),
            f.col("journal").alias("node"),
            peer.alias("peer"),
            "topic",
            "namespace",
            "label",
            "direction",
        )
        .agg(
            f.count_if(first).alias("events"),
            f.count_if(f.col("type").isin("notify", "notes") & (f.col("items") > 0)).alias("notes"),
            f.count_if(first & (f.col("status") == "ok")).alias("ok"),
            _sum(f.when(first, f.col("wire_size"))).alias("wire_bytes"),
            _sum(f.col("payload_size")).alias("payload_bytes"),
        )
    )


def _sum(sizes: Column) -> Column:
    return f.coalesce(f.sum(sizes.cast("long")), f.lit(0))


def graph(events: DataFrame) -> DataFrame:
    """One row for each node and each node that it sent something to.

    Each event counts once, whichever of the two journals has it. Columns: sender, receiver,
    sessions, events, wire_bytes, first, last.
    """
    return (
        directions(events)
        .groupBy("sender", "receiver")
        .agg(
            f.count("*").alias("sessions"),
            f.sum("events").alias("events"),
            f.sum("wire_bytes").alias("wire_bytes"),
            f.min("first").alias("first"),
            f.max("last").alias("last"),
        )
    )
