"""Silver: a step of each batch that verifies and decodes every event, and the resulting tables.

ROOT/silver/batch=N/part=P/date=D contains the rows of the batch's own ranges.
ROOT/stitched/batch=N/part=P/date=D contains the rows that depend on several ranges or batches. The
tables are `events`, `sessions`, `tunnels`, `statements` and `findings`.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from parley._pipeline.audit_task import BatchFunction, make_audit_task
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.schema import (
    EVENT,
    EVENTS,
    FINDING,
    FINDING_FIELDS,
    PENDING,
    SESSION,
    SESSION_FIELDS,
    STATEMENT,
    STATEMENT_FIELDS,
    TUNNEL,
    TUNNEL_FIELDS,
    WALKED,
    fields,
)
from parley._pipeline.stitch import stitch
from parley._pipeline.stitch.local import stitch_locally
from parley._pipeline.stitch.rows import batch_token_row
from parley._pipeline.tables import BATCH, FILES, Tables, check_key, local_directory

# Minimum and maximum bytes of files for one task. A task costs as much as some thousand rows, but
# there must be enough tasks to keep all cores busy until the end.
TASK_SIZES: Final = 2**24, 2**26
TASKS: Final = 32
# Approximate number of bytes read from a file at a time: data that fits in the processor's caches
# is processed faster.
PIECE_SIZE: Final = 2**22
LEAST_ROWS: Final = 64


def group_bronze_files(directory: Path) -> list[list[str]]:
    """Group the files of one batch by task.

    A file contains the rows of whole ranges in order, so a task reads whole files. Tasks read them
    directly, because passing rows through Java would double the time.

    Raises:
        OSError: A file cannot be read.
    """
    sizes = {path: path.stat().st_size for path in sorted(directory.glob(f"date=*/{FILES}"))}
    least, most = TASK_SIZES
    room = min(max(sum(sizes.values()) // TASKS, least), most)
    groups: list[list[str]] = []
    filled = room
    for path, size in sizes.items():
        if filled + size > room:
            groups.append([])
            filled = 0
        groups[-1].append(str(path))
        filled += size
    return groups


def audit_files(walk: BatchFunction, groups: Sequence[Sequence[str]]) -> BatchFunction:
    """Return a function for `mapInArrow` over group numbers that runs `walk` on each file of a
    group.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in groups[number]:
                    yield from walk(read_file(path))
        if TaskContext.get() is not None and not gc.get_freeze_count():
            # A Spark worker collects garbage after each task and mostly traverses imported modules.
            # Freeze them once; objects of later tasks are still collected.
            gc.collect()
            gc.freeze()

    return run


