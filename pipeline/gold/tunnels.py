"""Tunnels, one row for each trace: the way that it went, and how much went through.

All of it is the servers' own word; what their neighbours say against it is in the findings. It
works without an auditor's key.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pipeline.reconcile.tunnels import total


def tunnels(silver_tunnels: DataFrame) -> DataFrame:
    """Columns: trace, path, length, hops, tunnels, began, ended, duration_us, forward, back.

    `path` has the node ids in their order, null where no journal says which: first the account,
    if it dialled its home and that says so, then the `length` ids of the path. `hops` is how many
    servers have a record, `tunnels` the most that one has: more than one if the origin used the
    trace again. `began`, `ended`, `forward` and `back` are those of the first of these servers.
    """
    by_hop = silver_tunnels.groupBy("trace", "hop").agg(
        f.count("*").alias("tunnels"),
        f.max("length").alias("length"),
        f.min("began").alias("began"),
        f.max("ended").alias("ended"),
        # Of one server's two times, never of two clocks.
        f.max(f.unix_micros("ended") - f.unix_micros("began")).alias("duration_us"),
        total("forward").alias("forward"),
        total("back").alias("back"),
    )
    first = ("began", "ended", "forward", "back")
    summed = by_hop.groupBy("trace").agg(
        f.max("length").cast("int").alias("length"),
        f.count("*").cast("int").alias("hops"),
        f.max("tunnels").alias("tunnels"),
        f.max("duration_us").alias("duration_us"),
        *(f.min_by(name, "hop").alias(name) for name in first),
    )
    return summed.join(_known(silver_tunnels), "trace").select(
        "trace",
        f.transform(
            f.sequence(f.least(f.lit(0), "start"), f.col("length") - 1),
            lambda at: f.try_element_at("known", at),
        ).alias("path"),
        "length",
        "hops",
        "tunnels",
        "began",
        "ended",
        "duration_us",
        "forward",
        "back",
    )


def _known(silver_tunnels: DataFrame) -> DataFrame:
    """Which node is at which index of a path: by its own word, or else by a neighbour's."""
    hop = f.col("hop").cast("int")
    nodes = ((hop - 1, True, "before"), (hop, False, "journal"), (hop + 1, True, "after"))
    said = f.array(
        *(
            f.struct(at.alias("at"), f.lit(neighbour).alias("neighbour"), f.col(node).alias("node"))
            for at, neighbour, node in nodes
        )
    )
    return (
        silver_tunnels.select("trace", f.explode(said).alias("one"))
        .select("trace", "one.*")
        .groupBy("trace", "at")
        .agg(f.min(f.struct("neighbour", "node")).alias("one"))
        .groupBy("trace")
        .agg(
            f.min("at").alias("start"),
            f.map_from_entries(f.collect_list(f.struct("at", "one.node"))).alias("known"),
        )
    )
