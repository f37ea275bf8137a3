"""Parquet files of events that a task writes directly instead of passing its rows through Java.

A file is named after its input. It is written under a hidden name and renamed when complete, so a
repeated task writes the same file. This works only for local directories; elsewhere Spark writes
the rows.
"""

import os
from pathlib import Path
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parley._crypto.randomness import random_bytes
from parley._pipeline.schema import EVENT, WALKED_ARROW

# Columns that are encoded in directory names and left out of the files.
_PARTITIONS: Final = ("part", "date")
_COLUMNS: Final = [name for name in WALKED_ARROW.names if name not in _PARTITIONS]
_SCHEMA: Final = pa.schema([WALKED_ARROW.field(name) for name in _COLUMNS])
# Columns with few distinct values; for the others, min/max statistics are not useful either.
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
# Limits the number of date directories: times are not authenticated, so a forger can use many.
MAX_DATES: Final = 16
_MEASURED: Final = [name for name in _COLUMNS if name not in ("payload", "digest", "other")]


def limit_dates(dates: pa.Array) -> pa.Array:
    """Replace all dates after the first `MAX_DATES` by the first."""
    known = pc.unique(dates)
    if len(known) <= MAX_DATES:
        return dates
    return pc.if_else(pc.is_in(dates, known[:MAX_DATES]), dates, known[0])


class EventFiles:
    """The files of one task under `directory`, one for each date; `name` is unique to the task.

    The files become visible when the `with` block ends without an error.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory / f"part={EVENT}"
        self._name = name
        self._writers: dict[str, tuple[pq.ParquetWriter, Path]] = {}

    def __enter__(self) -> "EventFiles":
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
            self._writer(str(date.as_py())).write_batch(rows.select(_COLUMNS))

    def _writer(self, date: str) -> pq.ParquetWriter:
        known = self._writers.get(date)
        if known is None and len(self._writers) >= MAX_DATES:
            known = next(iter(self._writers.values()))
        if known is None:
            directory = self._directory / f"date={date}"
            directory.mkdir(parents=True, exist_ok=True)
            # Hidden names are random because a duplicate of the task may run on another machine.
            hidden = directory / f".{self._name}.{random_bytes(8).hex()}.parquet"
            writer = pq.ParquetWriter(
                hidden,
                _SCHEMA,
                compression="snappy",
                use_dictionary=_REPEATED,
                write_statistics=_MEASURED,
            )
            known = self._writers[date] = writer, hidden
        return known[0]
