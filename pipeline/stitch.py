"""What only the ranges together tell: seals that came in a later one, and what is between.

Ranges are verified each from its own checkpoint. Here the end of each span of a direction
is compared with the beginning of the next: if they are the same chain value and place, the
first valid seal of a later span vouches for the events that were pending; if not, something
is missing or a checkpoint is forged. One rule: only rows of spans, pending events and
segments are looked at, never those of events that are final.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from node.journal import keys
from pipeline.silver_schema import (
    EVENT,
    FINDING,
    FINDING_FIELDS,
    PENDING,
    SPAN,
    SPAN_FIELDS,
    WALKED,
    fields,
)

# In the stitched table: the last span of each direction that goes on, and the last number of
# each run's segments.
TIP: Final = "tip"
SEGMENT: Final = "segment"
_SEGMENT_FIELDS: Final[dict[str, DataType]] = {
    name: FINDING_FIELDS[source]
    for name, source in (
        ("journal", "journal"),
        ("run", "kind"),
        ("number", "count"),
        ("first", "count"),
    )
}
_RUN: Final = 53  # where `<start>` begins in a segment's stem
_RUN_SIZE: Final = len("20261121T000000000000Z")
_NUMBER: Final = _RUN + _RUN_SIZE + 1


@contextmanager
def stitch(walked: DataFrame, segments: DataFrame, before: DataFrame) -> Iterator[DataFrame]:
    """The stitched rows of a batch, in the columns of `WALKED`.

    `walked` are the batch's rows of silver, `segments` its bronze rows of kind `segment`,
    `before` what this function gave for the batch before, or an empty frame. In `part`: events
    that are final now, findings, and for the next batch what is still pending, tips, segments.
    """
    spans = _spans(walked.where(f.col("part") == SPAN), before.where(f.col("part") == TIP))
    # Both are small, and looked at several times.
    runs = _runs(segments, before.where(f.col("part") == SEGMENT)).persist()
    linked = _link(spans, runs).persist()
    pending = walked.where(f.col("part") == PENDING).unionByName(
        before.where(f.col("part") == PENDING)
    )
    parts = (
        _told(pending, linked),
        _as_walked(_broken(linked), FINDING, FINDING_FIELDS),
        _as_walked(_without_start(linked), FINDING, FINDING_FIELDS),
        _as_walked(_without_end(linked), FINDING, FINDING_FIELDS),
        _as_walked(_missing_segments(runs), FINDING, FINDING_FIELDS),
        _as_walked(linked.where("tip").select(*SPAN_FIELDS), TIP, SPAN_FIELDS),
        _as_walked(_last_numbers(runs), SEGMENT, _SEGMENT_FIELDS),
    )
    try:
        yield reduce(DataFrame.unionByName, parts)
    finally:
        linked.unpersist()
        runs.unpersist()


def parsed(rows: DataFrame, types: dict[str, DataType]) -> DataFrame:
    """The rows that are in `other`, as columns."""
    return rows.select(f.from_json("other", fields(types)).alias("one")).select("one.*")


# Spans.


def _spans(new: DataFrame, tips: DataFrame) -> DataFrame:
    one = parsed(new, SPAN_FIELDS).withColumn("new", f.lit(True))
    return one.unionByName(parsed(tips, SPAN_FIELDS).withColumn("new", f.lit(False)))


def _link(spans: DataFrame, runs: DataFrame) -> DataFrame:
    """Spans with what follows each: `fits`, the time of the `seal` that vouches for its end."""
    ways = Window.partitionBy("journal", "session", "direction").orderBy("segment", "offset")
    spans = spans.withColumns(
        {
            "next_chain": f.lead("start_chain").over(ways),
            "next_place": f.lead("start_place").over(ways),
            "next_segment": f.lead("segment").over(ways),
            "next_offset": f.lead("offset").over(ways),
            "next_new": f.lead("new").over(ways),
            "next_state": f.lead("start_state").over(ways),
            "has_before": f.lag("end_chain").over(ways).isNotNull(),
        }
    )
    fits = (
        (f.col("next_chain") == f.col("end_chain"))
        & (f.col("next_place") == f.col("end_place"))
        & (f.col("next_state") == f.col("end_state"))
        & ~f.col("ended")
    )
    spans = spans.withColumn("fits", fits).withColumn("last", f.col("next_chain").isNull())
    spans = spans.withColumn("alive", f.col("last") & ~f.col("ended"))
    # Spans that fit each other are one piece; its number counts the breaks before.
    breaks = f.when(f.coalesce(~f.col("fits"), f.lit(False)), 1).otherwise(0)
    before = ways.rowsBetween(Window.unboundedPreceding, -1)
    spans = spans.withColumn("piece", f.coalesce(f.sum(breaks).over(before), f.lit(0)))
    piece = (
        Window.partitionBy("journal", "session", "direction", "piece")
        .orderBy("segment", "offset")
        .rowsBetween(1, Window.unboundedFollowing)
    )
    later = runs.groupBy("journal").agg(f.max("run").alias("last_run"))
    firsts = runs.groupBy("journal", "run").agg(f.min("first").alias("first_number"))
    spans = spans.withColumns(
        {
            "seal_ns": f.first("sealed_ns", ignorenulls=True).over(piece),
            "alive_later": f.max("alive").over(piece),
            "run": _run(f.col("segment")),
        }
    )
    spans = spans.join(f.broadcast(later), "journal", "left")
    spans = spans.join(f.broadcast(firsts), ["journal", "run"], "left")
    number = f.substring("segment", _NUMBER + 1, 20).cast("long")
    # What began in segments that were pruned has no beginning here.
    pruned = (f.col("first_number") > 0) & (number == f.col("first_number"))
    headless = f.col("new") & ~f.col("started") & ~f.col("has_before")
    over = f.coalesce(f.col("run") < f.col("last_run"), f.lit(False))
    goes_on = f.col("alive") | f.coalesce(f.col("alive_later"), f.lit(False))
    # A seal may still come: this piece is the direction's last, and the session is open.
    waits = goes_on & ~over & f.col("seal_ns").isNull()
    return spans.withColumns(
        {
            "without_start": headless & ~f.coalesce(pruned, f.lit(False)),
            "without_end": f.col("alive") & over,
            "waits": waits,
            "tip": (f.col("alive") & ~over) | (waits & (f.col("pending") > 0)),
        }
    )


def _broken(spans: DataFrame) -> DataFrame:
    """Findings: two spans that do not fit each other."""
    missing = f.col("next_place") - f.col("end_place") - f.col("unplaced")
    is_gap = f.coalesce(missing > 0, f.lit(False))
    is_broken = f.col("unplaced") > 0
    evidence = (
        f.when(is_gap, _text(missing, " events are missing before this range"))
        .when(
            is_broken,
            _text(
                "the chain does not lead on: bytes were altered at this place; ",
                f.col("unplaced"),
                " events up to the end of this range cannot be verified",
            ),
        )
        .when(f.col("ended"), "the session goes on behind its end")
        .otherwise(
            _text(
                "the checkpoint names place ",
                f.col("next_place"),
                "; that, its chain value or the session's own values are not those found before "
                "it, at place ",
                f.col("end_place"),
            )
        )
    )
    breaks = f.coalesce(~f.col("fits") & f.col("next_new"), f.lit(False))
    is_last = f.col("last") & f.col("new") & is_broken
    kind = f.when(is_gap, "gap").when(is_broken, "bad-chain").otherwise("checkpoint-mismatch")
    after = f.col("end_place") + 1
    count = f.when(is_gap, missing).when(is_broken, f.col("unplaced")).otherwise(f.lit(1))
    return spans.where(breaks | is_last).select(
        kind.alias("kind"),
        "journal",
        f.coalesce("next_segment", "end_segment").alias("segment"),
        "session",
        "direction",
        f.when(is_gap | is_broken, after).otherwise(f.col("end_place")).alias("place"),
        f.lit(None).cast("long").alias("time_ns"),
        f.coalesce("next_offset", "end_offset").alias("offset"),
        count.alias("count"),
        evidence.alias("evidence"),
    )


def _text(*parts: str | Column) -> Column:
    return f.concat(
        *(f.lit(part) if isinstance(part, str) else part.cast("string") for part in parts)
    )


def _without_start(spans: DataFrame) -> DataFrame:
    """Findings: sessions that are there all at once."""
    where = f.min("segment").alias("segment"), f.min("offset").alias("offset")
    told = "a checkpoint of a session that neither began nor was there at the last block"
    return _of_sessions(spans.where("without_start"), "no-start", where, told)


def _without_end(spans: DataFrame) -> DataFrame:
    """Findings: sessions that were open when a run ended without a word."""
    where = f.max("end_segment").alias("segment"), f.max("end_offset").alias("offset")
    told = "the journal ended while this session was open: the node did not end well"
    return _of_sessions(spans.where("without_end"), "no-end", where, told)


def _of_sessions(
    spans: DataFrame, kind: str, where: tuple[Column, Column], evidence: str
) -> DataFrame:
    """One finding for each session of some spans."""
    found = spans.groupBy("journal", "session").agg(*where)
    nothing = f.lit(None)
    return found.select(
        f.lit(kind).alias("kind"),
        "journal",
        "segment",
        "session",
        nothing.cast("string").alias("direction"),
        nothing.cast("long").alias("place"),
        nothing.cast("long").alias("time_ns"),
        "offset",
        f.lit(1).cast("long").alias("count"),
        f.lit(evidence).alias("evidence"),
    )


# Segments.


def _run(segment: Column) -> Column:
    return f.substring(segment, _RUN + 1, _RUN_SIZE)


def _runs(segments: DataFrame, before: DataFrame) -> DataFrame:
    new = segments.where((f.col("kind") == keys.SEGMENT) & ~f.col("lead")).select(
        "journal",
        _run(f.col("segment")).alias("run"),
        f.col("number").cast("long"),
        f.col("number").cast("long").alias("first"),
    )
    return new.unionByName(parsed(before, _SEGMENT_FIELDS)).where(f.col("run").isNotNull())


def _missing_segments(runs: DataFrame) -> DataFrame:
    order = Window.partitionBy("journal", "run").orderBy("number")
    stem = f.format_string("%s-%s-%08d", "journal", "run", "number")
    missing = f.col("number") - f.col("before") - 1
    return (
        runs.select("journal", "run", "number")
        .distinct()
        .withColumn("before", f.lag("number").over(order))
        .where(missing > 0)
        .select(
            f.lit("missing-segment").alias("kind"),
            "journal",
            stem.alias("segment"),
            f.lit(None).cast("string").alias("session"),
            f.lit(None).cast("string").alias("direction"),
            f.lit(None).cast("long").alias("place"),
            f.lit(None).cast("long").alias("time_ns"),
            f.lit(0).cast("long").alias("offset"),
            missing.alias("count"),
            f.concat(missing.cast("string"), f.lit(" segments are missing before this one")).alias(
                "evidence"
            ),
        )
    )


def _last_numbers(runs: DataFrame) -> DataFrame:
    return (
        runs.groupBy("journal", "run")
        .agg(f.max("number").alias("number"), f.min("first").alias("first"))
        .withColumn("segment", f.format_string("%s-%s-%08d", "journal", "run", "number"))
    )


# Events.


def _told(pending: DataFrame, spans: DataFrame) -> DataFrame:
    """What is pending, with what the spans tell: final events, and those that still wait."""
    where = f.concat_ws(":", f.col("segment"), f.col("offset").cast("string"))
    verdicts = spans.select(
        "journal",
        "session",
        "direction",
        where.alias("other"),
        "seal_ns",
        "waits",
    )
    rows = pending.join(f.broadcast(verdicts), ["journal", "session", "direction", "other"], "left")
    sealed = f.col("seal_ns").isNotNull()
    waits = ~sealed & f.coalesce(f.col("waits"), f.lit(False))
    delay = f.floor(f.col("seal_ns") / 1000) - f.unix_micros("time")
    return rows.select(
        *(
            f.col(name)
            for name in WALKED.fieldNames()
            if name not in ("status", "seal_delay_us", "part", "other")
        ),
        f.when(sealed | waits, f.col("status")).otherwise("unsealed").alias("status"),
        f.when(sealed, delay).alias("seal_delay_us"),
        f.when(waits, PENDING).otherwise(EVENT).alias("part"),
        f.when(waits, f.col("other")).alias("other"),
    ).select(*WALKED.fieldNames())


def _as_walked(rows: DataFrame, part: str, types: dict[str, DataType]) -> DataFrame:
    """Rows of another kind in the columns of silver."""
    whole = f.to_json(f.struct(*types))
    start = f.to_date(f.substring("segment", _RUN + 1, 8), "yyyyMMdd")
    given = {
        "other": whole,
        "part": f.lit(part),
        "date": f.coalesce(start, f.lit("1970-01-01").cast("date")),
        "time": f.to_timestamp(start),
        "journal": f.col("journal"),
        "segment": f.col("segment"),
    }
    empty = f.lit(None)
    return rows.select(
        *(
            given.get(field.name, empty.cast(field.dataType)).alias(field.name)
            for field in WALKED.fields
        )
    )
