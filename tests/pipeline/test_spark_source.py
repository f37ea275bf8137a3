"""The data source: what a stream takes when, without Spark; and Spark's reading, with it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from parley._node.journal.records import BAD_CRC, OK, TORN
from parley._node.journal.segments import LIVE
from parley._pipeline.errors import PipelineError
from parley._pipeline.schema import BRONZE, FOREIGN, UNREADABLE
from parley._pipeline.spark_source import (
    JournalReader,
    JournalSource,
    JournalStreamReader,
    RangeGroup,
)
from parley._pipeline.tables import batch_directory, checkpoint_file
from tests.pipeline.segments import Made, make_segment


class Stream:
    """Drives a stream reader as Spark does, and collects (stem, offset, status) of rows."""

    def __init__(self, path: Path | str, **options: object) -> None:
        self.options = {"path": str(path), **{key: str(one) for key, one in options.items()}}
        self.reader = JournalStreamReader(self.options)
        self.limit = self.reader.getDefaultReadLimit()
        self.offset = self.reader.initialOffset()
        self.before = self.offset

    def batch(self) -> list[tuple[str, int, str]]:
        """What the next batch has."""
        self.before, start = self.offset, self.offset
        self.offset = json.loads(json.dumps(self.reader.latestOffset(start, self.limit)))
        return self.again()

    def again(self) -> list[tuple[str, int, str]]:
        """The last batch once more, by another process."""
        return read(JournalStreamReader(self.options), self.before, self.offset)


def read(reader: JournalStreamReader, *offsets: dict[str, Any]) -> list[tuple[str, int, str]]:
    found: list[dict[str, Any]] = []
    for partition in reader.partitions(*offsets):
        assert isinstance(partition, RangeGroup)
        for batch in reader.read(partition):
            found += [row for row in batch.to_pylist() if not row["lead"]]
    return [(row["segment"], row["offset"], row["status"]) for row in found]


def all_of(*segments: Made) -> list[tuple[str, int, str]]:
    return [(made.name.stem, offset, OK) for made in segments for offset in made.offsets]


def test_a_stream_reads_everything_once(tmp_path: Path) -> None:
    segments = [make_segment(number, node=node) for node in (1, 2) for number in (0, 1)]
    for made in segments[:3]:
        made.write(tmp_path)
    segments.sort(key=lambda made: made.name.stem)
    stream = Stream(tmp_path)
    first = stream.batch()
    assert stream.again() == first
    assert stream.batch() == []
    for made in segments:
        made.write(tmp_path)
    assert sorted(first + stream.batch()) == sorted(all_of(*segments))


@pytest.mark.parametrize(
    ("option", "size", "limit"),
    [("max_bytes", 1500, ReadMaxBytes(1500)), ("max_files", 1, ReadMaxFiles(1))],
)
def test_a_batch_ends_at_its_limit(tmp_path: Path, option: str, size: int, limit: object) -> None:
    segments = [make_segment(number) for number in range(3)]
    for made in segments:
        made.write(tmp_path)
    stream = Stream(tmp_path, range_size=800, **{option: size})
    assert stream.limit == limit
    batches = []
    while batch := stream.batch():
        assert stream.again() == batch
        batches.append(batch)
    assert len(batches) == (3 if option == "max_files" else 5)
    assert [row for batch in batches for row in batch] == all_of(*segments)


def test_a_live_segment_is_followed_and_closed(tmp_path: Path) -> None:
    made = make_segment()
    stream = Stream(tmp_path)
    found: list[list[tuple[str, int, str]]] = []
    path = tmp_path / str(made.name._replace(state=LIVE))
    for size in (0, 5, made.offsets[3] + 7, made.blocks[1] - 1, made.blocks[2] + 30):
        made.write(tmp_path, LIVE, upto=size)
        found.append(stream.batch())
        whole = sum(1 for offset in made.offsets[1:] if offset <= size)
        assert sum(map(len, found)) == whole
        assert stream.again() == found[-1]
    path.unlink()
    made.write(tmp_path)
    assert stream.again() == found[-1]
    found.append(stream.batch())
    assert [row for batch in found for row in batch] == all_of(made)
    assert stream.batch() == []


def test_an_available_now_stream_ends_where_the_journals_were(tmp_path: Path) -> None:
    live, later = make_segment(0), make_segment(1)
    live.write(tmp_path, LIVE, upto=live.blocks[1])
    stream = Stream(tmp_path, max_files=1)
    stream.reader.prepareForTriggerAvailableNow()
    (tmp_path / str(live.name._replace(state=LIVE))).unlink()
    live.write(tmp_path)
    later.write(tmp_path)
    assert [offset for _, offset, _ in stream.batch()] == [
        offset for offset in live.offsets if offset < live.blocks[1]
    ]
    assert stream.batch() == []
    stream.reader = JournalStreamReader(stream.options)
    assert len(stream.batch() + stream.batch()) == len(all_of(live, later)) - len(
        [offset for offset in live.offsets if offset < live.blocks[1]]
    )


def test_what_is_wrong_with_files_are_rows(tmp_path: Path) -> None:
    empty, torn, shrunk, gone, sealed, sound = (make_segment(number) for number in range(6))
    empty.write(tmp_path, upto=0)
    torn.write(tmp_path, upto=torn.offsets[9] + 4)
    live = shrunk.write(tmp_path, LIVE, upto=shrunk.blocks[1])
    lost = gone.write(tmp_path)
    (tmp_path / str(sealed.name)).mkdir()  # root may read everything else
    sound.write(tmp_path)
    (tmp_path / "backup.pjl").write_bytes(b"something else")
    (tmp_path / "notes.txt").write_bytes(b"of no interest")
    stream = Stream(tmp_path)
    start = stream.offset
    end = stream.reader.latestOffset(start, ReadAllAvailable())
    lost.unlink()
    found = read(stream.reader, start, end)
    stems = {made.name.stem: made for made in (empty, torn, shrunk, gone, sealed, sound)}
    wrong = {(stem, status) for stem, _, status in found if status != OK}
    assert wrong == {
        (empty.name.stem, TORN),
        (torn.name.stem, TORN),
        (gone.name.stem, UNREADABLE),
        (sealed.name.stem, UNREADABLE),
        ("backup.pjl", FOREIGN),
    }
    assert [row for row in found if row[0] == sound.name.stem] == all_of(stems[sound.name.stem])
    # Closed with less than was read of it.
    live.unlink()
    shrunk.write(tmp_path, upto=shrunk.offsets[2])
    later = read(stream.reader, end, stream.reader.latestOffset(end, ReadAllAvailable()))
    assert later == [(shrunk.name.stem, shrunk.blocks[1], TORN)]


def test_a_single_read_has_the_torn_end_of_a_live_segment(tmp_path: Path) -> None:
    made = make_segment()
    made.write(tmp_path, LIVE, upto=made.offsets[9] + 20)
    reader = JournalReader({"path": f"file://{tmp_path}"})
    (partition,) = reader.partitions()
    rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    assert [row["status"] for row in rows] == [OK] * 9 + [TORN]


def test_a_pattern_names_several_directories_and_the_closed_segment_counts(tmp_path: Path) -> None:
    made, other = make_segment(0), make_segment(0, node=2)
    made.write(tmp_path / "a", LIVE)
    made.write(tmp_path / "b", upto=made.blocks[1])
    other.write(tmp_path / "c")
    (tmp_path / "d").write_bytes(b"")
    stream = Stream(f"{tmp_path}/*")
    found = stream.batch()
    assert {stem for stem, _, _ in found} == {made.name.stem, other.name.stem}
    # It is truncated before its second block: a row reports the missing end.
    records = made.offsets.index(made.blocks[1])
    assert sum(stem == made.name.stem for stem, _, _ in found) == records + 1
    assert read(JournalStreamReader({"path": f"{tmp_path}/none*"}), {}, {}) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no path was given"),
        ({"path": "x", "max_bytes": "-1"}, "invalid option max_bytes '-1'"),
        ({"path": "x", "range_size": "0"}, "range_size"),
        ({"path": "x", "max_bytes": "1", "max_files": "1"}, "exclude each other"),
    ],
)
def test_wrong_options(options: dict[str, str], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        JournalStreamReader(options)


def test_a_directory_that_is_not_there() -> None:
    with pytest.raises(PipelineError, match="cannot list the journals"):
        JournalReader({"path": "/not/there"}).partitions()


def test_a_relative_path_is_resolved_where_the_ranges_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_segment().write(tmp_path / "journals")
    monkeypatch.chdir(tmp_path)
    reader = JournalReader({"path": "journals"})
    (partition,) = reader.partitions()
    monkeypatch.chdir("/")
    found = [one for batch in reader.read(partition) for one in batch.column("status").to_pylist()]
    assert set(found) == {OK}


ORDER = [("segment", "ascending"), ("offset", "ascending"), ("range_start", "ascending")]


def plan_for_tables(tables: Path, journals: Path) -> JournalStreamReader:
    """The reader of the pipeline's stream, which planned batch 3."""
    offsets = checkpoint_file(tables).parent / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "3").touch()
    checkpoint_file(tables).touch()
    return JournalStreamReader({"path": str(journals), "tables": str(tables), "range_size": "1000"})


