"""The records of a tunnel's hops, each server's beside its neighbour's.

Records belong together by trace, by hop and by both nodes. An origin may use a trace again, so
what one side has of these is counted and summed up. Times are nobody's but the server's, and a
crash leaves no record: a record that is absent proves nothing, while bytes that do not fit do.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from node.federation.limits import TUNNEL_MEMORY
from pipeline.reconcile.ends import FINDING_COLUMNS

LARGEST: Final = 2**63 - 1
_PAIR: Final = ("trace", "hop", "one", "other")


def total(column: Column | str) -> Column:
    """A sum that stops at the greatest number there is: whoever keeps a journal chooses these."""
    return f.coalesce(f.try_sum(column), f.lit(LARGEST))


def compare_tunnels(tunnels: DataFrame, covered: DataFrame) -> DataFrame:
    """Rows `tunnel-differs`, `tunnel-missing` and `not-covered`.

    `tunnels` are silver's, `covered` says from when to when each journal has records. Of a node
    without a journal nothing is said.
    """
    pairs = _pairs(tunnels)
    return _differing(pairs).unionByName(_missing(pairs, covered))


def _pairs(tunnels: DataFrame) -> DataFrame:
    """One row for each two neighbours and trace: what either has. `hop` is that of `one`."""
    record = f.struct("began", "ended", "segment", "offset")
    said = ("trace", "length", "forward", "back", record.alias("record"))
    forward = tunnels.select(
        *said,
        "hop",
        f.col("journal").alias("one"),
        f.col("after").alias("other"),
        f.lit("one").alias("by"),
        (f.col("hop") + 2 < f.col("length")).alias("expects"),
    )
    back = tunnels.where("hop > 0").select(
        *said,
        (f.col("hop") - 1).alias("hop"),
        f.col("before").alias("one"),
        f.col("journal").alias("other"),
        f.lit("other").alias("by"),
        (f.col("hop") > 1).alias("expects"),
    )

    def of(side: str) -> list[Column]:
        here = f.col("by") == side
        return [
            f.count_if(here).alias(f"{side}_has"),
            f.count_if(here & f.col("expects")).alias(f"{side}_expects"),
            *(
                total(f.when(here, f.col(name))).alias(f"{side}_{name}")
                for name in ("length", "forward", "back")
            ),
            f.min(f.when(here, f.col("record"))).alias(f"{side}_record"),
        ]

    return forward.unionByName(back).groupBy(*_PAIR).agg(*of("one"), *of("other"))


def _differing(pairs: DataFrame) -> DataFrame:
    both = pairs.where((f.col("one_has") == f.col("other_has")) & (f.col("one_has") > 0))
    found = both.withColumn("evidence", _contradiction()).where(f.col("evidence").isNotNull())
    return found.select(
        f.lit("tunnel-differs").alias("kind"),
        f.col("one").alias("journal"),
        *_where("one_record"),
        f.col("one_has").alias("count"),
        "evidence",
    ).select(*FINDING_COLUMNS)


def _contradiction() -> Column:
    """The first contradiction as a sentence, or null."""
    one, other = (f.col("one"), f.col("other"))
    sentences = [
        f.when(
            f.col("one_length") != f.col("other_length"),
            f.format_string(
                "tunnel %s: %s and %s do not say that its path is as long",
                f.col("trace"),
                one,
                other,
            ),
        )
    ]
    for way, (sender, sent), (receiver, passed) in (
        ("forward", (one, "one_forward"), (other, "other_forward")),
        ("back", (other, "other_back"), (one, "one_back")),
    ):
        lost = f.col(sent) - f.col(passed)
        sentences.append(
            f.when(
                (lost < 0) | (lost > TUNNEL_MEMORY * f.col("one_has")),
                f.format_string(
                    f"tunnel %s, {way}: %s sent %d bytes to %s, which sent on %d",
                    f.col("trace"),
                    sender,
                    f.col(sent),
                    receiver,
                    f.col(passed),
                ),
            )
        )
    return f.coalesce(*sentences)


def _missing(pairs: DataFrame, covered: DataFrame) -> DataFrame:
    """What one side says and the other, which keeps a journal, does not."""
    lacking = _lacking(pairs, "one", "other", "gave it to").unionByName(
        _lacking(pairs, "other", "one", "got it from")
    )
    known = lacking.join(covered.withColumnRenamed("journal", "node"), "node")
    began, ended = f.col("record.began"), f.col("record.ended")
    inside = (f.col("first") <= began) & (ended <= f.col("last"))
    return (
        known.withColumn("within", f.coalesce(inside, f.lit(False)))
        .withColumn("pair", f.when(f.col("within"), f.struct(*_PAIR)))
        .groupBy("node", "within", "pair")
        .agg(
            f.sum("missing").alias("count"),
            f.min("record").alias("record"),
            f.min("sentence").alias("sentence"),
        )
        .select(
            f.when(f.col("within"), "tunnel-missing").otherwise("not-covered").alias("kind"),
            f.col("node").alias("journal"),
            *_where("record"),
            "count",
            f.when(f.col("within"), f.col("sentence"))
            .otherwise(
                f.format_string(
                    "%d tunnels in the neighbours' journals that are not wholly within the times "
                    "of this journal",
                    f.col("count"),
                )
            )
            .alias("evidence"),
        )
        .select(*FINDING_COLUMNS)
    )


def _lacking(pairs: DataFrame, witness: str, node: str, did: str) -> DataFrame:
    """Pairs of which `node` has fewer records than the witness says there must be."""
    missing = f.col(f"{witness}_expects") - f.col(f"{node}_has")
    has = f.col(f"{node}_has")
    return pairs.where(missing > 0).select(
        *_PAIR,
        f.col(node).alias("node"),
        missing.alias("missing"),
        f.col(f"{witness}_record").alias("record"),
        f.when(
            has == 0,
            f.format_string(
                f"tunnel %s: %s says that it {did} this node, which has no record of it",
                f.col("trace"),
                f.col(witness),
            ),
        )
        .otherwise(
            f.format_string(
                f"tunnel %s: %s says %d times that it {did} this node, which has %d records of it",
                f.col("trace"),
                f.col(witness),
                f.col(f"{witness}_expects"),
                has,
            )
        )
        .alias("sentence"),
    )


def _where(record: str) -> list[Column]:
    """The columns of a finding that say where, by a record that shows it."""
    return [
        f.lit(None).cast("string").alias("session"),
        f.lit(None).cast("string").alias("direction"),
        f.lit(None).cast("long").alias("place"),
        f.col(f"{record}.began").alias("time"),
        f.col(f"{record}.segment").alias("segment"),
        f.col(f"{record}.offset").alias("offset"),
    ]
