"""Topics: who publishes, how many subscribe, how many notes, and which subscribers were too slow.

An event counts once, whichever of the two journals has it. The table is empty without an auditor's
key.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from node.protocol.codes import CloseCode
from pipeline.reconcile.ends import known_events, wire_events


def topics(events: DataFrame) -> DataFrame:
    """Columns: topic, publisher, subscriptions, subscribers, notes, payload_bytes,
    slow_resets, first, last.

    A subscription is one accepted Subscribe, a subscriber one node. `slow_resets` counts the
    subscriptions that were ended with Reset `slow-consumer`.
    """
    kept = _subscriptions(events)
    slow = (
        wire_events(events)
        .where((f.col("type") == "reset") & (f.col("code") == int(CloseCode.SLOW_CONSUMER)))
        .select("session", f.col("opens").alias("stream"), f.lit(1).alias("slow"))
        .distinct()
    )
    key = ("topic", "publisher")
    counts = (
        kept.join(slow, ["session", "stream"], "left")
        .groupBy(*key)
        .agg(
            f.count("*").alias("subscriptions"),
            f.count_distinct("subscriber").alias("subscribers"),
            f.count("slow").alias("slow_resets"),
            f.min("first").alias("opened"),
        )
    )
    notes = _notes(events)
    return (
        counts.join(notes, list(key), "full")
        .select(
            *key,
            *(
                f.coalesce(name, f.lit(0)).alias(name)
                for name in (
                    "subscriptions",
                    "subscribers",
                    "notes",
                    "payload_bytes",
                    "slow_resets",
                )
            ),
            f.least("opened", "first").alias("first"),
            f.greatest("opened", "last").alias("last"),
        )
        .where(f.col("topic").isNotNull())
    )


def _subscriptions(events: DataFrame) -> DataFrame:
    """The streams that a Result gave to a subscriber, with the topic that their Open names."""
    wire = wire_events(events)
    granted = wire.where(
        (f.col("type") == "result") & (f.col("code") == 0) & f.col("opens").isNotNull()
    ).select("session", f.col("opens").alias("stream"), f.col("sender").alias("publisher"))
    opened = (
        wire.where(f.col("type") == "open")
        .groupBy("session", "stream", f.col("sender").alias("publisher"))
        .agg(
            f.max("topic").alias("topic"),
            f.max("receiver").alias("subscriber"),
            f.min("time").alias("first"),
        )
    )
    return opened.join(granted.distinct(), ["session", "stream", "publisher"], "left_semi")


def _notes(events: DataFrame) -> DataFrame:
    """How many notes of each topic each publisher sent; the fuller of two journals counts."""
    kept = (
        known_events(events)
        .where(f.col("type").isin("notify", "notes") & (f.col("items") > 0))
        .groupBy("session", "topic", f.col("sender").alias("publisher"), "direction")
        .agg(
            f.count("*").alias("notes"),
            f.sum(f.col("payload_size").cast("long")).alias("payload_bytes"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
        )
    )
    once = kept.groupBy("session", "topic", "publisher").agg(
        f.max("notes").alias("notes"),
        f.max("payload_bytes").alias("payload_bytes"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
    )
    return once.groupBy("topic", "publisher").agg(
        f.sum("notes").alias("notes"),
        f.sum("payload_bytes").alias("payload_bytes"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
    )
