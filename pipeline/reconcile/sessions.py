"""Sessions compared as a whole: contradictory ends, and journals that are missing.

A Close that may have been lost on its way proves nothing, and a missing journal is reported without
a reason. Nothing here looks at what the events say.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from pipeline.reconcile.ends import FINDING_COLUMNS

_COLUMNS: Final = (
    "journal",
    "initiator",
    "ended",
    "end_segment",
    "end_offset",
    "code",
    "remote",
    "received_place",
    "sent_place",
)


def compare_ends(ends: DataFrame) -> DataFrame:
    """A row `end-differs` for each two session ends that cannot both be true.

    They cannot if an end says that it got the other's Close, and the other says that it did
    not send one or one with another code; or if an end says that it received more than the
    other sent.
    """
    ended = ends.where(f.col("ended").isNotNull())
    dialled = _named(ended.where("initiator"), "i")
    answered = _named(ended.where(~f.col("initiator")), "r")
    both = dialled.join(answered, "session").withColumn("evidence", _contradiction())
    found = both.where(f.col("evidence").isNotNull())
    return found.select(
        f.lit("end-differs").alias("kind"),
        f.col("i_journal").alias("journal"),
        "session",
        f.lit(None).cast("string").alias("direction"),
        f.lit(None).cast("long").alias("place"),
        f.col("i_ended").alias("time"),
        f.col("i_end_segment").alias("segment"),
        f.col("i_end_offset").alias("offset"),
        f.lit(1).cast("long").alias("count"),
        "evidence",
    ).select(*FINDING_COLUMNS)


def _named(ends: DataFrame, prefix: str) -> DataFrame:
    return ends.select("session", *(f.col(name).alias(f"{prefix}_{name}") for name in _COLUMNS))


def _contradiction() -> Column:
    """The first contradiction as a sentence, or null."""
    sides = (("i", "r", "initiator", "responder"), ("r", "i", "responder", "initiator"))
    sentences = []
    for a, b, one, other in sides:
        closed = f.col(f"{a}_remote") & (f.col(f"{a}_code") >= 0)
        sentences += [
            f.when(
                closed & f.col(f"{b}_remote") & (f.col(f"{b}_code") >= 0),
                f.lit("each end says that the other closed"),
            ),
            f.when(
                closed & (f.col(f"{a}_code") != f.col(f"{b}_code")),
                f.format_string(
                    f"the {one} was sent Close %d, the {other} ended with %d",
                    f.col(f"{a}_code"),
                    f.col(f"{b}_code"),
                ),
            ),
            f.when(
                f.col(f"{a}_received_place") > f.col(f"{b}_sent_place"),
                f.format_string(
                    f"the {one} received up to place %d, the {other} sent up to %d",
                    f.col(f"{a}_received_place"),
                    f.col(f"{b}_sent_place"),
                ),
            ),
            f.when(
                closed & (f.col(f"{a}_received_place") < f.col(f"{b}_sent_place")),
                f.format_string(
                    f"the {one} got the Close at place %d, the {other} sent up to %d",
                    f.col(f"{a}_received_place"),
                    f.col(f"{b}_sent_place"),
                ),
            ),
        ]
    return f.coalesce(*sentences)


def missing_journals(ends: DataFrame, covered: DataFrame) -> DataFrame:
    """Rows `missing-journal` and `not-covered`; `journal` is the node whose journal is missing.

    A node without any journal: one row, `count` its sessions. A node whose journal has records
    from before a session and from after it but not that session: one row for each session. A
    session that begins before the first or ends after the last record of its journal:
    `not-covered`, one row for the node.
    """
    times = covered.withColumnRenamed("journal", "node")
    told = ends.select(
        "session",
        f.col("peer").alias("node"),
        f.col("journal").alias("other"),
        f.col("started").alias("begins"),
        f.col("last_seen").alias("stops"),
    ).where(f.col("node").isNotNull())
    kept = ends.select("session", f.col("journal").alias("node"))
    lost = told.join(kept, ["session", "node"], "left_anti").join(times, "node", "left")
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
            _absence().alias("evidence"),
        )
        .select(*FINDING_COLUMNS)
    )


def _absence() -> Column:
    """What others' journals have of a node, as a sentence."""
    others = f.col("count"), f.col("others")
    one = f.format_string(
        "%s has this session; this journal has records from before it and from after it, and "
        "none of it",
        f.col("other"),
    )
    every = f.format_string(
        "%d sessions in the journals of %d nodes; no journal of this node was given", *others
    )
    outside = f.format_string(
        "%d sessions in the journals of %d nodes that are not wholly within the times of this "
        "journal",
        *others,
    )
    within = f.col("within")
    return f.when(within == "inside", one).when(within == "none", every).otherwise(outside)