def test_tasks_write_bronze_themselves_where_they_can(tmp_path: Path) -> None:
    journals, tables = tmp_path / "journals", tmp_path / "tables"
    for number in range(2):
        make_segment(number).write(journals)
    shutil.copy(Path(__file__), journals / "foreign.pjl")
    reader = plan_for_tables(tables, journals)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    assert len(planned) > 2
    place = batch_directory(tables, "bronze", 3)
    for _ in range(2):  # a task that Spark repeats writes the same files
        for partition in planned:
            (batch,) = reader.read(partition)
            assert batch.column("segment").to_pylist() == [str(place)]
    files = sorted(place.rglob("*"))
    files = [path for path in files if path.is_file()]
    # The foreign file's row has another date than the records that the last task read.
    assert [path.suffix for path in files] == [".parquet"] * (len(planned) + 1)
    written = pa.concat_tables(pq.read_table(path, partitioning=None) for path in files)
    checkpoint_file(tables).unlink()
    rows = [batch for one in reader.partitions(start, end) for batch in reader.read(one)]
    expected = pa.Table.from_batches(rows)
    dates = {f"date={day}" for day in expected.column("date").to_pylist()}
    assert {path.parent.name for path in files} == dates
    assert written.sort_by(ORDER).equals(expected.drop_columns("date").sort_by(ORDER))


