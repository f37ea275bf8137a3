"""Gold on a file system that only Spark can access: a cluster's or a Connect server's.

This process receives only summaries, gold's own tables and the events where two journals differ, as
Arrow tables.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from parley._pipeline.gold.refresh import newest
from parley._pipeline.gold.store import (
    EVENT_ROWS,
    MARK,
    MARKS,
    PACKED,
    GoldDirectory,
    GoldStore,
    is_dated,
)
from parley._pipeline.reconcile.events import EventQuery
from parley._pipeline.schema import EVENT, PENDING, WALKED
from parley._pipeline.summary.facts import BLOCK_BITS
from parley._pipeline.tables import BATCH, Tables, local_directory


def store_of(tables: Tables) -> GoldStore:
    """Return the store of gold: a `GoldDirectory` if this process can access the directory."""
    root = local_directory(tables.root)
    if root is None or is_remote() or not (root / "stitched").is_dir():
        return GoldCluster(tables)
    return GoldDirectory(root)


def read_gold(spark: SparkSession, root: str, name: str) -> DataFrame | None:
    """Read the latest complete version of a gold table, such as `traffic`.

    Returns None if gold has not been made yet.
    """
    tables = Tables(spark, root)
    slot, _ = newest(store_of(tables))
    return None if slot is None else spark.read.parquet(_path(tables, name, slot))


class GoldCluster:
    """A `GoldStore` that Spark reads and writes."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def last_batch(self) -> int:
        last = self._tables.read("stitched", WALKED).agg(f.max(BATCH)).collect()[0][0]
        return -1 if last is None else int(last)

    def other_rows(self, name: str, parts: Sequence[str], first: int, last: int) -> pa.Table:
        rows = self._tables.read(name, WALKED).where(f.col("part").isin(*parts))
        rows = rows.where(f.col(BATCH).between(first, last))
        return _arrow(rows.select(*PACKED.names), PACKED)

    def events(self, query: EventQuery, last: int) -> pa.Table:
        here = f.col("place").between(query.first_place, query.last_place)
        blocks = self._tables.spark.createDataFrame(query.blocks)
        own, stitched = (self._tables.read(name, WALKED) for name in ("silver", "stitched"))
        batch, part = f.col(BATCH), f.col("part")
        own = own.where(batch.between(query.first_batch, query.last_batch) & (part == EVENT))
        final = stitched.where((batch >= query.first_batch) & (part == EVENT))
        waiting = stitched.where((batch == last) & (part == PENDING))
        waiting = waiting.withColumn("status", f.lit("unsealed"))
        rows = own.unionByName(final).unionByName(waiting).where(here)
        rows = rows.withColumn("block", f.shiftright("place", BLOCK_BITS))
        rows = rows.join(f.broadcast(blocks), ["session", "sender", "block"], "left_semi")
        return _arrow(rows.select(*EVENT_ROWS.names), EVENT_ROWS)

    def scan(
        self, names: Sequence[str], last: int, sessions: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        own, stitched = (self._tables.read(name, WALKED) for name in ("silver", "stitched"))
        batch, part = f.col(BATCH), f.col("part")
        final = own.unionByName(stitched).where((part == EVENT) & (batch <= last))
        for rows in (final, stitched.where((part == PENDING) & (batch == last))):
            some = rows if sessions is None else rows.where(f.col("session").isin(*sessions))
            yield some.select(*names).toArrow()

    def read(self, name: str, slot: int) -> pa.Table | None:
        try:
            return self._tables.spark.read.parquet(_path(self._tables, name, slot)).toArrow()
        except AnalysisException:
            return None

    def has(self, name: str, slot: int) -> bool:
        try:
            # Spark Connect checks the path only when the schema is read.
            return bool(self._tables.spark.read.parquet(_path(self._tables, name, slot)).columns)
        except AnalysisException:
            return False

    def write(self, name: str, slot: int, table: pa.Table) -> None:
        schema = from_arrow_schema(table.schema)
        # Spark does not accept an empty Arrow table, so pass the schema.
        rows = table if table.num_rows else []
        frame = self._tables.spark.createDataFrame(rows, schema)
        writer = frame.coalesce(1).write.mode("overwrite")
        if is_dated(name, table):
            writer = writer.partitionBy("date")
        writer.parquet(_path(self._tables, name, slot))

    def remove(self, slot: int, names: Iterable[str]) -> None:
        """Remove a slot's mark; the next refresh but one overwrites the tables."""
        if MARK in names and self.has(MARK, slot):
            self.write(MARK, slot, MARKS.empty_table())

    def forget(self, batches: Iterable[int]) -> None:
        """Do nothing: old files are left to the owner of the file system."""


def _path(tables: Tables, name: str, slot: int) -> str:
    return f"{tables.root}/gold/{name}/slot={slot}"


def _arrow(rows: DataFrame, schema: pa.Schema) -> pa.Table:
    return rows.toArrow().cast(schema)
