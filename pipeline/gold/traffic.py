"""Traffic by minute, node, peer, topic, label and direction, as each node's own journal has it.

One rule: an event that two journals have is in two rows, one of each node: whoever sums over
all nodes takes the `sent` ones. Works without an auditor's key; then `topic`, `namespace` and
`label` are null.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipeline.reconcile.ends import known_events


def traffic(events: DataFrame) -> DataFrame:
    """Columns: date, minute, node, peer, topic, namespace, label, direction, events, notes, ok,
    wire_bytes, payload_bytes."""
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
