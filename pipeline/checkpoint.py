"""The stream's checkpoint, and a check that it matches the tables in a directory.

Spark writes a file for each planned batch to `_checkpoint/offsets` and one for each completed batch
to `commits`. Batches are identified only by numbers, and another stream would reuse them. Tables
must therefore not be continued without their own checkpoint.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.errors import AnalysisException

from parley._node.errors import os_reason
from parley._pipeline.errors import DamagedTablesError, first_line
from parley._pipeline.read_planner import Progress
from parley._pipeline.schema import WALKED
from parley._pipeline.tables import BATCH, CHECKPOINT, Tables

REBUILD: Final = (
    "make them again from the journals with `parley pipeline run --rebuild`, "
    "or choose an empty directory"
)
# The tables of a batch, in the order in which they are written.
OF_BATCHES: Final = ("bronze", "silver", "stitched")


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """The last planned batch, the last completed batch (-1 for none) and the planned batch's
    offset.
    """

    planned: int
    done: int
    offset: dict[str, Any]


def read_checkpoint(root: Path) -> StreamCheckpoint | None:
    """Read the checkpoint in a directory; return None if no batch was planned.

    Raises:
        DamagedTablesError: The checkpoint cannot be read.
    """
    place = root / CHECKPOINT
    try:
        planned, done = last_planned(root), _last_number(place / "commits")
        if planned < 0:
            return None
        if not planned - 1 <= done <= planned:
            raise ValueError(f"batch {done} is done but the last planned batch is {planned}")
        # A version, a line with Spark's metadata, and one line for each source; there is one
        # source.
        lines = (place / "offsets" / str(planned)).read_text(encoding="utf-8").splitlines()
        if len(lines) != 3 or lines[0] != "v1":
            raise ValueError(f"offsets/{planned} is not an offset of version 1 with one source")
        read = json.loads(lines[2])
        if not isinstance(read, dict):
            raise ValueError(f"offsets/{planned} has no map of runs")
        offset = Progress(read).as_offset()
        json.loads((place / "metadata").read_text(encoding="utf-8"))["id"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedTablesError(
            f"cannot continue the tables in '{root}': their checkpoint is damaged "
            f"({_reason(error)}); {REBUILD}"
        ) from error
    return StreamCheckpoint(planned, done, offset)


def check_directory(root: Path) -> StreamCheckpoint | None:
    """Read the checkpoint of a directory's tables and check that all batches belong to it.

    Raises:
        DamagedTablesError: The checkpoint is damaged or doesn't match the tables.
    """
    checkpoint = read_checkpoint(root)
    planned = -1 if checkpoint is None else checkpoint.planned
    last = max((batch for name in OF_BATCHES for batch in batches_of(root, name)), default=-1)
    if last > planned:
        reason = "is missing" if checkpoint is None else f"ends at batch {planned}, not {last}"
        raise DamagedTablesError(
            f"cannot continue the tables in '{root}': their checkpoint {reason}; {REBUILD}"
        )
    return checkpoint


def check_cluster(tables: Tables) -> None:
    """Raise DamagedTablesError for tables without a checkpoint that only Spark can see."""
    try:
        if tables.spark.read.text(f"{tables.checkpoint}/metadata").columns:
            return
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise DamagedTablesError(
                f"cannot continue the tables in '{tables.root}': their checkpoint cannot be read "
                f"({first_line(error)}); choose an empty directory"
            ) from error
    if tables.read("stitched", WALKED).head(1):
        raise DamagedTablesError(
            f"cannot continue the tables in '{tables.root}': their checkpoint is missing; "
            "delete the directory or choose an empty one"
        )


def batches_of(root: Path, name: str) -> set[int]:
    found = (path.name.partition(f"{BATCH}=")[2] for path in (root / name).glob(f"{BATCH}=*"))
    return {int(number) for number in found if number.isdecimal()}


def missing_silver(root: Path, last: int) -> set[int]:
    """Return the batches up to `last` whose silver is incomplete or not stitched."""
    return {
        batch
        for batch in range(last + 1)
        for name in ("silver", "stitched")
        if not (root / name / f"{BATCH}={batch}" / "_SUCCESS").exists()
    }


def remove_tables(root: Path) -> None:
    for name in (CHECKPOINT, "gold", *reversed(OF_BATCHES)):
        if (root / name).exists():
            shutil.rmtree(root / name)


def last_planned(root: Path) -> int:
    """Return the number of the last batch that the stream planned, -1 for none."""
    return _last_number(root / CHECKPOINT / "offsets")


def _last_number(directory: Path) -> int:
    if not directory.is_dir():
        return -1
    return max(
        (int(path.name) for path in directory.iterdir() if path.name.isdecimal()), default=-1
    )


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {os_reason(error)}"
    return f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
