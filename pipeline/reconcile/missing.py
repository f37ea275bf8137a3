"""Nodes that others talked to and whose own record of it is not there.

One rule: it tells what is missing, not why. Knows nothing of what the events say.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.reconcile.ends import FINDING_COLUMNS


def missing_journals(events: DataFrame, ends: DataFrame) -> DataFrame:
    """Rows `missing-journal` and `not-covered`; `journal` is the node whose journal is missing.

    A node without any journal: one row, `count` its sessions. A node whose journal has records
    from before a session and from after it but not that session: one row for each session. A
    session that begins before the first or ends after the last record of its journal:
    `not-covered`, one row for the node.
    """
    times = events.select("journal", f.col("time").alias("first"), f.col("time").alias("last"))
    seen = ends.select("journal", "first_seen", "last_seen").toDF("journal", "first", "last")
    covered = (
        times.unionByName(seen)
        .groupBy("journal")
        .agg(f.min("first").alias("first"), f.max("last").alias("last"))
        .withColumnRenamed("journal", "node")
    )
    told = ends.select(
        "session",
        f.col("peer").alias("node"),
        f.col("journal").alias("other"),
        f.col("started").alias("begins"),
        f.col("last_seen").alias("stops"),
    ).where(f.col("node").isNotNull())
    kept = ends.select("session", f.col("journal").alias("node"))
    lost = told.join(kept, ["session", "node"], "left_anti").join(covered, "node", "left")
    inside = (f.col("first") <= f.col("begins")) & (f.col("stops") <= f.col("last"))
    within = f.when(f.col("first").isNull(), f.lit("none")).otherwise(
        f.when(inside, f.lit("inside")).otherwise(f.lit("outside"))
    )
    return (
        lost.withColumn("within", within)
        .withColumn("one", f.when(within == "inside", f.col("session")))
        .groupBy("node", "within", "one")
        .agg(
            f.count("*").alias("count"),
            f.min("begins").alias("time"),
            f.count_distinct("other").alias("others"),
            f.min("other").alias("other"),
        )
        .select(
            f.when(f.col("within") == "outside", f.lit("not-covered"))
            .otherwise(f.lit("missing-journal"))
            .alias("kind"),
            f.col("node").alias("journal"),
            f.col("one").alias("session"),
            f.lit(None).cast("string").alias("direction"),
            f.lit(None).cast("long").alias("place"),
            "time",
            f.lit(None).cast("string").alias("segment"),
            f.lit(None).cast("long").alias("offset"),
            "count",
            f.when(
                f.col("within") == "inside",
                f.format_string(
                    "%s has this session; this journal has records from before it and from "
                    "after it, and none of it",
                    f.col("other"),
                ),
            )
            .when(
                f.col("within") == "none",
                f.format_string(
                    "%d sessions in the journals of %d nodes; no journal of this node was given",
                    f.col("count"),
                    f.col("others"),
                ),
            )
            .otherwise(
                f.format_string(
                    "%d sessions in the journals of %d nodes that are not wholly within the "
                    "times of this journal",
                    f.col("count"),
                    f.col("others"),
                )
            )
            .alias("evidence"),
        )
        .select(*FINDING_COLUMNS)
    )
