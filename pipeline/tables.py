"""Where the pipeline's tables are stored, and how they are written and read.

    ROOT/bronze/batch=N/date=D      ROOT/silver/batch=N/part=P/date=D      ROOT/gold/NAME/...

A batch of the stream overwrites its own directories, so a batch that was killed and runs again
writes each row once. Tables are Parquet; a table that doesn't exist yet is read as empty.
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
# Files of a table; hidden files are incomplete.
FILES: Final = "[!._]*.parquet"

# Statistics and dictionaries are useless for ciphertexts and payloads, and computing them takes an
# eighth of the writing time.
_BYTES: Final = {
    f"parquet.{what}#{column}": "false"
    for what in ("enable.dictionary", "column.statistics.enabled")
    for column in ("body", "payload")
}
# One task reads a file's rows in order, so a file has one row group, however long a block is.
_ONE_ROW_GROUP: Final = str(2**30)


class Tables:
    """The pipeline's tables in one directory, which all Spark workers must be able to access."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root.rstrip("/") or "/"

    @property
    def checkpoint(self) -> str:
        """Return the directory of the stream's checkpoint."""
        return f"{self.root}/{CHECKPOINT}"

    def write_batch(
        self, name: str, batch: int, frame: DataFrame, partitions: Sequence[str] = ("date",)
    ) -> None:
        """Write a batch's part of a table, replacing any earlier version."""
        writer = frame.write.mode("overwrite").partitionBy(*partitions)
        for option, value in _BYTES.items():
            writer = writer.option(option, value)
        writer = writer.option("parquet.block.size", _ONE_ROW_GROUP)
        writer.parquet(f"{self.root}/{name}/{BATCH}={batch}")

    def read(self, name: str, schema: StructType, batch: int | None = None) -> DataFrame:
        """Read a table, or the part that one batch wrote, with the columns of `schema` and `batch`.

        `schema` must include the columns that are encoded in directory names. A table that doesn't
        exist is empty.
        """
        base = f"{self.root}/{name}"
        path = base if batch is None else f"{base}/{BATCH}={batch}"
        columns = StructType([*schema.fields]).add(BATCH, IntegerType())
        reader = self.spark.read.schema(columns).option("basePath", base)
        try:
            frame = reader.parquet(path)
            # Spark Connect checks the path only when the columns are read.
            names = frame.columns
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return self.spark.createDataFrame([], columns)
        return frame.select(*(column for column in columns.names if column in names))

    def bronze(self, batch: int | None = None, *, lead: bool = False) -> DataFrame:
        """Read the raw records of journals.

        With `lead=True`, also return the records that precede a range and belong to another range.
        """
        frame = self.read("bronze", BRONZE, batch)
        return frame if lead else frame.where(~f.col("lead"))


def batch_directory(root: str | Path, name: str, batch: int) -> Path:
    """Return the directory of a batch's part of a table, for tables in a local directory."""
    return Path(root, name, f"{BATCH}={batch}")


def checkpoint_file(root: str | Path) -> Path:
    """Return a file that exists while a stream writes tables to the local directory `root`."""
    return Path(root, CHECKPOINT, "metadata")


_FILE: Final = re.compile(r"file:(//)?(?=/)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def local_directory(path: str) -> Path | None:
    """Return the directory that a path names, if it is on a local file system.

    Depending on Spark's configuration, a path without a scheme can be on another file system.
    """
    file = _FILE.match(path)
    if file is not None:
        return Path(path[file.end() :])
    return None if _SCHEME.match(path) else Path(path).absolute()


_NAME: Final = "checks"


def check_key(tables: Tables) -> bytes:
    """Return the tables' checksum key, creating it if necessary; bronze must have a batch
    already.
    """
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
    """Return the checksum key of tables in a local directory."""
    path = root / _NAME / "part.parquet"
    for file in sorted(path.parent.glob(FILES)):
        try:
            key: bytes = pq.ParquetFile(file).read().column("key")[0].as_py()
        except pa.ArrowInvalid:
            continue  # a power failure left it empty; checksums made with another key don't match
        return key
    path.parent.mkdir(mode=0o700, exist_ok=True)
    hidden = path.with_name("_part.parquet")
    drawn = _draw_key()
    pq.write_table(drawn, hidden)
    hidden.rename(path)
    return bytes(drawn.column("key")[0].as_py())


def _draw_key() -> pa.Table:
    return pa.table({"key": pa.array([random_bytes(KEY_SIZE)], pa.binary())})
