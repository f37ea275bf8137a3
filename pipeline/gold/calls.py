"""Calls and named events with an answer: how many, how they ended, how long they took.

A call is counted as one journal has it: the caller's latency includes the way there and back, the
callee's does not, and no two clocks are compared.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.gold.requests import paired_requests

# Ranks are exact for as many calls in a row of the table, and right to 1/10,000 beyond.
ACCURACY: Final = 10_000
QUANTILES: Final = {"p50_us": 0.5, "p95_us": 0.95, "p99_us": 0.99}
# A peer chooses its codes: all from here on are counted as one.
LAST_CODE: Final = 65_536

_KEY: Final = ("scope", "kind", "topic", "namespace", "caller", "callee", "seen_by")
_COUNTS: Final = ("calls", "answered", "unanswered", "errors")


def calls(events: DataFrame) -> DataFrame:
    """Columns: scope, kind, topic, namespace, caller, callee, seen_by, calls, answered,
    unanswered, errors, parts, p50_us, p95_us, p99_us, max_us, first, last, error_codes.

    `scope` is `pair`, or `topic` for the sum over all pairs (caller and callee null). Empty
    without an auditor's key.
    """
    asked = _in_scopes(events)
    failed = f.col("code") != 0
    sums = asked.groupBy(*_KEY).agg(
        f.count("*").alias("calls"),
        f.count("code").alias("answered"),
        f.count_if(f.col("code").isNull()).alias("unanswered"),
        f.count_if(failed).alias("errors"),
        f.sum("parts").alias("parts"),
        f.percentile_approx("latency_us", list(QUANTILES.values()), ACCURACY).alias("quantiles"),
        f.max("latency_us").alias("max_us"),
        f.min("time").alias("first"),
        f.max("time").alias("last"),
    )
    codes = (
        asked.where(failed)
        .groupBy(*_KEY, f.least("code", f.lit(LAST_CODE)).alias("error"))
        .agg(f.count("*").alias("count"))
        .groupBy(*_KEY)
        .agg(
            f.map_from_entries(f.sort_array(f.collect_list(f.struct("error", "count")))).alias(
                "error_codes"
            )
        )
    )
    same = [f.col(f"s.{name}").eqNullSafe(f.col(f"c.{name}")) for name in _KEY]
    return (
        sums.alias("s")
        .join(codes.alias("c"), same, "left")
        .select(
            *(f.col(f"s.{name}") for name in (*_KEY, *_COUNTS, "parts")),
            *(f.col("s.quantiles")[at].alias(name) for at, name in enumerate(QUANTILES)),
            *(f.col(f"s.{name}") for name in ("max_us", "first", "last")),
            f.col("c.error_codes"),
        )
    )


def _in_scopes(events: DataFrame) -> DataFrame:
    """Each call twice: for its pair of nodes, and for its topic as a whole."""
    none = f.lit(None).cast("string")
    pair = (f.lit("pair"), f.col("asker"), f.col("answerer"))
    whole = (f.lit("topic"), none, none)
    names = ("scope", "caller", "callee")
    scopes = f.array(
        *(
            f.struct(*(value.alias(name) for value, name in zip(scope, names, strict=True)))
            for scope in (pair, whole)
        )
    )
    kept = ("topic", "namespace", "time", "code", "parts", "latency_us")
    asked = paired_requests(events).where(f.col("type").isin("call", "emit"))
    return asked.select(
        f.inline(scopes),
        f.col("type").alias("kind"),
        f.when(f.col("asked") == "sent", "caller").otherwise("callee").alias("seen_by"),
        *kept,
    )