def read_file(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the columns of `NEEDED` of a bronze file in pieces.

    Raises:
        OSError: The file cannot be read.
    """
    with pq.ParquetFile(path) as file:
        about = file.metadata
        size = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
        rows = about.num_rows * PIECE_SIZE // max(size, 1)
        yield from file.iter_batches(max(rows, LEAST_ROWS), columns=list(NEEDED))


_PARTITIONS = ("part", "date")


class SilverStep:
    """The step that makes a batch's silver from its bronze.

    `private_keys` are auditors' keys of 32 bytes each, which are sent to the workers with the job.
    With `payloads=False`, the column `payload` is null.
    """

    def __init__(self, private_keys: Sequence[bytes] = (), *, payloads: bool = True) -> None:
        self._private_keys = tuple(private_keys)
        self._payloads = payloads

    def __call__(self, tables: Tables, batch: int) -> None:
        root = _record_summary(tables, batch)
        tables.write_batch("silver", batch, self._audit_rows(tables, batch, root), _PARTITIONS)
        if root is not None and stitch_locally(root, batch):
            return
        own, before = (
            tables.read(name, WALKED, number).select(*WALKED.fieldNames())
            for name, number in (("silver", batch), ("stitched", batch - 1))
        )
        made = tables.spark.createDataFrame(pa.Table.from_batches([batch_token_row()]), WALKED)
        rows = stitch(own, before).unionByName(made)
        tables.write_batch("stitched", batch, rows, _PARTITIONS)

    def _audit_rows(self, tables: Tables, batch: int, root: Path | None) -> DataFrame:
        """Return the verified rows of a batch; local tables are read by Python without Java."""
        name = f"{BATCH}={batch}"
        walk = make_audit_task(
            self._private_keys,
            payloads=self._payloads,
            directory=None if root is None else root / "silver" / name,
            check_key=check_key(tables),
        )
        if root is None:
            bronze = tables.bronze(batch, lead=True)
            return bronze.select(*NEEDED).mapInArrow(walk, WALKED)
        groups = group_bronze_files(root / "bronze" / name)
        numbers = tables.spark.range(0, len(groups), 1, max(len(groups), 1))
        return numbers.mapInArrow(audit_files(walk, groups), WALKED)

    def __repr__(self) -> str:
        return f"<SilverStep with {len(self._private_keys)} auditors' keys>"


def _record_summary(tables: Tables, batch: int) -> Path | None:
    """Return the local directory of the tables if this process can access the batch's bronze.

    A path without a scheme can be on another file system, depending on Spark's configuration.
    """
    root = local_directory(tables.root)
    if root is None or not (root / "bronze" / f"{BATCH}={batch}" / "_SUCCESS").exists():
        return None
    return root


def events(tables: Tables) -> DataFrame:
    """Return one row for each event or coalesced note, with the columns of `EVENTS`.

    Events at the end of the input that no seal covers yet have the status `unsealed`.
    """
    names = EVENTS.fieldNames()
    own = tables.read("silver", WALKED).where(f.col("part") == EVENT)
    stitched = tables.read("stitched", WALKED)
    last = stitched.select(f.max(BATCH).alias("last"))
    waiting = (
        stitched.where(f.col("part") == PENDING)
        .join(f.broadcast(last), f.col(BATCH) == f.col("last"))
        .withColumn("status", f.lit("unsealed"))
    )
    final = stitched.where(f.col("part") == EVENT)
    return own.select(*names).unionByName(final.select(*names)).unionByName(waiting.select(*names))


def sessions(tables: Tables) -> DataFrame:
    """Return the starts, secrets and ends of sessions in journals.

    The columns are `SESSION_FIELDS`; `time` and `started` are timestamps.
    """
    return _timed(_others(tables, SESSION, SESSION_FIELDS), "time", "started")


def tunnels(tables: Tables) -> DataFrame:
    """Return the tunnels that servers recorded.

    The columns are `TUNNEL_FIELDS`; `time`, `began` and `ended` are timestamps.
    """
    own = tables.read("silver", WALKED).where(f.col("part") == TUNNEL)
    return _timed(_parsed(own, TUNNEL_FIELDS), "time", "began", "ended")


def statements(tables: Tables) -> DataFrame:
    """Return the key statements that nodes presented in their Proofs, which need an auditor's key.

    The columns are `STATEMENT_FIELDS`; `time` is a timestamp.
    """
    own = tables.read("silver", WALKED).where(f.col("part") == STATEMENT)
    return _timed(_parsed(own, STATEMENT_FIELDS), "time")


def findings(tables: Tables) -> DataFrame:
    """Return the problems that audits of single journals found.

    The columns are `FINDING_FIELDS`; `time` is a timestamp.
    """
    found = _others(tables, FINDING, FINDING_FIELDS)
    starts = _others(tables, SESSION, SESSION_FIELDS).where(f.col("what") == "start")
    return _timed(found.unionByName(_repeated_sessions(starts)), "time")


def _repeated_sessions(starts: DataFrame) -> DataFrame:
    none = f.lit(None)
    return (
        starts.groupBy("journal", "session")
        .agg(f.count("*").alias("count"), f.max(f.struct("segment", "offset")).alias("at"))
        .where(f.col("count") > 1)
        .select(
            f.lit("session-twice").alias("kind"),
            "journal",
            f.col("at.segment").alias("segment"),
            "session",
            none.cast("string").alias("direction"),
            none.cast("long").alias("place"),
            none.cast("long").alias("time_ns"),
            f.col("at.offset").alias("offset"),
            "count",
            f.lit("the session begins a second time in the journal").alias("evidence"),
        )
    )


def _others(tables: Tables, part: str, types: dict[str, DataType]) -> DataFrame:
    own = tables.read("silver", WALKED).where(f.col("part") == part)
    stitched = tables.read("stitched", WALKED).where(f.col("part") == part)
    return _parsed(own, types).unionByName(_parsed(stitched, types))


def _parsed(rows: DataFrame, types: dict[str, DataType]) -> DataFrame:
    return rows.select(f.from_json("other", fields(types)).alias("one")).select("one.*")


def _timed(rows: DataFrame, *names: str) -> DataFrame:
    """Convert the columns in nanoseconds to timestamps."""
    for name in names:
        micros = f.expr(f"{name}_ns div 1000")  # not as a double, whose precision is 53 bits
        rows = rows.withColumn(name, f.timestamp_micros(micros)).drop(f"{name}_ns")
    return rows
