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
# Of a tunnel that was cut off, in a direction: what the first server held, and what was under way.
MOST_LOST: Final = 2 * TUNNEL_MEMORY
_PAIR: Final = ("trace", "hop", "one", "other")
_MISSING: Final = "tunnel-missing"
_OUTSIDE: Final = "not-covered"


def total(column: Column | str) -> Column:
    """A sum that stops at the greatest number there is: whoever keeps a journal chooses these."""
    return f.coalesce(f.try_sum(column), f.lit(LARGEST))


def compare_tunnels(tunnels: DataFrame, covered: DataFrame) -> DataFrame:
    """Rows `tunnel-differs`, `tunnel-missing` and `not-covered`.

    `tunnels` are silver's, `covered` says from when to when each journal has records. Of a node
    without a journal nothing is said.
    """
    found = (
        _pairs(tunnels)
        .select(*_PAIR, f.explode(_disagreements()).alias("found"))
        .select(f.struct(*_PAIR).alias("pair"), "found.*")
        .where(f.col("evidence").isNotNull())
        .join(covered, "journal", "left")
    )
    began, ended = f.col("record.began"), f.col("record.ended")
    inside = (f.col("first") <= began) & (ended <= f.col("last"))
    is_outside = (f.col("kind") == _MISSING) & ~inside
    return (
        found.where((f.col("kind") != _MISSING) | f.col("first").isNotNull())
        .withColumn("kind", f.when(is_outside, _OUTSIDE).otherwise(f.col("kind")))
        .groupBy("kind", "journal", f.when(f.col("kind") != _OUTSIDE, f.col("pair")).alias("of"))
        .agg(
            f.sum("count").alias("count"),
            f.min("record").alias("record"),
            f.min("evidence").alias("evidence"),
        )
        .select(
            "kind",
            "journal",
            f.lit(None).cast("string").alias("session"),
            f.lit(None).cast("string").alias("direction"),
            f.lit(None).cast("long").alias("place"),
            f.col("record.began").alias("time"),
            f.col("record.segment").alias("segment"),
            f.col("record.offset").alias("offset"),
            "count",
            f.when(f.col("kind") != _OUTSIDE, f.col("evidence"))
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


def _disagreements() -> Column:
    """What may be wrong with a pair, by journal; without evidence nothing is."""
    has_both = (f.col("one_has") == f.col("other_has")) & (f.col("one_has") > 0)
    differs = f.struct(
        f.lit("tunnel-differs").alias("kind"),
        f.col("one").alias("journal"),
        f.col("one_record").alias("record"),
        f.col("one_has").alias("count"),
        f.when(has_both, _contradiction()).alias("evidence"),
    )
    return f.array(
        differs, _lacking("one", "other", "gave it to"), _lacking("other", "one", "got it from")
    )


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
    for way, (first, before), (second, behind) in (
        ("forward", (one, "one_forward"), (other, "other_forward")),
        ("back", (other, "other_back"), (one, "one_back")),
    ):
        lost = f.col(before) - f.col(behind)
        sentences.append(
            f.when(
                (lost < 0) | (lost > MOST_LOST * f.col("one_has")),
                f.format_string(
                    f"tunnel %s, {way}: %d bytes at %s, and behind it %d at %s",
                    f.col("trace"),
                    f.col(before),
                    first,
                    f.col(behind),
                    second,
                ),
            )
        )
    return f.coalesce(*sentences)


def _lacking(witness: str, node: str, did: str) -> Column:
    """That `node` has fewer records than the witness says there must be."""
    has, expected = f.col(f"{node}_has"), f.col(f"{witness}_expects")
    one = f.format_string(
        f"tunnel %s: %s says that it {did} this node, which has no record of it",
        f.col("trace"),
        f.col(witness),
    )
    several = f.format_string(
        f"tunnel %s: %s says %d times that it {did} this node, which has %d records of it",
        f.col("trace"),
        f.col(witness),
        expected,
        has,
    )
    sentence = f.when(has == 0, one).otherwise(several)
    return f.struct(
        f.lit(_MISSING).alias("kind"),
        f.col(node).alias("journal"),
        f.col(f"{witness}_record").alias("record"),
        (expected - has).alias("count"),
        f.when(expected > has, sentence).alias("evidence"),
    )
