"""The gold tables on disk: all made anew together, and read only as a whole.

    gold/NAME/slot=0|1[/date=D]/      a table, each time in the other slot
    gold/refreshed/slot=0|1/          one row: when all tables of that slot were complete

Readers take the slot that was completed last, and a refresh writes to the other one, so a reader
sees tables of one moment even while they are made anew. A reader that is still busy two
refreshes later must start again.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.gold.calls import calls
from pipeline.gold.findings import findings
from pipeline.gold.sessions import sessions
from pipeline.gold.topics import topics
from pipeline.gold.traffic import graph, traffic
from pipeline.gold.tunnels import tunnels

NAMES: Final = ("findings", "traffic", "calls", "topics", "sessions", "graph", "tunnels")
_DATED: Final = frozenset({"traffic"})
_MARK: Final = "refreshed"


def gold_tables(
    events: DataFrame, about: DataFrame, found: DataFrame, joined: DataFrame
) -> dict[str, DataFrame]:
    """All tables by their names, from silver's events, session rows, findings and tunnels."""
    return {
        "findings": findings(events, about, found, joined),
        "traffic": traffic(events),
        "calls": calls(events),
        "topics": topics(events),
        "sessions": sessions(events, about),
        "graph": graph(events),
        "tunnels": tunnels(joined),
    }


def write_gold(
    spark: SparkSession, root: str, tables: Mapping[str, DataFrame], now: datetime
) -> None:
    """Write all tables anew under `root`, with a column `refreshed`, which is `now`."""
    slot = 1 if newest_slot(spark, root) == 0 else 0
    for name, table in tables.items():
        writer = table.withColumn(_MARK, f.lit(now)).write.mode("overwrite")
        if name in _DATED:
            writer = writer.partitionBy("date")
        writer.parquet(_path(root, name, slot))
    mark = spark.range(1).select(f.lit(now).alias(_MARK))
    mark.coalesce(1).write.mode("overwrite").parquet(_path(root, _MARK, slot))


def newest_slot(spark: SparkSession, root: str) -> int | None:
    """The slot that was completed last; None if none was."""
    times = {slot: _completed(spark, root, slot) for slot in (0, 1)}
    known = {slot: time for slot, time in times.items() if time is not None}
    return max(known, key=lambda slot: known[slot]) if known else None


def read_all_gold(spark: SparkSession, root: str) -> dict[str, DataFrame] | None:
    """All gold tables of one moment, by their names; None without any."""
    slot = newest_slot(spark, root)
    if slot is None:
        return None
    return {name: spark.read.parquet(_path(root, name, slot)) for name in NAMES}


def read_gold(spark: SparkSession, root: str, name: str) -> DataFrame | None:
    """A gold table as it was completed last; None if none was."""
    slot = newest_slot(spark, root)
    return None if slot is None else spark.read.parquet(_path(root, name, slot))


def _completed(spark: SparkSession, root: str, slot: int) -> datetime | None:
    try:
        rows = spark.read.parquet(_path(root, _MARK, slot)).collect()
    except AnalysisException:  # it is not there, or is just being written
        return None
    return max((row[_MARK] for row in rows), default=None)


def _path(root: str, name: str, slot: int) -> str:
    return f"{root.rstrip('/')}/gold/{name}/slot={slot}"
