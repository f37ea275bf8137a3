"""Where the pipeline's tables are, and how they are written and read.

    ROOT/bronze/batch=N/date=D      ROOT/silver/batch=N/part=P/date=D      ROOT/gold/NAME/...

A batch of the stream writes into directories of its own and overwrites them, so a batch that was
killed and runs again leaves each row once. Tables are Parquet; one that does not exist yet is read
as empty.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructType

from parley._crypto.randomness import random_bytes
from parley._pipeline.schema import BRONZE
from parley._pipeline.summary.facts import KEY_SIZE

CHECKPOINT: Final = "_checkpoint"
BATCH: Final = "batch"
# Files of a table: hidden ones are not whole.
FILES: Final = "[!._]*.parquet"

# The smallest and largest ciphertext or payload is of no use, and few come twice; to look for that
# takes an eighth of the time of writing.
_BYTES: Final = {
    f"parquet.{what}#{column}": "false"
    for what in ("enable.dictionary", "column.statistics.enabled")
    for column in ("body", "payload")
}
# A file's rows are read by one task, in their order: no second row group, however long a block.
_ONE_ROW_GROUP: Final = str(2**30)


class Tables:
    """The tables in one directory, which all of Spark's workers see."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root.rstrip("/") or "/"

    @property
    def checkpoint(self) -> str:
        """Where the stream keeps how far it is."""
        return f"{self.root}/{CHECKPOINT}"

    def write_batch(
        self, name: str, batch: int, frame: DataFrame, partitions: Sequence[str] = ("date",)
    ) -> None:
        """Write what a batch makes of a table, in place of what it may have written before."""
        writer = frame.write.mode("overwrite").partitionBy(*partitions)
        for option, value in _BYTES.items():
            writer = writer.option(option, value)
        writer = writer.option("parquet.block.size", _ONE_ROW_GROUP)
        writer.parquet(f"{self.root}/{name}/{BATCH}={batch}")

    def read(self, name: str, schema: StructType, batch: int | None = None) -> DataFrame:
        """A table, or what one batch wrote of it: the columns of `schema`, and `batch`.

        `schema` has the columns that directories are named by too.
        """
        base = f"{self.root}/{name}"
        path = base if batch is None else f"{base}/{BATCH}={batch}"
        columns = StructType([*schema.fields]).add(BATCH, IntegerType())
        reader = self.spark.read.schema(columns).option("basePath", base)
        try:
            frame = reader.parquet(path)
            # Over Connect nothing is looked at before this.
            names = frame.columns
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], columns)
        return frame.select(*(column for column in columns.names if column in names))

    def bronze(self, batch: int | None = None, *, lead: bool = False) -> DataFrame:
        """The raw records; with `lead` also those that only lead up to a range, which other
        ranges have as their own."""
        frame = self.read("bronze", BRONZE, batch)
        return frame if lead else frame.where(~f.col("lead"))


_FILE: Final = re.compile(r"file:(//)?(?=/)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def local_directory(path: str) -> Path | None:
    """The directory that a path names, if it is one of a file system.

    A path without a scheme may be one of another file system too, as Spark is set up.
    """
    file = _FILE.match(path)
    if file is not None:
        return Path(path[file.end() :])
    return None if _SCHEME.match(path) else Path(path).absolute()


_NAME: Final = "checks"


def check_key(tables: Tables) -> bytes:
    """The secret, drawn now if nobody has; a batch of these tables is in bronze already."""
    root = local_directory(tables.root)
    if root is not None and (root / "bronze").is_dir():
        return local_check_key(root)
    path = f"{tables.root}/{_NAME}"
    try:
        return bytes(tables.spark.read.parquet(path).collect()[0]["key"])
    except AnalysisException:
        tables.spark.createDataFrame(_draw_key()).coalesce(1).write.parquet(path)
    return bytes(tables.spark.read.parquet(path).collect()[0]["key"])


def local_check_key(root: Path) -> bytes:
    """The same where the tables are in a directory of this machine."""
    path = root / _NAME / "part.parquet"
    for file in sorted(path.parent.glob(FILES)):
        try:
            key: bytes = pq.ParquetFile(file).read().column("key")[0].as_py()
        except pa.ArrowInvalid:
            continue  # a power cut left it empty; blocks of another secret's sums are not alike
        return key
    path.parent.mkdir(mode=0o700, exist_ok=True)
    hidden = path.with_name("_part.parquet")
    drawn = _draw_key()
    pq.write_table(drawn, hidden)
    hidden.rename(path)
    return bytes(drawn.column("key")[0].as_py())


def _draw_key() -> pa.Table:
    return pa.table({"key": pa.array([random_bytes(KEY_SIZE)], pa.binary())})
