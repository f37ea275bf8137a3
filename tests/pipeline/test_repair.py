"""Tables whose checkpoint or silver was removed or damaged are refused or repaired, never
continued as if they were whole.
"""

from functools import cache
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from pyspark.sql import SparkSession

from parley._pipeline import jobs
from parley._pipeline.checkpoint import check_directory, read_checkpoint, remove_tables
from parley._pipeline.errors import DamagedTablesError
from parley._pipeline.gold.refresh import Outcome
from parley._pipeline.tables import CHECKPOINT
from parley._pipeline.up_to_date import up_to_date_outcome
from tests.node.journal.memory_journal import AUDITOR
from tests.pipeline.test_incremental import talk, write

KEYS = [AUDITOR.private_bytes()]


@cache
def segments() -> dict[str, bytes]:
    """Those of two journals."""
    return {stem: data for journal in talk().journals for stem, data in journal.segments.items()}


class Place:
    """Journals of which more and more is there, and the tables made of them."""

    def __init__(self, root: Path, spark: SparkSession) -> None:
        self.journals, self.tables = root / "journals", root / "tables"
        self.spark = spark

    def write(self, part: float) -> None:
        write(self.journals, segments(), (part, part))

    def run(self, tables: Path | None = None, stages: list[str] | None = None) -> Outcome:
        """As the command does it."""
        place = str(tables or self.tables)
        known = up_to_date_outcome(str(self.journals), place)
        if known is not None:
            return known
        told = [] if stages is None else stages
        return jobs.run(self.spark, str(self.journals), place, KEYS, stage=told.append)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Place:
    """Tables of two batches."""
    place = Place(tmp_path_factory.mktemp("repair"), spark)
    for part in (0.5, 0.8):
        place.write(part)
        place.run()
    return place


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    """A copy of the same tables."""
    copied = Place(tmp_path, made.spark)
    copytree(made.tables, copied.tables)
    copytree(made.journals, copied.journals)
    return copied


@pytest.fixture(scope="module")
def expected(made: Place, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What tables hold that were made of the whole journals at once."""
    whole = Place(tmp_path_factory.mktemp("whole"), made.spark)
    whole.write(1.0)
    return whole.run()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.jvm
class TestOnSpark:
    """With tables that the pipeline made."""

    @pytest.mark.parametrize("is_new", [False, True])
    def test_without_a_checkpoint(self, place: Place, expected: Outcome, is_new: bool) -> None:
        rmtree(place.tables / CHECKPOINT)
        if is_new:
            place.write(1.0)
        with pytest.raises(
            DamagedTablesError, match=r"checkpoint is missing; make them.*--rebuild"
        ):
            place.run()
        place.write(1.0)
        remove_tables(place.tables)
        assert place.run() == expected
        assert place.run() == expected  # without Spark

    @pytest.mark.parametrize("name", ["offsets/1", "metadata"])
    def test_a_checkpoint_that_is_damaged(self, place: Place, name: str) -> None:
        cut(place.tables / CHECKPOINT / name)
        with pytest.raises(DamagedTablesError, match=r"checkpoint is damaged.*--rebuild"):
            place.run()

    def test_a_checkpoint_of_an_earlier_time(self, place: Place) -> None:
        for name in ("offsets/1", "commits/1"):
            (place.tables / CHECKPOINT / name).unlink()
        with pytest.raises(DamagedTablesError, match=r"ends at batch 0, not 1; .*--rebuild"):
            place.run()

    @pytest.mark.parametrize(("name", "part"), [("silver", 1.0), ("stitched/batch=1", 0.8)])
    def test_silver_that_is_missing_is_made_again(
        self, place: Place, expected: Outcome, name: str, part: float
    ) -> None:
        rmtree(place.tables / name)
        stages: list[str] = []
        place.write(part)
        place.run(stages=stages)
        assert "remaking silver from bronze" in stages
        place.write(1.0)
        assert place.run() == expected

    def test_silver_that_is_damaged_is_made_again(self, place: Place, expected: Outcome) -> None:
        rmtree(place.tables / "gold")
        for file in place.tables.glob("silver/batch=0/part=summary/**/[!._]*.parquet"):
            cut(file)
        place.write(1.0)
        stages: list[str] = []
        assert place.run(stages=stages) == expected
        assert "remaking silver from bronze" in stages

    def test_without_bronze_silver_cannot_be_made_again(self, place: Place) -> None:
        for name in ("bronze/batch=0", "silver/batch=0"):
            rmtree(place.tables / name)
        with pytest.raises(DamagedTablesError, match=r"bronze/batch=0' is missing; .*--rebuild"):
            place.run()


def checkpoint(root: Path, planned: int, done: int) -> None:
    """The files of a checkpoint as Spark writes them."""
    place = root / CHECKPOINT
    for name, last in (("offsets", planned), ("commits", done)):
        (place / name).mkdir(parents=True)
        for batch in range(last + 1):
            offset = '{"runs": {}, "foreign": []}' if name == "offsets" else '{"nextBatch": 0}'
            lines = ["v1", "{}", offset] if name == "offsets" else ["v1", offset]
            (place / name / str(batch)).write_text("\n".join(lines))
    (place / "metadata").write_text('{"id":"1"}')


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 3, 2)
    found = check_directory(tmp_path)
    assert found is not None
    assert (found.planned, found.done, found.offset) == (3, 2, {"runs": {}, "foreign": []})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("offsets/3", ""),
        ("offsets/3", "v2\n{}\n{}"),
        ("offsets/3", "v1\n{}\n[]"),
        ("offsets/3", "v1\n{}\n7"),
        ("offsets/3", 'v1\n{}\n{"runs": {"a": 1}}'),
        ("offsets/3", 'v1\n{}\n{"runs": {"a": {"done": [[1]], "at": {}}}}'),
        ("metadata", ""),
        ("metadata", "[]"),
        ("metadata", "{}"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_said(tmp_path: Path, name: str, content: str) -> None:
    checkpoint(tmp_path, 3, 3)
    (tmp_path / CHECKPOINT / name).write_text(content)
    with pytest.raises(DamagedTablesError, match=r"^cannot continue .* is damaged \(.+\); make"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(("planned", "done"), [(3, 1), (2, 3)])
def test_a_checkpoint_without_some_of_its_files_is_said(
    tmp_path: Path, planned: int, done: int
) -> None:
    checkpoint(tmp_path, planned, done)
    with pytest.raises(DamagedTablesError, match=rf"batch {done} is done but .* is {planned}"):
        read_checkpoint(tmp_path)


def test_tables_without_a_checkpoint_are_said(tmp_path: Path) -> None:
    (tmp_path / "bronze" / "batch=0").mkdir(parents=True)
    with pytest.raises(DamagedTablesError, match=r"checkpoint is missing"):
        check_directory(tmp_path)
    remove_tables(tmp_path)
    assert check_directory(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
