"""A batch's bronze read by the tasks themselves, where it is in a directory that they see.

A file has the rows of whole ranges in their order, so a task takes whole files. Rows then need not
pass through Java on their way from a file to Python, which saves half of the time.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.walk import Walk

# Bytes of files that a task takes together, at least and at most: a task costs as much as some
# thousand rows, and that there are so many tasks is enough for all cores to end together.
TASK_SIZES: Final = 2**24, 2**26
TASKS: Final = 32
# Bytes of a file that are taken at once, about: what fits into the processor's caches is read
# faster than what needs new memory each time.
PIECE_SIZE: Final = 2**22
LEAST_ROWS: Final = 64


def bronze_files(directory: Path) -> list[list[str]]:
    """The files of one batch, each group for a task. Raises OSError."""
    sizes = {path: path.stat().st_size for path in sorted(directory.glob("date=*/*.parquet"))}
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


def walk_files(walk: Walk, groups: Sequence[Sequence[str]]) -> Walk:
    """A function for `mapInArrow` over numbers of these groups: what `walk` makes of each file."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in groups[number]:
                    yield from walk(read_file(path))
        if TaskContext.get() is not None and not gc.get_freeze_count():
            # A worker of Spark's looks for garbage after each task, and most of what it goes
            # through are the modules that were imported. Once: later tasks leave garbage.
            gc.collect()
            gc.freeze()

    return run


def read_file(path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file of bronze with the columns of `NEEDED`, in pieces. Raises OSError."""
    with pq.ParquetFile(path) as file:
        about = file.metadata
        size = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
        rows = about.num_rows * PIECE_SIZE // max(size, 1)
        yield from file.iter_batches(max(rows, LEAST_ROWS), columns=list(NEEDED))
