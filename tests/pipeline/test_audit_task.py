"""One task over rows of bronze, without Spark: its results and its files."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parley._node.journal.audit.rows import EVENT_COLUMNS, STATUS_AT
from parley._node.journal.segments import CLOSED, parse_name, plan_ranges
from parley._pipeline.audit_task import make_audit_task
from parley._pipeline.bronze_rows import NEEDED
from parley._pipeline.errors import PipelineError
from parley._pipeline.schema import EVENT, PENDING, SPAN, WALKED_ARROW
from parley._pipeline.segment_reader import SegmentRange, read_segment_range
from parley._pipeline.tables import local_directory
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of

KEY = AUDITOR.private_bytes()


@pytest.fixture(scope="module")
def segment() -> tuple[str, bytes]:
    rec = RecordedPair()
    for number in range(60):
        rec.pair.a.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        rec.pump()
        if number == 30:
            rec.journals[0].roll()
    rec.run(0.05)
    rec.end()
    return next(iter(rec.journals[0].segments.items()))


def bronze(directory: Path, segment: tuple[str, bytes], target: int) -> list[list[pa.RecordBatch]]:
    """The rows of each range, as a task has them."""
    stem, data = segment
    path = directory / (stem + CLOSED)
    path.write_bytes(data)
    name = parse_name(path)
    assert name is not None
    ranges = plan_ranges(path, len(data), target=target)
    return [
        [
            batch.select(list(NEEDED))
            for batch in read_segment_range(SegmentRange(str(path), name, one))
        ]
        for one in ranges
    ]


def parts_of(batches: list[pa.RecordBatch]) -> Counter[str]:
    return Counter(part for batch in batches for part in batch.column("part").to_pylist())


def test_without_a_key_all_but_the_content_is_told(
    tmp_path: Path, segment: tuple[str, bytes]
) -> None:
    (rows,) = bronze(tmp_path, segment, 2**30)
    given = list(make_audit_task([], payloads=True)(rows))
    assert all(batch.schema == WALKED_ARROW for batch in given)
    events = [row for batch in given for row in batch.to_pylist() if row["part"] == EVENT]
    wanted = audit_of(dict([segment])).take_events()
    assert Counter(row["status"] for row in events) == Counter(row[STATUS_AT] for row in wanted)
    assert {row["type"] for row in events} == {None, "proof"}
    places = EVENT_COLUMNS.index("place")
    assert sorted(row["place"] for row in events) == sorted(row[places] for row in wanted)


def test_what_a_range_cannot_tell_is_left_to_others(
    tmp_path: Path, segment: tuple[str, bytes]
) -> None:
    _, first, second = bronze(tmp_path, segment, 1)
    walk = make_audit_task([KEY], payloads=False)
    parts = parts_of(list(walk(first)))
    assert parts[SPAN] == 2
    assert parts[PENDING] > 0
    assert not any(row for batch in walk(second) for row in batch.column("payload").to_pylist())


def test_events_are_written_by_the_task_and_by_its_twin_alike(
    tmp_path: Path, segment: tuple[str, bytes]
) -> None:
    (rows,) = bronze(tmp_path, segment, 2**30)
    whole = parts_of(list(make_audit_task([KEY], payloads=True)(rows)))
    out = tmp_path / "batch=0"
    walk = make_audit_task([KEY], payloads=True, directory=out)
    for _ in "ab":
        assert parts_of(list(walk(rows))) == whole - Counter({EVENT: whole[EVENT]})
        files = [one for one in out.rglob("*") if one.is_file()]
        assert [pq.read_metadata(file).num_rows for file in files] == [whole[EVENT]]
        assert files[0].name.startswith(segment[0])


def test_a_task_that_fails_leaves_no_file(tmp_path: Path, segment: tuple[str, bytes]) -> None:
    (rows,) = bronze(tmp_path, segment, 2**30)
    (whole,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
    out_of_order = [whole.slice(9), whole.slice(0, 9)]
    with pytest.raises(PipelineError, match="out of order"):
        list(make_audit_task([KEY], payloads=True, directory=tmp_path / "out")(out_of_order))
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("/tables", Path("/tables")),
        ("file:///tables/a%20b", Path("/tables/a%20b")),
        ("file:/tables/a#b?c", Path("/tables/a#b?c")),
        ("s3a://bucket/tables", None),
        ("hdfs://host/tables", None),
        ("tables", Path.cwd() / "tables"),
    ],
)
def test_only_directories_are_written_to(path: str, directory: Path | None) -> None:
    assert local_directory(path) == directory
