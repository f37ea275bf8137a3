"""Silver: every event verified and read, as a step of each batch, and the tables made of it.

    ROOT/silver/batch=N/part=P/date=D      what the batch's own ranges tell
    ROOT/stitched/batch=N/part=P/date=D    what only ranges and batches together tell

The tables are `events`, `sessions`, `tunnels` and `findings`; only this module knows which rows of
which directory they are made of.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from parley._pipeline.bronze_files import bronze_files, walk_files
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.schema import (
    EVENT,
    EVENTS,
    FINDING,
    FINDING_FIELDS,
    PENDING,
    SESSION,
    SESSION_FIELDS,
    TUNNEL,
    TUNNEL_FIELDS,
    WALKED,
    fields,
)
from parley._pipeline.secret import check_key
from parley._pipeline.stitch import stitch
from parley._pipeline.stitch.here import stitch_here
from parley._pipeline.stitch.made import made_row
from parley._pipeline.tables import BATCH, Tables, local_directory
from parley._pipeline.walk import walker

_PARTITIONS = ("part", "date")


class SilverStep:
    """Makes a batch's silver of its bronze.

    `private_keys` are auditors', 32 bytes each; they travel to the workers with the job.
    Without `payloads` the column `payload` stays null.
    """

    __slots__ = ("_payloads", "_private_keys")

    def __init__(self, private_keys: Sequence[bytes] = (), *, payloads: bool = True) -> None:
        self._private_keys = tuple(private_keys)
        self._payloads = payloads

    def __call__(self, tables: Tables, batch: int) -> None:
        root = _seen(tables, batch)
        tables.write_batch("silver", batch, self._walked(tables, batch, root), _PARTITIONS)
        if root is not None and stitch_here(root, batch):
            return
        own, before = (
            tables.read(name, WALKED, number).select(*WALKED.fieldNames())
            for name, number in (("silver", batch), ("stitched", batch - 1))
        )
        made = tables.spark.createDataFrame(pa.Table.from_batches([made_row()]), WALKED)
        rows = stitch(own, before).unionByName(made)
        tables.write_batch("stitched", batch, rows, _PARTITIONS)

    def _walked(self, tables: Tables, batch: int, root: Path | None) -> DataFrame:
        """A batch's rows, verified: by Python alone where the tables are in a directory."""
        name = f"{BATCH}={batch}"
        walk = walker(
            self._private_keys,
            payloads=self._payloads,
            directory=None if root is None else root / "silver" / name,
            check_key=check_key(tables),
        )
        if root is None:
            bronze = tables.bronze(batch, lead=True)
            return bronze.select(*NEEDED).mapInArrow(walk, WALKED)
        groups = bronze_files(root / "bronze" / name)
        numbers = tables.spark.range(0, len(groups), 1, max(len(groups), 1))
        return numbers.mapInArrow(walk_files(walk, groups), WALKED)

    def __repr__(self) -> str:
        return f"<SilverStep with {len(self._private_keys)} auditors' keys>"


def _seen(tables: Tables, batch: int) -> Path | None:
    """The directory of the tables, if a batch's bronze is seen in it.

    A path without a scheme may be one of another file system, as Spark is set up.
    """
    root = local_directory(tables.root)
    if root is None or not (root / "bronze" / f"{BATCH}={batch}" / "_SUCCESS").exists():
        return None
    return root


def events(tables: Tables) -> DataFrame:
    """One row for each event and each coalesced note, in the columns of `EVENTS`.

    What still waits for a seal at the end of what was read is `unsealed`.
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
    """What journals say of sessions: `SESSION_FIELDS`, with `time` and `started` as times."""
    return _timed(_others(tables, SESSION, SESSION_FIELDS), "time", "started")


def tunnels(tables: Tables) -> DataFrame:
    """The tunnels that servers say they joined: `TUNNEL_FIELDS`, with `time`, `began` and `ended`
    as times."""
    own = tables.read("silver", WALKED).where(f.col("part") == TUNNEL)
    return _timed(_parsed(own, TUNNEL_FIELDS), "time", "began", "ended")


def findings(tables: Tables) -> DataFrame:
    """What is not as it must be: `FINDING_FIELDS`, with `time` as a time."""
    found = _others(tables, FINDING, FINDING_FIELDS)
    starts = _others(tables, SESSION, SESSION_FIELDS).where(f.col("what") == "start")
    return _timed(found.unionByName(_told_twice(starts)), "time")


def _told_twice(starts: DataFrame) -> DataFrame:
    """Findings: sessions that begin more than once in one journal."""
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
            f.lit("the session begins more than once: it stands there a second time").alias(
                "evidence"
            ),
        )
    )


def _others(tables: Tables, part: str, types: dict[str, DataType]) -> DataFrame:
    own = tables.read("silver", WALKED).where(f.col("part") == part)
    stitched = tables.read("stitched", WALKED).where(f.col("part") == part)
    return _parsed(own, types).unionByName(_parsed(stitched, types))


def _parsed(rows: DataFrame, types: dict[str, DataType]) -> DataFrame:
    """The rows that are in `other`, as columns."""
    return rows.select(f.from_json("other", fields(types)).alias("one")).select("one.*")


def _timed(rows: DataFrame, *names: str) -> DataFrame:
    """With times in place of the columns in nanoseconds."""
    for name in names:
        micros = f.expr(f"{name}_ns div 1000")  # not as a double, which has 53 bits
        rows = rows.withColumn(name, f.timestamp_micros(micros)).drop(f"{name}_ns")
    return rows
