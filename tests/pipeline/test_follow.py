"""The commands as processes of their own: journals that grow, a signal, a kill in the middle.

One rule: what the tables hold afterwards is what one audit of the same bytes says.
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

from crypto.auditor_file import save_auditor_key
from node.journal.audit.rows import EVENT_COLUMNS
from node.journal.names import CLOSED, LIVE
from pipeline.gold.kinds import FAULT
from pipeline.gold.refresh import read_gold
from pipeline.jobs import run
from pipeline.silver import events
from pipeline.tables import Tables
from tests.node.journal.recorded import AUDITOR, Recorded, audit_of
from tests.pipeline.conftest import JAVA_OPTIONS

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(180)]

COMPARED = ("journal", "session", "direction", "place", "type", "status", "payload")


@pytest.fixture(scope="module")
def segments() -> dict[str, bytes]:
    """One segment of each of two nodes that talked."""
    recorded = Recorded()
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


def write(place: Path, segments: Mapping[str, bytes], part: float = 1) -> dict[str, bytes]:
    """As much of each segment, as it is while it is written; returns what there is of them."""
    (place / "journals").mkdir(exist_ok=True)
    cut = {stem: data[: int(len(data) * part)] for stem, data in segments.items()}
    for stem, data in cut.items():
        path = place / "journals" / (stem + LIVE)
        with path.open("ab") as file:
            file.write(data[file.tell() :])
        if part == 1:
            path.rename(path.with_name(stem + CLOSED))
    return cut


def begin(place: Path, command: str, *options: str) -> subprocess.Popen[bytes]:
    """`parley pipeline`, with its words in `said` and `errors`."""
    save_auditor_key(place / "auditor.key", AUDITOR)
    for name in ("journals", "tables"):
        options += (f"--{name}", str(place / name))
    options += ("--auditor-key", str(place / "auditor.key"), "--master", "local[2]", "--json")
    with (place / "said").open("wb") as said, (place / "errors").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "node.cli", "pipeline", command, "--memory", "1g", *options],
            env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS},
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


def assert_gold(spark: SparkSession, root: str, wanted: Counter[tuple[Any, ...]]) -> None:
    """Gold was made of all of it, and has no fault."""
    traffic, findings = (read_gold(spark, root, name) for name in ("traffic", "findings"))
    assert traffic is not None
    assert findings is not None
    assert sum(row["events"] for row in traffic.collect()) == wanted.total()
    assert [row for row in findings.collect() if row["weight"] == FAULT] == []


def test_follow_takes_in_what_is_written_and_ends_well_when_it_is_told_to(
    spark: SparkSession, tmp_path: Path, segments: dict[str, bytes]
) -> None:
    root = tmp_path / "tables"
    write(tmp_path, segments, 0.4)
    process = begin(tmp_path, "follow", "--every", "0.1", "--refresh", "600")
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
    wanted = rows_of_audits(there)
    assert rows_of_silver(Tables(spark, str(root))) == wanted
    assert_gold(spark, str(root), wanted)


def test_a_run_that_is_killed_in_the_middle_and_run_again_makes_the_same(
    spark: SparkSession, tmp_path: Path, segments: dict[str, bytes]
) -> None:
    root = tmp_path / "tables"
    write(tmp_path, segments)
    process = begin(tmp_path, "run")
    try:
        # Bronze is written then, and silver is not.
        wait(process, tmp_path, (root / "silver" / "batch=0").exists)
    finally:
        kill(process)
    assert not (root / "gold").exists()
    run(spark, str(tmp_path / "journals"), str(root), [AUDITOR.private_bytes()])
    wanted = rows_of_audits(segments)
    assert rows_of_silver(Tables(spark, str(root))) == wanted
    assert_gold(spark, str(root), wanted)
