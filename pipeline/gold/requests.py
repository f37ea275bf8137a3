"""Requests and what answered them, from each end's journal on its own.

An async id is used again once its final answer has come, so an answer belongs to the last request
with its stream and async id that stands before it in the same journal.

No window spans more than a block of a journal: a request whose answer stands in a later block is
found by what each block ends with, one row a block.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from pipeline.reconcile.ends import wire_events

REQUESTS: Final = ("call", "subscribe", "unsubscribe", "notify", "emit")
PARTS: Final = ("chunk", "reply")
FINALS: Final = ("result", "error", "end")
BLOCK_BITS: Final = 24  # 16 MiB of a segment: at most some 300,000 events

_KEY: Final = ("journal", "session", "stream", "async_id", "asked")


def paired_requests(events: DataFrame) -> DataFrame:
    """One row for each request that wants an answer, in each journal that has it.

    Columns: journal, session, asked ('sent': the journal is the asking node's), type, topic,
    namespace, asker, answerer, time, code and answered (null without a final answer), parts
    (chunks and replies before it), latency_us.
    """
    request = f.col("opener") == f.col("at")
    answer = f.struct("final", "time", f.coalesce("code", f.lit(0)).alias("code"))
    paired = (
        _with_openers(_requests_and_answers(events))
        .where(f.col("opener").isNotNull())
        .groupBy(*_KEY, "opener")
        .agg(
            *(
                f.max(f.when(request, f.col(name))).alias(name)
                for name in ("type", "topic", "namespace", "sender", "receiver", "time")
            ),
            f.min(f.when(f.col("final").isNotNull(), answer)).alias("answer"),
            f.count_if("is_part").alias("parts"),
        )
    )
    took = f.unix_micros("answer.time") - f.unix_micros("time")
    return paired.select(
        "journal",
        "session",
        "asked",
        "type",
        "topic",
        "namespace",
        f.col("sender").alias("asker"),
        f.col("receiver").alias("answerer"),
        "time",
        f.col("answer.code").alias("code"),
        f.col("answer.time").alias("answered"),
        "parts",
        # A clock that was set back between the two says nothing of how long it took.
        f.when(took >= 0, took).alias("latency_us"),
    )


def _requests_and_answers(events: DataFrame) -> DataFrame:
    """The events that ask or answer, each with where it stands; `opener` is a request's own."""
    own = f.col("type").isin(*REQUESTS)
    wanted = f.col("type").isin(*REQUESTS, *PARTS, *FINALS) & (f.col("async_id") > 0)
    other = f.when(f.col("direction") == "sent", "received").otherwise("sent")
    at = f.struct("segment", "offset")
    return (
        wire_events(events)
        .where(wanted)
        .select(
            "journal",
            "session",
            "stream",
            "async_id",
            f.when(own, f.col("direction")).otherwise(other).alias("asked"),
            at.alias("at"),
            f.struct("segment", f.shiftright("offset", BLOCK_BITS).alias("part")).alias("block"),
            f.when(own, at).alias("opener"),
            f.when(f.col("type").isin(*FINALS), at).alias("final"),
            f.col("type").isin(*PARTS).alias("is_part"),
            "type",
            "topic",
            "namespace",
            "sender",
            "receiver",
            "time",
            "code",
        )
    )


def _with_openers(rows: DataFrame) -> DataFrame:
    """Each row with the request that it belongs to: the last one at or before it."""
    within = Window.partitionBy(*_KEY, "block").orderBy("at")
    upto = within.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    found = rows.withColumn("opener", f.last("opener", ignorenulls=True).over(upto))
    earlier = Window.partitionBy(*_KEY).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    carried = (
        rows.groupBy(*_KEY, "block")
        .agg(f.max("opener").alias("opener"))
        .select(*_KEY, "block", f.last("opener", ignorenulls=True).over(earlier).alias("carried"))
        .where(f.col("carried").isNotNull())
    )
    return (
        found.join(carried, [*_KEY, "block"], "left")
        .withColumn("opener", f.coalesce("opener", "carried"))
        .drop("carried")
    )