def test_a_worker_without_the_journals_or_tables_fails(tmp_path: Path) -> None:
    journals, tables = tmp_path / "journals", tmp_path / "tables"
    make_segment().write(journals)
    checkpoint = checkpoint_file(tables)
    reader = plan_for_tables(tables, journals)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    partition, *_ = reader.partitions(reader.initialOffset(), end)
    assert list(reader.read(partition))
    for missing in (checkpoint, journals):
        moved = missing.rename(tmp_path / "moved")
        with pytest.raises(PipelineError, match=f"cannot run on this worker: '{missing}' does not"):
            list(reader.read(partition))
        moved.rename(missing)
    checkpoint.unlink()  # on storage that this process cannot access
    partition, *_ = reader.partitions(reader.initialOffset(), end)
    assert list(reader.read(partition))


def test_the_source_says_what_it_is() -> None:
    source = JournalSource({"path": "/journals"})
    assert source.name() == "parley_journal"
    assert source.schema() == BRONZE
    assert isinstance(source.streamReader(BRONZE), JournalStreamReader)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_reads_journals(spark: SparkSession, tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    segments = [make_segment(number) for number in range(2)]
    for made in segments:
        made.write(journals)
    shutil.copy(Path(__file__), journals / "foreign.pjl")
    damaged = bytearray(segments[1].data)
    damaged[segments[1].offsets[5] + 20] ^= 1
    (journals / str(segments[1].name)).write_bytes(damaged)
    frame = spark.read.format("parley_journal").option("range_size", 1000).load(str(journals))
    assert frame.schema == BRONZE
    rows = frame.orderBy("segment", "offset").collect()
    assert [(row.segment, row.offset) for row in rows] == [
        *((stem, offset) for stem, offset, _ in all_of(*segments)),
        ("foreign.pjl", 0),
    ]
    assert {row.offset for row in rows if row.status == BAD_CRC} == {segments[1].offsets[5]}
    assert (rows[3].time.isoformat(), rows[3].date.isoformat()) == (
        "2025-11-14T00:00:03",
        "2025-11-14",
    )
