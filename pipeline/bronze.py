"""The stream that ingests journals into bronze and runs further steps on each batch.

Each record is ingested exactly once. The stream's checkpoint stores its progress, and each batch
writes to its own directories, so a run that is killed and restarted produces the same tables. Steps
only read and write tables.
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from parley._pipeline.errors import IngestError, first_line
from parley._pipeline.spark_source import FORMAT
from parley._pipeline.tables import (
    Tables,
    batch_directory,
    checkpoint_file,
    local_directory,
)

# The default number of ranges in a batch; each task reads one range.
MAX_BATCH_BYTES: Final = 2**30

# Called with the tables and a batch's number once bronze has the batch. It can be called again for
# the same batch. On a Connect server it runs remotely, so it must be picklable.
Step = Callable[[Tables, int], None]


def ingest(
    spark: SparkSession,
    journals: str,
    root: str,
    *,
    steps: Sequence[Step] = (),
    max_bytes: int | None = MAX_BATCH_BYTES,
    max_files: int | None = None,
    range_size: int | None = None,
) -> None:
    """Ingest the current records of the journals in batches.

    `max_files`, or else `max_bytes`, limits a batch. Each task reads `range_size` bytes.

    Raises:
        IngestError: The Spark job failed.
    """
    query = start(
        spark,
        journals,
        root,
        steps=steps,
        max_bytes=max_bytes,
        max_files=max_files,
        range_size=range_size,
    )
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise IngestError(
            f"cannot ingest the journals in {journals!r}: {first_line(error)}"
        ) from error
    finally:
        query.stop()


def start(
    spark: SparkSession,
    journals: str,
    root: str,
    *,
    steps: Sequence[Step] = (),
    every: float | None = None,
    max_bytes: int | None = MAX_BATCH_BYTES,
    max_files: int | None = None,
    range_size: int | None = None,
) -> StreamingQuery:
    """Start the stream: one batch `every` seconds, or until the current records are ingested.

    Only one stream may write to `root` at a time.

    Raises:
        IngestError: The stream cannot be started.
    """
    tables = Tables(spark, root)
    reader = spark.readStream.format(FORMAT)
    if max_files is not None:
        reader = reader.option("max_files", str(max_files))
    elif max_bytes is not None:
        reader = reader.option("max_bytes", str(max_bytes))
    if range_size is not None:
        reader = reader.option("range_size", str(range_size))
    directory = local_directory(root)
    if directory is not None:
        reader = reader.option("tables", str(directory))
    try:
        writer = reader.load(journals).writeStream.queryName("parley")
        writer = writer.option("checkpointLocation", tables.checkpoint)
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")
        return writer.foreachBatch(_Batch(root, directory, tuple(steps))).start()
    except PySparkException as error:
        raise IngestError(
            f"cannot ingest the journals in {journals!r}: {first_line(error)}"
        ) from error


class _Batch:
    """The function that runs on each batch; pickled if the stream runs on a server."""

    def __init__(self, root: str, directory: Path | None, steps: tuple[Step, ...]) -> None:
        self._root = root
        self._directory = directory
        self._steps = steps

    def __call__(self, frame: DataFrame, batch: int) -> None:
        tables = Tables(frame.sparkSession, self._root)
        if self._directory is not None and checkpoint_file(self._directory).exists():
            _have_written(frame, batch_directory(self._directory, "bronze", batch))
        else:
            tables.write_batch("bronze", batch, frame)
        for step in self._steps:
            step(tables, batch)


def _have_written(frame: DataFrame, place: Path) -> None:
    """Run the tasks that write a batch's bronze to `place` themselves (`RangeGroup`)."""
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    written = {row.segment for row in frame.select("segment").collect()}
    if not written <= {str(place)}:
        raise IngestError(f"cannot write '{place}': tasks returned {sorted(written)[0]!a}")
    (place / "_SUCCESS").touch()
