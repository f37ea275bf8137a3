"""The data source `parley_journal`: journals as rows of bronze, read once or as a stream.

    spark.read.format("parley_journal").load("/var/lib/parley/journal")

    spark.readStream.format("parley_journal").option("max_bytes", 2**30).load("/journals/*")

Damaged journals never make reading fail: damage becomes rows with a `status`. A live segment is
read up to its last complete record. A stream reads the rest once the record is complete or the
segment is closed; a single read returns an incomplete record as a torn row.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from parley._node.journal.segments import RANGE_SIZE
from parley._pipeline.checkpoint import last_planned
from parley._pipeline.dated_files import write_records
from parley._pipeline.errors import PipelineError
from parley._pipeline.read_planner import (
    Budget,
    Listing,
    Progress,
    ranges_between,
    read_on,
    whole_ranges,
)
from parley._pipeline.schema import BRONZE, WRITTEN
from parley._pipeline.segment_reader import (
    SegmentRange,
    foreign_batch,
    marker_batch,
    read_segment_range,
)
from parley._pipeline.tables import batch_directory, checkpoint_file

FORMAT: Final = "parley_journal"


class JournalSource(DataSource):
    """A Spark data source that reads journals from a directory, or from all that match a pattern.

    Options: `range_size` is the number of bytes that one task reads (default 16 MiB). For streams,
    `max_bytes` or `max_files` limits a batch (default: no limit). `tables` is the directory of the
    pipeline's tables, for its own stream: if the driver can access the stream's checkpoint there,
    tasks write their records to bronze themselves, and return a row for each task with the
    batch's directory in `segment`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of bronze."""
        return BRONZE

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of `spark.read`."""
        return JournalReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of `spark.readStream`."""
        return JournalStreamReader(self.options)


class RangeGroup(InputPartition):
    """The input of one task: consecutive ranges, and the names of foreign files.

    `needed` are paths that exist where the ranges were planned, so that they must exist where the
    task runs. The task named `name` writes its records to the directory `bronze`, if there is one.
    """

    def __init__(
        self,
        parts: Sequence[SegmentRange],
        foreign: Sequence[str] = (),
        needed: Sequence[str] = (),
        bronze: Path | None = None,
        name: str = "",
    ) -> None:
        self.parts = tuple(parts)
        self.foreign = tuple(foreign)
        self.needed = tuple(needed)
        self.bronze = bronze
        self.name = name


class JournalReader(DataSourceReader):
    """A single read of all journals."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = _path(options)
        self._range_size = _number(options, "range_size") or RANGE_SIZE

    def partitions(self) -> list[InputPartition]:
        listing = Listing.of(self._path)
        parts = [part for file in listing.segments for part in whole_ranges(file, self._range_size)]
        return _grouped(parts, listing.foreign, self._range_size, [listing.directory])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of new records; its only state is its offsets (pipeline/read_planner.py)."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = _path(options)
        self._range_size = _number(options, "range_size") or RANGE_SIZE
        self._max_bytes = _number(options, "max_bytes")
        self._max_files = _number(options, "max_files")
        if self._max_bytes and self._max_files:
            raise PipelineError(
                f"invalid options max_bytes={self._max_bytes} and max_files={self._max_files}: "
                "they exclude each other; set only one of them"
            )
        self._tables = options.get("tables")
        self._target: Listing | None = None

    def initialOffset(self) -> dict[str, Any]:
        return Progress().as_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._max_bytes:
            return ReadMaxBytes(self._max_bytes)
        return ReadMaxFiles(self._max_files) if self._max_files else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """List the journals once; records added later are read by the next run."""
        self._target = Listing.of(self._path)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end offset of the next batch, which includes at least one range if there is
        any.
        """
        progress = Progress(start)
        budget = Budget(
            max_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
            max_files=limit.max_files if isinstance(limit, ReadMaxFiles) else None,
        )
        listing = self._target or Listing.of(self._path)
        for path in listing.foreign:
            progress.add_foreign(path)
        for file in listing.segments:
            if budget.is_spent:
                break
            read_on(file, progress, budget, self._range_size)
        return progress.as_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges between two offsets; every call returns the same ranges."""
        before, after = Progress(start), Progress(end)
        listing = Listing.of(self._path)
        parts = ranges_between(before, after, listing, self._range_size)
        foreign = [path for path in after.foreign if path not in before.foreign]
        needed, bronze = [listing.directory], None
        if self._tables and (seen := checkpoint_file(self._tables)).exists():
            needed.append(str(seen))
            bronze = batch_directory(self._tables, "bronze", last_planned(Path(self._tables)))
        return _grouped(parts, foreign, self._range_size, needed, bronze)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark adds a partition of its own if the list is empty.
    if isinstance(partition, RangeGroup):
        for path in partition.needed:
            if not Path(path).exists():
                raise PipelineError(
                    f"cannot run on this worker: {path!r} does not exist on it; journals and "
                    "tables must be on storage that all workers access under the same path"
                )
        if partition.bronze is None:
            yield from _records(partition)
        else:
            write_records(partition.bronze, partition.name, _records(partition))
            yield marker_batch(str(partition.bronze), WRITTEN)


def _records(partition: RangeGroup) -> Iterator[pa.RecordBatch]:
    for part in partition.parts:
        yield from read_segment_range(part)
    for path in partition.foreign:
        yield foreign_batch(path)


def _grouped(
    parts: Sequence[SegmentRange],
    foreign: Sequence[str],
    size: int,
    needed: Sequence[str],
    bronze: Path | None = None,
) -> list[InputPartition]:
    """Combine small ranges into groups of up to `size` bytes, because a task costs more than a few
    rows.
    """
    groups: list[InputPartition] = []
    group: list[SegmentRange] = []
    filled = 0
    for part in parts:
        part_size = part.range.end - part.range.block
        if group and filled + part_size > size:
            groups.append(RangeGroup(group, (), needed, bronze, f"{len(groups):06d}"))
            group, filled = [], 0
        group.append(part)
        filled += part_size
    if group or foreign:
        groups.append(RangeGroup(group, foreign, needed, bronze, f"{len(groups):06d}"))
    return groups


def _path(options: Mapping[str, str]) -> str:
    path = options.get("path", "")
    if not path:
        raise PipelineError(
            "cannot read journals: no path was given; pass their directory to load()"
        )
    # Executors of a cluster have other working directories than the driver.
    return os.path.abspath(path.removeprefix("file://"))


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise PipelineError(f"invalid option {name} {text!r}: it must be a whole number above 0")
    return int(text)
