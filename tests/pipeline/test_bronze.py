"""Bronze, and silver of it: all is there once, however often the stream is run or killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._pipeline.bronze import ingest, start
from parley._pipeline.errors import IngestError
from parley._pipeline.silver import SilverStep, events
from parley._pipeline.spark import find_java
from parley._pipeline.tables import Tables
from tests.node.journal.memory_journal import audit_of
from tests.pipeline.ingest_program import Count
from tests.pipeline.segments import Made, make_segment

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

# What Spark's scripts call, and its file systems.
PROGRAMS = (
    "bash",
    "basename",
    "cat",
    "chmod",
    "dirname",
    "env",
    "ls",
    "readlink",
    "rm",
    "sh",
    "uname",
)


def rows(tables: Tables) -> Counter[tuple[str, int]]:
    return Counter((row.segment, row.offset) for row in tables.bronze().collect())


def expected(*segments: Made) -> Counter[tuple[str, int]]:
    return Counter((made.name.stem, offset) for made in segments for offset in made.offsets)


def statuses(tables: Tables) -> Counter[tuple[str, int, str]]:
    """Return the places and the verification results of silver's events."""
    return Counter((row.segment, row.offset, row.status) for row in events(tables).collect())


def audited(*segments: Made) -> Counter[tuple[str, int, str]]:
    """Return the same from an audit of all records."""
    audit = audit_of({made.name.stem: made.data for made in segments})
    at = [EVENT_COLUMNS.index(name) for name in ("segment", "offset", "status")]
    return Counter(tuple(row[index] for index in at) for row in audit.take_events())


@dataclass(frozen=True)
class Killed:
    """A run that was killed while its second batch was made."""

    segments: tuple[Made, ...]
    journals: str
    root: str
    said: str


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Of a process that has no Java on its PATH or in JAVA_HOME."""
    place = tmp_path_factory.mktemp("killed")
    segments = tuple(make_segment(number) for number in range(2))
    for made in segments:
        made.write(place / "journals")
    (place / "bin").mkdir()
    for name in PROGRAMS:
        (place / "bin" / name).symlink_to(shutil.which(name) or name)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(place / "bin"), "XDG_CACHE_HOME": str(place / "cache")}
    arguments = [str(place / name) for name in ("journals", "tables")]
    arguments += ["--hang-in", "1", str(place / "mark")]
    with (place / "said").open("wb") as said:
        run = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.ingest_program", *arguments],
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            while not (place / "mark").exists() and run.poll() is None:
                time.sleep(0.05)
        finally:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    return Killed(segments, arguments[0], arguments[1], (place / "said").read_text())


@pytest.mark.jvm
@pytest.mark.timeout(180)
def test_a_machine_without_java_runs_jobs_on_the_packages(
    killed: Killed, spark: SparkSession
) -> None:
    # All that was printed is what the program itself said.
    assert killed.said == f"{find_java({})}\n"
    first = Tables(spark, killed.root).bronze(0)
    assert first.count() == len(killed.segments[0].offsets)


@pytest.mark.jvm
@pytest.mark.timeout(180)
def test_a_run_that_is_killed_and_run_again_leaves_each_record_once(
    killed: Killed, spark: SparkSession
) -> None:
    tables = Tables(spark, killed.root)
    # All of the second batch is written here; of another there may be a part.
    for table, part in (("bronze", "date=*"), ("silver", "part=event/date=*")):
        (left,) = Path(killed.root, table, "batch=1").glob(f"{part}/[!._]*.parquet")
        left.with_name("part-99999-of-a-killed-task.parquet").write_bytes(left.read_bytes())
    ingest(spark, killed.journals, killed.root, steps=[Count(), SilverStep()], max_files=1)
    assert rows(tables) == expected(*killed.segments)
    assert statuses(tables) == audited(*killed.segments)
    schema = StructType().add("segment", "string").add("count", "long").add("date", "date")
    counts = tables.read("counts", schema).collect()
    assert {(row.segment, row["count"], row.batch) for row in counts} == {
        (made.name.stem, len(made.offsets), batch) for batch, made in enumerate(killed.segments)
    }
    # There is no new data, and no duplicates.
    ingest(spark, killed.journals, killed.root, steps=[Count()])
    assert tables.bronze().count() == sum(len(made.offsets) for made in killed.segments)


@pytest.mark.jvm
def test_a_stream_goes_on_and_a_failed_step_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second = make_segment(0), make_segment(1)
    journals, root = tmp_path / "journals", str(tmp_path / "tables")
    first.write(journals)
    tables = Tables(spark, root)

    def fail(tables: Tables, batch: int) -> None:
        raise RuntimeError("a step that fails")

    with pytest.raises(IngestError, match="a step that fails"):
        ingest(spark, str(journals), root, steps=[fail])
    wanted = start(spark, str(journals), root, every=0.1)
    try:
        wanted.processAllAvailable()
        assert rows(tables) == expected(first)
        second.write(journals)
        wanted.processAllAvailable()
    finally:
        wanted.stop()
    assert rows(tables) == expected(first, second)
