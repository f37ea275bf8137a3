"""How a session ended, by its one end and by its other.

One rule: a Close that may have been lost on its way proves nothing. Knows no events.
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
