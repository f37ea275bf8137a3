"""All findings in one table: the audit's, those of statuses and those of both ends, with weights.

A kind has the weight that `kinds` gives it; an unknown kind weighs as a fault.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.gold.kinds import FAULT, KINDS
from pipeline.reconcile import FINDING_COLUMNS, reconcile, wire_events

_STATUSES: Final = ("malformed", "unsealed")


def findings(
    events: DataFrame, silver_sessions: DataFrame, silver_findings: DataFrame
) -> DataFrame:
    """Columns: weight, and `FINDING_COLUMNS`."""
    weights = f.create_map(
        *(f.lit(part) for kind, known in KINDS.items() for part in (kind, known.weight))
    )
    found = (
        silver_findings.select(*FINDING_COLUMNS)
        .unionByName(_of_statuses(events))
        .unionByName(reconcile(events, silver_sessions))
    )
    weight = f.coalesce(f.try_element_at(weights, f.col("kind")), f.lit(FAULT))
    return found.select(weight.alias("weight"), *FINDING_COLUMNS)


def _of_statuses(events: DataFrame) -> DataFrame:
    """One finding for all events of a direction that are in their places and yet unread."""
    first = f.struct("place", "time", "segment", "offset")
    count, one, last = f.col("count"), f.col("first.place"), f.col("last")
    which = (
        f.when(count == 1, f.format_string("1 event, at place %d", one))
        .when(
            last - one + 1 == count,
            f.format_string("%d events, at places %d to %d", count, one, last),
        )
        .otherwise(f.format_string("%d events, between places %d and %d", count, one, last))
    )
    return (
        wire_events(events)
        .where(f.col("status").isin(*_STATUSES))
        .groupBy(f.col("status").alias("kind"), "journal", "session", "direction")
        .agg(
            f.count("*").alias("count"),
            f.min(first).alias("first"),
            f.max("place").alias("last"),
        )
        .select("*", "first.*", which.alias("evidence"))
        .select(*FINDING_COLUMNS)
    )
