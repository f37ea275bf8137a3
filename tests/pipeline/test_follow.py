"""`parley pipeline follow` as a separate process: growing journals, and a signal.

Afterwards, the tables match one audit of the same bytes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from parley._crypto.keyfile import save_auditor_key
from parley._node.journal.audit.rows import EVENT_COLUMNS
from parley._node.journal.segments import LIVE
from parley._pipeline.gold.cluster import read_gold
from parley._pipeline.gold.finding_texts import FAULT
from parley._pipeline.silver import events
from parley._pipeline.tables import Tables
from tests.node.journal.memory_journal import AUDITOR, RecordedPair, audit_of
from tests.pipeline.conftest import JAVA_OPTIONS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.jvm,
    pytest.mark.timeout(180),
]

COMPARED = ("journal", "session", "direction", "place", "type", "status", "payload")


@pytest.fixture(scope="module")
def segments() -> dict[str, bytes]:
    """One segment of each of two nodes that talked."""
    recorded = RecordedPair()
    stream = recorded.pair.a.core.open_stream("topic:prices")
    for number in range(80):
        recorded.pair.a.core.send_data(stream, b"%d" % number)
        recorded.pair.b.core.send(1, 0, 64, 1, b"%d" % number, lbm=False)
        recorded.pump()
        if number % 25 == 12:
            recorded.run(0.05)
            recorded.journals[0].roll()
    recorded.end()
    return {stem: data for journal in recorded.journals for stem, data in journal.segments.items()}


def write(place: Path, segments: Mapping[str, bytes], part: float) -> dict[str, bytes]:
    """As much of each segment, as it is while it is written; returns what there is of them."""
    (place / "journals").mkdir(exist_ok=True)
    cut = {stem: data[: int(len(data) * part)] for stem, data in segments.items()}
    for stem, data in cut.items():
        path = place / "journals" / (stem + LIVE)
        with path.open("ab") as file:
            file.write(data[file.tell() :])
    return cut


def follow(place: Path) -> subprocess.Popen[bytes]:
    """`parley pipeline follow`, with its words in `said` and `errors`."""
    save_auditor_key(place / "auditor.key", AUDITOR)
    places = {"journals": "journals", "tables": "tables", "auditor-key": "auditor.key"}
    options = [f"--{name}={place / file}" for name, file in places.items()]
    options += ["--every=0.1", "--refresh=600", "--master=local[2]", "--memory=1g", "--json"]
    # As in conftest: for a few rows, compiling a plan takes longer than interpreting it.
    settings = ("wholeStage false", "factoryMode NO_CODEGEN")
    defaults = "".join(f"spark.sql.codegen.{setting}\n" for setting in settings)
    (place / "spark-defaults.conf").write_text(defaults)
    quick = {"SPARK_CONF_DIR": str(place), "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    with (place / "said").open("wb") as said, (place / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "parley", "pipeline", "follow", *options],
            env={**os.environ, **quick},
            stdout=said,
            stderr=errors,
            start_new_session=True,
        )


def wait(process: subprocess.Popen[bytes], place: Path, there: Callable[[], bool]) -> None:
    while not there():
        assert process.poll() is None, (place / "errors").read_text()
        time.sleep(0.02)


def kill(process: subprocess.Popen[bytes]) -> None:
    """With its Java, if they are still there."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def rows_of_audits(segments: Mapping[str, bytes]) -> Counter[tuple[Any, ...]]:
    at = [EVENT_COLUMNS.index(name) for name in COMPARED]
    audits = [audit_of({stem: data}, AUDITOR) for stem, data in segments.items()]
    rows = [row for audit in audits for row in audit.take_events()]
    return Counter(tuple(row[index] for index in at) for row in rows)


def rows_of_silver(tables: Tables) -> Counter[tuple[Any, ...]]:
    rows = events(tables).select(*COMPARED).collect()
    return Counter((*row[:-1], None if row[-1] is None else bytes(row[-1])) for row in rows)


def assert_gold(spark: SparkSession, root: str, query: Counter[tuple[Any, ...]]) -> None:
    """Gold was made of all of it, and has no fault."""
    traffic, findings = (read_gold(spark, root, name) for name in ("traffic", "findings"))
    assert traffic is not None
    assert findings is not None
    assert sum(row["events"] for row in traffic.collect()) == query.total()
    assert [row for row in findings.collect() if row["weight"] == FAULT] == []


def test_follow_takes_in_what_is_written_and_ends_well_when_it_is_told_to(
    spark: SparkSession, tmp_path: Path, segments: dict[str, bytes]
) -> None:
    root = tmp_path / "tables"
    write(tmp_path, segments, 0.4)
    process = follow(tmp_path)
    try:
        wait(process, tmp_path, (root / "stitched" / "batch=0" / "_SUCCESS").exists)
        there = write(tmp_path, segments, 0.7)
        wait(process, tmp_path, (root / "stitched" / "batch=1" / "_SUCCESS").exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0, (tmp_path / "errors").read_text()
    finally:
        kill(process)
    said = [json.loads(line)["event"] for line in (tmp_path / "said").read_text().splitlines()]
    assert said == ["following", "refreshed", "done"]
    query = rows_of_audits(there)
    assert rows_of_silver(Tables(spark, str(root))) == query
    assert_gold(spark, str(root), query)
