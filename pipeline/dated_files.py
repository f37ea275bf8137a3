"""Parquet files that a task writes directly instead of passing its rows through Java.

They contain records of bronze or events of silver. A file is named after its input. It is written
under a hidden name and renamed when complete, so a repeated task writes the same file. This works
only for local directories; elsewhere Spark writes the rows.
"""

import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parley._crypto.randomness import random_bytes
from parley._pipeline.schema import BRONZE_ARROW, EVENT, WALKED_ARROW

# Columns that are encoded in directory names and left out of the files.
_PARTITIONS: Final = ("part", "date")
# Columns of events with few distinct values; for the others, min/max statistics are not useful
# either.
_REPEATED: Final = [
    "journal",
    "segment",
    "session",
    "direction",
    "sender",
    "receiver",
    "type",
    "topic",
    "namespace",
    "label",
    "status",
]
# Columns of records with many distinct values.
_DISTINCT: Final = ("offset", "size", "time", "time_ns", "body")
# Limits the number of date directories: times are not authenticated, so a forger can use many.
MAX_DATES: Final = 16


def limit_dates(dates: pa.Array) -> pa.Array:
    """Replace all dates after the first `MAX_DATES` by the first."""
    known = pc.unique(dates)
    if len(known) <= MAX_DATES:
        return dates
    return pc.if_else(pc.is_in(dates, known[:MAX_DATES]), dates, known[0])


class DatedFiles:
    """The files of one task under `directory`, one for each date; `name` is unique to the task.

    They have the columns of `schema` except the partitions. Columns in `unmeasured` have no
    statistics, and `options` are those of a `ParquetWriter`. The files become visible when the
    `with` block ends without an error.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        schema: pa.Schema,
        unmeasured: tuple[str, ...],
        **options: Any,
    ) -> None:
        self._directory = directory
        self._name = name
        self._columns = [column for column in schema.names if column not in _PARTITIONS]
        self._schema = pa.schema([schema.field(column) for column in self._columns])
        measured = [column for column in self._columns if column not in unmeasured]
        self._options = {"write_statistics": measured, **options}
        self._writers: dict[str, tuple[pq.ParquetWriter, Path]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for writer, _ in self._writers.values():
            writer.close()
        for _, hidden in self._writers.values():
            if kind is None:
                os.replace(hidden, hidden.with_name(f"{self._name}.parquet"))
            else:
                hidden.unlink(missing_ok=True)
        self._writers = {}

    def write(self, batch: pa.RecordBatch) -> None:
        dates = batch.column("date")
        for date in pc.unique(dates):
            rows = batch
            if len(dates) and not pc.all(pc.equal(dates, date)).as_py():
                rows = batch.filter(pc.equal(dates, date))
            self._writer(str(date.as_py())).write_batch(rows.select(self._columns))

    def _writer(self, date: str) -> pq.ParquetWriter:
        known = self._writers.get(date)
        if known is None and len(self._writers) >= MAX_DATES:
            known = next(iter(self._writers.values()))
        if known is None:
            directory = self._directory / f"date={date}"
            directory.mkdir(parents=True, exist_ok=True)
            # Hidden names are random because a duplicate of the task may run on another machine.
            hidden = directory / f".{self._name}.{random_bytes(8).hex()}.parquet"
            writer = pq.ParquetWriter(hidden, self._schema, **self._options)
            known = self._writers[date] = writer, hidden
        return known[0]


def event_files(directory: Path, name: str) -> DatedFiles:
    """Return the files of a task's events; `directory` is that of the batch's silver."""
    place, unmeasured = directory / f"part={EVENT}", ("payload", "digest", "other")
    return DatedFiles(place, name, WALKED_ARROW, unmeasured, use_dictionary=_REPEATED)


def write_records(directory: Path, name: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a task's records to `directory`, that of the batch's bronze.

    Each batch has one date. A new file begins where it changes, so one file is open at a time.
    """
    by_date = groupby(batches, key=lambda batch: batch.column("date")[0].as_py())
    for number, (_, group) in enumerate(by_date):
        with DatedFiles(
            directory,
            f"{name}-{number:06d}",
            BRONZE_ARROW,
            ("body",),
            use_dictionary=[one for one in BRONZE_ARROW.names if one not in _DISTINCT],
            # Bodies are mostly ciphertexts.
            compression={one: "none" if one == "body" else "snappy" for one in BRONZE_ARROW.names},
        ) as files:
            for batch in group:
                files.write(batch)
